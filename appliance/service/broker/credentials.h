// Credentials: what of a password is kept, made and checked through port::Crypto. All of it but the SCRAM server's part
// is slow by purpose: never on a loop.
#pragma once

#include <string>
#include <vector>

#include "core/security/jwt.h"
#include "core/security/policy.h"
#include "port/crypto.h"

namespace ph::broker {

/// The digest of a password under a hash's scheme and salt.
std::string password_digest(const port::Crypto& crypto, const security::PasswordHash& like, ByteView password);

/// A user of this password, with a fresh salt. A password that SCRAM has no form for (core/security/saslprep.h) is good
/// for all but SCRAM.
security::User make_user(const port::Crypto& crypto, ByteView password, uint32_t iterations, bool superuser);

/// Whether the proof shows that the client knows the password (RFC 5802 3).
bool scram_proof_right(const port::Crypto& crypto, const security::ScramSecret& secret, ByteView auth_message,
                       ByteView proof);
/// "v=..." with which the server shows that it knows it, too.
std::string scram_server_final(const port::Crypto& crypto, const security::ScramSecret& secret, ByteView auth_message);

/// Whether one of the keys that fit has signed the token. For RSA and elliptic curves some milliseconds a key.
bool token_signed(const port::Crypto& crypto, const security::Jwt& token, const std::vector<security::JwtKey>& keys);

}  // namespace ph::broker
