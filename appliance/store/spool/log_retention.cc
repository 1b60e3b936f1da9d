#include <algorithm>

#include "store/spool/log_source.h"

namespace ph::spool {
namespace {

using RangeList = std::vector<std::pair<uint64_t, uint64_t>>;

RangeList intersection(const RangeList& a, const RangeList& b) {
  RangeList out;
  for (const auto& [a_first, a_last] : a)
    for (const auto& [b_first, b_last] : b) {
      uint64_t first = std::max(a_first, b_first), last = std::min(a_last, b_last);
      if (first < last) out.emplace_back(first, last);
    }
  return out;
}

}  // namespace

LogRetention::LogRetention(SegmentLog& log, std::vector<std::string> targets) : log_(log) {
  for (std::string& t : targets) targets_[std::move(t)];
}

void LogRetention::set_targets(std::vector<std::string> targets) {
  std::erase_if(targets_,
                [&](const auto& t) { return std::find(targets.begin(), targets.end(), t.first) == targets.end(); });
  for (std::string& t : targets) targets_[std::move(t)];
  apply();
  apply_far();
}

void LogRetention::reported(const std::string& target, uint64_t settled, RangeList skipped) {
  auto it = targets_.find(target);
  if (it == targets_.end()) return;
  it->second.settled = settled;
  it->second.skipped = std::move(skipped);
  apply();
}

void LogRetention::apply() {
  if (targets_.empty()) return;
  uint64_t below = UINT64_MAX;
  RangeList unneeded{{0, UINT64_MAX}};
  for (const auto& [name, t] : targets_) {
    if (!t.settled) return;
    below = std::min(below, *t.settled);
    RangeList own = t.skipped;
    own.emplace_back(0, *t.settled);
    unneeded = intersection(unneeded, own);
  }
  log_.release_below(below);
  for (const auto& [first, last] : unneeded)
    if (last > below) log_.release_range(std::max(first, below), last);
}

void LogRetention::far_reported(const std::string& target, uint64_t far) {
  auto it = targets_.find(target);
  if (it == targets_.end()) return;
  it->second.far = far;
  apply_far();
}

void LogRetention::on_far(std::function<void(uint64_t)> far) {
  on_far_ = std::move(far);
  if (far_ && on_far_) on_far_(*far_);
}

void LogRetention::apply_far() {
  if (targets_.empty()) return;
  uint64_t far = UINT64_MAX;
  for (const auto& [name, t] : targets_) {
    if (!t.far) return;
    far = std::min(far, *t.far);
  }
  if (far_ && far <= *far_) return;
  far_ = far;
  if (on_far_) on_far_(far);
}

}  // namespace ph::spool
