// DelayedStore: messages that wait for their time ($delayed/<seconds>/<topic>). Each worker has one, for what was
// published on it; the owner asks for what is due. Everything that has to survive a restart is in Entry, and changes
// only in add() and take_due().
//
// Bounds: messages and bytes, of this store; beyond them add() refuses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/time.h"
#include "core/session/message.h"

namespace ph::broker {

class DelayedStore {
 public:
  static constexpr uint32_t kSecondsMax = 4'294'967;  // 49 days and some

  DelayedStore(size_t messages_max, size_t bytes_max) : messages_max_(messages_max), bytes_max_(bytes_max) {}

  /// False: it is full, and nothing was kept. Messages of one time keep their order.
  bool add(Instant due, session::MessagePtr message) {
    if (entries_.size() >= messages_max_ || bytes_ + message->bytes() > bytes_max_) return false;
    bytes_ += message->bytes();
    entries_.emplace(due, std::move(message));
    return true;
  }
  /// The next one whose time has come, or null.
  session::MessagePtr take_due(Instant now) {
    if (entries_.empty() || entries_.begin()->first > now) return nullptr;
    session::MessagePtr out = std::move(entries_.begin()->second);
    entries_.erase(entries_.begin());
    bytes_ -= out->bytes();
    return out;
  }
  size_t size() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  size_t messages_max_;
  size_t bytes_max_;
  std::multimap<Instant, session::MessagePtr> entries_;
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
