// Rates of listeners and clients, and whether a worker has too much to do.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "core/security/rate.h"

namespace ph::broker {

/// All workers take from these.
struct ListenerRates {
  security::SharedRateBucket connections, messages, bytes;
  std::shared_ptr<std::atomic<size_t>> live = std::make_shared<std::atomic<size_t>>(0);  // its connections now
};

struct ClientRates {
  security::RateBucket messages, bytes;
  bool waiting = false;  // reading is stopped
};

/// A timer asks to be called every kStep; by how much it is late is the loop's lag. Overload begins when the lag is
/// over its bound, or memory is short, and ends after kCalm without either.
class LoadProbe {
 public:
  static constexpr Duration kStep = 100ms;
  static constexpr Duration kCalm = 1s;

  /// True when overload begins now.
  bool look(Instant now, Duration lag_max, bool memory_short) {
    const bool late = lag_max > Duration::zero() && expected_ != Instant{} && now - expected_ > lag_max;
    expected_ = now + kStep;
    if (late || memory_short) {
      bad_at_ = now;
      return !std::exchange(overloaded_, true);
    }
    if (overloaded_ && now - bad_at_ >= kCalm) overloaded_ = false;
    return false;
  }
  bool overloaded() const { return overloaded_; }

 private:
  Instant expected_{};
  Instant bad_at_{};
  bool overloaded_ = false;
};

}  // namespace ph::broker
