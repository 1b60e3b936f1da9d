#include "io/mbed.h"

#include <mbedtls/bignum.h>
#include <mbedtls/error.h>
#include <mbedtls/sha256.h>
#if MBEDTLS_VERSION_MAJOR >= 3
#include <psa/crypto.h>
#endif

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#include "base/result.h"

namespace ph::io::mbed {

Generator::Generator() {
  initialize();
  int failed = mbedtls_ctr_drbg_seed(drbg_.get(), mbedtls_entropy_func, entropy_.get(), nullptr, 0);
  PH_ASSERT(failed == 0, "no entropy: keys would be guessable");
}

void initialize() {
#if MBEDTLS_VERSION_MAJOR >= 3
  static std::once_flag once;
  std::call_once(once, [] { PH_ASSERT(psa_crypto_init() == PSA_SUCCESS, "the TLS library does not start"); });
#endif
}

std::string reason(int code) {
  char text[160];
  mbedtls_strerror(code, text, sizeof text);
  return text;
}

int parse_key_file(mbedtls_pk_context* key, const char* path, [[maybe_unused]] Generator& generator) {
#if MBEDTLS_VERSION_MAJOR >= 3
  return mbedtls_pk_parse_keyfile(key, path, nullptr, mbedtls_ctr_drbg_random, generator.get());
#else
  return mbedtls_pk_parse_keyfile(key, path, nullptr);
#endif
}

int check_pair(mbedtls_x509_crt* certificate, mbedtls_pk_context* key, [[maybe_unused]] Generator& generator) {
#if MBEDTLS_VERSION_MAJOR >= 3
  return mbedtls_pk_check_pair(&certificate->pk, key, mbedtls_ctr_drbg_random, generator.get());
#else
  return mbedtls_pk_check_pair(&certificate->pk, key);
#endif
}

void warm_up([[maybe_unused]] mbedtls_pk_context* private_key, [[maybe_unused]] mbedtls_x509_crt* authorities,
             [[maybe_unused]] Generator& generator) {
#if MBEDTLS_VERSION_MAJOR < 3
  std::array<unsigned char, 32> hash{1};
  if (private_key) {
    std::array<unsigned char, MBEDTLS_PK_SIGNATURE_MAX_SIZE> signature{};
    size_t size = 0;
    (void)mbedtls_pk_sign(private_key, MBEDTLS_MD_SHA256, hash.data(), hash.size(), signature.data(), &size,
                          mbedtls_ctr_drbg_random, generator.get());
  }
  // SEQUENCE { INTEGER 1, INTEGER 1 }: no valid signature, but one that is computed to the end.
  constexpr std::array<unsigned char, 8> kOneOne = {0x30, 6, 2, 1, 1, 2, 1, 1};
  for (mbedtls_x509_crt* ca = authorities; ca && ca->raw.p; ca = ca->next)
    (void)mbedtls_pk_verify(&ca->pk, MBEDTLS_MD_SHA256, hash.data(), hash.size(), kOneOne.data(), kOneOne.size());
#endif
}

void set_versions(mbedtls_ssl_config* config, [[maybe_unused]] bool only_13) {
#if MBEDTLS_VERSION_MAJOR >= 3
  mbedtls_ssl_conf_min_tls_version(config, only_13 ? MBEDTLS_SSL_VERSION_TLS1_3 : MBEDTLS_SSL_VERSION_TLS1_2);
#else
  mbedtls_ssl_conf_min_version(config, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
#endif
}

void forbid_tls13_resumption([[maybe_unused]] mbedtls_ssl_config* config) {
#if MBEDTLS_VERSION_MAJOR >= 3 && defined(MBEDTLS_SSL_PROTO_TLS1_3)
  mbedtls_ssl_conf_new_session_tickets(config, 0);
  mbedtls_ssl_conf_tls13_key_exchange_modes(config, MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_EPHEMERAL);
#endif
}

void forbid_tickets([[maybe_unused]] mbedtls_ssl_config* config) {
  // Without a callback that writes them there are none. 1.3 makes its own from the same callback.
#if MBEDTLS_VERSION_MAJOR >= 3 && defined(MBEDTLS_SSL_PROTO_TLS1_3) && defined(MBEDTLS_SSL_SESSION_TICKETS)
  mbedtls_ssl_conf_new_session_tickets(config, 0);
#endif
}

std::vector<int> suites_psk_first() {
  std::vector<int> out;
  for (const int* suite = mbedtls_ssl_list_ciphersuites(); *suite != 0; ++suite) out.push_back(*suite);
  auto comes_first = [](int suite) {
    const std::string_view name = mbedtls_ssl_get_ciphersuite_name(suite);
    return name.starts_with("TLS1-3-") || name.find("-PSK-") != name.npos;
  };
  std::ranges::stable_partition(out, comes_first);
  out.push_back(0);
  return out;
}

void set_owner([[maybe_unused]] mbedtls_ssl_context* ssl, [[maybe_unused]] void* owner) {
#if MBEDTLS_VERSION_MAJOR >= 3
  mbedtls_ssl_set_user_data_p(ssl, owner);
#endif
}

void* owner(mbedtls_ssl_context* ssl) {
#if MBEDTLS_VERSION_MAJOR >= 3
  return mbedtls_ssl_get_user_data_p(ssl);
#else
  return ssl->p_bio;  // the same: nothing else is there to remember it
#endif
}

bool is_retry(int code) {
#if defined(MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET)
  if (code == MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET) return true;
#endif
  return code == MBEDTLS_ERR_SSL_CRYPTO_IN_PROGRESS;
}

int alert_received(const mbedtls_ssl_context* ssl) {
#if MBEDTLS_VERSION_MAJOR >= 3
  return ssl->MBEDTLS_PRIVATE(in_msg)[1];
#else
  return ssl->in_msg[1];
#endif
}

std::string common_name(const mbedtls_x509_crt* certificate) {
  constexpr ByteView kCommonName("\x55\x04\x03", 3);  // OID 2.5.4.3
  auto view = [](const mbedtls_x509_buf& b) { return ByteView(reinterpret_cast<const char*>(b.p), b.len); };
  for (const mbedtls_x509_name* part = &certificate->subject; part; part = part->next)
    if (view(part->oid) == kCommonName) return std::string(view(part->val));
  return {};
}

namespace {

/// Whether `wanted` is true of any alternative name of a kind.
template <class Wanted>
bool any_name(const mbedtls_x509_crt* certificate, int kind, Wanted wanted) {
  for (const mbedtls_x509_sequence* name = &certificate->subject_alt_names; name; name = name->next)
    if (name->buf.p && (name->buf.tag & 0x1F) == kind &&
        wanted(ByteView(reinterpret_cast<const char*>(name->buf.p), name->buf.len)))
      return true;
  return false;
}

}  // namespace

bool names_address(const mbedtls_x509_crt* certificate, ByteView address) {
  return any_name(certificate, kNameAddress, [&](ByteView name) { return name == address; });
}

std::string alternative_name(const mbedtls_x509_crt* certificate, int kind) {
  std::string out;
  any_name(certificate, kind, [&](ByteView name) {
    out = name;
    return true;
  });
  return out;
}

int set_serial(mbedtls_x509write_cert* certificate, ByteView serial) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(serial.data());
#if MBEDTLS_VERSION_NUMBER >= 0x03040000
  return mbedtls_x509write_crt_set_serial_raw(certificate, const_cast<unsigned char*>(bytes), serial.size());
#else
  Owned<mbedtls_mpi, mbedtls_mpi_init, mbedtls_mpi_free> number;
  if (int failed = mbedtls_mpi_read_binary(number.get(), bytes, serial.size())) return failed;
  return mbedtls_x509write_crt_set_serial(certificate, number.get());
#endif
}

}  // namespace ph::io::mbed
