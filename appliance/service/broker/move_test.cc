// Sessions that move between workers while messages flow, and taps and sinks across workers. The loops are run in a
// random order, a task at a time, so that letters cross in every way they can.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::BrokerRig;
using test::MqttClient;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

/// Runs single tasks of random loops, `steps` times.
void stagger(BrokerRig& rig, Random& random, uint64_t steps) {
  auto loops = rig.all_loops();
  for (uint64_t i = 0; i < steps; ++i) loops[random.below(loops.size())]->run_one();
}

std::string field(const std::string& line, const std::string& key) {
  const size_t at = line.find(' ' + key + '=');
  if (at == line.npos) return {};
  const size_t from = at + key.size() + 2;
  return line.substr(from, line.find(' ', from) - from);
}

class SessionMove : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, SessionMove, testing::Range<uint64_t>(1, 61));

/// A persistent subscriber reconnects again and again, each time on another worker, while publishers on all workers
/// send numbered messages. Model: every acknowledged number arrives at least once; once exactly unless it was repeated
/// with DUP; first arrivals of one publisher are in order; QoS 2 exactly once.
TEST_P(SessionMove, loses_doubles_and_reorders_nothing) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const size_t workers = 2 + random.below(3);
  BrokerOptions options;
  options.session.inflight_max = 1 + random.below(10);
  BrokerRig rig(workers, options);
  const int qos = 1 + static_cast<int>(random.below(2));

  std::vector<std::vector<std::string>> arrived(workers);  // per publisher, without repeats
  std::multiset<std::string> fresh;                        // deliveries without DUP
  std::set<std::string> seen;
  MqttClient* subscriber = nullptr;
  auto answer = [&](const std::string& line) {
    if (line.starts_with("pubrel")) subscriber->send("pubcomp id=" + field(line, "id"));
    if (!line.starts_with("publish")) return;
    const std::string payload = field(line, "payload");
    if (line.find(" dup") == line.npos) fresh.insert(payload);
    if (seen.insert(payload).second) arrived[std::stoul(payload)].push_back(payload);
    // Some are left unacknowledged until the next connection.
    if (random.chance(0.8)) subscriber->send((qos == 1 ? "puback id=" : "pubrec id=") + field(line, "id"));
  };
  auto reconnect = [&] {
    if (subscriber && random.chance(0.5)) subscriber->drop();
    subscriber = &rig.open();
    subscriber->on_packet = answer;
    subscriber->send("connect v=4 id=s clean=0");
  };
  reconnect();
  subscriber->send("subscribe id=1 filter=t/+:2 filter=t/#:1");
  rig.run();
  std::vector<MqttClient*> publishers;
  for (size_t p = 0; p < workers; ++p) publishers.push_back(&rig.connect("v=4 id=p" + std::to_string(p)));

  std::vector<int> sent(workers, 0);
  for (int step = 0; step < 150; ++step) {
    const size_t p = random.below(workers);
    const std::string n = std::to_string(++sent[p]);
    publishers[p]->send("publish topic=t/" + std::to_string(p) + " qos=" + std::to_string(qos) + " id=" + n +
                        " payload=" + std::to_string(p) + "." + n);
    if (qos == 2) publishers[p]->send("pubrel id=" + n);
    if (random.chance(0.1)) reconnect();
    stagger(rig, random, random.below(12));
  }
  rig.run();
  size_t total = 0;
  for (int n : sent) total += static_cast<size_t>(n);
  for (int i = 0; i < 500 && seen.size() < total; ++i) {  // what was left unacknowledged blocks the window until then
    reconnect();
    rig.run();
  }
  EXPECT_GT(rig.broker->stats().moves, 0U);
  for (size_t p = 0; p < workers; ++p) {
    std::vector<std::string> expected;
    for (int n = 1; n <= sent[p]; ++n) expected.push_back(std::to_string(p) + "." + std::to_string(n));
    EXPECT_EQ(arrived[p], expected) << "publisher " << p;
  }
  for (const auto& payload : seen) EXPECT_LE(fresh.count(payload), 1U) << payload;
  EXPECT_EQ(rig.broker->stats().sessions, 1 + workers);
  EXPECT_EQ(rig.broker->stats().subscriptions, 2U);
}

