// SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's part of the conversation: reading and writing its messages. The
// digests are computed by who calls, through port::Crypto. No channel binding ("n" and "y"; "p=" is refused).
//
//   client first  n,,n=<user>,r=<nonce>
//   server first  r=<nonce><server's nonce>,s=<salt>,i=<iterations>
//   client final  c=biws,r=<both nonces>,p=<proof>
//   server final  v=<signature>
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::security {

inline constexpr size_t kScramMessageMax = 4096;
inline constexpr size_t kScramDigest = 32;
inline constexpr std::string_view kScramMethod = "SCRAM-SHA-256";

namespace errors {
inline constexpr ErrorCode bad_scram{"security.bad_scram"};
}

/// What the server keeps of a password; the password cannot be had from it. As text, like PostgreSQL's:
/// "SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>", base64.
struct ScramSecret {
  uint32_t iterations = 4096;
  std::string salt;
  std::string stored_key;
  std::string server_key;
  std::string to_string() const;
  bool operator==(const ScramSecret&) const = default;
};
std::optional<ScramSecret> parse_scram_secret(ByteView text);

struct ScramFirst {
  std::string gs2_header;  // "n,," or "y,,", with an authorization identity inside if there was one
  std::string bare;        // the rest, as sent: part of what is signed
  std::string username;
  std::string nonce;
};
Result<ScramFirst> parse_scram_first(ByteView message);
std::string scram_server_first(const ScramFirst& first, ByteView server_nonce, ByteView salt, uint32_t iterations);

struct ScramFinal {
  std::string without_proof;
  std::string nonce;
  std::string proof;  // 32 bytes
};
/// Checks the channel binding against the first message's header.
Result<ScramFinal> parse_scram_final(ByteView message, const ScramFirst& first);

/// What both sides sign.
std::string scram_auth_message(const ScramFirst& first, ByteView server_first, const ScramFinal& last);

}  // namespace ph::security
