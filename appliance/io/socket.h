// Socket: one TCP connection inside a loop, with or without a PROXY header, TLS and WebSocket. The user holds a
// ConnectionHandle; the socket lives as long as the handle, or as the loop keeps it until there is one. Internal to
// this room.
//
// Phases: connecting or [announcing ->], [handshaking ->] [upgrading ->] open -> flushing -> draining -> closed, and
// from a failed handshake to draining at once. Announcing waits for a PROXY header, upgrading for a WebSocket request.
// An accepted socket meets its AcceptFn when it is open: a handshake that fails costs no handler. Flushing writes what
// is queued after close(); draining has sent FIN and discards input until the peer's FIN, so that the kernel does not
// answer late input with a reset that would destroy our last bytes on their way. A deadline bounds all but open and
// closed.
//
// Handlers are called from loop context only: never from inside connect(), send(), close() or a destructor. The loop's
// epoll watches the descriptor, level-triggered, from the first wait on: another wait costs no call, and what came
// while nobody waited for it ends the watch until somebody does. Of a socket whose reading is paused that watch is for
// the peer's end alone: a peer that is gone for good ends it at once, whatever it waits for here. Memory when idle and
// plain: this object; no buffer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "io/loop_state.h"
#include "io/tls_session.h"
#include "io/websocket.h"
#include "port/network.h"

namespace ph::io {

class Socket;

/// A listener's part that its accepted sockets share with it.
struct ListenerState {
  port::ListenOptions options;  // `live` is always there: accepted and not yet closed
  port::AcceptFn accept;
  bool stopped = false;
};

/// A partial frame may grow to here; a handler that leaves more unconsumed is broken: "net.too_long".
inline constexpr size_t kTailMax = limits::kFrameMax + kReadBufferBytes;

class ConnectionHandle final : public port::Connection {
 public:
  explicit ConnectionHandle(std::shared_ptr<Socket> socket) : socket_(std::move(socket)) {}
  ~ConnectionHandle() override;
  void send(Slice bytes) override;
  void send_copy(ByteView bytes) override;
  size_t unsent_bytes() const override;
  void notify_below(size_t mark) override;
  void pause_reading(bool paused) override;
  void close(Duration linger) override;
  const port::Peer& peer() const override;
  uint64_t bytes_acked() const override;

 private:
  std::shared_ptr<Socket> socket_;
};

class Socket final : public std::enable_shared_from_this<Socket> {
 public:
  explicit Socket(LoopState& loop);
  ~Socket();

  // How it begins: one of the two. Neither calls a handler before the loop's next turn (connect) or before it returns
  // from AcceptFn (accepted).
  std::unique_ptr<port::Connection> connect(const port::Endpoint& to, port::ConnectOptions options,
                                            port::ConnectionHandler& handler);
  void accepted(int descriptor, const asio::ip::tcp::endpoint& from, std::shared_ptr<ListenerState> listener);

  // For the handle.
  void send(Slice bytes);
  void send_copy(ByteView bytes);
  size_t unsent_bytes() const;
  void notify_below(size_t mark);
  void pause_reading(bool paused);
  void close(Duration linger);
  void abandon();
  const port::Peer& peer() const { return peer_; }
  uint64_t bytes_acked() const;

  // For the loop.
  void on_event(uint32_t events);
  void write_now();
  void handshake_now();

 private:
  enum class Phase : uint8_t { connecting, announcing, handshaking, upgrading, open, flushing, draining, closed };
  struct Attempt;

  bool can_send() const { return phase_ <= Phase::open; }
  OutputQueue& output();
  /// Where what the user sends goes: the output, or what becomes a frame of it.
  OutputQueue& user_output();
  void mark_dirty();

  void resolve();
  void try_next_address();
  void connect_failed(Error why);
  void connect_answered();
  void connected();
  void secure(const port::TlsContext& context, bool server, const std::string& server_name);
  void handshake_soon();
  void handshake_failed(std::string_view why);
  void tell_failed_handshake(std::string_view why);
  void opened();
  void close_descriptor();

