// RetainedStore: a worker's copy of the retained messages. Every worker has one, fed by the same letters that carry
// live messages, so what a subscriber gets as retained is never older than what it got live before. Payloads are
// shared.
//
// Copies agree because the highest (version, worker) wins, whatever the order of arrival; a cleared topic keeps a
// tombstone for kTombstoneAge, far longer than a letter is on its way, unless there are too many of them. Bounds:
// messages and bytes, then no new topic is kept (Drop::retained_full); existing topics may always be replaced or
// cleared.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/time.h"
#include "core/routing/topic_index.h"
#include "core/session/counters.h"
#include "core/session/message.h"

namespace ph::broker {

struct RetainedVersion {
  uint64_t number = 0;
  uint32_t worker = 0;
  auto operator<=>(const RetainedVersion&) const = default;
};

class RetainedStore {
 public:
  static constexpr Duration kTombstoneAge = std::chrono::minutes(1);
  static constexpr size_t kTombstonesMax = 10'000;  // more, or more bytes: the oldest go
  static constexpr size_t kTombstoneBytesMax = size_t{4} * 1024 * 1024;

  RetainedStore(size_t messages_max, size_t bytes_max, session::Counters& counters)
      : messages_max_(messages_max), bytes_max_(bytes_max), counters_(counters) {}

  /// An empty payload clears [MQTT-3.3.1-6, MQTT-3.3.1-7]. False: nothing has changed.
  bool set(session::Outgoing& message, RetainedVersion version, Instant now) {
    const session::MessageView& v = message.view();
    const bool clear = v.payload.empty();
    Entry* old = index_.find(v.topic);
    if (old && version < old->version) return false;
    const size_t freed = old && old->message ? old->message->bytes() : 0;
    const size_t size = clear ? 0 : v.topic.size() + v.payload.size() + v.properties.size();
    const bool had = old && old->message;
    if (!clear && ((!had && messages_ >= messages_max_) || bytes_ - freed + size > bytes_max_)) {
      counters_.drop(session::Drop::retained_full);
      if (!had) return false;
      tombstone(v.topic, version, now);  // rather none than the old value
    } else if (clear) {
      tombstone(v.topic, version, now);
    } else {
      forget_expiry(old);
      Entry fresh{session::without_records(message.share()), version, expiries_.end()};
      if (v.expiry) fresh.due = expiries_.emplace(v.received + std::chrono::seconds(*v.expiry), std::string(v.topic));
      index_.set(v.topic, std::move(fresh));
    }
    const bool has = index_.find(v.topic)->message != nullptr;
    messages_ += has ? 1 : 0;
    messages_ -= had ? 1 : 0;
    bytes_ += has ? size : 0;
    bytes_ -= freed;
    update_counter();
    return true;
  }

  /// What is kept for a topic; null: nothing.
  session::MessagePtr find(ByteView topic) {
    const Entry* e = index_.find(topic);
    return e ? e->message : nullptr;
  }

  /// Calls visit(const MessagePtr&) for each live message that the filter matches.
  template <class Visit>
  void match(ByteView filter, Instant now, Visit&& visit) {
    index_.match(filter, [&](Entry& e) {
      if (e.message && !session::expired(e.message->view(), now)) visit(e.message);
    });
  }

  /// Forgets old tombstones and expired messages. Calls gone(topic) for each of the latter.
  template <class Gone>
  void sweep(Instant now, Gone&& gone) {
    while (!tombstones_.empty() && tombstones_.front().since + kTombstoneAge <= now) forget_tombstone();
    while (!expiries_.empty() && expiries_.begin()->first <= now) {
      const std::string topic = expiries_.begin()->second;
      Entry& e = *index_.find(topic);
      const size_t size = e.message->bytes();
      tombstone(topic, e.version, now);
      --messages_;
      bytes_ -= size;
      gone(topic);
    }
    update_counter();
  }
  size_t tombstones() const { return tombstones_.size(); }

  size_t messages() const { return messages_; }
  size_t bytes() const { return bytes_; }

 private:
  using Expiries = std::multimap<Instant, std::string>;
  struct Entry {
    session::MessagePtr message;  // null: cleared
    RetainedVersion version;
    Expiries::iterator due;  // end(): it never expires
  };
  struct Tombstone {
    std::string topic;
    RetainedVersion version;
    Instant since;
  };

  void tombstone(ByteView topic, RetainedVersion version, Instant now) {
    forget_expiry(index_.find(topic));
    index_.set(topic, Entry{nullptr, version, expiries_.end()});
    tombstones_.push_back({std::string(topic), version, now});
    tombstone_bytes_ += topic.size();
    while (tombstones_.size() > kTombstonesMax ||
           (tombstone_bytes_ > kTombstoneBytesMax && tombstones_.size() > 1))  // not the one just made
      forget_tombstone();
  }
  void forget_tombstone() {
    const Tombstone t = std::move(tombstones_.front());
    tombstones_.pop_front();
    tombstone_bytes_ -= t.topic.size();
    const Entry* e = index_.find(t.topic);
    if (e && !e->message && e->version == t.version) index_.erase(t.topic);
  }
  void forget_expiry(Entry* old) {
    if (old && old->due != expiries_.end()) expiries_.erase(old->due);
  }
  void update_counter() {
    const uint64_t shown = counters_.retained.get();
    counters_.retained.add(messages_ - shown);
  }

  size_t messages_max_;
  size_t bytes_max_;
  session::Counters& counters_;
  routing::TopicIndex<Entry> index_;
  std::deque<Tombstone> tombstones_;
  size_t tombstone_bytes_ = 0;
  Expiries expiries_;
  size_t messages_ = 0;
  size_t bytes_ = 0;
};

}  // namespace ph::broker
