// IP addresses and networks, as clients have them and rules name them. One form for both families: IPv4 is kept as
// ::ffff:a.b.c.d, so that a client which came over a dual-stack socket is matched by the same rule.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace ph::security {

struct Address {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Address&) const = default;

  bool is_v4() const;
  bool is_loopback() const;
  /// "10.0.0.1" or "2001:db8:0:0:0:0:0:1"
  std::string to_string() const;
};

/// "10.0.0.1", "::1", "::ffff:10.0.0.1", also with a zone ("fe80::1%eth0", which is dropped).
std::optional<Address> parse_address(ByteView text);

/// The address of a peer with its port: "10.0.0.1:1234", "[::1]:1234".
std::optional<Address> address_of_peer(ByteView peer);

/// A network, or one address.
struct Network {
  Address base;
  uint8_t prefix = 128;  // bits of the common form: an IPv4 /8 is 104
  bool contains(const Address& address) const;
  bool operator==(const Network&) const = default;
};
/// "10.0.0.0/8", "2001:db8::/32", or an address alone.
std::optional<Network> parse_network(ByteView text);
std::string to_string(const Network& network);

}  // namespace ph::security