  // socket_layers.cc
  void read_announcement();
  void announced(std::string rest);
  void stream_ready(std::string rest);
  /// Takes bytes of the stream as the peer sent it, under TLS decrypted. Changes them in place.
  void ingest(char* bytes, size_t size);
  void upgrade_input(ByteView fresh);
  void refuse(const UpgradeAnswer& answer);
  void end_websocket(uint16_t code, Error why);
  void frame_output();

  void set_deadline(Duration after);
  /// For a part of what lies between accepting, or connecting, and open.
  void set_opening_deadline();
  void clear_deadline();
  void deadline_passed();

  void wait_readable();
  void wait_writable();
  void watch();
  void set_watched(uint32_t events);
  uint32_t wanted_events() const;
  /// Open, and nobody reads it.
  bool unread() const { return phase_ == Phase::open && paused_ && !waiting_readable_; }
  void peer_seen_to_end(uint32_t events);
  bool input_waits() const;
  void readable();
  void writable();
  void read_once();
  void read_plain();
  void read_tls();
  void discard_input();
  /// Takes bytes read: `fresh` follows what is in tail_. Shows the handler what is worth showing.
  void received(ByteView fresh);
  port::Consumed show(ByteView bytes);
  void show_tail_again();
  void drop_tail(size_t size);
  void end_of_input(std::string_view how);
  /// A layer's own end of the stream, a Close frame or close_notify, was read.
  void stream_ended();
  void read_failed(int os_error);
  bool write_plain();
  bool write_tls();
  void written(size_t size);
  void begin_flushing(Duration linger);
  void write_failed(int os_error);
  void output_written();

  void release();  // closes and lets go of everything; phase closed
  Error closed_here() const;
  void finish(Error why);
  void finish_later(Error why);

  LoopState& loop_;
  int descriptor_ = -1;
  uint32_t watched_ = 0;                // events that the loop's epoll tells of; 0: it does not know the descriptor
  ConnectionHandle* handle_ = nullptr;  // null once the user destroyed it
  port::ConnectionHandler* handler_ = nullptr;
  std::unique_ptr<OutputQueue> output_;  // while something waits to be written
  std::string tail_;                     // input not consumed yet
  size_t wanted_ = 0;                    // tail_ is not worth showing below this size
  size_t low_mark_ = 0;
  std::unique_ptr<SteadyTimer> deadline_;
  std::unique_ptr<Attempt> attempt_;           // while connecting
  std::unique_ptr<TlsSession> tls_;            // null: plain
  std::unique_ptr<WebSocketState> websocket_;  // null: none
  std::unique_ptr<Error> why_;                 // what on_close tells when draining ends; null: closed_here
  std::shared_ptr<ListenerState> listener_;    // that accepted it
  port::Peer peer_;
  Instant open_by_{};    // of an accepted socket with such a bound
  Instant queued_at_{};  // since when its handshake waits for us
  uint32_t deadline_number_ = 0;
  int write_error_ = 0;          // the kernel refused a write; told when the input is read to its end
  uint32_t record_pending_ = 0;  // TLS: bytes of the record that the kernel has not taken whole
  Phase phase_ = Phase::connecting;
  bool paused_ = false;
  bool dirty_ = false;
  bool waiting_readable_ = false;
  bool waiting_writable_ = false;
  bool notify_armed_ = false;
  bool handshake_queued_ = false;
  bool handshake_begun_ = false;
  bool heard_ = false;    // the peer sent a byte of its handshake
  bool showing_ = false;  // inside on_data
  bool reshow_posted_ = false;
  bool input_ended_ = false;
  bool end_due_ = false;  // stream_ended(), and tail_ is to be shown before
};

bool is_transient(int os_error);

/// Of a connection; accepted ones have them from the listening socket.
void set_stream_options(int descriptor);

}  // namespace ph::io
