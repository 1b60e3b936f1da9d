// TlsContext: who we are and whom we trust, for any number of connections and listeners, of any thread. From PEM files;
// reload() reads them again, and connections made from then on use the new ones.
//
// TLS 1.2, and 1.3 where mbedTLS 3.6 has it. A connection with a context is encrypted and the peer verified before
// on_open: a client always checks the server's chain and name (a DNS name, or an address among the certificate's
// iPAddress names); a server asks for a client certificate as `peer` says. Servers hand out session tickets (one day),
// except under 1.3 with client certificates, and with pre-shared keys, whose tickets would lose the client's name.
//
// Pre-shared keys (RFC 4279): a server with keys offers their cipher suites beside those of its certificate, or alone
// if it has none. Who has shown a key is known by its identity.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "core/security/psk.h"
#include "port/network.h"

namespace ph::io {

namespace tls_errors {
inline constexpr ErrorCode bad_file{"tls.bad_file"};        // missing, unreadable, no PEM; the detail has the path
inline constexpr ErrorCode mismatch{"tls.mismatch"};        // the key is not the certificate's
inline constexpr ErrorCode unsupported{"tls.unsupported"};  // asked for what this TLS library does not have
}  // namespace tls_errors

/// Whether a server wants a certificate from its clients. A certificate that is shown must be valid in any case.
enum class PeerCertificate { required, optional, none };

struct TlsOptions {
  std::string ca_file;           // PEM, one or more; empty: trusts nobody (a server with peer = none only)
  std::string certificate_file;  // PEM, the chain with the leaf first; empty: none (clients only)
  std::string key_file;          // PEM
  std::string crl_file;          // PEM, revocation lists of the authorities; empty: none. An expired one refuses all
  PeerCertificate peer = PeerCertificate::required;
  std::shared_ptr<const security::PskKeys> psk;  // of a server: clients may show one of these keys; null: none
  bool tls13_only = false;
  bool ca_may_have_others = false;  // certificates in ca_file that cannot be read are passed over: a system's bundle
};

class TlsMaterial;

/// Whether this build speaks TLS 1.3.
bool tls13_available();

/// Load what a server, or a client, needs; what is missing for that purpose is told now, not at the first connection.
Result<std::shared_ptr<port::TlsContext>> make_tls_server(const TlsOptions& options);
Result<std::shared_ptr<port::TlsContext>> make_tls_client(const TlsOptions& options);

}  // namespace ph::io

namespace ph::port {

class TlsContext {
 public:
  static Result<std::shared_ptr<TlsContext>> load(io::TlsOptions options);
  explicit TlsContext(io::TlsOptions options);
  ~TlsContext();

  /// Reads the files again. On failure the old ones stay in use.
  Result<> reload();
  /// The same in two steps, for several contexts that change together or not at all: read files, perhaps other ones,
  /// then put them to use.
  static Result<std::shared_ptr<const io::TlsMaterial>> read(const io::TlsOptions& options);
  void use(io::TlsOptions options, std::shared_ptr<const io::TlsMaterial> material);
  io::TlsOptions options() const;
  /// When the own certificate expires; nullopt without one.
  std::optional<WallTime> expires() const;
  /// What is in use now; for this room's connections.
  std::shared_ptr<const io::TlsMaterial> material() const;

 private:
  mutable std::mutex mutex_;
  io::TlsOptions options_;
  std::shared_ptr<const io::TlsMaterial> material_;
};

}  // namespace ph::port
