// Messages for later over kills: what was acknowledged comes, once, in its time or right at the start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::DurableRig;
using test::MqttClient;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

constexpr const char* kKept = " clean=0 session_expiry=100000";

std::vector<std::string> payloads(const std::vector<std::string>& lines) {
  std::vector<std::string> out;
  for (const auto& line : lines) {
    if (!line.starts_with("publish")) continue;
    const size_t at = line.find("payload=") + 8;
    out.push_back(line.substr(at, line.find(' ', at) - at));
  }
  return out;
}

/// Keys of the store by their letter, without what the store keeps of itself.
std::map<char, size_t> records(port::KeyedStore& store) {
  std::map<char, size_t> out;
  auto count = [&](ByteView key, ByteView) {
    if (key.size() > 3) ++out[key[2]];
    return true;
  };
  EXPECT_TRUE(store.scan("m/", count).has_value());
  return out;
}

/// Takes events into the store, with what it is given along, unless it is told to refuse.
class EventTap final : public port::MessageTap {
 public:
  explicit EventTap(DurableRig& rig) : rig_(rig) {}
  bool wants(std::string_view topic) const override { return topic.starts_with("e/"); }
  void take(port::Message message, port::WriteBatch with, std::move_only_function<void(Result<>)> done) override {
    rig_.loop().post([this, message = std::move(message), with = std::move(with), done = std::move(done)]() mutable {
      if (refusal) return done(std::unexpected(*refusal));
      with.put("tap/" + std::to_string(++taken), std::string(message.payload.view()));
      rig_.committer().request({}, std::move(with), std::move(done));
    });
  }
  size_t events() {
    size_t n = 0;
    EXPECT_TRUE(rig_.store.scan("tap/", [&](ByteView, ByteView) { return ++n, true; }).has_value());
    return n;
  }
  std::optional<Error> refusal;
  uint64_t taken = 0;

 private:
  DurableRig& rig_;
};

class Delayed : public testing::TestWithParam<size_t> {
 protected:
  DurableRig rig{GetParam()};
  EventTap tap{rig};
  MqttClient& connect(const std::string& line) {
    MqttClient& c = rig.connect(line);
    c.take();
    return c;
  }
  void say(MqttClient& c, const std::string& line) {
    c.send(line);
    rig.run();
  }
  void leave_session(const std::string& id, const std::string& filter) {
    MqttClient& c = connect("id=" + id + kKept);
    say(c, "subscribe id=1 " + filter);
    say(c, "disconnect");
  }
  std::vector<std::string> waiting_for(const std::string& id) {
    return payloads(rig.connect("id=" + id + kKept + " receive_maximum=1000").take());
  }
  void restart_with_tap() {
    rig.tap = &tap;
    rig.restart();
  }
};
INSTANTIATE_TEST_SUITE_P(Broker, Delayed, testing::Values(1, 3),
                         [](const auto& p) { return std::to_string(p.param) + "_workers"; });

TEST_P(Delayed, messages_come_in_their_time_after_a_kill_and_due_ones_at_once) {
  for (const char* id : {"s", "t"}) leave_session(id, "filter=t/#:2");
  MqttClient& p = connect("id=p");
  say(p, "publish topic=$delayed/100/t/a qos=1 id=1 payload=later");
  say(p, "publish topic=$delayed/20/t/b qos=2 id=2 payload=soon");
  say(p, "publish topic=$delayed/20/t/b payload=unsure");
  EXPECT_THAT(p.take(), ElementsAre(StartsWith("puback id=1"), StartsWith("pubrec id=2")));
  rig.kill();
  rig.sleep(30s);
  rig.start();
  EXPECT_EQ(rig.stats().delayed, 3U);
  rig.advance(1s);
  EXPECT_EQ(rig.stats().delayed, 1U);
  EXPECT_THAT(waiting_for("s"), testing::UnorderedElementsAre("soon", "unsure"));
  rig.restart();
  rig.advance(65s);
  EXPECT_EQ(rig.stats().delayed, 1U);
  rig.advance(5s);
  EXPECT_EQ(rig.stats().delayed, 0U);
  EXPECT_THAT(waiting_for("s"), ElementsAre("soon", "later"));
  EXPECT_THAT(waiting_for("t"), ElementsAre("soon", "later"));
  const auto left = records(rig.store);
  EXPECT_EQ(left.at('m'), 2U) << "a payload is there once";
  EXPECT_FALSE(left.contains('d') || left.contains('h'));
}

