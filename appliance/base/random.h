// Randomness comes in as a Random&, so that the simulator can repeat a run from its seed. io/ seeds the real one from
// the kernel.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/ids.h"
#include "base/time.h"

namespace ph {

/// SplitMix64. Not for secrets: keys and tickets come from mbedTLS's generator.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound); bound 0 gives 0. The bias of the modulo is below 2^-32 for the bounds used here.
  uint64_t below(uint64_t bound) { return bound ? next() % bound : 0; }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }
  /// `d` spread evenly over [0.5 d, 1.5 d): keeps many nodes from retrying in step.
  Duration jitter(Duration d) { return d / 2 + Duration(below(static_cast<uint64_t>(d.count()) + 1)); }
  NodeId node_id() {
    NodeId id;
    uint64_t a = next(), b = next();
    std::memcpy(id.raw.data(), &a, 8);
    std::memcpy(id.raw.data() + 8, &b, 8);
    return id;
  }
  /// Never 0: 0 means "none" on disk and wire.
  StreamId stream_id() { return StreamId{next() | 1}; }

 private:
  uint64_t state_;
};

}  // namespace ph
