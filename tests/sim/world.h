// SimWorld: simulated time. Everything that will happen is an event in one queue, ordered by time and then by the order
// of scheduling; running it is the only thing that moves the clock. All randomness comes from one seed, so a run can be
// repeated exactly.
//
// An event may belong to a process: it is dropped once that is dead, and waits while it is frozen (SIGSTOP). What
// happens in kernels, wires and the test itself belongs to nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "port/loop.h"

namespace ph::sim {

/// One run of a node's program, from start to crash.
struct Process {
  bool alive = true;
  Instant frozen_until{};
  /// Called, outside of any code of the process, when one of its own system calls was where it had to die.
  std::function<void()> died;
};
using ProcessPtr = std::shared_ptr<Process>;

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  Instant now() const { return now_; }
  WallTime wall() const {
    return from_unix_ms(kEpochMs) + std::chrono::duration_cast<std::chrono::milliseconds>(now_ - Instant{});
  }
  Random& random() { return random_; }
  /// Uniform in [low, high].
  Duration between(Duration low, Duration high) {
    return low + Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>((high - low).count()) + 1)));
  }

  using Ticket = std::pair<Instant, uint64_t>;
  Ticket after(Duration delay, ProcessPtr process, port::Task task);
  void cancel(const Ticket& ticket) { events_.erase(ticket); }

  /// Runs the next event. False: there is none.
  bool step();
  void run_for(Duration duration);
  /// Runs until `done` holds, looking every `every`. False if it does not within `bound`.
  bool run_until(const std::function<bool()>& done, Duration bound, Duration every = 100ms);

  uint64_t steps() const { return steps_; }
  /// More happened within one simulated second than any honest program makes happen: something spins. Nothing runs any
  /// more then.
  bool spins() const { return spins_; }
  static constexpr uint64_t kStepsPerSecondMax = 1'000'000;
  /// Depends on every event that ran, in order: equal for equal runs.
  uint64_t trace() const { return trace_; }
  void note(uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001B3; }

 private:
  static constexpr int64_t kEpochMs = 1'790'000'000'000;
  struct Event {
    ProcessPtr process;
    port::Task task;
  };
  Random random_;
  Instant now_{};
  std::map<Ticket, Event> events_;
  uint64_t serial_ = 0;
  uint64_t steps_ = 0;
  Instant second_{};
  uint64_t steps_in_second_ = 0;
  bool spins_ = false;
  uint64_t trace_ = 0xCBF29CE484222325;
};

/// port::Loop over simulated time. A turn runs what was posted before it; timers fire a little late, as they do.
class Loop final : public port::Loop {
 public:
  Loop(World& world, ProcessPtr process, uint64_t seed, Duration wall_offset = {})
      : world_(world), process_(std::move(process)), random_(seed), wall_offset_(wall_offset) {}

  Instant now() const override { return world_.now(); }
  WallTime wall_now() const override {
    return world_.wall() + std::chrono::duration_cast<std::chrono::milliseconds>(wall_offset_);
  }
  std::unique_ptr<port::Timer> make_timer() override;
  void post(port::Task task) override;
  /// Something the kernel has for the program, a socket with bytes: which of several is served first, and whether
  /// before what the program posted itself, nobody promises.
  void post_ready(port::Task task);
  Random& random() override { return random_; }
  const ProcessPtr& process() const { return process_; }
  World& world() { return world_; }
  /// The wall clock is set by somebody.
  void set_wall_offset(Duration offset) { wall_offset_ = offset; }

 private:
  class Timer;
  void turn();
  void wake();
  World& world_;
  ProcessPtr process_;
  Random random_;
  Duration wall_offset_;
  std::vector<port::Task> posted_;
  std::vector<port::Task> ready_;
  bool scheduled_ = false;
};

/// port::DiskQueue: one job at a time, each taking a disk's time. What a job wrote before the crash that cut it short
/// is the business of the files it wrote to.
class Disk final : public port::DiskQueue {
 public:
  explicit Disk(Loop& loop) : loop_(loop) {}
  void run(port::Task job, port::Task done) override;
  size_t waiting() const { return jobs_.size(); }
  /// How often a job takes up to half a second instead of a few milliseconds.
  double stall_chance = 0.01;

 private:
  void next();
  Loop& loop_;
  std::vector<std::pair<port::Task, port::Task>> jobs_;
  bool running_ = false;
};

}  // namespace ph::sim