TEST_P(Delayed, nothing_is_acknowledged_before_it_is_on_disk) {
  MqttClient& p = connect("id=p");
  MqttClient& kept = connect(std::string("id=kept") + kKept);
  rig.disk().hold();
  say(p, "publish topic=$delayed/5/t qos=1 id=1 payload=x");
  say(kept, "publish topic=$delayed/5/t qos=2 id=1 payload=y");
  say(kept, "publish topic=$delayed/5/t qos=2 id=1 payload=y dup");
  EXPECT_THAT(p.take(), IsEmpty());
  EXPECT_THAT(kept.take(), IsEmpty());
  rig.disk().release();
  rig.run();
  EXPECT_THAT(p.take(), ElementsAre(StartsWith("puback id=1")));
  EXPECT_THAT(kept.take(), testing::Each(StartsWith("pubrec id=1")));
  EXPECT_EQ(rig.stats().delayed, 2U);
  // The packet id is as durable as the message.
  rig.restart();
  MqttClient& again = connect(std::string("id=kept") + kKept);
  say(again, "publish topic=$delayed/5/t qos=2 id=1 payload=y dup");
  EXPECT_THAT(again.take(), ElementsAre(StartsWith("pubrec id=1")));
  EXPECT_EQ(rig.stats().delayed, 2U);
}

TEST_P(Delayed, what_expired_while_nothing_ran_is_dropped_and_counted) {
  leave_session("s", "filter=t:1");
  MqttClient& p = connect("id=p");
  say(p, "publish topic=$delayed/10/t qos=1 id=1 payload=x message_expiry=60");
  say(p, "publish topic=$delayed/10/t qos=1 id=2 payload=y message_expiry=600");
  rig.kill();
  rig.sleep(100s);
  rig.start();
  rig.advance(1s);
  EXPECT_EQ(rig.stats().dropped(session::Drop::expired), 1U);
  EXPECT_THAT(waiting_for("s"), ElementsAre("y"));
  EXPECT_EQ(records(rig.store)['d'], 0U);
}

TEST_P(Delayed, a_damaged_record_costs_itself) {
  leave_session("s", "filter=t:1");
  MqttClient& p = connect("id=p");
  for (int i = 1; i <= 3; ++i)
    say(p, "publish topic=$delayed/10/t qos=1 id=" + std::to_string(i) + " payload=" + std::to_string(i));
  rig.kill();
  std::vector<std::string> keys;
  ASSERT_TRUE(rig.store.scan("m/d/", [&](ByteView k, ByteView) { return keys.emplace_back(k), true; }).has_value());
  ASSERT_THAT(keys, SizeIs(3));
  port::WriteBatch damage;
  damage.put(keys[0], std::string(20, '\xff'));
  damage.remove("m/m/" + keys[1].substr(4));
  ASSERT_TRUE(rig.store.write(damage, true).has_value());
  rig.start();
  EXPECT_EQ(rig.journal().stats().damaged_records, 2U);
  rig.advance(11s);
  EXPECT_THAT(waiting_for("s"), ElementsAre("3"));
  EXPECT_EQ(records(rig.store)['d'], 0U);
  EXPECT_EQ(records(rig.store)['m'], 1U);
}

TEST_P(Delayed, events_are_taken_once_and_offered_again_while_there_is_no_room) {
  restart_with_tap();
  leave_session("s", "filter=e/#:1");
  MqttClient& p = connect("id=p");
  say(p, "publish topic=$delayed/5/e/x qos=1 id=1 payload=x");
  tap.refusal = Error{"test.full", {}};
  rig.advance(10s);
  EXPECT_EQ(rig.stats().delayed, 1U) << "its publisher was told that it is taken";
  rig.restart();
  tap.refusal.reset();
  rig.advance(2s);
  EXPECT_EQ(tap.events(), 1U);
  rig.restart();
  rig.advance(2s);
  EXPECT_EQ(tap.events(), 1U);
  EXPECT_EQ(rig.stats().delayed, 0U);
  EXPECT_THAT(waiting_for("s"), ElementsAre("x"));
  // What the event plane can take at no time is not held for ever.
  tap.refusal = Error{port::errors::never_taken, {}};
  MqttClient& q = connect("id=q");
  say(q, "publish topic=$delayed/5/e/x qos=1 id=1 payload=y");
  rig.advance(6s);
  EXPECT_EQ(rig.stats().dropped(session::Drop::tap_failed), 1U);
  EXPECT_THAT(waiting_for("s"), ElementsAre("x", "y"));
}

