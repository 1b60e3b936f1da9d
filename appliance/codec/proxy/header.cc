#include "codec/proxy/header.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace ph::proxy {
namespace {

constexpr ByteView kSignature("\r\n\r\n\0\r\nQUIT\n", 12);
constexpr ByteView kText = "PROXY ";
constexpr size_t kFixed = 16;
constexpr uint8_t kCrcType = 3;

using Decoded = std::expected<std::optional<Header>, std::string_view>;
using Groups = std::array<uint16_t, 8>;

uint8_t byte_at(ByteView bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}
uint16_t be16(ByteView bytes, size_t at) {
  return static_cast<uint16_t>(byte_at(bytes, at) << 8 | byte_at(bytes, at + 1));
}

std::string with_port(const std::string& host, uint16_t port) {
  return host + ":" + std::to_string(port);
}

std::string v4_text(ByteView four) {
  std::string out;
  for (size_t i = 0; i < 4; ++i) out += (i ? "." : "") + std::to_string(byte_at(four, i));
  return out;
}

/// RFC 5952: lower case, no leading zeros, the longest run of two or more zero groups as "::".
std::string v6_text(const Groups& groups) {
  size_t best = 8, best_size = 1;
  for (size_t i = 0; i < 8; ++i) {
    size_t n = 0;
    while (i + n < 8 && groups[i + n] == 0) ++n;
    if (n > best_size) best = i, best_size = n;
  }
  std::string out = "[";
  for (size_t i = 0; i < 8; ++i) {
    if (i == best) {
      out += "::";
      i += best_size - 1;
      continue;
    }
    if (i > 0 && out.back() != ':') out += ':';
    char text[4];
    out.append(text, std::to_chars(text, text + 4, groups[i], 16).ptr);
  }
  return out + "]";
}

/// "::ffff:a.b.c.d" is an IPv4 client that reached a socket of both families: it is written as what it is.
std::string v6_or_mapped(const Groups& groups) {
  const bool mapped = std::all_of(groups.begin(), groups.begin() + 5, [](uint16_t g) { return g == 0; });
  if (!mapped || groups[5] != 0xFFFF) return v6_text(groups);
  const std::array<char, 4> four = {static_cast<char>(groups[6] >> 8), static_cast<char>(groups[6]),
                                    static_cast<char>(groups[7] >> 8), static_cast<char>(groups[7])};
  return v4_text({four.data(), 4});
}

/// A decimal number without sign or leading zero.
std::optional<uint16_t> number(std::string_view text, uint16_t max) {
  uint16_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failed != std::errc() || end != text.data() + text.size() || value > max) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return value;
}

std::optional<std::string> read_v4(std::string_view text) {
  std::string four;
  for (int i = 0; i < 4; ++i) {
    const size_t dot = i < 3 ? text.find('.') : text.size();
    if (dot == text.npos) return std::nullopt;
    const auto part = number(text.substr(0, dot), 255);
    if (!part) return std::nullopt;
    four += static_cast<char>(*part);
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  return v4_text(four);
}

/// Groups of `text`, which has no "::"; an IPv4 tail counts as two. False on anything else or more than eight.
bool read_groups(std::string_view text, std::array<uint16_t, 8>& into, size_t& count) {
  while (!text.empty()) {
    const size_t colon = text.find(':');
    const std::string_view part = text.substr(0, colon);
    if (part.find('.') != part.npos) {
      const auto four = read_v4(part);
      if (!four || colon != text.npos || count > 6) return false;
      std::string_view rest = *four;
      for (int i = 0; i < 2; ++i) {
        uint16_t pair = 0;
        for (int j = 0; j < 2; ++j) {
          const size_t dot = rest.find('.');
          pair = static_cast<uint16_t>(pair << 8 | number(rest.substr(0, dot), 255).value_or(0));
          rest.remove_prefix(dot == rest.npos ? rest.size() : dot + 1);
        }
        into[count++] = pair;
      }
      return true;
    }
    uint16_t group = 0;
    const auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), group, 16);
    if (part.empty() || part.size() > 4 || failed != std::errc() || end != part.data() + part.size()) return false;
    if (count == 8) return false;
    into[count++] = group;
    if (colon == text.npos) return true;
    text.remove_prefix(colon + 1);
    if (text.empty()) return false;  // ends with a single colon
  }
  return true;
}

std::optional<std::string> read_v6(std::string_view text) {
  Groups head{}, tail{};
  size_t heads = 0, tails = 0;
  const size_t gap = text.find("::");
  if (!read_groups(text.substr(0, gap), head, heads)) return std::nullopt;
  if (gap == text.npos) return heads == 8 ? std::optional(v6_or_mapped(head)) : std::nullopt;
  if (!read_groups(text.substr(gap + 2), tail, tails) || heads + tails > 7) return std::nullopt;
  std::copy_n(tail.begin(), tails, head.begin() + static_cast<ptrdiff_t>(8 - tails));
  return v6_or_mapped(head);
}

