// The header by which a balancer says whom it forwards: PROXY protocol versions 1 and 2 (haproxy's proxy-protocol.txt).
// It is the first thing on a connection, before TLS. Pure; a socket of a listener with proxy_protocol calls it.
//
// Version 1, text, at most 107 bytes:
//   "PROXY TCP4 203.0.113.7 192.0.2.1 51000 1883\r\n"   also TCP6; "PROXY UNKNOWN ...\r\n": no addresses
// Version 2, big-endian:
//   0   12  0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A
//   12   1  version 2 << 4 | command: 0 LOCAL (the balancer itself), 1 PROXY
//   13   1  family << 4 | transport: 0x11 TCP over IPv4, 0x21 TCP over IPv6; others carry no address for us
//   14   2  length of what follows
//   16      source address, destination address, source port, destination port: 12 bytes (IPv4) or 36 (IPv6)
//   ...     TLVs: type 1, length 2, value; type 3 is a CRC-32C of the whole header, its own value taken as zero
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace ph::proxy {

inline constexpr size_t kTextMax = 107;          // version 1, with CR LF
inline constexpr size_t kHeaderMax = 16 + 4096;  // version 2 may announce 64 KiB; longer than this is refused

struct Header {
  size_t size = 0;  // bytes of the header; the connection's own bytes follow
  /// "203.0.113.7:51000", "[2001:db8::7]:51000"; nothing if the balancer speaks for itself or does not say.
  std::optional<std::string> source;
};

/// The header at the front of `bytes`; nullopt when it may still become one. The error says what is wrong, for people.
std::expected<std::optional<Header>, std::string_view> decode(ByteView bytes);

}  // namespace ph::proxy
