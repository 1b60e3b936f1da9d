// RangeSet: disjoint half-open ranges of positions, kept merged and sorted. What a receiver accepted, what a sender saw
// acknowledged. Bounds: the caller's; size() tells the number of ranges.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/coding.h"

namespace ph::link {

struct Range {
  uint64_t first = 0;
  uint64_t last = 0;  // exclusive
  bool operator==(const Range&) const = default;
};

class RangeSet {
 public:
  /// Adds [first, last); merges neighbours. Empty ranges are ignored.
  void add(uint64_t first, uint64_t last);
  void add(const RangeSet& other);
  /// Removes [first, last).
  void remove(uint64_t first, uint64_t last);
  bool contains(uint64_t first, uint64_t last) const;  // wholly
  bool intersects(uint64_t first, uint64_t last) const;
  /// Parts of [first, last) that are not in the set, ascending.
  std::vector<Range> missing(uint64_t first, uint64_t last) const;
  /// Parts of [first, last) that are in the set, ascending.
  std::vector<Range> within(uint64_t first, uint64_t last) const;
  /// End of the range that holds or begins at `from`; `from` itself if it is not in the set.
  uint64_t contiguous_from(uint64_t from) const;
  /// Forgets everything below `position`.
  void forget_below(uint64_t position);
  /// One past the greatest position; 0 if empty.
  uint64_t highest() const { return ranges_.empty() ? 0 : ranges_.rbegin()->second; }
  bool empty() const { return ranges_.empty(); }
  size_t size() const { return ranges_.size(); }
  void clear() { ranges_.clear(); }
  std::vector<Range> list() const;
  bool operator==(const RangeSet&) const = default;

  /// varint count, then per range varint distance from the end of the one before, varint length (> 0).
  void encode(std::string& out) const;
  /// False for malformed input (also for empty or touching ranges and more than `max`).
  bool decode(Reader& in, size_t max = 1 << 20);

 private:
  std::map<uint64_t, uint64_t> ranges_;  // first -> last
};

}  // namespace ph::link
