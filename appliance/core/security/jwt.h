// JSON Web Tokens (RFC 7519, compact JWS of RFC 7515) as a password, and the keys that they are signed with. Reading
// only; signatures are checked through port::Crypto by who calls.
//
// HS256, HS384 and HS512 go with a secret, RS256 with an RSA key, ES256 with a P-256 key; a key is never used for
// another family than its own, and "none" is no algorithm. Claims that count: exp, nbf, the user's name, and `acl`:
//   {"pub": ["t/#"], "sub": [...], "all": [...]}                                    topics that are allowed
//   [{"permission": "deny", "action": "publish", "topic": "t/#" or "topics": [...]}, ...]   rules, in order
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/security/acl.h"

namespace ph::security {

inline constexpr size_t kJwtMax = 65'535;  // what a CONNECT's password can have
inline constexpr size_t kJwtKeysMax = 1'000;
inline constexpr size_t kJwtRulesMax = 1'000;

namespace errors {
inline constexpr ErrorCode bad_jwt{"security.bad_jwt"};
inline constexpr ErrorCode bad_jwks{"security.bad_jwks"};
}  // namespace errors

enum class JwtAlgorithm : uint8_t { hs256, hs384, hs512, rs256, es256 };

struct JwtClaimNames {
  std::string username = "username";  // without it: "sub"
  std::string acl = "acl";
};

struct Jwt {
  JwtAlgorithm algorithm = JwtAlgorithm::hs256;
  std::optional<std::string> key_id;
  std::string signed_text;
  std::string signature;
  std::optional<int64_t> expires, not_before;  // seconds since the epoch
  std::optional<std::string> username;
  std::vector<Rule> rules;
};
/// Whether a password is meant as a token: three parts, the first a JSON object that names an algorithm.
bool looks_like_jwt(ByteView text);
Result<Jwt> parse_jwt(ByteView text, const JwtClaimNames& names = {});

struct JwtKey {
  enum class Kind : uint8_t { secret, rsa, p256 };
  Kind kind = Kind::secret;
  std::optional<std::string> id;
  std::string key;  // the secret, or SubjectPublicKeyInfo (DER or PEM)
  bool fits(const Jwt& token) const;
};
/// A JWK set (RFC 7517 5). Keys of kinds that are not known here, or not for signatures, are left out.
Result<std::vector<JwtKey>> parse_jwks(ByteView text);

}  // namespace ph::security
