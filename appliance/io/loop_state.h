// LoopState: what an IoLoop shares with its sockets, inside this room. Owned by the IoLoop.
#pragma once

#include <utility>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "io/loop.h"
#include "io/output_queue.h"
#include "io/resolver.h"

namespace ph::io {

namespace asio = boost::asio;
using Executor = asio::io_context::executor_type;
using TcpAcceptor = asio::basic_socket_acceptor<asio::ip::tcp, Executor>;
using SteadyTimer =
    asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Executor>;

class Socket;

/// What one read of ciphertext decrypts to, together with a record that was unfinished before it.
inline constexpr size_t kPlainBufferBytes = kReadBufferBytes + 32 * 1024;

struct LoopState {
  LoopState();
  ~LoopState();

  /// One turn. Waits for the first event unless there is something to do without one.
  void turn();
  /// `everything`: all that waits, not a part of a round.
  void write_dirty(bool everything = false);
  /// From any thread: a task of its own turn.
  void post(port::Task task);
  /// From the loop's thread: a handler of Asio's that the next turn runs.
  template <class Handler>
  void later(Handler handler) {
    asio::post(context, std::move(handler));
    asio_due = true;
  }
  void wake();
  /// The time when the handler at work began; outside of handlers, and for other threads, the time it is.
  Instant now();
  /// Remembers to write `socket`: at the end of this turn if it answers what it has just read, else within a round.
  void write_later(std::shared_ptr<Socket> socket, bool answer) {
    (answer ? answers_ : dirty_).push_back(std::move(socket));
  }
  /// Queues a socket whose TLS handshake can begin, or go on.
  void handshake_later(std::shared_ptr<Socket> socket, bool begun) {
    (begun ? handshakes_begun : handshakes_new).push_back(std::move(socket));
  }
  std::unique_ptr<OutputQueue> take_output();
  void return_output(std::unique_ptr<OutputQueue> output);

  std::unique_ptr<char[]> read_buffer;   // kReadBufferBytes
  std::unique_ptr<char[]> plain_buffer;  // kPlainBufferBytes: what read_buffer decrypts to; made when first needed
  int poll = -1;                         // epoll of the sockets, and of Asio's own
  int wakeup = -1;                       // eventfd: another thread has posted
  // Accepted sockets that no handle keeps yet, and closed ones that this turn's events may still name.
  std::unordered_map<Socket*, std::shared_ptr<Socket>> opening;
  std::vector<std::shared_ptr<Socket>> closed;
  bool asio_due = false;  // it has a handler to run
  // Those that have begun go first: of more clients than can be served within the timeout, some get through then, and
  // the work done for them is not lost. One step in kNewEvery is kept for new ones.
  std::deque<std::shared_ptr<Socket>> handshakes_begun;
  std::deque<std::shared_ptr<Socket>> handshakes_new;
  unsigned handshake_steps = 0;
  Duration handshake_timeout;
  std::vector<std::unique_ptr<OutputQueue>> spare_outputs;
  std::unique_ptr<Resolver> resolver;
  LoopCounters counters;
  Random random;

  // The mailbox.
  std::mutex mailbox_mutex;
  std::condition_variable mailbox_room;
  std::vector<port::Task> mailbox;
  bool mailbox_scheduled = false;       // a drain is posted, or running
  std::atomic<std::thread::id> thread;  // who runs the loop now
  std::atomic<bool> stopping{false};

  // Last, so destroyed first: pending operations hold sockets that use what stands above.
  asio::io_context context{1};
  asio::executor_work_guard<Executor> work{context.get_executor()};

 private:
  void wait_for_events();
  void run_asio();
  void drain_mailbox();
  void run_handshakes();
  bool writes_due() const { return !answers_.empty() || next_dirty_ < dirty_.size(); }
  std::vector<port::Task> batch_;  // taken from the mailbox, run from next_task_ on
  size_t next_task_ = 0;
  // To be written. A round is what stands in dirty_ when it begins; it takes a few turns, so that a socket whose turn
  // to write has not come gets more to write at once.
  std::vector<std::shared_ptr<Socket>> answers_;
  std::vector<std::shared_ptr<Socket>> dirty_;  // from next_dirty_ on
  size_t next_dirty_ = 0;
  size_t round_left_ = 0;
  size_t round_share_ = 0;          // written in each of its turns
  uint64_t round_read_before_ = 0;  // bytes read when it began
  std::vector<std::shared_ptr<Socket>> writing_;
  bool mail_due_ = false;
  bool asio_stale_ = false;  // something ran since it was polled last, and may have left it a cancelled wait, say
  Instant asio_polled_{};
  bool turning_ = false;
  bool now_known_ = false;  // forgotten at the begin of each handler
  Instant now_{};
};

/// tcpi_bytes_acked of a TCP socket; 0 where the kernel does not say.
uint64_t tcp_bytes_acked(int descriptor);

}  // namespace ph::io
