// mbedTLS 2.28 and 3.6: what differs between them, and owners for its objects. Internal to this room; the only place
// with version tests.
#pragma once

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_ticket.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crl.h>
#include <mbedtls/x509_crt.h>

#include <string>
#include <vector>

#include "base/bytes.h"

#if MBEDTLS_VERSION_NUMBER < 0x021C0000
#error "mbedTLS 2.28 or newer is needed"
#endif
#if !defined(MBEDTLS_THREADING_C)
#error "mbedTLS must be built with threads: workers share keys and the random generator"
#endif

namespace ph::io::mbed {

/// An mbedTLS object with init and free.
template <class T, void (*Init)(T*), void (*Free)(T*)>
class Owned {
 public:
  Owned() { Init(&object_); }
  ~Owned() { Free(&object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* get() { return &object_; }
  const T* get() const { return &object_; }
  T* operator->() { return &object_; }
  const T* operator->() const { return &object_; }

 private:
  T object_;
};
using Certificates = Owned<mbedtls_x509_crt, mbedtls_x509_crt_init, mbedtls_x509_crt_free>;
using RevocationLists = Owned<mbedtls_x509_crl, mbedtls_x509_crl_init, mbedtls_x509_crl_free>;
using Key = Owned<mbedtls_pk_context, mbedtls_pk_init, mbedtls_pk_free>;
using Config = Owned<mbedtls_ssl_config, mbedtls_ssl_config_init, mbedtls_ssl_config_free>;
using Session = Owned<mbedtls_ssl_context, mbedtls_ssl_init, mbedtls_ssl_free>;
using Tickets = Owned<mbedtls_ssl_ticket_context, mbedtls_ssl_ticket_init, mbedtls_ssl_ticket_free>;

/// The random generator for keys and handshakes. Shared by threads: mbedTLS locks it.
class Generator {
 public:
  Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  mbedtls_ctr_drbg_context* get() { return drbg_.get(); }

 private:
  Owned<mbedtls_entropy_context, mbedtls_entropy_init, mbedtls_entropy_free> entropy_;
  Owned<mbedtls_ctr_drbg_context, mbedtls_ctr_drbg_init, mbedtls_ctr_drbg_free> drbg_;
};

/// Once a process, before anything else of mbedTLS; repeated calls cost nothing.
void initialize();
/// "X509 - Certificate verification failed, e.g. CRL, CA or signature check failed"
std::string reason(int code);

/// Reads a PEM or DER key without password. 0 or an mbedTLS code.
int parse_key_file(mbedtls_pk_context* key, const char* path, Generator& generator);
/// 0 when `key` is the private key of `certificate`.
int check_pair(mbedtls_x509_crt* certificate, mbedtls_pk_context* key, Generator& generator);
/// Makes objects that threads will share read-only in use: the first use of an elliptic key fills tables in it.
void warm_up(mbedtls_pk_context* private_key, mbedtls_x509_crt* authorities, Generator& generator);

inline constexpr bool kHasTls13 =
#if defined(MBEDTLS_SSL_PROTO_TLS1_3)
    true;
#else
    false;
#endif
/// 1.2 up to the newest there is; `only_13` needs kHasTls13.
void set_versions(mbedtls_ssl_config* config, bool only_13);
/// No resumption under 1.3: its tickets do not carry the client's certificate, so that a resumed session has no name.
void forbid_tls13_resumption(mbedtls_ssl_config* config);
/// No resumption at all: a ticket does not carry whose pre-shared key it was.
void forbid_tickets(mbedtls_ssl_config* config);
/// All cipher suites in the library's order, but those with pre-shared keys before those with certificates: a client
/// that offers them has a key, and would otherwise be nobody. Ends with 0.
std::vector<int> suites_psk_first();
/// The object that a session belongs to, for callbacks.
void set_owner(mbedtls_ssl_context* ssl, void* owner);
void* owner(mbedtls_ssl_context* ssl);
/// A return value of a read or handshake that means "call again".
bool is_retry(int code);
/// The description byte of the fatal alert last received.
int alert_received(const mbedtls_ssl_context* ssl);

/// Common name of the subject; empty without one.
std::string common_name(const mbedtls_x509_crt* certificate);
/// Kinds of GeneralName, RFC 5280 4.2.1.6.
inline constexpr int kNameEmail = 1, kNameDns = 2, kNameUri = 6, kNameAddress = 7;
/// The first subject alternative name of a kind; empty without one.
std::string alternative_name(const mbedtls_x509_crt* certificate, int kind);
/// Whether a subject alternative name of type iPAddress has these 4 or 16 bytes.
bool names_address(const mbedtls_x509_crt* certificate, ByteView address);

/// Sets a positive serial number of at most 20 bytes, big-endian. 0 or an mbedTLS code.
int set_serial(mbedtls_x509write_cert* certificate, ByteView serial);

}  // namespace ph::io::mbed
