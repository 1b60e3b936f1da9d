#include "core/security/base64.h"

#include <array>
#include <cstdint>

namespace ph::security {
namespace {

constexpr ByteView kStandard = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr ByteView kUrl = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr uint8_t kNone = 0xFF;

consteval std::array<uint8_t, 256> inverse(ByteView alphabet) {
  std::array<uint8_t, 256> out{};
  out.fill(kNone);
  for (size_t i = 0; i < alphabet.size(); ++i) out[static_cast<unsigned char>(alphabet[i])] = static_cast<uint8_t>(i);
  return out;
}
constexpr auto kFromStandard = inverse(kStandard);
constexpr auto kFromUrl = inverse(kUrl);

std::string encode(ByteView bytes, ByteView alphabet) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  uint32_t bits = 0;
  unsigned count = 0;
  for (unsigned char c : bytes) {
    bits = bits << 8 | c;
    for (count += 8; count >= 6; count -= 6) out.push_back(alphabet[bits >> (count - 6) & 0x3F]);
  }
  if (count) out.push_back(alphabet[bits << (6 - count) & 0x3F]);
  return out;
}

/// `text` without padding.
std::optional<std::string> decode(ByteView text, const std::array<uint8_t, 256>& from) {
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  unsigned count = 0;
  for (unsigned char c : text) {
    if (from[c] == kNone) return std::nullopt;
    bits = bits << 6 | from[c];
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  if (bits & ((1U << count) - 1)) return std::nullopt;  // bits that say nothing must be zero
  return out;
}

}  // namespace

std::string base64_encode(ByteView bytes) {
  std::string out = encode(bytes, kStandard);
  out.resize((out.size() + 3) / 4 * 4, '=');
  return out;
}

std::optional<std::string> base64_decode(ByteView text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  return decode(text, kFromStandard);
}

std::string base64url_encode(ByteView bytes) {
  return encode(bytes, kUrl);
}

std::optional<std::string> base64url_decode(ByteView text) {
  return decode(text, kFromUrl);
}

}  // namespace ph::security
