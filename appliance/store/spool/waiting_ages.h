// WaitingAges: how long what waits in a log has waited here, for `route.spool.keep`. Measured on the monotonic clock
// while the node runs, so that neither a wall clock that jumps nor one that was wrong at the origin drops anything; a
// node that is switched off does not age what it holds. Owned by a LogSource.
//
// It remembers marks {sequence, when}: everything below was here by then. A mark a kMarksPerKeep'th of `keep` makes an
// age right to that part of it, on the side of keeping. Bounds: kMarksPerKeep + 2 marks.
//
// Stored as u8 version 1, varint number of marks, each: varint sequence, varint milliseconds waited.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/time.h"

namespace ph::spool {

class WaitingAges {
 public:
  static constexpr int kMarksPerKeep = 32;
  explicit WaitingAges(Duration keep) : keep_(keep) {}

  /// All records below `end` are here now. True if that made a mark, which is then to be stored.
  bool note(uint64_t end, Instant now);
  /// Everything below it waited for `keep` or longer; its marks are forgotten. nullopt: nothing did.
  std::optional<uint64_t> expired(Instant now);
  /// Nothing below `sequence` waits any more.
  void settled(uint64_t sequence);
  /// When to ask again: a mark becomes due, or must be made for `end`. nullopt: nothing waits.
  std::optional<Instant> due(uint64_t end) const;

  std::string encode(Instant now) const;
  /// Puts back what was stored. False: damaged or newer, and then nothing has aged.
  bool decode(ByteView bytes, Instant now);

 private:
  struct Mark {
    uint64_t below;
    Instant at;
  };
  Duration keep_;
  std::deque<Mark> marks_;  // ascending in both
};

}  // namespace ph::spool