/// Many connections fight for one client id. In the end exactly one is left, with one session.
TEST_P(SessionMove, one_of_many_rivals_wins) {
  Random random(GetParam());
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  BrokerRig rig(3);
  for (int i = 0; i < 20; ++i) {
    MqttClient& c = rig.open();
    c.send(random.chance(0.5) ? "connect id=x clean=0 session_expiry=50" : "connect id=x");
    c.send("subscribe id=1 filter=t:1");
    stagger(rig, random, random.below(10));
    if (random.chance(0.3)) c.drop();
  }
  rig.run();
  size_t open = 0;
  for (auto& c : rig.clients) open += c->closed() ? 0 : 1;
  EXPECT_LE(open, 1U);
  EXPECT_EQ(rig.broker->stats().connections, open);
  EXPECT_LE(rig.broker->stats().sessions, 1U);
  rig.advance(60s);
  EXPECT_EQ(rig.broker->stats().sessions, open);
  EXPECT_EQ(rig.broker->stats().subscriptions, open);
  rig.connect("id=x").send("disconnect");
  rig.run();
  EXPECT_EQ(rig.broker->stats().sessions, 0U);
  EXPECT_EQ(rig.broker->stats().subscriptions, 0U);
}

/// A tap that answers when the test says so.
class HeldTap final : public port::MessageTap {
 public:
  struct Taken {
    port::Message message;
    std::move_only_function<void(Result<>)> done;
  };
  bool wants(std::string_view topic) const override { return topic.starts_with("tap/"); }
  void take(port::Message message, port::WriteBatch, std::move_only_function<void(Result<>)> done) override {
    taken.push_back({std::move(message), std::move(done)});
  }
  void answer(size_t i, Result<> result = {}) { taken.at(i).done(std::move(result)); }
  std::vector<Taken> taken;
};

struct Tapped : testing::TestWithParam<size_t> {
  HeldTap tap;
  BrokerRig rig{GetParam(), {}, &tap};
  MqttClient& connect(const std::string& line) {
    MqttClient& c = rig.connect(line);
    c.take();
    return c;
  }
  void say(MqttClient& c, const std::string& line) {
    c.send(line);
    rig.run();
  }
  void answer(size_t i, Result<> result = {}) {
    tap.answer(i, std::move(result));
    rig.run();
  }
};
INSTANTIATE_TEST_SUITE_P(Broker, Tapped, testing::Values(1, 2));

TEST_P(Tapped, nothing_is_acknowledged_or_delivered_before_the_tap_has_it) {
  MqttClient& s = connect("id=s");
  MqttClient& p = connect("id=p");
  say(s, "subscribe id=1 filter=tap/#:2");
  s.take();
  say(p, "publish topic=tap/a qos=1 id=1 payload=one message_expiry=9 user=k:v");
  say(p, "publish topic=tap/b qos=2 id=2 payload=two retain");
  say(p, "publish topic=free qos=1 id=3 payload=three");
  ASSERT_EQ(tap.taken.size(), 2U);
  EXPECT_EQ(tap.taken[0].message.expiry_seconds_plus_one, 10U);
  EXPECT_EQ(tap.taken[0].message.properties, std::string("\x26\0\1k\0\1v", 7));
  EXPECT_TRUE(tap.taken[1].message.retain);
  EXPECT_THAT(p.take(), IsEmpty()) << "the free one waits for those before it";
  EXPECT_THAT(s.take(), IsEmpty());
  answer(1);
  EXPECT_THAT(p.take(), IsEmpty());
  EXPECT_THAT(s.take(), ElementsAre("publish topic=tap/b qos=2 id=1 payload=two"));
  answer(0);
  EXPECT_THAT(p.take(), ElementsAre("puback id=1", "pubrec id=2", "puback id=3 reason=no_matching_subscribers"));
  EXPECT_THAT(s.take(), ElementsAre("publish topic=tap/a qos=1 id=2 payload=one message_expiry=9 user=k:v"));
}

