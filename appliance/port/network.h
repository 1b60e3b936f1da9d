// Network: byte streams with their bounds in view. One Connection interface serves links, MQTT and the simulator.
//
// A loop reads each readable socket into its one shared buffer and hands the bytes to the handler; what a handler
// appends to a connection during one turn of the loop is written once, gathered, at the end of the turn.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"

namespace ph::port {

/// "host:port", "[v6]:port"; ":0" lets the kernel choose when listening.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
  std::string to_string() const {
    return (host.find(':') == host.npos ? host : "[" + host + "]") + ":" + std::to_string(port);
  }
  auto operator<=>(const Endpoint&) const = default;
};

/// Parses "host:port", "127.0.0.1:1883", "[::1]:3706"; ":0" and "*:0" have an empty host: every address of the machine.
/// An IPv6 address stands in brackets. Errors: "net.bad_address" with what is wrong.
Result<Endpoint> parse_endpoint(std::string_view text);

/// Codes of on_close and listen(). The detail names the address and says what the system said.
namespace net_errors {
inline constexpr ErrorCode closed{"net.closed"};            // orderly end by the peer
inline constexpr ErrorCode closed_here{"net.closed_here"};  // after close()
inline constexpr ErrorCode refused{"net.refused"};          // nobody listens there
inline constexpr ErrorCode reset{"net.reset"};              // the peer, or the way to it, broke the connection
inline constexpr ErrorCode timeout{"net.timeout"};          // not connected within connect_timeout
inline constexpr ErrorCode name{"net.name"};                // the name could not be resolved
inline constexpr ErrorCode in_use{"net.in_use"};            // listen: somebody has the port
inline constexpr ErrorCode too_long{"net.too_long"};        // the handler left more bytes unconsumed than a frame has
inline constexpr ErrorCode failed{"net.failed"};            // anything else of the system's
inline constexpr ErrorCode bad_address{"net.bad_address"};  // parse_endpoint
inline constexpr ErrorCode tls{"net.tls"};                  // handshake or record refused; the detail says why
inline constexpr ErrorCode websocket{"net.websocket"};      // upgrade or frame refused; the detail says why
inline constexpr ErrorCode proxy{"net.proxy"};              // no acceptable PROXY header
}  // namespace net_errors

/// What is known of the other side.
struct Peer {
  std::string address;  // "127.0.0.1:52114"; of the client itself where a PROXY header tells it
  Instant accepted{};   // of a client: when it connected, not counting what it had to wait for us; else Instant{}
  bool encrypted = false;
  std::string certificate_name;  // of the verified client or server certificate; empty without one
  std::string psk_identity;      // whose pre-shared key the client has shown to have; empty without one
};

/// What a handler did with the bytes it was shown.
struct Consumed {
  size_t bytes = 0;   // taken from the front; the rest is shown again together with what comes next
  size_t wanted = 0;  // total bytes (from the new front) without which a further call is useless; 0 = any
};

class Connection;

class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  /// Connected and, under TLS, verified. Always the first call; for accepted sockets as well.
  virtual void on_open(Connection& connection) = 0;
  virtual Consumed on_data(Connection& connection, ByteView bytes) = 0;
  /// Called once when unsent_bytes() falls back below the low mark given to notify_below().
  virtual void on_drained(Connection&) {}
  /// While reading is paused and the peer breaks the connection: whether what it had sent before is to be shown still,
  /// at most one read buffer of it. Otherwise it is lost with the connection.
  virtual bool hears_last_words() const { return false; }
  /// Whether it took bytes that it handles only when it lets reading go on: an orderly end of the peer comes behind
  /// them.
  virtual bool holds_input() const { return false; }
  /// Whether it paused reading for others alone, and goes on by itself at once: no end of the peer comes before that.
  virtual bool waits_for_turn() const { return false; }
  /// The last call; the connection must not be used after it. Also when connecting failed (then without on_open).
  /// An orderly end by the peer has code "net.closed".
  virtual void on_close(Connection& connection, const Error& why) = 0;
};

class Connection {
 public:
  /// Destroying it closes the socket at once and calls nothing.
  virtual ~Connection() = default;
  /// Appends to the output; written at the end of this turn. Never fails: a dead socket reports on_close.
  virtual void send(Slice bytes) = 0;
  /// Copies small things (frame headers, acks) into an output buffer without an allocation each.
  virtual void send_copy(ByteView bytes) = 0;
  /// Bytes accepted by send() and not yet taken by the kernel.
  virtual size_t unsent_bytes() const = 0;
  /// Calls on_drained once unsent_bytes() <= mark.
  virtual void notify_below(size_t mark) = 0;
  /// Stops or resumes reading: back-pressure towards the peer. A connection that is not read ends all the same when the
  /// peer breaks it, or ends it with nothing left to read; otherwise its end comes behind what it had sent.
  virtual void pause_reading(bool paused) = 0;
  /// Sends what is queued (for at most `linger`), then closes; on_close follows, never from inside this call.
  virtual void close(Duration linger = std::chrono::seconds(1)) = 0;
  virtual const Peer& peer() const = 0;
  /// Bytes the other side's kernel has acknowledged so far (Linux: tcpi_bytes_acked): progress on a slow link.
  virtual uint64_t bytes_acked() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;  // stops accepting
  virtual Endpoint local() const = 0;
};

/// Which name of a certificate a Peer has: the subject's CN, or the first alternative name of a kind (RFC
/// 5280 4.2.1.6).
enum class CertificateField : uint8_t { common_name, dns, email, uri };

/// Which credentials a connection uses; the object behind it lives in io/. Null: plain TCP.
class TlsContext;

struct ConnectOptions {
  std::shared_ptr<TlsContext> tls;
  std::string server_name;  // expected name of the peer's certificate; defaults to the host
  Duration connect_timeout = std::chrono::seconds(1);
};

struct ListenOptions {
  std::shared_ptr<TlsContext> tls;
  size_t connections_max = 10'000;            // more: accepted and closed at once, counted by the loop
  std::shared_ptr<std::atomic<size_t>> live;  // connections counted against it, together with other listeners; or null
  bool reuse_port = false;                    // one listening socket per worker
  bool joins = false;                         // with reuse_port: others of this process listen there already
  size_t accepts_a_second = 0;  // more wait in the kernel's queue, where an attempt costs nothing; 0: no such bound
  bool proxy_protocol = false;  // every connection begins with a PROXY header (version 1 or 2), before TLS
  std::string websocket_path;   // not empty: WebSocket with a subprotocol of MQTT, at this path
  std::vector<std::string> websocket_origins;  // not empty: whose pages a browser may connect from; "*" within a label
  Duration open_timeout{};  // from accepting to on_open; zero: each part of it has the loop's bound, as it has anyway
  CertificateField certificate_field = CertificateField::common_name;
};

/// Makes the handler of an accepted connection; the connection's owner is the returned object's keeper. Called before
/// on_open. Returning null refuses the connection.
using AcceptFn = std::move_only_function<ConnectionHandler*(std::unique_ptr<Connection>&& connection)>;

class Network {
 public:
  virtual ~Network() = default;
  /// Begins to connect (names are resolved off the loop). The handler is called back later, never from inside.
  virtual std::unique_ptr<Connection> connect(const Endpoint& to, ConnectOptions options,
                                              ConnectionHandler& handler) = 0;
  virtual Result<std::unique_ptr<Listener>> listen(const Endpoint& at, ListenOptions options, AcceptFn accept) = 0;
};

}  // namespace ph::port
