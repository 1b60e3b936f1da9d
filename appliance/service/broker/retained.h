// RetainedStore: a worker's copy of the retained messages. Every worker has one, fed by the same letters that carry
// live messages, so what a subscriber gets as retained is never older than what it got live before. Payloads are
// shared.
//
// Copies agree because the highest (version, worker) wins, whatever the order of arrival; a cleared topic keeps a
// tombstone for kTombstoneAge, far longer than a letter is on its way. Bounds: messages and bytes, then no new topic is
// kept (Drop::retained_full); existing topics may always be replaced or cleared.
#pragma once

#include <cstdint>
#include <deque>
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
      index_.set(v.topic, Entry{message.share(), version});
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

  /// Forgets old tombstones, and expired messages as their topics come by.
  void sweep(Instant now) {
    while (!tombstones_.empty() && tombstones_.front().since + kTombstoneAge <= now) {
      const Tombstone t = std::move(tombstones_.front());
      tombstones_.pop_front();
      const Entry* e = index_.find(t.topic);
      if (e && !e->message && e->version == t.version) index_.erase(t.topic);
    }
  }

  size_t messages() const { return messages_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    session::MessagePtr message;  // null: cleared
    RetainedVersion version;
  };
  struct Tombstone {
    std::string topic;
    RetainedVersion version;
    Instant since;
  };

  void tombstone(ByteView topic, RetainedVersion version, Instant now) {
    index_.set(topic, Entry{nullptr, version});
    tombstones_.push_back({std::string(topic), version, now});
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
  size_t messages_ = 0;
  size_t bytes_ = 0;
};

}  // namespace ph::broker
