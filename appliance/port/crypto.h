// Crypto and JobPool: what authentication needs of mathematics, and threads to do it on. io/ implements them on mbedTLS
// and real threads; a test on plain functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "port/loop.h"

namespace ph::port {

enum class Hash : uint8_t { sha256, sha384, sha512 };

/// Pure functions of their arguments, callable from any thread.
class Crypto {
 public:
  virtual ~Crypto() = default;
  virtual std::string digest(Hash hash, ByteView data) const = 0;
  virtual std::string hmac(Hash hash, ByteView key, ByteView data) const = 0;
  /// PBKDF2 (RFC 8018) with HMAC of the hash; as many bytes as the hash has. Slow by its purpose: never on a loop.
  virtual std::string pbkdf2(Hash hash, ByteView password, ByteView salt, uint32_t iterations) const = 0;
  /// Whether `signature` of `data` is the public key's (PEM, or SubjectPublicKeyInfo in DER). RSA: PKCS #1 1.5;
  /// elliptic curve: r and s, each as long as the curve's order, as JWT has them (RFC 7518 3.4).
  virtual bool verify_rsa(Hash hash, ByteView key, ByteView data, ByteView signature) const = 0;
  virtual bool verify_ecdsa(Hash hash, ByteView key, ByteView data, ByteView signature) const = 0;
  /// Unpredictable bytes.
  virtual std::string random(size_t count) const = 0;
};

/// Threads for what takes too long for a loop.
class JobPool {
 public:
  virtual ~JobPool() = default;
  /// Runs `job` on some thread, then `done` on `loop`. False: too much waits already, and neither will run.
  virtual bool run(Task job, Loop& loop, Task done) = 0;
};

}  // namespace ph::port