Decoded decode_text(ByteView bytes) {
  const size_t end = bytes.substr(0, kTextMax).find("\r\n");
  if (end == bytes.npos) {
    if (bytes.size() >= kTextMax) return std::unexpected("a line that is too long");
    return std::nullopt;
  }
  Header header{end + 2, std::nullopt};
  std::string_view line = bytes.substr(kText.size(), end - kText.size());
  if (line == "UNKNOWN" || line.starts_with("UNKNOWN ")) return header;
  std::array<std::string_view, 5> words;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t space = line.find(' ');
    if ((space == line.npos) != (i == 4)) return std::unexpected("a line without its five words");
    words[i] = line.substr(0, space);
    line.remove_prefix(space == line.npos ? line.size() : space + 1);
  }
  const bool six = words[0] == "TCP6";
  if (!six && words[0] != "TCP4") return std::unexpected("an unknown transport");
  const auto source = six ? read_v6(words[1]) : read_v4(words[1]);
  const auto destination = six ? read_v6(words[2]) : read_v4(words[2]);
  const auto port = number(words[3], UINT16_MAX);
  if (!source || !destination) return std::unexpected("an address that is none");
  if (!port || !number(words[4], UINT16_MAX)) return std::unexpected("a port that is none");
  header.source = with_port(*source, *port);
  return header;
}

/// Walks the TLVs; checks the checksum if there is one. The fault, or nothing.
std::string_view check_tlvs(ByteView header, size_t at) {
  while (at < header.size()) {
    if (header.size() - at < 3) return "a cut TLV";
    const size_t size = be16(header, at + 1);
    const uint8_t type = byte_at(header, at);
    at += 3;
    if (header.size() - at < size) return "a TLV that is longer than the header";
    if (type == kCrcType) {
      if (size != 4) return "a checksum that is none";
      const uint32_t told = static_cast<uint32_t>(be16(header, at)) << 16 | be16(header, at + 2);
      const uint32_t real =
          crc32c(header.substr(at + 4), crc32c(ByteView("\0\0\0\0", 4), crc32c(header.substr(0, at))));
      if (told != real) return "a wrong checksum";
    }
    at += size;
  }
  return {};
}

Decoded decode_binary(ByteView bytes) {
  if (bytes.size() >= 13 && byte_at(bytes, 12) >> 4 != 2) return std::unexpected("an unknown version");
  if (bytes.size() >= 13 && (byte_at(bytes, 12) & 0x0F) > 1) return std::unexpected("an unknown command");
  if (bytes.size() < kFixed) return std::nullopt;
  const size_t size = kFixed + be16(bytes, 14);
  if (size > kHeaderMax) return std::unexpected("a header that is too long");
  const bool local = (byte_at(bytes, 12) & 0x0F) == 0;
  const uint8_t family = byte_at(bytes, 13);
  const size_t addresses = family >> 4 == 1 ? 12 : family >> 4 == 2 ? 36 : 0;
  if (!local && size < kFixed + addresses) return std::unexpected("a header without room for its addresses");
  if (bytes.size() < size) return std::nullopt;
  const ByteView header = bytes.substr(0, size);
  Header out{size, std::nullopt};
  if (local) return out;  // what follows is to be skipped
  if (family == 0x11) out.source = with_port(v4_text(header.substr(kFixed, 4)), be16(header, kFixed + 8));
  if (family == 0x21) {
    Groups groups{};
    for (size_t i = 0; i < 8; ++i) groups[i] = be16(header, kFixed + 2 * i);
    out.source = with_port(v6_or_mapped(groups), be16(header, kFixed + 32));
  }
  // Without a family, or with one whose addresses we do not know the size of, what follows cannot be read.
  if (addresses > 0)
    if (auto fault = check_tlvs(header, kFixed + addresses); !fault.empty()) return std::unexpected(fault);
  return out;
}

}  // namespace

Decoded decode(ByteView bytes) {
  const size_t same = std::min(bytes.size(), kSignature.size());
  if (bytes.substr(0, same) == kSignature.substr(0, same))
    return same < kSignature.size() ? Decoded(std::nullopt) : decode_binary(bytes);
  const size_t begin = std::min(bytes.size(), kText.size());
  if (bytes.substr(0, begin) != kText.substr(0, begin)) return std::unexpected("no PROXY header");
  return begin < kText.size() ? Decoded(std::nullopt) : decode_text(bytes);
}

}  // namespace ph::proxy
