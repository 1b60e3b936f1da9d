// TlsMaterial: parsed keys, certificates and mbedTLS configurations, immutable and shared by threads.
// TlsSession: the TLS state of one connection. Input is fed as the socket read it, into the loop's buffer; output is
// encrypted record by record straight into the socket, so that at most one record (16 KiB) of ciphertext ever waits.
// Internal to this room; owned by a Socket, used on its loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/mbed.h"
#include "io/tls.h"
#include "port/network.h"

namespace ph::io {

inline constexpr size_t kTlsRecordMax = 16 * 1024;

class TlsMaterial {
 public:
  static Result<std::shared_ptr<const TlsMaterial>> load(const TlsOptions& options);

  const mbedtls_ssl_config* config(bool server) const { return server ? server_.get() : client_.get(); }
  bool verifies_peers() const { return has_ca_; }
  bool has_certificate() const { return has_certificate_; }
  const security::PskKeys* psk() const { return psk_.get(); }
  std::optional<WallTime> expires() const { return expires_; }

 private:
  Result<> read_files(const TlsOptions& options);
  Result<> configure(mbedtls_ssl_config* config, const TlsOptions& options, bool server);

  mbed::Generator generator_;
  mbed::Certificates authorities_;
  mbed::RevocationLists revoked_;
  mbed::Certificates own_;
  mbed::Key key_;
  mbed::Tickets tickets_;
  mbed::Config server_;
  mbed::Config client_;
  std::shared_ptr<const security::PskKeys> psk_;
  std::vector<int> suites_;  // looked at by server_
  bool has_ca_ = false;
  bool has_certificate_ = false;
  std::optional<WallTime> expires_;
};

class TlsSession {
  friend class TlsMaterial;

 public:
  enum class Outcome { ok, want_read, want_write, closed, failed };

  /// `server_name`: whom a client expects to reach. `descriptor` is written to and stays the caller's.
  static Result<std::unique_ptr<TlsSession>> make(std::shared_ptr<const TlsMaterial> material, bool server,
                                                  const std::string& server_name, int descriptor);
  TlsSession(std::shared_ptr<const TlsMaterial> material, int descriptor);

  /// Makes `ciphertext` the next input. It is looked at until stash(), which copies what is left of it.
  void feed(ByteView ciphertext) { input_ = ciphertext; }
  void end_input() { input_ended_ = true; }
  void stash();
  /// Whether input waits in the stash: use it up before feeding more.
  bool stashed() const { return !stash_.empty(); }

  Outcome handshake();
  /// Decrypts into `into`; got > 0 on ok.
  Outcome read(char* into, size_t size, size_t& got);
  /// Encrypts and sends at most one record of `bytes`. After want_write call again with the same bytes.
  Outcome write(ByteView bytes, size_t& taken);
  /// Tells the peer that nothing more comes. Best effort.
  void close_notify();

  /// Why the last call failed, for people.
  const std::string& failure() const { return failure_; }
  /// Errno when it was the socket that failed, else 0.
  int os_error() const { return os_error_; }
  /// A name of the peer's verified certificate; empty without one.
  std::string peer_name(port::CertificateField field) const;
  /// Whose pre-shared key the client has; empty without one. After the handshake.
  const std::string& psk_identity() const { return psk_identity_; }
  /// Ciphertext bytes sent since the last call.
  size_t take_sent() { return std::exchange(sent_, 0); }

 private:
  static int send(void* session, const unsigned char* bytes, size_t size);
  static int receive(void* session, unsigned char* into, size_t size);
  static int find_psk(void* material, mbedtls_ssl_context* ssl, const unsigned char* identity, size_t size);
  static int check_address(void* session, mbedtls_x509_crt* certificate, int depth, uint32_t* flags);
  Result<> expect_server(const std::string& server_name);
  Outcome outcome(int code);
  std::string describe(int code) const;

  const std::shared_ptr<const TlsMaterial> material_;
  mbed::Session ssl_;
  ByteView input_;
  std::string stash_;
  std::string expected_address_;  // bytes of the address that the peer's certificate must name
  std::string expected_name_;     // for messages
  std::string psk_identity_;
  std::string failure_;
  size_t sent_ = 0;
  int descriptor_;
  int os_error_ = 0;
  bool input_ended_ = false;
};

}  // namespace ph::io
