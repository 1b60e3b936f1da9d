// Rates: how much may pass in a time, as token buckets that can go into debt. What has come is taken in any case and
// nothing is lost; take() tells how long its sender must now be silent so that the rate holds. One second's worth may
// come at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace ph::security {

/// The bucket as one number: when everything that was taken will be paid for.
class RateBucket {
 public:
  static constexpr Duration kBurst = 1s;
  static constexpr Duration kDebtMax = 60s;  // more is forgiven: a sender is never silent for longer

  /// How long the sender must wait; zero: it may go on. `per_second` 0: no bound.
  Duration take(uint64_t n, uint64_t per_second, Instant now) {
    if (per_second == 0) return Duration::zero();
    paid_at_ = next(paid_at_, n, per_second, now);
    return wait(paid_at_, now);
  }

  static Instant next(Instant paid_at, uint64_t n, uint64_t per_second, Instant now) {
    const double cost = static_cast<double>(n) / static_cast<double>(per_second) * 1e9;
    const auto bounded = static_cast<Duration::rep>(std::min(cost, static_cast<double>(kDebtMax.count())));
    return std::min(std::max(paid_at, now) + Duration(bounded), now + kBurst + kDebtMax);
  }
  static Duration wait(Instant paid_at, Instant now) { return std::max(paid_at - now - kBurst, Duration::zero()); }

 private:
  Instant paid_at_{};
};

/// The same for many threads.
class SharedRateBucket {
 public:
  Duration take(uint64_t n, uint64_t per_second, Instant now) {
    if (per_second == 0) return Duration::zero();
    Instant::rep old = paid_at_.load(std::memory_order_relaxed);
    Instant fresh;
    do {
      fresh = RateBucket::next(Instant(Duration(old)), n, per_second, now);
    } while (!paid_at_.compare_exchange_weak(old, fresh.time_since_epoch().count(), std::memory_order_relaxed));
    return RateBucket::wait(fresh, now);
  }
  /// Takes one if the rate allows it now, else nothing.
  bool try_take(uint64_t per_second, Instant now) {
    if (per_second == 0) return true;
    Instant::rep old = paid_at_.load(std::memory_order_relaxed);
    Instant fresh;
    do {
      fresh = RateBucket::next(Instant(Duration(old)), 1, per_second, now);
      if (RateBucket::wait(fresh, now) > Duration::zero()) return false;
    } while (!paid_at_.compare_exchange_weak(old, fresh.time_since_epoch().count(), std::memory_order_relaxed));
    return true;
  }

 private:
  std::atomic<Instant::rep> paid_at_{0};
};

}  // namespace ph::security
