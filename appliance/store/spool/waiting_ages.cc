#include "store/spool/waiting_ages.h"

#include <algorithm>

#include "base/coding.h"

namespace ph::spool {
namespace {

constexpr uint8_t kVersion = 1;

}  // namespace

bool WaitingAges::note(uint64_t end, Instant now) {
  if (!marks_.empty() && (marks_.back().below >= end || now - marks_.back().at < keep_ / kMarksPerKeep)) return false;
  marks_.push_back({end, now});
  return true;
}

std::optional<uint64_t> WaitingAges::expired(Instant now) {
  std::optional<uint64_t> below;
  while (!marks_.empty() && now - marks_.front().at >= keep_) {
    below = marks_.front().below;
    marks_.pop_front();
  }
  return below;
}

void WaitingAges::settled(uint64_t sequence) {
  // The last one stays: it says when the next mark is due.
  while (marks_.size() > 1 && marks_.front().below <= sequence) marks_.pop_front();
}

std::optional<Instant> WaitingAges::due(uint64_t end) const {
  if (marks_.empty()) return std::nullopt;
  Instant due = marks_.front().at + keep_;
  if (marks_.back().below < end) due = std::min(due, marks_.back().at + keep_ / kMarksPerKeep);
  return due;
}

std::string WaitingAges::encode(Instant now) const {
  std::string out(1, static_cast<char>(kVersion));
  put_varint(out, marks_.size());
  for (const Mark& m : marks_) {
    put_varint(out, m.below);
    put_varint(out, static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now - m.at).count()));
  }
  return out;
}

bool WaitingAges::decode(ByteView bytes, Instant now) {
  Reader in(bytes);
  std::deque<Mark> marks;
  const bool known = in.fixed<uint8_t>() == kVersion;
  for (uint64_t n = in.varint(); n > 0 && in.ok(); --n) {
    const uint64_t below = in.varint();
    // What waited longer than `keep` is due in any case: no duration overflows.
    const uint64_t keep_ms =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(keep_).count()) + 1;
    const auto waited = std::chrono::milliseconds(std::min(in.varint(), keep_ms));
    if (!marks.empty() && (below <= marks.back().below || now - waited < marks.back().at)) return false;
    marks.push_back({below, now - waited});
  }
  if (!known || !in.ok() || !in.at_end()) return false;
  marks_ = std::move(marks);
  return true;
}

}  // namespace ph::spool
