#include "sim/world.h"

#include <algorithm>

#include "support/memory_files.h"

namespace ph::sim {

World::Ticket World::after(Duration delay, ProcessPtr process, port::Task task) {
  const Ticket ticket{now_ + std::max(delay, Duration::zero()), ++serial_};
  events_.emplace(ticket, Event{std::move(process), std::move(task)});
  return ticket;
}

bool World::step() {
  if (events_.empty() || spins_) return false;
  auto node = events_.extract(events_.begin());
  now_ = std::max(now_, node.key().first);
  Event& event = node.mapped();
  if (event.process && !event.process->alive) return true;
  if (event.process && event.process->frozen_until > now_) {
    events_.emplace(Ticket{event.process->frozen_until, ++serial_}, std::move(event));
    return true;
  }
  ++steps_;
  if (now_ - second_ >= 1s) {
    second_ = now_;
    steps_in_second_ = 0;
  }
  spins_ = ++steps_in_second_ > kStepsPerSecondMax;
  note(static_cast<uint64_t>(now_.time_since_epoch().count()));
  try {
    event.task();
  } catch (const test::SimulatedCrash&) {
    if (event.process && event.process->alive) event.process->died();
  }
  return true;
}

void World::run_for(Duration duration) {
  const Instant until = now_ + duration;
  while (!events_.empty() && events_.begin()->first.first <= until && !spins_) step();
  now_ = until;
}

bool World::run_until(const std::function<bool()>& done, Duration bound, Duration every) {
  for (const Instant until = now_ + bound; now_ < until; run_for(every))
    if (done()) return true;
  return done();
}

// --- Loop

class Loop::Timer final : public port::Timer {
 public:
  explicit Timer(Loop& loop) : loop_(loop) {}
  ~Timer() override { cancel(); }
  void start(Duration delay, port::Task task) override {
    cancel();
    task_ = std::move(task);
    pending_ = true;
    const Duration late = loop_.world_.between(0ns, 200us);
    armed_ = std::make_shared<bool>(true);
    ticket_ = loop_.world_.after(std::max(delay, Duration::zero()) + late, loop_.process_, [this, armed = armed_] {
      if (!*armed) return;
      pending_ = false;
      auto due = std::move(task_);
      due();
    });
  }
  void cancel() override {
    if (!pending_) return;
    // The event of a process that was frozen has another ticket by now: then this is what disarms it.
    *armed_ = false;
    loop_.world_.cancel(ticket_);
    pending_ = false;
    task_ = nullptr;
  }
  bool pending() const override { return pending_; }

 private:
  Loop& loop_;
  World::Ticket ticket_;
  std::shared_ptr<bool> armed_;
  port::Task task_;
  bool pending_ = false;
};

std::unique_ptr<port::Timer> Loop::make_timer() {
  return std::make_unique<Timer>(*this);
}

void Loop::post(port::Task task) {
  posted_.push_back(std::move(task));
  wake();
}

void Loop::post_ready(port::Task task) {
  ready_.push_back(std::move(task));
  wake();
}

void Loop::wake() {
  if (scheduled_) return;
  scheduled_ = true;
  world_.after(world_.between(1us, 50us), process_, [this] { turn(); });
}

void Loop::turn() {
  scheduled_ = false;
  auto tasks = std::exchange(posted_, {});
  auto ready = std::exchange(ready_, {});
  for (size_t i = ready.size(); i > 1; --i) std::swap(ready[i - 1], ready[world_.random().below(i)]);
  const bool kernel_first = !ready.empty() && world_.random().chance(0.5);
  if (kernel_first)
    for (auto& task : ready) task();
  for (auto& task : tasks) task();
  if (!kernel_first)
    for (auto& task : ready) task();
}

// --- Disk

void Disk::run(port::Task job, port::Task done) {
  jobs_.emplace_back(std::move(job), std::move(done));
  if (!running_) next();
}

void Disk::next() {
  if (jobs_.empty()) return;
  running_ = true;
  World& world = loop_.world();
  const Duration takes = world.random().chance(stall_chance) ? world.between(5ms, 500ms) : world.between(100us, 3ms);
  world.after(takes, loop_.process(), [this] {
    auto [job, done] = std::move(jobs_.front());
    jobs_.erase(jobs_.begin());
    running_ = false;
    job();
    loop_.post(std::move(done));
    next();
  });
}

}  // namespace ph::sim
