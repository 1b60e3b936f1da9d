#include "io/crypto.h"

#include <mbedtls/md.h>
#include <mbedtls/pk.h>
#include <mbedtls/pkcs5.h>

#include "base/result.h"
#include "io/mbed.h"
#include "io/random_seed.h"
#include "io/tls.h"

namespace ph::io {
namespace {

mbedtls_md_type_t type_of(port::Hash hash) {
  switch (hash) {
    case port::Hash::sha256:
      return MBEDTLS_MD_SHA256;
    case port::Hash::sha384:
      return MBEDTLS_MD_SHA384;
    case port::Hash::sha512:
      return MBEDTLS_MD_SHA512;
  }
  return MBEDTLS_MD_SHA512;
}

const mbedtls_md_info_t* info_of(port::Hash hash) {
  const mbedtls_md_info_t* info = mbedtls_md_info_from_type(type_of(hash));
  PH_ASSERT(info, "the TLS library has the hashes of SHA-2");
  return info;
}

const unsigned char* raw(ByteView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* raw(std::string& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

/// A DER INTEGER of unsigned big-endian bytes.
std::string der_integer(ByteView number) {
  while (number.size() > 1 && number[0] == 0) number.remove_prefix(1);
  std::string body(number);
  if (body.empty() || static_cast<unsigned char>(body[0]) >= 0x80) body.insert(0, 1, '\0');
  return std::string("\x02", 1) + static_cast<char>(body.size()) + body;
}

bool parse_key(mbed::Key& key, ByteView text) {
  // PEM is told by its end, which the library wants to see.
  std::string bytes(text);
  const bool pem = bytes.find("-----BEGIN") != bytes.npos;
  return mbedtls_pk_parse_public_key(key.get(), raw(bytes), bytes.size() + (pem ? 1 : 0)) == 0;
}

bool verify(mbedtls_pk_type_t kind, port::Hash hash, ByteView key, const std::string& sum, ByteView signature) {
  mbed::Key parsed;
  if (!parse_key(parsed, key) || !mbedtls_pk_can_do(parsed.get(), kind)) return false;
  return mbedtls_pk_verify(parsed.get(), type_of(hash), raw(ByteView(sum)), sum.size(), raw(signature),
                           signature.size()) == 0;
}

}  // namespace

MbedCrypto::MbedCrypto() {
  mbed::initialize();
}

std::string MbedCrypto::digest(port::Hash hash, ByteView data) const {
  const mbedtls_md_info_t* info = info_of(hash);
  std::string out(mbedtls_md_get_size(info), '\0');
  PH_ASSERT(mbedtls_md(info, raw(data), data.size(), raw(out)) == 0, "hashing does not fail");
  return out;
}

std::string MbedCrypto::hmac(port::Hash hash, ByteView key, ByteView data) const {
  const mbedtls_md_info_t* info = info_of(hash);
  std::string out(mbedtls_md_get_size(info), '\0');
  PH_ASSERT(mbedtls_md_hmac(info, raw(key), key.size(), raw(data), data.size(), raw(out)) == 0,
            "hashing does not fail");
  return out;
}

std::string MbedCrypto::pbkdf2(port::Hash hash, ByteView password, ByteView salt, uint32_t iterations) const {
  std::string out(mbedtls_md_get_size(info_of(hash)), '\0');
#if MBEDTLS_VERSION_NUMBER >= 0x03030000
  const int failed =
      mbedtls_pkcs5_pbkdf2_hmac_ext(type_of(hash), raw(password), password.size(), raw(salt), salt.size(), iterations,
                                    static_cast<uint32_t>(out.size()), raw(out));
#else
  mbed::Owned<mbedtls_md_context_t, mbedtls_md_init, mbedtls_md_free> context;
  int failed = mbedtls_md_setup(context.get(), info_of(hash), 1);
  if (failed == 0)
    failed = mbedtls_pkcs5_pbkdf2_hmac(context.get(), raw(password), password.size(), raw(salt), salt.size(),
                                       iterations, static_cast<uint32_t>(out.size()), raw(out));
#endif
  PH_ASSERT(failed == 0, "hashing does not fail");
  return out;
}

bool MbedCrypto::verify_rsa(port::Hash hash, ByteView key, ByteView data, ByteView signature) const {
  return verify(MBEDTLS_PK_RSA, hash, key, digest(hash, data), signature);
}

bool MbedCrypto::verify_ecdsa(port::Hash hash, ByteView key, ByteView data, ByteView signature) const {
  constexpr size_t kPartMax = 48;  // P-384; lengths then fit into one byte
  if (signature.empty() || signature.size() % 2 != 0 || signature.size() / 2 > kPartMax) return false;
  const size_t half = signature.size() / 2;
  const std::string parts = der_integer(signature.substr(0, half)) + der_integer(signature.substr(half));
  const std::string der = std::string("\x30", 1) + static_cast<char>(parts.size()) + parts;
  return verify(MBEDTLS_PK_ECDSA, hash, key, digest(hash, data), der);
}

Result<security::JwtKey::Kind> public_key_kind(ByteView pem, const std::string& path) {
  mbed::Key key;
  if (!parse_key(key, pem)) return fail(tls_errors::bad_file, path + ": no public key in PEM");
  if (mbedtls_pk_can_do(key.get(), MBEDTLS_PK_RSA)) return security::JwtKey::Kind::rsa;
  if (mbedtls_pk_can_do(key.get(), MBEDTLS_PK_ECDSA) && mbedtls_pk_get_bitlen(key.get()) == 256)
    return security::JwtKey::Kind::p256;
  return fail(tls_errors::bad_file, path + ": neither an RSA nor a P-256 key");
}

std::string MbedCrypto::random(size_t count) const {
  return random_bytes(count);
}

}  // namespace ph::io
