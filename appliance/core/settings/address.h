// Addresses as the configuration writes them: "host:port", "10.0.0.1:3706", "[::1]:3706"; to listen also "*:1883" and
// ":1883" for every address of the machine.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace ph::settings {

struct HostPort {
  std::string host;  // without brackets; empty: every address
  uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
  /// 127.0.0.0/8, ::1 and the name localhost.
  bool is_loopback() const;
  /// Whether the system lets nobody listen at both, as far as the texts tell: what a name stands for is not known here.
  bool excludes(const HostPort& other) const;
};

/// On failure: what is wrong, for a person. Port 0 (the system chooses) is for listening only.
std::expected<HostPort, std::string> parse_host_port(std::string_view text, bool to_listen);

}  // namespace ph::settings
