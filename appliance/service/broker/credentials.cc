#include "service/broker/credentials.h"

#include "core/security/base64.h"
#include "core/security/saslprep.h"

namespace ph::broker {
namespace {

using port::Hash;

constexpr uint32_t kScramIterations = 4096;  // RFC 7677 4; clients compute it at each login

std::string exclusive_or(ByteView a, ByteView b) {
  std::string out(a);
  for (size_t i = 0; i < out.size() && i < b.size(); ++i) out[i] = static_cast<char>(out[i] ^ b[i]);
  return out;
}

}  // namespace

std::string password_digest(const port::Crypto& crypto, const security::PasswordHash& like, ByteView password) {
  if (like.scheme == security::PasswordHash::Scheme::sha512)
    return crypto.digest(Hash::sha512, std::string(password) + like.salt);
  return crypto.pbkdf2(Hash::sha512, password, like.salt, like.iterations);
}

security::User make_user(const port::Crypto& crypto, ByteView password, uint32_t iterations, bool superuser) {
  security::User user;
  user.superuser = superuser;
  user.hash.iterations = iterations;
  user.hash.salt = crypto.random(security::kSaltBytes);
  user.hash.digest = password_digest(crypto, user.hash, password);
  const auto prepared = security::saslprep(password);
  if (!prepared) return user;
  security::ScramSecret& scram = user.scram.emplace();
  scram.iterations = kScramIterations;
  scram.salt = crypto.random(security::kSaltBytes);
  const std::string salted = crypto.pbkdf2(Hash::sha256, *prepared, scram.salt, scram.iterations);
  scram.stored_key = crypto.digest(Hash::sha256, crypto.hmac(Hash::sha256, salted, "Client Key"));
  scram.server_key = crypto.hmac(Hash::sha256, salted, "Server Key");
  return user;
}

bool scram_proof_right(const port::Crypto& crypto, const security::ScramSecret& secret, ByteView auth_message,
                       ByteView proof) {
  const std::string signature = crypto.hmac(Hash::sha256, secret.stored_key, auth_message);
  return security::equal_secrets(crypto.digest(Hash::sha256, exclusive_or(proof, signature)), secret.stored_key);
}

bool token_signed(const port::Crypto& crypto, const security::Jwt& token, const std::vector<security::JwtKey>& keys) {
  const Hash hash = token.algorithm == security::JwtAlgorithm::hs384   ? Hash::sha384
                    : token.algorithm == security::JwtAlgorithm::hs512 ? Hash::sha512
                                                                       : Hash::sha256;
  for (const security::JwtKey& key : keys) {
    if (!key.fits(token)) continue;
    switch (key.kind) {
      case security::JwtKey::Kind::secret:
        if (security::equal_secrets(crypto.hmac(hash, key.key, token.signed_text), token.signature)) return true;
        break;
      case security::JwtKey::Kind::rsa:
        if (crypto.verify_rsa(hash, key.key, token.signed_text, token.signature)) return true;
        break;
      case security::JwtKey::Kind::p256:
        if (crypto.verify_ecdsa(hash, key.key, token.signed_text, token.signature)) return true;
        break;
    }
  }
  return false;
}

std::string scram_server_final(const port::Crypto& crypto, const security::ScramSecret& secret, ByteView auth_message) {
  return "v=" + security::base64_encode(crypto.hmac(Hash::sha256, secret.server_key, auth_message));
}

}  // namespace ph::broker
