#include "io/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/detail/epoll_reactor.hpp>
#include <cerrno>
#include <system_error>

#include "io/clock.h"
#include "io/listener.h"
#include "io/loop_state.h"
#include "io/random_seed.h"
#include "io/socket.h"
#include "io/tls.h"

namespace ph::io {
namespace {

using boost::system::error_code;

constexpr size_t kSpareOutputs = 64;    // idle output queues kept for reuse
constexpr unsigned kNewEvery = 4;       // of the handshake steps, one is kept for a handshake that begins
constexpr size_t kTasksPerTurn = 4096;  // posted tasks run before sockets get their turn again

constexpr int kEventsPerTurn = 256;
constexpr size_t kTurnsPerRound = 4;           // of writes; one of fewer sockets takes a turn for each
constexpr uint64_t kReadPerRound = 64 * 1024;  // after so much new input a round is ended at once
constexpr auto kAsioPollEvery = 1ms;           // what Asio was given without an event of its own waits no longer

/// Asio's epoll descriptor, which stands in ours so that one wait is for both. It keeps it to itself, but an explicit
/// instantiation may name any member; should another Asio name it otherwise, this does not compile.
int reactor_descriptor(asio::detail::epoll_reactor& reactor);
template <auto Member>
struct Reveal {
  friend int reactor_descriptor(asio::detail::epoll_reactor& reactor) { return reactor.*Member; }
};
template struct Reveal<&asio::detail::epoll_reactor::epoll_fd_>;

class IoTimer final : public port::Timer {
 public:
  explicit IoTimer(asio::io_context& context) : core_(std::make_shared<Core>(context)) {}
  ~IoTimer() override { cancel(); }

  void start(Duration delay, port::Task task) override {
    Core& c = *core_;
    ++c.number;  // an expiry that is already queued belongs to the old start
    c.task = std::move(task);
    c.timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(delay));
    c.timer.async_wait([core = core_, number = c.number](error_code cancelled) {
      if (cancelled || number != core->number) return;
      auto due = std::exchange(core->task, nullptr);
      due();
    });
  }

  void cancel() override {
    ++core_->number;
    core_->task = nullptr;
    core_->timer.cancel();
  }

  bool pending() const override { return core_->task != nullptr; }

 private:
  struct Core {
    explicit Core(asio::io_context& context) : timer(context) {}
    SteadyTimer timer;
    port::Task task;
    uint64_t number = 0;
  };
  std::shared_ptr<Core> core_;
};

}  // namespace

// --- LoopState

