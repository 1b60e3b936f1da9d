#include "core/session/session.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

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

struct SessionTest : testing::Test {
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
TEST_F(SessionTest, keeps_its_promises_under_random_acks_and_reconnects) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    SessionContext c;
    c.limits.inflight_max = 1 + random.below(8);
    c.limits.mqueue_messages_max = 100'000;
    Session s("c", c);
    Received o;
    bool online = false;
    int delivered = 0;
    std::vector<int> arrivals;
    std::map<int, int> unacked;     // packet id -> qos, as the client sees it
    std::set<int> released;         // packet ids after PUBREC
    std::set<int> this_connection;  // PUBLISHes unacknowledged since the last connect
    auto look = [&] {
      for (const auto& line : o.take()) {
        const test::mqtt_text::Line l(line);
        const int id = static_cast<int>(l.number("id"));
        if (l.verb == "pubrel") {
          ASSERT_TRUE(released.contains(id)) << line;
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
        m.reset(v);
        s.deliver(m, {.qos = 2, .subscription_ids = {}}, now);
      } else if (what < 5) {
        if (online) s.detach(now);
        if (!online) {
          this_connection.clear();
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
      look();
      if (HasFatalFailure()) return;
    }
    for (size_t i = 0; i < arrivals.size(); ++i) ASSERT_EQ(arrivals[i], static_cast<int>(i) + 1) << "order";
    ASSERT_EQ(arrivals.size() + s.queued() + (s.in_flight() - unacked.size()), static_cast<size_t>(delivered));
  }
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
