#include "io/loop.h"

#include <algorithm>
#include <boost/asio/post.hpp>

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
      random(random_seed()) {}

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
  writing_.clear();
  dirty.clear();
  handshakes_begun.clear();
  handshakes_new.clear();
}

void LoopState::turn() {
  counters.turns.add();
  bool busy = !dirty.empty() || !handshakes_begun.empty() || !handshakes_new.empty();
  size_t ran = busy ? context.poll_one() : context.run_one();
  for (int i = 1; ran > 0 && i < kHandlersPerTurn; ++i) ran = context.poll_one();
  run_handshakes();
  write_dirty();
}

void LoopState::run_handshakes() {
  for (int i = 0; i < kHandshakesPerTurn; ++i) {
    const bool prefer_new = ++handshake_steps % kNewEvery == 0;
    auto& first = prefer_new ? handshakes_new : handshakes_begun;
    auto& from = first.empty() ? (prefer_new ? handshakes_begun : handshakes_new) : first;
    if (from.empty()) return;
    auto socket = std::move(from.front());
    from.pop_front();
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
  asio::post(context, [this] { drain_mailbox(); });
}

void LoopState::drain_mailbox() {
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
    task();
  }
  {
    std::lock_guard lock(mailbox_mutex);
    if (next_task_ == batch_.size() && mailbox.empty()) {
      mailbox_scheduled = false;
      return;
    }
  }
  asio::post(context, [this] { drain_mailbox(); });
}

void LoopState::write_dirty() {
  // What handlers of this phase send is for the next turn, so that a turn ends.
  writing_.swap(dirty);
  for (auto& socket : writing_) socket->write_now();
  writing_.clear();
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
  state_->write_dirty();
  state_->thread = std::thread::id();
}

void IoLoop::stop() {
  state_->stopping = true;
  state_->context.stop();
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
