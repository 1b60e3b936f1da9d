// MbedCrypto: port::Crypto on mbedTLS, 2.28 and 3.6. Without state: one object serves every thread.
#pragma once

#include "core/security/jwt.h"
#include "port/crypto.h"

namespace ph::io {

class MbedCrypto final : public port::Crypto {
 public:
  MbedCrypto();
  std::string digest(port::Hash hash, ByteView data) const override;
  std::string hmac(port::Hash hash, ByteView key, ByteView data) const override;
  std::string pbkdf2(port::Hash hash, ByteView password, ByteView salt, uint32_t iterations) const override;
  bool verify_rsa(port::Hash hash, ByteView key, ByteView data, ByteView signature) const override;
  bool verify_ecdsa(port::Hash hash, ByteView key, ByteView data, ByteView signature) const override;
  std::string random(size_t count) const override;
};

/// What a PEM file's public key is good for. Errors: tls.bad_file, with the path as given.
Result<security::JwtKey::Kind> public_key_kind(ByteView pem, const std::string& path);

}  // namespace ph::io
