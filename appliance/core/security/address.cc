#include "core/security/address.h"

#include <algorithm>

namespace ph::security {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

std::optional<unsigned> parse_decimal(ByteView text, unsigned max) {
  if (text.empty() || text.size() > 3 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  unsigned value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  return value <= max ? std::optional(value) : std::nullopt;
}

bool parse_v4(ByteView text, uint8_t* out) {
  for (int i = 0; i < 4; ++i) {
    const size_t dot = i < 3 ? text.find('.') : text.size();
    if (dot == text.npos) return false;
    const auto part = parse_decimal(text.substr(0, dot), 255);
    if (!part) return false;
    out[i] = static_cast<uint8_t>(*part);
    text.remove_prefix(i < 3 ? dot + 1 : dot);
  }
  return true;
}

/// Groups of a part of an IPv6 address without "::", an IPv4 address as last one. Appends at most 16 bytes.
bool parse_groups(ByteView text, std::string& out) {
  while (!text.empty()) {
    const size_t colon = text.find(':');
    const ByteView group = text.substr(0, colon);
    if (colon == text.npos && group.find('.') != group.npos) {
      uint8_t raw[4];
      if (!parse_v4(group, raw)) return false;
      out.append(reinterpret_cast<const char*>(raw), 4);
      return out.size() <= 16;
    }
    if (group.empty() || group.size() > 4) return false;
    unsigned value = 0;
    for (char c : group) {
      const int digit = hex_digit(c);
      if (digit < 0) return false;
      value = value << 4 | static_cast<unsigned>(digit);
    }
    out.push_back(static_cast<char>(value >> 8));
    out.push_back(static_cast<char>(value & 0xFF));
    if (out.size() > 16) return false;
    if (colon == text.npos) return true;
    text.remove_prefix(colon + 1);
    if (text.empty()) return false;  // ends in ':'
  }
  return true;
}

}  // namespace

bool Address::is_v4() const {
  return std::equal(kMapped.begin(), kMapped.end(), bytes.begin());
}

bool Address::is_loopback() const {
  if (is_v4()) return bytes[12] == 127;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t b) { return b == 0; }) && bytes[15] == 1;
}

std::string Address::to_string() const {
  std::string out;
  if (is_v4()) {
    for (size_t i = 12; i < 16; ++i) out += (i > 12 ? "." : "") + std::to_string(bytes[i]);
    return out;
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  for (size_t i = 0; i < 16; i += 2) {
    if (i) out += ':';
    bool any = false;
    for (int shift = 12; shift >= 0; shift -= 4) {
      const unsigned digit = (static_cast<unsigned>(bytes[i]) << 8 | bytes[i + 1]) >> shift & 0xF;
      any = any || digit || shift == 0;
      if (any) out += kDigits[digit];
    }
  }
  return out;
}

std::optional<Address> parse_address(ByteView text) {
  Address out;
  if (text.find(':') == text.npos) {
    std::copy(kMapped.begin(), kMapped.end(), out.bytes.begin());
    return parse_v4(text, out.bytes.data() + 12) ? std::optional(out) : std::nullopt;
  }
  text = text.substr(0, text.find('%'));
  std::string head, tail;
  const size_t gap = text.find("::");
  if (!parse_groups(text.substr(0, gap), head)) return std::nullopt;
  if (gap != text.npos && !parse_groups(text.substr(gap + 2), tail)) return std::nullopt;
  const size_t have = head.size() + tail.size();
  if (gap == text.npos ? have != 16 : have > 14) return std::nullopt;
  std::copy(head.begin(), head.end(), out.bytes.begin());
  std::copy(tail.begin(), tail.end(), out.bytes.end() - static_cast<std::ptrdiff_t>(tail.size()));
  return out;
}

std::optional<Address> address_of_peer(ByteView peer) {
  if (peer.starts_with('[')) {
    const size_t end = peer.find(']');
    return end == peer.npos ? std::nullopt : parse_address(peer.substr(1, end - 1));
  }
  return parse_address(peer.substr(0, peer.rfind(':')));
}

bool Network::contains(const Address& address) const {
  const size_t whole = prefix / 8;
  if (!std::equal(base.bytes.begin(), base.bytes.begin() + static_cast<std::ptrdiff_t>(whole), address.bytes.begin()))
    return false;
  const unsigned rest = prefix % 8;
  return rest == 0 || (base.bytes[whole] ^ address.bytes[whole]) >> (8 - rest) == 0;
}

std::optional<Network> parse_network(ByteView text) {
  const size_t slash = text.find('/');
  const auto base = parse_address(text.substr(0, slash));
  if (!base) return std::nullopt;
  Network out{*base, 128};
  if (slash == text.npos) return out;
  const bool v4 = text.substr(0, slash).find(':') == text.npos;
  const auto bits = parse_decimal(text.substr(slash + 1), v4 ? 32 : 128);
  if (!bits) return std::nullopt;
  out.prefix = static_cast<uint8_t>(*bits + (v4 ? 96 : 0));
  return out;
}

std::string to_string(const Network& network) {
  const bool v4 = network.base.is_v4() && network.prefix >= 96;
  return network.base.to_string() + "/" + std::to_string(v4 ? network.prefix - 96 : network.prefix);
}

}  // namespace ph::security
