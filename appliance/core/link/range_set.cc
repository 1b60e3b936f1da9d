#include "core/link/range_set.h"

#include <algorithm>

namespace ph::link {

void RangeSet::add(uint64_t first, uint64_t last) {
  if (first >= last) return;
  auto it = ranges_.upper_bound(first);
  if (it != ranges_.begin() && std::prev(it)->second >= first) {
    --it;
    if (it->second >= last) return;
    it->second = last;
  } else {
    it = ranges_.emplace_hint(it, first, last);
  }
  auto next = std::next(it);
  while (next != ranges_.end() && next->first <= it->second) {
    it->second = std::max(it->second, next->second);
    next = ranges_.erase(next);
  }
}

void RangeSet::add(const RangeSet& other) {
  for (const auto& [first, last] : other.ranges_) add(first, last);
}

void RangeSet::remove(uint64_t first, uint64_t last) {
  if (first >= last) return;
  auto it = ranges_.upper_bound(first);
  if (it != ranges_.begin() && std::prev(it)->second > first) --it;
  while (it != ranges_.end() && it->first < last) {
    uint64_t from = it->first, to = it->second;
    it = ranges_.erase(it);
    if (from < first) ranges_.emplace_hint(it, from, first);
    if (to > last) it = ranges_.emplace_hint(it, last, to);
  }
}

bool RangeSet::contains(uint64_t first, uint64_t last) const {
  return first >= last || contiguous_from(first) >= last;
}

bool RangeSet::intersects(uint64_t first, uint64_t last) const {
  if (first >= last) return false;
  auto it = ranges_.lower_bound(last);
  return it != ranges_.begin() && std::prev(it)->second > first;
}

std::vector<Range> RangeSet::missing(uint64_t first, uint64_t last) const {
  std::vector<Range> gaps;
  uint64_t at = std::min(contiguous_from(first), last);
  for (auto it = ranges_.upper_bound(at); at < last; ++it) {
    uint64_t end = it == ranges_.end() ? last : std::min(it->first, last);
    if (at < end) gaps.push_back({at, end});
    if (end == last) break;
    at = it->second;
  }
  return gaps;
}

std::vector<Range> RangeSet::within(uint64_t first, uint64_t last) const {
  std::vector<Range> parts;
  if (first >= last) return parts;
  auto it = ranges_.upper_bound(first);
  if (it != ranges_.begin() && std::prev(it)->second > first) --it;
  for (; it != ranges_.end() && it->first < last; ++it)
    parts.push_back({std::max(it->first, first), std::min(it->second, last)});
  return parts;
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
  if (!in.ok() || count > max || count > in.rest().size() / 2) return false;
  uint64_t end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t distance = in.varint();
    uint64_t length = in.varint();
    if (!in.ok() || length == 0 || (distance == 0 && i > 0)) return false;
    uint64_t first = end + distance;
    uint64_t last = first + length;
    if (first < end || last < first) return false;
    ranges_.emplace_hint(ranges_.end(), first, last);
    end = last;
  }
  return true;
}

}  // namespace ph::link
