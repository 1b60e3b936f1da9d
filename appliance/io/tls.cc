#include "io/tls.h"

#include <arpa/inet.h>
#include <mbedtls/error.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "io/tls_session.h"

namespace ph::io {
namespace {

constexpr uint32_t kTicketSeconds = 24 * 60 * 60;

WallTime to_wall(const mbedtls_x509_time& t) {
  std::chrono::sys_days day = std::chrono::year(t.year) / t.mon / t.day;
  return day + std::chrono::hours(t.hour) + std::chrono::minutes(t.min) + std::chrono::seconds(t.sec);
}

std::string verify_failure(uint32_t flags, const std::string& expected_name) {
  if (flags & MBEDTLS_X509_BADCERT_MISSING) return "the peer showed no certificate";
  if (flags & MBEDTLS_X509_BADCERT_EXPIRED) return "the peer's certificate has expired";
  if (flags & MBEDTLS_X509_BADCERT_FUTURE) return "the peer's certificate is not valid yet (check both clocks)";
  if (flags & MBEDTLS_X509_BADCERT_REVOKED) return "the peer's certificate is revoked";
  if (flags & MBEDTLS_X509_BADCRL_EXPIRED) return "the revocation list of the peer's CA has expired";
  if (flags & MBEDTLS_X509_BADCRL_FUTURE) return "the revocation list of the peer's CA is not valid yet";
  if (flags & MBEDTLS_X509_BADCERT_NOT_TRUSTED) return "the peer's certificate is of another CA";
  if (flags & MBEDTLS_X509_BADCERT_CN_MISMATCH) return "the peer's certificate is not for \"" + expected_name + "\"";
  char text[256];
  if (mbedtls_x509_crt_verify_info(text, sizeof text, "", flags) <= 0)
    return "the peer's certificate is not acceptable";
  std::string all = text;
  std::ranges::replace(all, '\n', ' ');
  return "the peer's certificate is not acceptable: " + all;
}

/// RFC 8446 6.2, in the words of verify_failure.
std::string alert_meaning(int description) {
  switch (description) {
    case MBEDTLS_SSL_ALERT_MSG_HANDSHAKE_FAILURE:
      return "no common version, cipher or curve, or a certificate is missing";
    case MBEDTLS_SSL_ALERT_MSG_NO_CERT:
    case 116:  // certificate_required
      return "it wants a certificate of ours";
    case MBEDTLS_SSL_ALERT_MSG_BAD_CERT:
    case MBEDTLS_SSL_ALERT_MSG_UNSUPPORTED_CERT:
    case MBEDTLS_SSL_ALERT_MSG_CERT_UNKNOWN:
      return "our certificate is not acceptable";
    case MBEDTLS_SSL_ALERT_MSG_CERT_REVOKED:
      return "our certificate is revoked";
    case MBEDTLS_SSL_ALERT_MSG_CERT_EXPIRED:
      return "our certificate has expired";
    case MBEDTLS_SSL_ALERT_MSG_UNKNOWN_CA:
      return "our certificate is of another CA";
    case MBEDTLS_SSL_ALERT_MSG_PROTOCOL_VERSION:
      return "no common TLS version";
    default:
      return "alert " + std::to_string(description);
  }
}

std::unexpected<Error> bad_file(const std::string& path, int code) {
  return fail(tls_errors::bad_file, path + ": " + mbed::reason(code));
}

}  // namespace

bool tls13_available() {
  return mbed::kHasTls13;
}

Result<std::shared_ptr<port::TlsContext>> make_tls_server(const TlsOptions& options) {
  if (options.certificate_file.empty() && !options.psk)
    return fail(tls_errors::bad_file, "a TLS server needs a certificate");
  if (options.ca_file.empty() && options.peer != PeerCertificate::none)
    return fail(tls_errors::bad_file, "verifying clients needs a CA");
  return port::TlsContext::load(options);
}

Result<std::shared_ptr<port::TlsContext>> make_tls_client(const TlsOptions& options) {
  if (options.ca_file.empty()) return fail(tls_errors::bad_file, "a TLS client needs a CA to verify its server");
  return port::TlsContext::load(options);
}

// --- TlsMaterial

Result<std::shared_ptr<const TlsMaterial>> TlsMaterial::load(const TlsOptions& options) {
  if (options.tls13_only && !mbed::kHasTls13)
    return fail(tls_errors::unsupported, "TLS 1.3 needs mbedTLS 3.6; this build has " MBEDTLS_VERSION_STRING);
  if (options.certificate_file.empty() != options.key_file.empty())
    return fail(tls_errors::bad_file, "a certificate and its key are given together or not at all");
  auto material = std::make_shared<TlsMaterial>();
  material->psk_ = options.psk;
  PH_TRY(material->read_files(options));
  PH_TRY(material->configure(material->server_.get(), options, true));
  PH_TRY(material->configure(material->client_.get(), options, false));
  return material;
}

Result<> TlsMaterial::read_files(const TlsOptions& options) {
  if (!options.ca_file.empty()) {
    // A positive code counts certificates that could not be read: none may be missing unnoticed.
    int code = mbedtls_x509_crt_parse_file(authorities_.get(), options.ca_file.c_str());
    if (code > 0 && !options.ca_may_have_others)
      return fail(tls_errors::bad_file, options.ca_file + ": a certificate in it is damaged");
    if (code < 0) return bad_file(options.ca_file, code);
    has_ca_ = true;
  }
  if (!options.crl_file.empty()) {
    if (int code = mbedtls_x509_crl_parse_file(revoked_.get(), options.crl_file.c_str()); code != 0)
      return bad_file(options.crl_file, code);
    for (const mbedtls_x509_crl* list = revoked_.get(); list && list->raw.p; list = list->next)
      if (mbedtls_x509_time_is_past(&list->next_update))
        log_warn("revocation_list_expired", {{"file", options.crl_file}, {"effect", "certificates are refused"}});
  }
  if (!options.certificate_file.empty()) {
    int code = mbedtls_x509_crt_parse_file(own_.get(), options.certificate_file.c_str());
    if (code > 0) return fail(tls_errors::bad_file, options.certificate_file + ": a certificate in it is damaged");
    if (code < 0) return bad_file(options.certificate_file, code);
    code = mbed::parse_key_file(key_.get(), options.key_file.c_str(), generator_);
    if (code != 0) return bad_file(options.key_file, code);
    if (mbed::check_pair(own_.get(), key_.get(), generator_) != 0)
      return fail(tls_errors::mismatch, options.key_file + " is not the key of " + options.certificate_file);
    has_certificate_ = true;
    expires_ = to_wall(own_->valid_to);
  }
  mbed::warm_up(has_certificate_ ? key_.get() : nullptr, has_ca_ ? authorities_.get() : nullptr, generator_);
  return {};
}

Result<> TlsMaterial::configure(mbedtls_ssl_config* config, const TlsOptions& options, bool server) {
  int code = mbedtls_ssl_config_defaults(config, server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT,
                                         MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
  if (code != 0) return fail(tls_errors::unsupported, mbed::reason(code));
  mbedtls_ssl_conf_rng(config, mbedtls_ctr_drbg_random, generator_.get());
  mbed::set_versions(config, options.tls13_only);
  mbedtls_x509_crl* revoked = options.crl_file.empty() ? nullptr : revoked_.get();
  if (has_ca_) mbedtls_ssl_conf_ca_chain(config, authorities_.get(), revoked);
  if (has_certificate_) {
    code = mbedtls_ssl_conf_own_cert(config, own_.get(), key_.get());
    if (code != 0) return fail(tls_errors::unsupported, mbed::reason(code));
  }
  int verify = MBEDTLS_SSL_VERIFY_REQUIRED;
  if (server && options.peer == PeerCertificate::optional) verify = MBEDTLS_SSL_VERIFY_OPTIONAL;
  if (server && options.peer == PeerCertificate::none) verify = MBEDTLS_SSL_VERIFY_NONE;
  mbedtls_ssl_conf_authmode(config, verify);
  if (!server) return {};
  if (psk_) {
    mbedtls_ssl_conf_psk_cb(config, &TlsSession::find_psk, const_cast<TlsMaterial*>(this));
    mbed::forbid_tickets(config);
    suites_ = mbed::suites_psk_first();
    mbedtls_ssl_conf_ciphersuites(config, suites_.data());
    return {};
  }
  code = mbedtls_ssl_ticket_setup(tickets_.get(), mbedtls_ctr_drbg_random, generator_.get(), MBEDTLS_CIPHER_AES_256_GCM,
                                  kTicketSeconds);
  if (code != 0) return fail(tls_errors::unsupported, mbed::reason(code));
  mbedtls_ssl_conf_session_tickets_cb(config, mbedtls_ssl_ticket_write, mbedtls_ssl_ticket_parse, tickets_.get());
  if (options.peer != PeerCertificate::none) mbed::forbid_tls13_resumption(config);
  return {};
}

// --- TlsSession

TlsSession::TlsSession(std::shared_ptr<const TlsMaterial> material, int descriptor)
    : material_(std::move(material)), descriptor_(descriptor) {}

Result<std::unique_ptr<TlsSession>> TlsSession::make(std::shared_ptr<const TlsMaterial> material, bool server,
                                                     const std::string& server_name, int descriptor) {
  if (server && !material->has_certificate() && !material->psk())
    return fail(port::net_errors::tls, "a TLS server needs a certificate");
  if (!server && !material->verifies_peers())
    return fail(port::net_errors::tls, "a TLS client needs a CA to verify its server");
  auto session = std::make_unique<TlsSession>(material, descriptor);
  mbedtls_ssl_context* ssl = session->ssl_.get();
  int code = mbedtls_ssl_setup(ssl, material->config(server));
  if (code != 0) return fail(port::net_errors::tls, mbed::reason(code));
  mbed::set_owner(ssl, session.get());
  mbedtls_ssl_set_bio(ssl, session.get(), &TlsSession::send, &TlsSession::receive, nullptr);
  if (!server) PH_TRY(session->expect_server(server_name));
  return session;
}

Result<> TlsSession::expect_server(const std::string& server_name) {
  expected_name_ = server_name;
  char address[sizeof(in6_addr)];
  size_t size = 0;
  if (::inet_pton(AF_INET, server_name.c_str(), address) == 1) size = sizeof(in_addr);
  if (::inet_pton(AF_INET6, server_name.c_str(), address) == 1) size = sizeof(in6_addr);
  // An address is not sent as server name (RFC 6066 3) and is compared by ourselves: 2.28 knows DNS names only.
  int code = mbedtls_ssl_set_hostname(ssl_.get(), size > 0 ? nullptr : server_name.c_str());
  if (code != 0) return fail(port::net_errors::tls, "\"" + server_name + "\": " + mbed::reason(code));
  if (size > 0) {
    expected_address_.assign(address, size);
    mbedtls_ssl_set_verify(ssl_.get(), &TlsSession::check_address, this);
  }
  return {};
}

/// Called in a handshake, when the client has named its identity. What it says is believed once the handshake is over.
int TlsSession::find_psk(void* material, mbedtls_ssl_context* ssl, const unsigned char* identity, size_t size) {
  auto& self = *static_cast<TlsSession*>(mbed::owner(ssl));
  const security::PskKeys& keys = *static_cast<const TlsMaterial*>(material)->psk();
  const auto found = keys.find(ByteView(reinterpret_cast<const char*>(identity), size));
  if (found == keys.end()) return MBEDTLS_ERR_SSL_UNKNOWN_IDENTITY;
  self.psk_identity_ = found->first;
  return mbedtls_ssl_set_hs_psk(ssl, reinterpret_cast<const unsigned char*>(found->second.data()),
                                found->second.size());
}

int TlsSession::check_address(void* session, mbedtls_x509_crt* certificate, int depth, uint32_t* flags) {
  const auto& self = *static_cast<TlsSession*>(session);
  if (depth == 0 && !mbed::names_address(certificate, self.expected_address_))
    *flags |= MBEDTLS_X509_BADCERT_CN_MISMATCH;
  return 0;
}

int TlsSession::send(void* session, const unsigned char* bytes, size_t size) {
  auto& self = *static_cast<TlsSession*>(session);
  while (true) {
    ssize_t sent = ::send(self.descriptor_, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      self.sent_ += static_cast<size_t>(sent);
      return static_cast<int>(sent);
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return MBEDTLS_ERR_SSL_WANT_WRITE;
    self.os_error_ = errno;
    return MBEDTLS_ERR_SSL_INTERNAL_ERROR;
  }
}

int TlsSession::receive(void* session, unsigned char* into, size_t size) {
  auto& self = *static_cast<TlsSession*>(session);
  ByteView from = self.stash_.empty() ? self.input_ : ByteView(self.stash_);
  if (from.empty()) return self.input_ended_ ? 0 : MBEDTLS_ERR_SSL_WANT_READ;
  size_t n = std::min(size, from.size());
  std::memcpy(into, from.data(), n);
  if (self.stash_.empty())
    self.input_.remove_prefix(n);
  else
    self.stash_.erase(0, n);
  return static_cast<int>(n);
}

void TlsSession::stash() {
  stash_.append(input_);
  input_ = {};
}

TlsSession::Outcome TlsSession::outcome(int code) {
  if (code == MBEDTLS_ERR_SSL_WANT_READ) return Outcome::want_read;
  if (code == MBEDTLS_ERR_SSL_WANT_WRITE) return Outcome::want_write;
  if (code >= 0) return Outcome::ok;
  failure_ = describe(code);
  if (code == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY || code == MBEDTLS_ERR_SSL_CONN_EOF) return Outcome::closed;
  return Outcome::failed;
}

std::string TlsSession::describe(int code) const {
  if (os_error_ != 0) return std::strerror(os_error_);
  if (code == MBEDTLS_ERR_SSL_CONN_EOF) return "the peer closed without saying why";
  if (code == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY) return "the peer closed";
  if (code == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE)
    return "the peer refused: " + alert_meaning(mbed::alert_received(ssl_.get()));
  if (code == MBEDTLS_ERR_SSL_UNKNOWN_IDENTITY) return "the client's pre-shared key identity is not known";
  if (code == MBEDTLS_ERR_SSL_INVALID_MAC && !psk_identity_.empty())
    return "the client has another pre-shared key for \"" + psk_identity_ + "\"";
  if (code == MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE) return verify_failure(MBEDTLS_X509_BADCERT_MISSING, {});
  uint32_t flags = mbedtls_ssl_get_verify_result(ssl_.get());
  if (flags != 0 && flags != 0xFFFFFFFF) return verify_failure(flags, expected_name_);
  return mbed::reason(code);
}

TlsSession::Outcome TlsSession::handshake() {
  int code = 0;
  do {
    code = mbedtls_ssl_handshake(ssl_.get());
  } while (mbed::is_retry(code));
  if (code == 0 && mbedtls_ssl_get_peer_cert(ssl_.get())) {
    // Under `optional` the library lets a bad certificate pass; we do not.
    uint32_t flags = mbedtls_ssl_get_verify_result(ssl_.get());
    if (flags != 0) {
      failure_ = verify_failure(flags, expected_name_);
      (void)mbedtls_ssl_send_alert_message(ssl_.get(), MBEDTLS_SSL_ALERT_LEVEL_FATAL, MBEDTLS_SSL_ALERT_MSG_BAD_CERT);
      return Outcome::failed;
    }
  }
  return outcome(code);
}

TlsSession::Outcome TlsSession::read(char* into, size_t size, size_t& got) {
  int code = 0;
  do {
    code = mbedtls_ssl_read(ssl_.get(), reinterpret_cast<unsigned char*>(into), size);
  } while (mbed::is_retry(code));
  got = code > 0 ? static_cast<size_t>(code) : 0;
  return outcome(code == 0 ? MBEDTLS_ERR_SSL_CONN_EOF : code);
}

TlsSession::Outcome TlsSession::write(ByteView bytes, size_t& taken) {
  int code = mbedtls_ssl_write(ssl_.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                               std::min(bytes.size(), kTlsRecordMax));
  taken = code > 0 ? static_cast<size_t>(code) : 0;
  return outcome(code);
}

void TlsSession::close_notify() {
  (void)mbedtls_ssl_close_notify(ssl_.get());
}

std::string TlsSession::peer_name(port::CertificateField field) const {
  const mbedtls_x509_crt* certificate = mbedtls_ssl_get_peer_cert(ssl_.get());
  if (!certificate) return {};
  switch (field) {
    case port::CertificateField::common_name:
      return mbed::common_name(certificate);
    case port::CertificateField::email:
      return mbed::alternative_name(certificate, mbed::kNameEmail);
    case port::CertificateField::dns:
      return mbed::alternative_name(certificate, mbed::kNameDns);
    case port::CertificateField::uri:
      return mbed::alternative_name(certificate, mbed::kNameUri);
  }
  return {};
}

}  // namespace ph::io

// --- TlsContext

namespace ph::port {

TlsContext::TlsContext(io::TlsOptions options) : options_(std::move(options)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::load(io::TlsOptions options) {
  auto context = std::make_shared<TlsContext>(std::move(options));
  PH_TRY(context->reload());
  return context;
}

Result<> TlsContext::reload() {
  io::TlsOptions now = options();
  PH_ASSIGN(auto fresh, read(now));
  use(std::move(now), std::move(fresh));
  return {};
}

Result<std::shared_ptr<const io::TlsMaterial>> TlsContext::read(const io::TlsOptions& options) {
  return io::TlsMaterial::load(options);
}

void TlsContext::use(io::TlsOptions options, std::shared_ptr<const io::TlsMaterial> material) {
  std::lock_guard lock(mutex_);
  options_ = std::move(options);
  material_ = std::move(material);
}

io::TlsOptions TlsContext::options() const {
  std::lock_guard lock(mutex_);
  return options_;
}

std::optional<WallTime> TlsContext::expires() const {
  return material()->expires();
}

std::shared_ptr<const io::TlsMaterial> TlsContext::material() const {
  std::lock_guard lock(mutex_);
  return material_;
}

}  // namespace ph::port