LoopState::LoopState()
    : read_buffer(std::make_unique_for_overwrite<char[]>(kReadBufferBytes)),
      handshake_timeout(kHandshakeTimeout),
      resolver(std::make_unique<Resolver>(*this)),
      random(random_seed()) {
  poll = ::epoll_create1(EPOLL_CLOEXEC);
  wakeup = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event asio_event{};
  asio_event.events = EPOLLIN;
  asio_event.data.ptr = &context;
  epoll_event wakeup_event{};
  wakeup_event.events = EPOLLIN;
  wakeup_event.data.ptr = &wakeup;
  const int reactor = reactor_descriptor(asio::use_service<asio::detail::epoll_reactor>(context));
  if (poll < 0 || wakeup < 0 || ::epoll_ctl(poll, EPOLL_CTL_ADD, reactor, &asio_event) != 0 ||
      ::epoll_ctl(poll, EPOLL_CTL_ADD, wakeup, &wakeup_event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll");  // as Asio does: no loop without it
}

LoopState::~LoopState() {
  resolver.reset();  // from here on no lookup's thread posts to us
  // Tasks and queued sockets may own connections: they go while the context still stands.
  std::vector<port::Task> left;
  {
    std::lock_guard lock(mailbox_mutex);
    left.swap(mailbox);
  }
  left.clear();
  batch_.clear();
  answers_.clear();
  dirty_.clear();
  writing_.clear();
  handshakes_begun.clear();
  handshakes_new.clear();
  std::exchange(opening, {}).clear();
  std::exchange(closed, {}).clear();
  ::close(wakeup);
  ::close(poll);
}

void LoopState::turn() {
  counters.turns.add();
  turning_ = true;
  wait_for_events();
  if (mail_due_) drain_mailbox();
  if (asio_due) run_asio();
  run_handshakes();
  write_dirty();
  closed.clear();
  turning_ = now_known_ = false;
}

/// Shows sockets what the kernel says of them, and notes what else there is to do.
void LoopState::wait_for_events() {
  const bool busy = asio_due || mail_due_ || writes_due() || !handshakes_begun.empty() || !handshakes_new.empty();
  if (asio_stale_ && steady_now() - asio_polled_ >= kAsioPollEvery) asio_due = true;
  const int patience = busy || asio_due ? 0 : asio_stale_ ? 1 : -1;  // in milliseconds
  epoll_event events[kEventsPerTurn];
  const int n = ::epoll_wait(poll, events, kEventsPerTurn, patience);
  if (n > 0 || busy) asio_stale_ = true;
  if (n == 0 && patience == 1) asio_due = true;
  for (int i = 0; i < n; ++i) {
    void* const whose = events[i].data.ptr;
    if (whose == &context) {
      asio_due = true;
    } else if (whose == &wakeup) {
      uint64_t count;
      (void)!::read(wakeup, &count, sizeof count);
      mail_due_ = true;
    } else {
      now_known_ = false;
      static_cast<Socket*>(whose)->on_event(events[i].events);
    }
  }
}

void LoopState::run_asio() {
  asio_due = false;
  size_t ran = 1;
  for (int i = 0; ran > 0 && i < kHandlersPerTurn; ++i) {
    now_known_ = false;
    ran = context.poll_one();
  }
  asio_due = asio_due || ran > 0;
  asio_stale_ = false;
  asio_polled_ = steady_now();
}

Instant LoopState::now() {
  if (!turning_ || thread.load(std::memory_order_relaxed) != std::this_thread::get_id()) return steady_now();
  if (!std::exchange(now_known_, true)) now_ = steady_now();
  return now_;
}

void LoopState::wake() {
  const uint64_t one = 1;
  (void)!::write(wakeup, &one, sizeof one);
}

void LoopState::run_handshakes() {
  for (int i = 0; i < kHandshakesPerTurn; ++i) {
    const bool prefer_new = ++handshake_steps % kNewEvery == 0;
    auto& first = prefer_new ? handshakes_new : handshakes_begun;
    auto& from = first.empty() ? (prefer_new ? handshakes_begun : handshakes_new) : first;
    if (from.empty()) return;
    auto socket = std::move(from.front());
    from.pop_front();
    now_known_ = false;
    socket->handshake_now();
  }
}

void LoopState::post(port::Task task) {
  std::unique_lock lock(mailbox_mutex);
  if (mailbox.size() >= kMailboxMax && thread.load() != std::this_thread::get_id()) {
    counters.mailbox_full.fetch_add(1, std::memory_order_relaxed);
    // A task is a completion that somebody counts on, so it is never dropped; and two loops that post to each other
    // must not wait for each other for ever. So the producer is slowed, not stopped.
    mailbox_room.wait_for(lock, kMailboxWait, [&] { return mailbox.size() < kMailboxMax; });
  }
  mailbox.push_back(std::move(task));
  if (std::exchange(mailbox_scheduled, true)) return;
  lock.unlock();
  if (thread.load() == std::this_thread::get_id())
    mail_due_ = true;
  else
    wake();
}

void LoopState::drain_mailbox() {
  mail_due_ = false;
  if (next_task_ == batch_.size()) {
    batch_.clear();
    next_task_ = 0;
    std::lock_guard lock(mailbox_mutex);
    if (mailbox.empty()) {
      mailbox_scheduled = false;
      return;
    }
    batch_.swap(mailbox);
    mailbox_room.notify_all();
  }
  size_t end = std::min(batch_.size(), next_task_ + kTasksPerTurn);
  counters.tasks.add(end - next_task_);
  while (next_task_ < end) {
    auto task = std::move(batch_[next_task_++]);
    now_known_ = false;
    task();
  }
  {
    std::lock_guard lock(mailbox_mutex);
    if (next_task_ == batch_.size() && mailbox.empty()) {
      mailbox_scheduled = false;
      return;
    }
  }
  mail_due_ = true;
}

/// Between the parts of a round new input is looked for, and its messages reach those that are still to be written: the
/// more there is to do, the more goes into one call of the kernel's, which costs more than all that we do for a
/// message. Nobody waits longer for it, as the round is done no later.
void LoopState::write_dirty(bool everything) {
  // What handlers of this phase send is for the next turn, so that a turn ends.
  writing_.swap(answers_);
  if (everything || round_left_ == 0) {
    round_left_ = dirty_.size() - next_dirty_;
    round_share_ = (round_left_ + kTurnsPerRound - 1) / kTurnsPerRound;
    round_read_before_ = counters.bytes_read.value();
  }
  const bool whole_round = everything || counters.bytes_read.value() - round_read_before_ > kReadPerRound;
  const size_t end = next_dirty_ + (whole_round ? round_left_ : std::min(round_left_, round_share_));
  round_left_ -= end - next_dirty_;
  asio_stale_ = asio_stale_ || !writing_.empty() || next_dirty_ < end;
  for (auto& socket : writing_) {
    now_known_ = false;
    socket->write_now();
  }
  writing_.clear();
  while (next_dirty_ < end) {
    auto socket = std::move(dirty_[next_dirty_++]);
    now_known_ = false;
    socket->write_now();
  }
  if (next_dirty_ == dirty_.size() || next_dirty_ > dirty_.size() / 2) {
    dirty_.erase(dirty_.begin(), dirty_.begin() + static_cast<ptrdiff_t>(next_dirty_));
    next_dirty_ = 0;
  }
}

std::unique_ptr<OutputQueue> LoopState::take_output() {
  if (spare_outputs.empty()) return std::make_unique<OutputQueue>();
  auto output = std::move(spare_outputs.back());
  spare_outputs.pop_back();
  return output;
}

void LoopState::return_output(std::unique_ptr<OutputQueue> output) {
  if (spare_outputs.size() >= kSpareOutputs) return;
  output->clear();
  spare_outputs.push_back(std::move(output));
}

// --- IoLoop

IoLoop::IoLoop() : state_(std::make_unique<LoopState>()) {}
IoLoop::~IoLoop() = default;

void IoLoop::run() {
  state_->thread = std::this_thread::get_id();
  while (!state_->stopping) state_->turn();
  state_->write_dirty(true);
  state_->thread = std::thread::id();
}

void IoLoop::stop() {
  state_->stopping = true;
  state_->context.stop();
  state_->wake();
}

bool IoLoop::run_until(const std::function<bool()>& done, Duration bound) {
  state_->thread = std::this_thread::get_id();
  auto late = std::make_shared<bool>(false);  // an expiry that is queued when we return still runs later
  SteadyTimer timer(state_->context);
  timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(bound));
  timer.async_wait([late](error_code cancelled) {
    if (!cancelled) *late = true;
  });
  bool reached = done();
  while (!reached && !*late && !state_->stopping) {
    state_->turn();
    reached = done();
  }
  state_->thread = std::thread::id();
  return reached;
}

Instant IoLoop::now() const {
  return state_->now();
}
Instant IoLoop::exact_now() const {
  return steady_now();
}
WallTime IoLoop::wall_now() const {
  return io::wall_now();
}
std::unique_ptr<port::Timer> IoLoop::make_timer() {
  return std::make_unique<IoTimer>(state_->context);
}
void IoLoop::post(port::Task task) {
  state_->post(std::move(task));
}
Random& IoLoop::random() {
  return state_->random;
}
const LoopCounters& IoLoop::counters() const {
  return state_->counters;
}
void IoLoop::set_handshake_timeout(Duration timeout) {
  state_->handshake_timeout = timeout;
}
asio::io_context& IoLoop::context() {
  return state_->context;
}

std::unique_ptr<port::Connection> IoLoop::connect(const port::Endpoint& to, port::ConnectOptions options,
                                                  port::ConnectionHandler& handler) {
  return std::make_shared<Socket>(*state_)->connect(to, std::move(options), handler);
}

Result<std::unique_ptr<port::Listener>> IoLoop::listen(const port::Endpoint& at, port::ListenOptions options,
                                                       port::AcceptFn accept) {
  return listen_tcp(*state_, at, std::move(options), std::move(accept));
}

}  // namespace ph::io
