// ManualLoop and ManualDisk: a loop whose time a test sets, and a disk queue that runs jobs when told. No threads.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "port/loop.h"

namespace ph::test {

class ManualLoop : public port::Loop {
 public:
  explicit ManualLoop(uint64_t seed = 1) : random_(seed) {}
  /// What tasks own may own timers of this loop.
  ~ManualLoop() override {
    while (!tasks_.empty()) tasks_.pop_front();
  }

  Instant now() const override { return now_; }
  /// Work that takes time: each look at the clock finds it so much later.
  Duration look_cost{0};
  Instant exact_now() const override { return now_ + look_cost * ++looks_; }
  WallTime wall_now() const override { return wall_; }
  std::unique_ptr<port::Timer> make_timer() override { return std::make_unique<ManualTimer>(*this); }
  void post(port::Task task) override { tasks_.push_back(std::move(task)); }
  Random& random() override { return random_; }

  /// Runs posted tasks (and what they post) until none is left. Returns how many ran.
  size_t run_posted() {
    size_t ran = 0;
    while (run_one()) ++ran;
    return ran;
  }

  /// Runs one posted task, for tests that interleave several loops. False if there was none.
  bool run_one() {
    if (tasks_.empty()) return false;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    return true;
  }

  /// Moves time forward, firing timers in order; wall time moves along.
  void advance(Duration by) {
    Instant until = now_ + by;
    run_posted();
    while (!timers_.empty() && timers_.begin()->first.first <= until) {
      auto it = timers_.begin();
      step_to(it->first.first);
      auto* timer = it->second;
      timers_.erase(it);
      timer->fire();
      run_posted();
    }
    step_to(until);
  }

  /// Jumps the wall clock alone.
  void set_wall(WallTime t) { wall_ = t; }
  bool has_timers() const { return !timers_.empty(); }
  size_t timers() const { return timers_.size(); }

 private:
  class ManualTimer : public port::Timer {
   public:
    explicit ManualTimer(ManualLoop& loop) : loop_(loop) {}
    ~ManualTimer() override { cancel(); }
    void start(Duration delay, port::Task task) override {
      cancel();
      task_ = std::move(task);
      key_ = {loop_.now_ + std::max(delay, Duration::zero()), ++loop_.timer_serial_};
      loop_.timers_[key_] = this;
      pending_ = true;
    }
    void cancel() override {
      if (pending_) loop_.timers_.erase(key_);
      pending_ = false;
      task_ = nullptr;
    }
    bool pending() const override { return pending_; }
    void fire() {
      pending_ = false;
      auto task = std::move(task_);
      task();
    }

   private:
    ManualLoop& loop_;
    std::pair<Instant, uint64_t> key_;
    port::Task task_;
    bool pending_ = false;
  };

  void step_to(Instant t) {
    if (t <= now_) return;
    wall_ += std::chrono::duration_cast<std::chrono::milliseconds>(t - now_);
    now_ = t;
  }

  Random random_;
  Instant now_{std::chrono::hours(1)};
  WallTime wall_ = from_unix_ms(1'790'000'000'000);
  std::deque<port::Task> tasks_;
  std::map<std::pair<Instant, uint64_t>, ManualTimer*> timers_;
  uint64_t timer_serial_ = 0;
  mutable int64_t looks_ = 0;
};

/// Jobs run as posted tasks of the loop, one after the other; hold() keeps them until release().
class ManualDisk : public port::DiskQueue {
 public:
  explicit ManualDisk(ManualLoop& loop) : loop_(loop) {}
  void run(port::Task job, port::Task done) override {
    jobs_.emplace_back(std::move(job), std::move(done));
    if (!held_) pump();
  }
  void hold() { held_ = true; }
  void release() {
    held_ = false;
    pump();
  }
  size_t waiting() const { return jobs_.size(); }
  /// The process is killed: jobs that have not begun never run.
  void drop() { jobs_.clear(); }

 private:
  void pump() {
    loop_.post([this] {
      if (held_ || jobs_.empty()) return;
      auto [job, done] = std::move(jobs_.front());
      jobs_.pop_front();
      job();
      loop_.post(std::move(done));
    });
  }
  ManualLoop& loop_;
  std::deque<std::pair<port::Task, port::Task>> jobs_;
  bool held_ = false;
};

}  // namespace ph::test
