#include "core/settings/address.h"

#include <charconv>

namespace ph::settings {
namespace {

bool host_char(char c, bool six) {
  const bool digit = c >= '0' && c <= '9';
  if (six) return digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.' || c == '%';
  return digit || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_';
}

/// "127.x.y.z" and nothing that merely begins so, like the name 127.example.com.
bool is_loopback_v4(std::string_view host) {
  if (!host.starts_with("127.")) return false;
  int dots = 0, digits = 0;
  for (char c : host) {
    if (c == '.') {
      if (digits == 0) return false;
      ++dots;
      digits = 0;
    } else if (c >= '0' && c <= '9') {
      if (++digits > 3) return false;
    } else {
      return false;
    }
  }
  return dots == 3 && digits > 0;
}

}  // namespace

bool HostPort::is_loopback() const {
  return host == "localhost" || host == "::1" || is_loopback_v4(host);
}

std::expected<HostPort, std::string> parse_host_port(std::string_view text, bool to_listen) {
  const std::string shown = "\"" + std::string(text.substr(0, 80)) + "\"";
  HostPort out;
  std::string_view port;
  const bool six = text.starts_with('[');
  if (six) {
    const size_t close = text.find("]:");
    if (close == text.npos) return std::unexpected(shown + " is not [address]:port");
    out.host = text.substr(1, close - 1);
    port = text.substr(close + 2);
    if (out.host.find(':') == out.host.npos) return std::unexpected(shown + ": brackets are for IPv6 addresses");
  } else {
    const size_t colon = text.rfind(':');
    if (colon == text.npos) return std::unexpected(shown + " has no port; write host:port");
    out.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (out.host.find(':') != out.host.npos)
      return std::unexpected(shown + ": write an IPv6 address in brackets, [::1]:port");
    if (out.host == "*") out.host.clear();
    if (out.host.empty() && !to_listen) return std::unexpected(shown + " has no host");
  }
  if (out.host.size() > 253) return std::unexpected(shown + ": the host is too long");
  for (char c : out.host)
    if (!host_char(c, six)) return std::unexpected(shown + " is not a host and a port");
  const auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (port.empty() || status != std::errc() || end != port.data() + port.size())
    return std::unexpected(shown + ": the port must be 1 .. 65535");
  if (out.port == 0 && !to_listen) return std::unexpected(shown + ": port 0 cannot be connected to");
  return out;
}

}  // namespace ph::settings
