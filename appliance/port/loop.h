// Loop: the thread that owns a service, seen from inside. io/ implements it over one Asio io_context a thread; the
// simulator over simulated time. A service takes its clock, timers and hand-overs from here and from nowhere else.
#pragma once

#include <functional>
#include <memory>

#include "base/random.h"
#include "base/time.h"

namespace ph::port {

using Task = std::move_only_function<void()>;

/// One-shot timer. Destroying or restarting it cancels what was pending: a cancelled task never runs.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual void start(Duration delay, Task task) = 0;
  virtual void cancel() = 0;
  virtual bool pending() const = 0;
};

class Loop {
 public:
  virtual ~Loop() = default;
  virtual Instant now() const = 0;
  /// now() may be the time at which the handler at work began; this is the time it is.
  virtual Instant exact_now() const { return now(); }
  virtual WallTime wall_now() const = 0;
  virtual std::unique_ptr<Timer> make_timer() = 0;
  /// Runs `task` later on this loop's thread. The only member that other threads may call.
  virtual void post(Task task) = 0;
  virtual Random& random() = 0;
};

/// The disk thread as a loop sees it: jobs run one at a time, in order, off the loop; `done` runs back on the loop
/// after the job. Every fsync and every synced store write of a service goes through here, so a loop never waits for a
/// disk.
class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  virtual void run(Task job, Task done) = 0;
};

}  // namespace ph::port
