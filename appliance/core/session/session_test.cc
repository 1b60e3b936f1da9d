#include "core/session/session.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/random.h"
#include "support/mqtt_text.h"

namespace ph::session {
namespace {

TEST(Ring, agrees_with_a_deque) {
  const uint64_t seed = 11;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Ring<std::string> ring;
  std::deque<std::string> model;
  for (int step = 0; step < 50'000; ++step) {
    const uint64_t what = random.below(10);
    if (what < 5 && model.size() < 40) {
      ring.push_back(std::to_string(step));
      model.push_back(std::to_string(step));
    } else if (what < 7 && !model.empty()) {
      ring.pop_front();
      model.pop_front();
    } else if (what < 9 && !model.empty()) {
      const size_t at = random.below(model.size());
      ring.erase(at);
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (what == 9 && random.chance(0.01)) {
      ring.clear();
      model.clear();
    }
    ASSERT_EQ(ring.size(), model.size());
    for (size_t i = 0; i < model.size(); ++i) ASSERT_EQ(ring[i], model[i]) << "step " << step;
  }
}

/// Keeps what is sent, decoded.
class Received final : public Output {
 public:
  void send(Slice bytes) override { bytes_ += bytes.view(); }
  void send_copy(ByteView bytes) override { bytes_ += bytes; }
  size_t unsent_bytes() const override { return unsent; }
  void notify_below(size_t) override {}
  std::vector<std::string> take() { return test::describe_all(bytes_, Version::v311); }
  size_t unsent = 0;

 private:
  std::string bytes_;
};

/// A store that shows what was told only once it is committed, as the real one does.
class SlowKeeper final : public Keeper, public MessageNumbers {
 public:
  void add(uint64_t, uint64_t sequence, const MessagePtr& message, uint8_t qos, bool retain, std::span<const uint32_t>,
           const SharedKey& shared) override {
    told_.push_back({sequence, KeptEntry{sequence, message, {}, qos, retain, false, 0, shared}});
  }
  void change(uint64_t, const KeptEntry& entry, uint64_t) override { told_.push_back({entry.sequence, entry}); }
  void remove(uint64_t, uint64_t sequence, uint64_t) override { told_.push_back({sequence, std::nullopt}); }
  void inbound(uint64_t, uint16_t, bool) override {}
  void touch(Session&) override {}
  uint64_t turn() const override { return turn_; }
  bool durable(uint64_t turn) const override { return turn < turn_; }
  bool may_send(uint64_t turn) const override { return durable(turn); }
  void wake(Session&) override { waking_ = true; }
  KeptPage load(uint64_t, uint64_t from, size_t messages_max, size_t bytes_max) override {
    KeptPage page;
    page.next = from;
    size_t bytes = 0;
    auto it = entries_.lower_bound(from);
    for (; it != entries_.end() && page.entries.size() < messages_max && bytes <= bytes_max; ++it) {
      page.entries.push_back(it->second);
      page.next = it->first + 1;
      bytes += bytes_of(it->second.message);
    }
    page.end = it == entries_.end();
    return page;
  }
  uint64_t next() override { return ++number_; }
  /// True if a session asked to be woken.
  bool commit() {
    for (auto& [sequence, entry] : std::exchange(told_, {})) {
      if (entry)
        entries_[sequence] = std::move(*entry);
      else
        entries_.erase(sequence);
    }
    ++turn_;
    return std::exchange(waking_, false);
  }

 private:
  std::vector<std::pair<uint64_t, std::optional<KeptEntry>>> told_;
  std::map<uint64_t, KeptEntry> entries_;
  uint64_t turn_ = 1;
  uint64_t number_ = 0;
  bool waking_ = false;
};

struct SessionTest : testing::Test {
  void keeps_its_promises(bool durable);
  void deliver(const std::string& payload, uint8_t qos) {
    MessageView v;
    v.topic = "t";
    v.payload = payload;
    v.qos = qos;
    v.received = now;
    Outgoing o;
    o.reset(v);
    session.deliver(o, {.qos = 2, .subscription_ids = {}}, now);
  }
  SessionContext context;
  Session session{"c", context};
  Received out;
  Instant now{1h};
};

/// A client that acknowledges at random, disconnects at random and is slow at random. Model: all QoS 1 and 2 payloads
/// in order, each sent without DUP once; nothing but PUBREL after PUBREC; never more in flight than the window.
void SessionTest::keeps_its_promises(bool durable) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    SessionContext c;
    c.limits.inflight_max = 1 + random.below(8);
    c.limits.mqueue_messages_max = 100'000;
    Session s("c", c);
    SlowKeeper keeper;
    c.keeper = &keeper;
    if (durable) s.keep(1);
    Received o;
    bool online = false;
    int delivered = 0;
    std::vector<int> arrivals;
    std::map<int, int> unacked;     // packet id -> qos, as the client sees it
    std::set<int> released;         // packet ids after PUBREC
    std::set<int> this_connection;  // PUBLISHes unacknowledged since the last connect
    std::set<int> pubrels;          // that came on this connection
    auto look = [&] {
      for (const auto& line : o.take()) {
        const test::mqtt_text::Line l(line);
        const int id = static_cast<int>(l.number("id"));
        if (l.verb == "pubrel") {
          ASSERT_TRUE(released.contains(id)) << line;
          pubrels.insert(id);
          continue;
        }
        ASSERT_EQ(l.verb, "publish") << line;
        const int n = static_cast<int>(l.number("payload"));
        const bool dup = l.find("dup");
        ASSERT_FALSE(released.contains(id)) << "published again after PUBREC: " << line;
        ASSERT_EQ(dup, unacked.contains(id)) << line;
        if (!dup) arrivals.push_back(n);
        unacked[id] = static_cast<int>(l.number("qos"));
        ASSERT_TRUE(this_connection.insert(id).second) << "repeated without a reconnect: " << line;
        ASSERT_LE(this_connection.size(), c.limits.inflight_max);
      }
    };
    for (int step = 0; step < 400; ++step) {
      const uint64_t what = random.below(10);
      if (what < 4) {
        MessageView v;
        const std::string payload = std::to_string(++delivered);
        v.topic = "t";
        v.payload = payload;
        v.qos = static_cast<uint8_t>(1 + random.below(2));
        v.received = now;
        Outgoing m;
        m.set_numbers(&keeper);
        m.reset(v);
        s.deliver(m, {.qos = 2, .subscription_ids = {}}, now);
      } else if (what < 5) {
        if (online) s.detach(now);
        if (online && durable) {
          ASSERT_EQ(s.in_flight() + s.resident(), 0U) << "an absent client's are in the store";
        }
        if (!online) {
          this_connection.clear();
          pubrels.clear();
          s.attach(o, {Version::v311, 65535, 0xFFFFFFFF});
          s.resume(now);
        }
        online = !online;
      } else if (what < 6) {
        o.unsent = o.unsent ? 0 : c.limits.output_soft + 1;
        if (online && !o.unsent) s.on_drained(now);
      } else if (online && !unacked.empty()) {
        auto it = std::next(unacked.begin(), static_cast<std::ptrdiff_t>(random.below(unacked.size())));
        const auto id = static_cast<uint16_t>(it->first);
        if (!this_connection.contains(id) && !released.contains(id)) continue;
        if (durable && released.contains(id) && !pubrels.contains(id)) continue;  // PUBREL comes from the store first
        if (it->second == 2 && !released.contains(id)) {
          released.insert(id);
          ASSERT_EQ(s.on_pubrec(id, ReasonCode::success, now), ReasonCode::success);
        } else {
          const bool two = it->second == 2;
          unacked.erase(it);
          this_connection.erase(id);
          released.erase(id);
          ASSERT_EQ(two ? s.on_pubcomp(id, now) : s.on_puback(id, now), ReasonCode::success);
        }
      }
      if (random.chance(0.3) && keeper.commit()) s.pump(now);
      look();
      if (HasFatalFailure()) return;
    }
    for (size_t i = 0; i < arrivals.size(); ++i) ASSERT_EQ(arrivals[i], static_cast<int>(i) + 1) << "order";
    ASSERT_EQ(arrivals.size() + s.queued() + (s.in_flight() - unacked.size()), static_cast<size_t>(delivered));
  }
}

TEST_F(SessionTest, keeps_its_promises_under_random_acks_and_reconnects) {
  keeps_its_promises(false);
}

TEST_F(SessionTest, keeps_them_from_a_store_that_is_behind) {
  keeps_its_promises(true);
}

TEST_F(SessionTest, what_was_sent_is_completed_although_it_expired) {
  SlowKeeper keeper;
  context.keeper = &keeper;
  session.keep(1);
  auto deliver_expiring = [&](const std::string& payload) {
    MessageView v;
    v.topic = "t";
    v.payload = payload;
    v.qos = 1;
    v.received = now;
    v.expiry = 10;
    Outgoing o;
    o.set_numbers(&keeper);
    o.reset(v);
    session.deliver(o, {.qos = 2, .subscription_ids = {}}, now);
  };
  session.attach(out, {Version::v311, 65535, 0xFFFFFFFF});
  deliver_expiring("sent");
  EXPECT_EQ(out.take().size(), 1U);
  session.detach(now);
  deliver_expiring("waits");
  keeper.commit();
  now += 11s;
  session.attach(out, {Version::v311, 65535, 0xFFFFFFFF});
  session.resume(now);
  EXPECT_EQ(out.take(), std::vector<std::string>{"publish topic=t qos=1 id=1 dup payload=sent"});
  EXPECT_EQ(context.counters.dropped(Drop::expired), 1U);
}

/// The bounds of an absent client's queue hold for what was never sent, and dropping brings nothing into memory.
TEST_F(SessionTest, what_was_sent_is_not_dropped_for_room) {
  SlowKeeper keeper;
  context.keeper = &keeper;
  context.limits.inflight_max = 2;
  context.limits.mqueue_messages_max = 3;
  session.keep(1);
  Outgoing o;
  o.set_numbers(&keeper);
  auto give = [&](int n) {
    MessageView v;
    const std::string payload = std::to_string(n);
    v.topic = "t";
    v.payload = payload;
    v.qos = 1;
    v.received = now;
    o.reset(v);
    session.deliver(o, {.qos = 1, .subscription_ids = {}}, now);
    keeper.commit();
  };
  session.attach(out, {Version::v311, 65535, 0xFFFFFFFF});
  for (int n = 1; n <= 3; ++n) give(n);
  EXPECT_EQ(out.take().size(), 2U);
  session.detach(now);
  for (int n = 4; n <= 9; ++n) give(n);
  EXPECT_EQ(session.resident(), 0U);
  EXPECT_EQ(context.counters.dropped(Drop::queue_full), 4U);
  keeper.commit();
  context.limits.inflight_max = 10;
  session.attach(out, {Version::v311, 65535, 0xFFFFFFFF});
  session.resume(now);
  std::string got;
  for (const auto& line : out.take()) got += line.substr(line.find("payload=") + 8);
  EXPECT_EQ(got, "12789");
}

TEST_F(SessionTest, queue_is_bounded_in_bytes_too) {
  context.limits.mqueue_bytes_max = 1000;
  for (int i = 0; i < 10; ++i) deliver(std::string(300, static_cast<char>('0' + i)), 1);
  EXPECT_EQ(session.queued(), 3U);
  EXPECT_LE(session.queued_bytes(), 1000U);
  EXPECT_EQ(context.counters.dropped(Drop::queue_full), 7U);
  deliver(std::string(2000, 'x'), 1);
  EXPECT_EQ(session.queued(), 3U) << "what can never fit drops nothing else";
  EXPECT_EQ(context.counters.dropped(Drop::queue_full), 8U);
}

TEST_F(SessionTest, packet_ids_in_flight_are_never_reused) {
  context.limits.inflight_max = 3;
  session.attach(out, {Version::v311, 65535, 0xFFFFFFFF});
  deliver("keep", 1);
  EXPECT_EQ(out.take(), std::vector<std::string>{"publish topic=t qos=1 id=1 payload=keep"});
  for (int i = 0; i < 70'000; ++i) {
    deliver("x", 1);
    const auto got = out.take();
    ASSERT_EQ(got.size(), 1U);
    const auto id = static_cast<uint16_t>(test::mqtt_text::Line(got[0]).number("id"));
    ASSERT_GT(id, 1U) << "1 is in flight, 0 is none";
    session.on_puback(id, now);
  }
}

TEST_F(SessionTest, end_counts_what_is_lost) {
  deliver("a", 1);
  deliver("b", 0);
  session.end();
  EXPECT_EQ(context.counters.dropped(Drop::session_ended), 2U);
}

TEST(Outgoing, encodes_once_and_copies_once) {
  const std::string payload(5000, 'p');
  MessageView v;
  v.topic = "t";
  v.payload = payload;
  Outgoing o;
  o.reset(v);
  const MessagePtr kept = o.share();
  EXPECT_EQ(kept, o.share());
  EXPECT_EQ(kept->payload.data(), o.payload().data()) << "queue and sockets share one payload";
  Received a, b;
  o.write(a, Version::v311, {}, Instant{});
  o.write(b, Version::v311, {}, Instant{});
  EXPECT_EQ(a.take(), b.take());
}

}  // namespace
}  // namespace ph::session
