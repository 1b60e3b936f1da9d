#include "core/security/psk.h"

#include "core/security/password.h"

namespace ph::security {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool psk_identity_valid(ByteView identity) {
  return identity.size() <= kPskIdentityMax && username_valid(identity);
}

Result<std::string> parse_psk_key(ByteView hex) {
  if (hex.empty()) return fail(errors::bad_psk, "the key is empty");
  if (hex.size() % 2 != 0) return fail(errors::bad_psk, "the key has an odd number of hexadecimal digits");
  if (hex.size() / 2 > kPskBytesMax)
    return fail(errors::bad_psk, "the key is longer than " + std::to_string(kPskBytesMax) + " bytes");
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit_of(hex[i]), low = digit_of(hex[i + 1]);
    if (high < 0 || low < 0) return fail(errors::bad_psk, "the key is not hexadecimal");
    out += static_cast<char>(high << 4 | low);
  }
  return out;
}

Result<PskKeys> parse_psk_file(ByteView text) {
  PskKeys out;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    ByteView row = text.substr(0, end);
    text = end == text.npos ? ByteView() : text.substr(end + 1);
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty() || row[0] == '#') continue;
    const std::string where = "line " + std::to_string(line) + ": ";
    const size_t colon = row.find(':');
    if (colon == row.npos) return fail(errors::bad_psk, where + "no ':' between identity and key");
    const ByteView identity = row.substr(0, colon);
    if (!psk_identity_valid(identity)) return fail(errors::bad_psk, where + "no valid identity");
    auto key = parse_psk_key(row.substr(colon + 1));
    if (!key) return fail(errors::bad_psk, where + key.error().detail);
    if (out.contains(identity)) return fail(errors::bad_psk, where + "the identity is there already");
    if (out.size() >= kPskMax) return fail(errors::bad_psk, where + "more than " + std::to_string(kPskMax) + " keys");
    out.emplace(std::string(identity), std::move(*key));
  }
  return out;
}

}  // namespace ph::security
