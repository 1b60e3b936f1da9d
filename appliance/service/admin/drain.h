// Drain: how long until a queue is empty, if it goes on as in the last half minute or so. Sampled by whoever owns the
// queue; kept in memory alone, so that a node that has just started does not know yet.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"

namespace ph::admin {

class Drain {
 public:
  static constexpr Duration kSettleTime = std::chrono::seconds(15);  // a change of pace is half told after about that

  /// `backlog`: bytes that wait now.
  void note(uint64_t backlog, Instant now);
  /// Seconds until nothing waits; 0: nothing does. nullopt: not known yet, or it does not become less.
  std::optional<double> seconds() const;

 private:
  std::optional<Instant> at_;
  uint64_t backlog_ = 0;
  std::optional<double> pace_;  // bytes a second by which it becomes less
};

}  // namespace ph::admin
