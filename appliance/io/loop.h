// IoLoop: one worker thread's loop, its sockets and timers, over one Asio io_context. Implements port::Loop and
// port::Network. Everything that a loop makes (connections, listeners, timers) belongs to its thread and must be gone
// before the loop is destroyed.
//
// Data path: a turn takes what the kernel says is ready, at most kHandlersPerTurn handlers. Each readable socket is
// read once, into the loop's one buffer, and its handler parses every whole frame that is there. What handlers send is
// written at the end of the turn, one gathered sendmsg a connection. TLS handshakes that are due run after the
// handlers, kHandshakesPerTurn a turn, so that thousands of new clients cannot starve those who are served.
//
// Bounds: one read buffer a connection and turn; the mailbox (kMailboxMax tasks: a foreign thread then waits, at most
// kMailboxWait, and is counted); a partial frame (kTailMax); connections per listener. Descriptors run out: accepting
// pauses for kAcceptPause, counted and logged.
//
// Threads: post() and stop() from any; everything else on the loop's thread, or while no thread runs it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "port/loop.h"
#include "port/network.h"

namespace boost::asio {
class io_context;  // NOLINT(readability-identifier-naming): Asio's name
}

namespace ph::io {

inline constexpr size_t kReadBufferBytes = 256 * 1024;
inline constexpr int kHandlersPerTurn = 256;
inline constexpr int kHandshakesPerTurn = 2;
inline constexpr size_t kMailboxMax = 65'536;
inline constexpr Duration kMailboxWait = 100ms;
inline constexpr Duration kAcceptPause = 100ms;
inline constexpr Duration kHandshakeTimeout = 10s;

/// A counter with one writer and any number of readers.
class Counter {
 public:
  void add(uint64_t n = 1) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// What a loop counts about itself. Readable from any thread.
struct LoopCounters {
  Counter turns;
  Counter bytes_read;     // from the kernel: ciphertext under TLS
  Counter bytes_written;  // to the kernel
  Counter writes;         // sendmsg calls
  Counter accepted;
  Counter refused_full;         // listener at connections_max
  Counter refused_by_handler;   // AcceptFn returned null
  Counter accept_pauses;        // out of descriptors
  Counter refused_descriptors;  // accepted from the reserve, and closed: part of those
  Counter ended_unread;         // the peer went while reading was paused, and was noticed by that alone
  Counter connected;
  Counter connect_failures;
  Counter handshakes;        // TLS, completed
  Counter handshakes_begun;  // by the first byte of the peer, or by us
  Counter handshake_failures;
  Counter clients_refused_by_tls;  // part of those: accepted sockets whose peer had sent something
  Counter upgrades;                // WebSocket, completed
  Counter upgrade_failures;
  Counter websocket_faults;               // open ones that broke the protocol
  Counter proxy_failures;                 // no acceptable PROXY header
  Counter tasks;                          // posted and run
  std::atomic<uint64_t> mailbox_full{0};  // posts by other threads that had to wait
};

struct LoopState;

class IoLoop final : public port::Loop, public port::Network {
 public:
  IoLoop();
  ~IoLoop() override;
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  /// Runs turns on the calling thread until stop(). What was sent before is still handed to the kernel.
  void run();
  /// Ends run(), from any thread, for good.
  void stop();
  /// Runs turns until `done` says so, looking once a turn; false when `bound` passed first. For phases of start and
  /// shutdown, and tests.
  bool run_until(const std::function<bool()>& done, Duration bound);

  Instant now() const override;
  Instant exact_now() const override;
  WallTime wall_now() const override;
  std::unique_ptr<port::Timer> make_timer() override;
  void post(port::Task task) override;
  Random& random() override;

  std::unique_ptr<port::Connection> connect(const port::Endpoint& to, port::ConnectOptions options,
                                            port::ConnectionHandler& handler) override;
  /// Host: empty (every address, IPv6 and IPv4), an address, or a name, which is looked up here and now: a wait that is
  /// fit for start-up only.
  Result<std::unique_ptr<port::Listener>> listen(const port::Endpoint& at, port::ListenOptions options,
                                                 port::AcceptFn accept) override;

  /// Time for each of the steps between a TCP connection and on_open: PROXY header, TLS handshake, WebSocket upgrade;
  /// default 10 s. For steps that begin after the call. What waits for its turn here is not given up for it, and a TLS
  /// handshake has the time once more from its first bytes on.
  void set_handshake_timeout(Duration timeout);

  const LoopCounters& counters() const;
  /// For this room's other files.
  boost::asio::io_context& context();

 private:
  std::unique_ptr<LoopState> state_;
};

}  // namespace ph::io
