// Password hashes as Mosquitto's password files have them, and those files. Pure text and bytes: the hashing itself is
// done through port::Crypto, off the event loops.
//
//   $7$<iterations>$<salt>$<digest>   PBKDF2-HMAC-SHA512 of the password, 64 bytes; what is written here
//   $6$<salt>$<digest>                SHA-512 of password and salt, 64 bytes; read only
// Salt and digest are base64. A password file has a line "<user>:<hash>" for each user; empty lines and lines that
// begin with '#' say nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::security {

inline constexpr uint32_t kIterationsDefault = 100'000;
/// A stored count is work that a CONNECT can ask for: beyond this it is refused when it is read.
inline constexpr uint32_t kIterationsMax = 10'000'000;
inline constexpr size_t kSaltBytes = 16;
inline constexpr size_t kSaltMax = 128;
inline constexpr size_t kDigestBytes = 64;
inline constexpr size_t kUsernameMax = 1024;
inline constexpr size_t kUsersMax = 100'000;

namespace errors {
inline constexpr ErrorCode bad_hash{"security.bad_hash"};
inline constexpr ErrorCode bad_file{"security.bad_password_file"};
}  // namespace errors

struct PasswordHash {
  enum class Scheme : uint8_t { sha512, pbkdf2_sha512 };
  Scheme scheme = Scheme::pbkdf2_sha512;
  uint32_t iterations = kIterationsDefault;
  std::string salt;
  std::string digest;

  std::string to_string() const;
  bool operator==(const PasswordHash&) const = default;
};

/// Errors: security.bad_hash, with what is wrong and never with the text itself.
Result<PasswordHash> parse_password_hash(ByteView text);

/// Whether something said in a certificate can be a user's name or a client id: 1 to kUsernameMax bytes of valid UTF-8
/// without control characters.
bool name_valid(ByteView name);
/// Whether a name can be a user's: 1 to kUsernameMax bytes of valid UTF-8 without control characters and ':'.
bool username_valid(ByteView name);

using PasswordEntries = std::vector<std::pair<std::string, PasswordHash>>;
/// A whole password file. Errors name the line: security.bad_password_file. A name that comes twice is an error.
Result<PasswordEntries> parse_password_file(ByteView text);

/// Compares without telling by its time where the difference is.
bool equal_secrets(ByteView a, ByteView b);

}  // namespace ph::security
