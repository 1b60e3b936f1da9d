#include "core/link/range_set.h"

#include <algorithm>

namespace ph::link {

void RangeSet::add(uint64_t first, uint64_t last) {
  if (first >= last) return;
  // The first range that could touch [first, last): the one before, if it reaches that far.
  auto it = ranges_.upper_bound(first);
  if (it != ranges_.begin() && std::prev(it)->second >= first) --it;
  while (it != ranges_.end() && it->first <= last) {
    first = std::min(first, it->first);
    last = std::max(last, it->second);
    it = ranges_.erase(it);
  }
  ranges_.emplace_hint(it, first, last);
}

void RangeSet::add(const RangeSet& other) {
  for (const auto& [first, last] : other.ranges_) add(first, last);
}

void RangeSet::remove(uint64_t first, uint64_t last) {
  if (first >= last) return;
  auto it = ranges_.upper_bound(first);
  if (it != ranges_.begin() && std::prev(it)->second > first) --it;
  while (it != ranges_.end() && it->first < last) {
    auto [begin, end] = *it;
    it = ranges_.erase(it);
    if (begin < first) ranges_.emplace(begin, first);
    if (end > last) ranges_.emplace(last, end);
  }
}

bool RangeSet::contains(uint64_t first, uint64_t last) const {
  if (first >= last) return true;
  auto it = ranges_.upper_bound(first);
  return it != ranges_.begin() && std::prev(it)->second >= last;
}

bool RangeSet::intersects(uint64_t first, uint64_t last) const {
  if (first >= last) return false;
  auto it = ranges_.lower_bound(last);
  return it != ranges_.begin() && std::prev(it)->second > first;
}

std::vector<Range> RangeSet::missing(uint64_t first, uint64_t last) const {
  std::vector<Range> holes;
  auto it = ranges_.upper_bound(first);
  if (it != ranges_.begin()) first = std::max(first, std::prev(it)->second);
  for (; first < last && it != ranges_.end() && it->first < last; ++it) {
    holes.push_back({first, it->first});
    first = it->second;
  }
  if (first < last) holes.push_back({first, last});
  return holes;
}

uint64_t RangeSet::contiguous_from(uint64_t from) const {
  auto it = ranges_.upper_bound(from);
  return it == ranges_.begin() ? from : std::max(from, std::prev(it)->second);
}

void RangeSet::forget_below(uint64_t position) {
  remove(0, position);
}

std::vector<Range> RangeSet::list() const {
  std::vector<Range> out;
  out.reserve(ranges_.size());
  for (const auto& [first, last] : ranges_) out.push_back({first, last});
  return out;
}

void RangeSet::encode(std::string& out) const {
  put_varint(out, ranges_.size());
  uint64_t end = 0;
  for (const auto& [first, last] : ranges_) {
    put_varint(out, first - end);
    put_varint(out, last - first);
    end = last;
  }
}

bool RangeSet::decode(Reader& in, size_t max) {
  ranges_.clear();
  uint64_t count = in.varint();
  if (!in.ok() || count > max) return false;
  uint64_t end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t gap = in.varint();
    uint64_t length = in.varint();
    if (!in.ok() || length == 0 || (i > 0 && gap == 0) || gap > UINT64_MAX - end || length > UINT64_MAX - end - gap)
      return false;
    uint64_t first = end + gap;
    end = first + length;
    ranges_.emplace_hint(ranges_.end(), first, end);
  }
  return true;
}

}  // namespace ph::link
