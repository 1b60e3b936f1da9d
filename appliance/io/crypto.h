// MbedCrypto: port::Crypto on mbedTLS, 2.28 and 3.6. Without state: one object serves every thread.
#pragma once

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

}  // namespace ph::io
