#include "port/network.h"

#include <algorithm>

namespace ph::port {
namespace {

constexpr size_t kHostMax = 253;  // RFC 1035, as text

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

/// Hex digits, colons, an embedded IPv4 address, and a zone ("fe80::1%eth0").
bool is_v6_text(std::string_view text) {
  auto zone = text.find('%');
  if (zone != text.npos) {
    std::string_view name = text.substr(zone + 1);
    if (name.empty() || !std::ranges::all_of(name, is_host_character)) return false;
    text = text.substr(0, zone);
  }
  return std::ranges::count(text, ':') >= 2 && text.find_first_not_of("0123456789abcdefABCDEF:.") == text.npos;
}

std::unexpected<Error> bad(std::string_view text, std::string_view why) {
  return fail(net_errors::bad_address, "\"" + std::string(text.substr(0, kHostMax)) + "\": " + std::string(why));
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text) {
  Endpoint endpoint;
  std::string_view rest;
  if (text.starts_with('[')) {
    auto end = text.find(']');
    if (end == text.npos) return bad(text, "the bracket is not closed");
    std::string_view host = text.substr(1, end - 1);
    if (!is_v6_text(host)) return bad(text, "no IPv6 address between the brackets");
    endpoint.host = host;
    rest = text.substr(end + 1);
    if (!rest.starts_with(':')) return bad(text, "a port is missing, as in \"[::]:3706\"");
  } else {
    auto colon = text.find(':');
    if (colon == text.npos) return bad(text, "a port is missing, as in \"host:3706\"");
    std::string_view host = text.substr(0, colon);
    rest = text.substr(colon);
    if (rest.find(':', 1) != rest.npos) return bad(text, "an IPv6 address stands in brackets, as in \"[::1]:3706\"");
    if (host.size() > kHostMax) return bad(text, "the host name is too long");
    if (host != "*" && !std::ranges::all_of(host, is_host_character))
      return bad(text, "a host has letters, digits, '-', '.' and '_'");
    if (host != "*") endpoint.host = host;
  }
  rest.remove_prefix(1);
  if (rest.empty() || rest.size() > 5) return bad(text, "a port is a number from 0 to 65535");
  uint32_t port = 0;
  for (char c : rest) {
    if (c < '0' || c > '9') return bad(text, "a port is a number from 0 to 65535");
    port = port * 10 + static_cast<uint32_t>(c - '0');
  }
  if (port > 65535) return bad(text, "a port is a number from 0 to 65535");
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

}  // namespace ph::port
