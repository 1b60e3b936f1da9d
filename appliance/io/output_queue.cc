#include "io/output_queue.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"

namespace ph::io {
namespace {

constexpr size_t kCopyInstead = 128;         // a slice up to here is cheaper to copy than to share
constexpr size_t kCopiesKept = 16 * 1024;    // memory of copies that a cleared queue keeps
constexpr size_t kEntriesKept = 256;         // entries that a cleared queue keeps room for
constexpr size_t kCompactAbove = 64 * 1024;  // consumed copies beyond this are given back while the queue is in use

}  // namespace

void OutputQueue::push(Slice bytes) {
  if (bytes.size() <= kCopyInstead) return push_copy(bytes.view());
  bytes_ += bytes.size();
  entries_.push_back({std::move(bytes), 0});
}

void OutputQueue::push_copy(ByteView bytes) {
  if (bytes.empty()) return;
  copies_.append(bytes);
  bytes_ += bytes.size();
  if (entries_.size() > head_ && entries_.back().copied)
    entries_.back().copied += bytes.size();
  else
    entries_.push_back({Slice(), bytes.size()});
}

size_t OutputQueue::gather(iovec* into, size_t max) const {
  size_t count = 0;
  size_t skip = head_used_;
  const char* copies = copies_.data() + copies_used_ + (head_ < entries_.size() && entries_[head_].copied ? skip : 0);
  for (size_t i = head_; i < entries_.size() && count < max; ++i, ++count) {
    const Entry& e = entries_[i];
    size_t size = e.size() - skip;
    const char* from = e.copied ? copies : e.slice.data() + skip;
    if (e.copied) copies += size;
    into[count] = {const_cast<char*>(from), size};  // NOLINT: writev only reads
    skip = 0;
  }
  return count;
}

size_t OutputQueue::peek(char* into, size_t size) const {
  size_t have = 0;
  size_t skip = head_used_;
  size_t copies_at = copies_used_;
  for (size_t i = head_; i < entries_.size() && have < size; ++i) {
    const Entry& e = entries_[i];
    const char* from = e.copied ? copies_.data() + copies_at : e.slice.data();
    size_t n = std::min(e.size() - skip, size - have);
    std::memcpy(into + have, from + skip, n);
    have += n;
    copies_at += e.copied;
    skip = 0;
  }
  return have;
}

void OutputQueue::take_from(OutputQueue& from, size_t size) {
  PH_ASSERT(size <= from.bytes_, "more was moved than was queued");
  while (size > 0) {
    const Entry& e = from.entries_[from.head_];
    const size_t n = std::min(size, e.size() - from.head_used_);
    if (e.copied) {
      push_copy({from.copies_.data() + from.copies_used_ + from.head_used_, n});
    } else {
      bytes_ += n;
      entries_.push_back({e.slice.sub(from.head_used_, n), 0});
    }
    from.consume(n);
    size -= n;
  }
}

void OutputQueue::consume(size_t size) {
  PH_ASSERT(size <= bytes_, "more was written than was queued");
  bytes_ -= size;
  while (size > 0) {
    Entry& e = entries_[head_];
    size_t n = std::min(size, e.size() - head_used_);
    head_used_ += n;
    size -= n;
    if (head_used_ < e.size()) break;
    if (e.copied)
      copies_used_ += e.copied;
    else
      e.slice = Slice();
    ++head_;
    head_used_ = 0;
  }
  if (bytes_ == 0) return clear();
  if (copies_used_ > kCompactAbove && copies_used_ > copies_.size() / 2) {
    copies_.erase(0, copies_used_);
    copies_used_ = 0;
  }
  if (head_ > kEntriesKept && head_ > entries_.size() / 2) {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(head_));
    head_ = 0;
  }
}

void OutputQueue::clear() {
  entries_.clear();
  if (entries_.capacity() > kEntriesKept) entries_.shrink_to_fit();
  copies_.clear();
  if (copies_.capacity() > kCopiesKept) copies_.shrink_to_fit();
  head_ = head_used_ = copies_used_ = bytes_ = 0;
}

}  // namespace ph::io
