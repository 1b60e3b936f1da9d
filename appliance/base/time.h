// Time as types: Instant for timeouts (monotonic), WallTime for names and labels. The clock itself is read in one
// file of io/; everything else is handed `now`.
#pragma once

#include <chrono>
#include <cstdint>

namespace ph {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;  // NOLINT: durations are written 5s, 100ms everywhere

/// Tag clock without a now(): only io/ and the simulator make Instants.
struct Monotonic {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Monotonic>;
  static constexpr bool is_steady = true;
};
using Instant = std::chrono::time_point<Monotonic>;

/// Milliseconds since the Unix epoch, UTC. A label: never used for order or dedup.
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

inline int64_t to_unix_ms(WallTime t) {
  return t.time_since_epoch().count();
}
inline WallTime from_unix_ms(int64_t ms) {
  return WallTime(std::chrono::milliseconds(ms));
}

}  // namespace ph
