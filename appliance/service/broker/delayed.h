// DelayedStore: messages that wait for their time ($delayed/<seconds>/<topic>). Each worker has one, for what was
// published on it; the owner asks for what is due. What survives a restart are its records (m/d/ in
// core/session/records.h), which worker_delayed.cc writes.
//
// Bounds: messages and bytes, of this store, with those on their way out; beyond them add() refuses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/time.h"
#include "core/session/records.h"

namespace ph::broker {

class DelayedStore {
 public:
  static constexpr uint32_t kSecondsMax = 4'294'967;  // 49 days and some

  DelayedStore(size_t messages_max, size_t bytes_max) : messages_max_(messages_max), bytes_max_(bytes_max) {}

  struct Entry {
    session::MessagePtr message;
    uint32_t seconds = 0;  // that it was put off for
    bool tapped = false;   // the event plane has it already
    session::Publisher publisher;
    size_t bytes() const { return message->bytes() + publisher.bytes(); }
  };

  bool fits(size_t bytes) const { return messages_ < messages_max_ && bytes_ + bytes <= bytes_max_; }
  /// False: it is full, and nothing was kept. Messages of one time keep their order.
  bool add(Instant due, Entry entry) {
    if (!fits(entry.bytes())) return false;
    restore(due, std::move(entry));
    return true;
  }
  /// One that was taken before this start, whatever the bounds are now.
  void restore(Instant due, Entry entry) {
    ++messages_;
    bytes_ += entry.bytes();
    entries_.emplace(due, std::move(entry));
  }
  /// The next one whose time has come. It counts until it is put back or finished.
  std::optional<Entry> take_due(Instant now) {
    if (entries_.empty() || entries_.begin()->first > now) return std::nullopt;
    std::optional<Entry> out = std::move(entries_.begin()->second);
    entries_.erase(entries_.begin());
    return out;
  }
  void put_back(Instant due, Entry entry) { entries_.emplace(due, std::move(entry)); }
  void finished(const Entry& entry) {
    --messages_;
    bytes_ -= entry.bytes();
  }
  size_t size() const { return messages_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t messages_max_;
  size_t bytes_max_;
  std::multimap<Instant, Entry> entries_;
  size_t messages_ = 0;
  size_t bytes_ = 0;
};

/// The parts of "$delayed/<seconds>/<topic>".
struct DelayedTopic {
  uint32_t seconds = 0;
  ByteView topic;
};
inline constexpr ByteView kDelayedPrefix = "$delayed/";
/// nullopt: it begins like one, but seconds or topic are missing or out of range.
inline std::optional<DelayedTopic> delayed_topic(ByteView topic) {
  ByteView rest = topic.substr(kDelayedPrefix.size());
  uint64_t seconds = 0;
  size_t digits = 0;
  while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9' && digits < 8)
    seconds = seconds * 10 + static_cast<uint64_t>(rest[digits++] - '0');
  if (digits == 0 || digits == rest.size() || rest[digits] != '/' || seconds > DelayedStore::kSecondsMax)
    return std::nullopt;
  rest.remove_prefix(digits + 1);
  if (rest.empty()) return std::nullopt;
  return DelayedTopic{static_cast<uint32_t>(seconds), rest};
}

}  // namespace ph::broker