TEST_P(Tapped, a_refused_message_was_never_delivered) {
  MqttClient& s = connect("id=s");
  MqttClient& p5 = connect("id=p5");
  MqttClient& p4 = connect("v=4 id=p4 clean=0");
  say(s, "subscribe id=1 filter=tap/#:1");
  s.take();
  say(p5, "publish topic=tap/a qos=1 id=1 payload=x");
  say(p5, "publish topic=tap/a qos=2 id=2 payload=y");
  say(p4, "publish topic=tap/a qos=2 id=1 payload=z");
  for (size_t i = 0; i < 3; ++i) answer(i, fail("spool.full"));
  EXPECT_THAT(p5.take(), ElementsAre("puback id=1 reason=quota_exceeded", "pubrec id=2 reason=quota_exceeded"));
  EXPECT_TRUE(p4.closed()) << "version 3 has no other way to say it";
  EXPECT_THAT(s.take(), IsEmpty());
  MqttClient& again = connect("v=4 id=p4 clean=0");
  say(again, "publish topic=tap/a qos=2 id=1 dup payload=z");
  answer(3);
  EXPECT_THAT(again.take(), ElementsAre("pubrec id=1"));
  EXPECT_THAT(s.take(), ElementsAre("publish topic=tap/a qos=1 id=1 payload=z"));
}

/// The client goes away while the tap is writing, comes back (on another worker) and repeats itself.
TEST_P(Tapped, a_repeat_during_the_write_is_the_same_message) {
  for (int qos : {1, 2}) {
    const std::string q = std::to_string(qos);
    MqttClient& s = connect("id=s" + q);
    say(s, "subscribe id=1 filter=tap/" + q + ":1");
    s.take();
    MqttClient& p = connect("v=4 id=p" + q + " clean=0");
    const size_t first = tap.taken.size();
    say(p, "publish topic=tap/" + q + " qos=" + q + " id=7 payload=x");
    p.drop();
    rig.run();
    if (GetParam() == 2) rig.connect("id=spacer" + q);  // so that the next one lands on the other worker
    MqttClient& back = connect("v=4 id=p" + q + " clean=0");
    say(back, "publish topic=tap/" + q + " qos=" + q + " id=7 dup payload=x");
    EXPECT_EQ(tap.taken.size(), first + 1) << "not taken twice";
    answer(first);
    EXPECT_THAT(back.take(), ElementsAre(qos == 1 ? "puback id=7" : "pubrec id=7"));
    EXPECT_THAT(s.take(), testing::SizeIs(1));
  }
}

TEST_P(Tapped, qos_0_is_best_effort) {
  MqttClient& s = connect("id=s");
  MqttClient& p = connect("id=p");
  say(s, "subscribe id=1 filter=tap/#:1");
  s.take();
  say(p, "publish topic=tap/a payload=x");
  EXPECT_THAT(s.take(), ElementsAre("publish topic=tap/a payload=x"));
  answer(0, fail("spool.full"));
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::tap_failed), 1U);
}

TEST_P(Tapped, the_sink_is_done_when_sessions_have_it) {
  MqttClient& a = connect("id=a session_expiry=60");
  MqttClient& b = connect("id=b session_expiry=60");
  say(a, "subscribe id=1 filter=x/#:1");
  say(b, "subscribe id=1 filter=x/#:1");
  a.drop();
  b.drop();
  rig.run();
  int done = 0;
  port::Message m;
  m.topic = "x/y";
  m.payload = Slice(std::string(5000, 'p'));
  m.qos = 1;
  m.retain = true;
  m.expiry_seconds_plus_one = 31;
  rig.broker->publish(m, [&](Result<> r) { done += r.has_value() ? 1 : 100; });
  m.topic = "x/#";
  rig.broker->publish(m, [&](Result<> r) { done += r.has_value() ? 100 : 10; });
  rig.run();
  EXPECT_EQ(done, 11);
  EXPECT_TRUE(tap.taken.empty());
  for (const char* id : {"a", "b"})
    EXPECT_THAT(rig.connect(std::string("id=") + id + " clean=0").take(),
                ElementsAre(StartsWith("connack present=1"),
                            "publish topic=x/y qos=1 id=1 payload=<5000 bytes> message_expiry=30"));
  EXPECT_EQ(rig.broker->stats().retained, 1U);
}

}  // namespace
}  // namespace ph::broker
