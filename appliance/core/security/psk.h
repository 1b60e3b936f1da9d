// Pre-shared keys of TLS (RFC 4279), and files of them as Mosquitto's psk_file has them: a line "<identity>:<key>" for
// each, the key in hexadecimal; empty lines and lines that begin with '#' say nothing. Pure text; the handshakes that
// use the keys are in io/tls.cc.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::security {

/// What the TLS library of Debian 12 takes; newer ones take 48.
inline constexpr size_t kPskBytesMax = 32;
/// Shorter keys are taken, as other brokers take them, and warned of: they can be guessed from one recorded handshake.
inline constexpr size_t kPskBytesAdvised = 16;
inline constexpr size_t kPskIdentityMax = 128;
inline constexpr size_t kPskMax = 100'000;

namespace errors {
inline constexpr ErrorCode bad_psk{"security.bad_psk"};
}

/// Key by identity.
using PskKeys = std::map<std::string, std::string, std::less<>>;

/// An identity becomes a user name, so it has to be able to be one: see username_valid(). At most kPskIdentityMax
/// bytes.
bool psk_identity_valid(ByteView identity);
/// 1 to kPskBytesMax bytes as hexadecimal digits of either case. Errors say what is wrong and never the key.
Result<std::string> parse_psk_key(ByteView hex);
/// A whole file. Errors name the line: security.bad_psk. An identity that comes twice is an error.
Result<PskKeys> parse_psk_file(ByteView text);

}  // namespace ph::security