TEST(DelayedLazy, is_acknowledged_at_once_and_written_within_a_second) {
  DurableRig rig(2, {}, Durability::lazy);
  rig.disk().hold();
  MqttClient& p = rig.connect("id=p");
  p.send("publish topic=$delayed/5/t qos=1 id=1 payload=x");
  rig.run();
  EXPECT_THAT(p.take(), SizeIs(2));
  rig.disk().release();
  rig.advance(1s);
  rig.restart();
  EXPECT_EQ(rig.stats().delayed, 1U);
  rig.advance(6s);
  EXPECT_EQ(rig.stats().delayed, 0U);
  rig.advance(1s);
  EXPECT_EQ(records(rig.store), (std::map<char, size_t>{}));
}

/// The process or the power dies at random moments around the due time.
class DelayedCrash : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, DelayedCrash, testing::Range<uint64_t>(1, 81));

TEST_P(DelayedCrash, loses_and_doubles_nothing) {
  Random random(GetParam());
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  DurableRig rig(1 + random.below(3));
  EventTap tap(rig);
  if (random.chance(0.5)) {
    rig.tap = &tap;
    rig.restart();
  }
  const std::vector<std::string> ids{"a", "b", "c"};
  for (const auto& id : ids) {
    MqttClient& c = rig.connect("id=" + id + kKept);
    c.send("subscribe id=1 filter=e/#:2 filter=$share/g/e/#:1");
    c.send("disconnect");
    rig.run();
  }
  constexpr int kMessages = 20;
  std::set<std::string> acknowledged;
  MqttClient& p = rig.open();
  p.on_packet = [&](const std::string& line) {
    if (line.starts_with("puback") || line.starts_with("pubrec"))
      acknowledged.insert(line.substr(line.find("id=") + 3));
  };
  p.send(std::string("connect id=p receive_maximum=100") + kKept);
  for (int i = 1; i <= kMessages; ++i)
    p.send("publish topic=$delayed/" + std::to_string(random.below(3)) + "/e/x qos=" + std::to_string(1 + i % 2) +
           " id=" + std::to_string(i) + " payload=" + std::to_string(i));
  auto step = [&](uint64_t steps) {
    auto loops = rig.all_loops();
    for (; steps > 0; --steps) loops[random.below(loops.size())]->run_one();
  };
  step(random.below(200));
  for (uint64_t n = random.below(6); n > 0; --n) {
    for (auto* loop : rig.all_loops()) loop->advance(std::chrono::milliseconds(random.below(1500)));
    step(random.below(80));
    if (random.chance(0.5))
      rig.kill(&random);
    else
      rig.kill();
    rig.start();
  }
  rig.run();
  rig.advance(5s);
  rig.run();
  std::map<std::string, int> shared;
  for (const auto& id : ids) {
    std::map<std::string, int> own;
    for (const auto& line : rig.connect("id=" + id + kKept + " receive_maximum=1000").take()) {
      if (!line.starts_with("publish")) continue;
      ++own[payloads({line})[0]];
    }
    // Everybody's own copy, and a second one for who was chosen of the group.
    for (const auto& [payload, count] : own) {
      EXPECT_LE(count, 2) << payload;
      if (count == 2) ++shared[payload];
    }
    for (const auto& a : acknowledged) EXPECT_TRUE(own.contains(a)) << a << " was acknowledged, and is lost";
  }
  for (const auto& a : acknowledged) EXPECT_EQ(shared[a], 1) << a;
  EXPECT_EQ(rig.journal().stats().damaged_records, 0U);
  EXPECT_EQ(rig.stats().delayed, 0U);
  const auto left = records(rig.store);
  EXPECT_FALSE(left.contains('d'));
  EXPECT_FALSE(left.contains('h'));
}

}  // namespace
}  // namespace ph::broker
