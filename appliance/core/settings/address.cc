#include "core/settings/address.h"

#include <algorithm>
#include <charconv>

#include "core/security/address.h"

namespace ph::settings {
namespace {

bool host_char(char c, bool six) {
  const bool digit = c >= '0' && c <= '9';
  if (six) return digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.' || c == '%';
  return digit || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_';
}

/// A name of RFC 1123 (with '_', which many networks have), or an IPv4 address: what looks like one has to be one.
bool host_valid(std::string_view host) {
  bool last_numeric = false;
  for (std::string_view rest = host; !rest.empty();) {
    const size_t dot = rest.find('.');
    const std::string_view label = rest.substr(0, dot);
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
    last_numeric = std::ranges::all_of(label, [](char c) { return c >= '0' && c <= '9'; });
    rest = dot == rest.npos ? std::string_view() : rest.substr(dot + 1);
  }
  return !last_numeric || security::parse_address(host);
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

bool HostPort::excludes(const HostPort& other) const {
  if (port != other.port) return false;
  if (host == other.host) return true;
  const auto mine = security::parse_address(host), theirs = security::parse_address(other.host);
  if (mine && theirs && *mine == *theirs) return true;
  // IPv6's "every address" takes IPv4 along (io/listener.cc).
  auto every = [](const HostPort& at, const std::optional<security::Address>& address) {
    return at.host.empty() || (address && *address == security::Address{});
  };
  const auto any_v4 = security::parse_address("0.0.0.0");
  auto every_v4 = [&](const std::optional<security::Address>& address) { return address && address == any_v4; };
  if (every(*this, mine) || every(other, theirs)) return true;
  return (every_v4(mine) && theirs && theirs->is_v4()) || (every_v4(theirs) && mine && mine->is_v4());
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
  if (six ? !security::parse_address(out.host) : !host_valid(out.host))
    return std::unexpected(shown + ": " + (six ? "that is no IPv6 address" : "no host can be called that"));
  const auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (port.empty() || status != std::errc() || end != port.data() + port.size())
    return std::unexpected(shown + ": the port must be 1 .. 65535");
  if (out.port == 0 && !to_listen) return std::unexpected(shown + ": port 0 cannot be connected to");
  return out;
}

}  // namespace ph::settings
