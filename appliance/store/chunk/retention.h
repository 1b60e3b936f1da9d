// Retention: which closed chunks go by age and by size, the oldest first, whether their consumer came for them or not.
// Never one that `_current` names or that sorts above it, so never the open one. Owned by the files sink; looks and
// removals run on the disk thread in its flush(), a few categories a group.
//
// Age is measured from a chunk's last write. A clock that jumps ahead makes nothing old: what was written before the
// jump has the jump taken off (seen while this process runs; a clock that is wrong from the start on is believed).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "store/chunk/chunk_writer.h"

namespace ph::chunk {

struct KeepRule {
  std::optional<Duration> keep;
  std::optional<uint64_t> max;  // bytes of closed chunks
};

/// How old a file is by a clock that may jump.
class AgeClock {
 public:
  static constexpr Duration kJump = std::chrono::minutes(1);  // what counts as one between two ticks
  void tick(Instant now, WallTime wall);
  /// Of a file that was last written then. Negative: in the future.
  std::chrono::nanoseconds age_of(int64_t modified_ns) const;

 private:
  std::optional<Instant> last_;
  int64_t wall_ns_ = 0;
  int64_t jumped_ns_ = 0;
  int64_t before_jump_ns_ = 0;  // what was written up to then was written by the clock before
};

struct ClosedChunk {
  std::string file;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
};

struct Removed {
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  void add(uint64_t size) {
    ++chunks;
    bytes += size;
  }
  bool operator==(const Removed&) const = default;
};

/// What a look found, and did.
struct Holding {
  uint64_t bytes = 0;               // of all chunks that remain
  uint64_t closed_bytes = 0;        // of those that are closed
  std::vector<ClosedChunk> oldest;  // closed ones, at most kOldestMax
  bool more = false;                // there are closed ones behind these
  Removed expired;
  Removed over_max;
};

class Retention {
 public:
  static constexpr size_t kOldestMax = 16;
  static constexpr size_t kRemovedPerLook = 256;

  explicit Retention(port::Files& files) : files_(files) {}

  /// Lists the category and removes what its rule says. A file that cannot be removed stays and is met again.
  Result<Holding> look(const ChunkCategory& c, const KeepRule& rule, const AgeClock& clock);
  /// Removes one more, if it is still closed and as it was. How many bytes that gave.
  uint64_t remove(const ChunkCategory& c, const ClosedChunk& chunk);

 private:
  bool unlink(const ChunkCategory& c, const ClosedChunk& chunk);
  port::Files& files_;
};

}  // namespace ph::chunk
