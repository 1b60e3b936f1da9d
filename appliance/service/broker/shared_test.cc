// Shared subscriptions, on one worker and over several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::BrokerRig;
using test::MqttClient;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string field(const std::string& line, const std::string& key) {
  const size_t at = line.find(' ' + key + '=');
  if (at == line.npos) return {};
  const size_t from = at + key.size() + 2;
  return line.substr(from, line.find(' ', from) - from);
}

class SharedOnWorkers : public testing::TestWithParam<size_t> {
 protected:
  BrokerRig rig{GetParam()};
  MqttClient& connect(const std::string& line) {
    MqttClient& c = rig.connect(line);
    c.take();
    return c;
  }
  MqttClient& member(const std::string& line, const std::string& filter = "$share/g/t/#:1") {
    MqttClient& c = connect(line);
    c.send("subscribe id=1 filter=" + filter);
    rig.run();
    EXPECT_THAT(c.take(), ElementsAre(StartsWith("suback id=1 ")));
    return c;
  }
  void publish(MqttClient& p, int from, int to, int qos = 1) {
    for (int i = from; i < to; ++i) {
      p.send("publish topic=t/x qos=" + std::to_string(qos) + " id=" + std::to_string(i + 1) +
             " payload=" + std::to_string(i));
      rig.run();
      p.take();
    }
  }
  /// Payloads that came; each is acknowledged if asked.
  std::vector<int> read(MqttClient& c, bool acknowledge = true) {
    std::vector<int> out;
    for (bool more = true; more; rig.run()) {
      const auto lines = c.take();
      more = !lines.empty();
      for (const auto& line : lines) {
        if (!line.starts_with("publish")) continue;
        out.push_back(std::stoi(field(line, "payload")));
        if (acknowledge && !field(line, "id").empty()) c.send("puback id=" + field(line, "id"));
      }
    }
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Broker, SharedOnWorkers, testing::Values(1, 2, 4),
                         [](const auto& p) { return std::to_string(p.param) + "_workers"; });

// [MQTT-4.8.2-4]
TEST_P(SharedOnWorkers, each_message_goes_to_one_member_evenly) {
  std::vector<MqttClient*> members;
  for (int i = 0; i < 3; ++i) members.push_back(&member("id=m" + std::to_string(i)));
  MqttClient& other = member("id=o", "$share/other/t/x:1");
  MqttClient& plain = member("id=plain", "t/x:0");
  std::vector<MqttClient*> publishers{&connect("id=p1"), &connect("id=p2")};
  for (auto* p : publishers) publish(*p, 0, 90);
  for (auto* m : members) {
    const auto got = read(*m);
    EXPECT_NEAR(static_cast<double>(got.size()), 60, 2);
  }
  EXPECT_EQ(read(other).size(), 180U);
  EXPECT_EQ(read(plain).size(), 180U);
  EXPECT_EQ(rig.broker->stats().subscriptions, 5U);
}

TEST_P(SharedOnWorkers, one_publishers_messages_keep_their_order_at_each_member) {
  MqttClient& a = member("id=a");
  MqttClient& b = member("id=b");
  MqttClient& p = connect("id=p");
  for (int i = 0; i < 60; ++i)
    p.send("publish topic=t/x qos=1 id=" + std::to_string(i + 1) + " payload=" + std::to_string(i));
  rig.run();
  for (MqttClient* m : {&a, &b}) {
    const auto got = read(*m);
    EXPECT_EQ(got.size(), 30U);
    EXPECT_TRUE(std::ranges::is_sorted(got));
  }
}

TEST_P(SharedOnWorkers, queue_is_a_group_without_a_name_and_3x_clients_may_share) {
  MqttClient& a = member("v=4 id=a", "$queue/t/x:1");
  MqttClient& b = member("v=3 id=b", "$queue/t/x:1");
  MqttClient& p = connect("id=p");
  publish(p, 0, 20);
  EXPECT_EQ(read(a).size(), 10U);
  EXPECT_EQ(read(b).size(), 10U);
}

TEST_P(SharedOnWorkers, online_members_come_first) {
  MqttClient& a = member("id=a session_expiry=100");
  MqttClient& b = member("id=b session_expiry=100");
  MqttClient& p = connect("id=p");
  a.drop();
  rig.run();
  publish(p, 0, 10);
  EXPECT_EQ(read(b).size(), 10U);
  b.drop();
  rig.run();
  publish(p, 10, 20);  // all are offline: it waits with both
  EXPECT_EQ(read(rig.connect("id=a session_expiry=100 clean=0")).size(), 5U);
  EXPECT_EQ(read(rig.connect("id=b session_expiry=100 clean=0")).size(), 5U);
}

TEST_P(SharedOnWorkers, what_a_member_leaves_behind_goes_to_another) {
  MqttClient& a = member("id=a session_expiry=100");
  MqttClient& b = member("id=b");
  MqttClient& p = connect("id=p");
  publish(p, 0, 80);
  const auto kept = read(a, false);  // 32 in flight and not acknowledged, 8 queued
  EXPECT_EQ(kept.size(), 32U);
  EXPECT_EQ(read(b).size(), 40U);
  a.drop();
  rig.run();
  EXPECT_THAT(read(b), IsEmpty()) << "its session goes on";
  rig.advance(101s);
  EXPECT_EQ(rig.broker->stats().sessions, 2U);
  auto rest = read(b);
  EXPECT_EQ(rest.size(), 40U);
  EXPECT_TRUE(std::ranges::is_sorted(rest));
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::session_ended), 0U);
}

// [MQTT-4.8.2-5]
TEST_P(SharedOnWorkers, qos_2_that_was_sent_is_for_its_member_only) {
  MqttClient& a = member("id=a session_expiry=100", "$share/g/t/#:2");
  MqttClient& p = connect("id=p");
  publish(p, 0, 40, 2);
  MqttClient& b = member("id=b", "$share/g/t/#:2");
  EXPECT_EQ(read(a, false).size(), 32U);
  a.send("disconnect session_expiry=0");
  rig.run();
  EXPECT_EQ(read(b, false).size(), 8U) << "the queued ones";
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::session_ended), 32U);
}

TEST_P(SharedOnWorkers, the_last_member_that_ends_counts_what_is_lost) {
  MqttClient& a = member("id=a");
  publish(connect("id=p"), 0, 5);
  a.drop();
  rig.run();
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::session_ended), 5U);
  MqttClient& p = connect("id=q");
  p.send("publish topic=t/x qos=1 id=1 payload=x");
  rig.run();
  EXPECT_THAT(p.take(), ElementsAre("puback id=1 reason=no_matching_subscribers"));
}

TEST_P(SharedOnWorkers, retained_messages_are_not_sent_and_options_are_kept) {
  MqttClient& p = connect("id=p");
  p.send("publish topic=t/x retain payload=old");
  rig.run();
  MqttClient& a = connect("id=a");
  a.send("subscribe id=1 subscription_id=9 filter=$share/g/t/+:0:rap");
  rig.run();
  EXPECT_THAT(a.take(), ElementsAre("suback id=1 success"));
  p.send("publish topic=t/x retain qos=1 id=1 payload=new");
  rig.run();
  EXPECT_THAT(a.take(), ElementsAre("publish topic=t/x retain payload=new subscription_id=9"));
  a.send("unsubscribe id=2 filter=$share/g/t/+ filter=$share/h/t/+");
  rig.run();
  EXPECT_THAT(a.take(), ElementsAre("unsuback id=2 success no_subscription_existed"));
  p.send("publish topic=t/x payload=gone");
  rig.run();
  EXPECT_THAT(a.take(), IsEmpty());
  EXPECT_EQ(rig.broker->stats().subscriptions, 0U);
}

// [MQTT-3.8.3-4]
TEST_P(SharedOnWorkers, no_local_is_a_protocol_error) {
  for (const char* filter : {"$share/g/t:0:nl", "$queue/t:0:nl"}) {
    MqttClient& a = connect("id=a");
    a.send(std::string("subscribe id=1 filter=") + filter);
    rig.run();
    ASSERT_EQ(a.received().size(), 1U);
    EXPECT_THAT(a.take()[0], HasSubstr("protocol_error"));
    EXPECT_TRUE(a.closed());
  }
}

TEST_P(SharedOnWorkers, messages_follow_a_member_to_another_worker) {
  for (int turn = 0; turn < 4; ++turn) {
    MqttClient& a = rig.connect("id=a session_expiry=100 clean=0");
    if (turn == 0) a.send("subscribe id=1 filter=$share/g/t/#:1");
    rig.run();
    MqttClient& p = connect("id=p" + std::to_string(turn));
    publish(p, 0, 10);
    a.take();
    a.drop();
    rig.run();
    publish(p, 10, 20);
  }
  MqttClient& a = rig.connect("id=a session_expiry=100 clean=0");
  const auto got = read(a);
  EXPECT_EQ(got.size(), 80U);
}

TEST_P(SharedOnWorkers, the_event_plane_shares_too_and_waits_for_the_member) {
  MqttClient& a = member("id=a session_expiry=100");
  size_t done = 0;
  for (int i = 0; i < 1000; ++i) {
    port::Message m;
    m.topic = "t/x";
    m.qos = 1;
    m.payload = Slice(std::to_string(i));
    rig.broker->publish(m, [&](const Result<>& r) { done += r ? 1 : 0; });
  }
  rig.run();
  EXPECT_LT(done, 1000U);
  EXPECT_EQ(read(a).size(), 1000U);
  EXPECT_EQ(done, 1000U);
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::queue_full), 0U);
}

TEST(Shared, strategies_are_obeyed) {
  BrokerOptions options;
  options.shared_strategy = routing::SharedStrategy::hash_clientid;
  BrokerRig rig(3, options);
  std::map<std::string, std::set<std::string>> publishers_of;
  std::vector<MqttClient*> members;
  for (const char* id : {"a", "b", "c", "d"}) {
    members.push_back(&rig.connect(std::string("id=") + id));
    members.back()->send("subscribe id=1 filter=$share/g/#:0");
  }
  rig.run();
  for (auto* m : members) m->take();
  for (int i = 0; i < 12; ++i) {
    MqttClient& p = rig.connect("id=p" + std::to_string(i));
    for (int n = 0; n < 3; ++n) p.send("publish topic=t" + std::to_string(n) + " payload=p" + std::to_string(i));
  }
  rig.run();
  std::map<std::string, int> seen;
  for (size_t m = 0; m < members.size(); ++m)
    for (const auto& line : members[m]->take()) {
      publishers_of[field(line, "payload")].insert(std::to_string(m));
      ++seen[std::to_string(m)];
    }
  EXPECT_EQ(publishers_of.size(), 12U);
  for (const auto& [p, who] : publishers_of) EXPECT_EQ(who.size(), 1U) << p;
  EXPECT_GT(seen.size(), 1U);
}

/// What one session leaves goes to members on several workers: none of them sees all of it.
TEST(Shared, publishers_are_answered_behind_a_hand_on_to_several_workers) {
  test::DurableRig rig(3);
  const std::string kept = " clean=0 session_expiry=1000";
  const auto leave = [&](const std::string& id) {
    MqttClient& c = rig.connect("id=" + id + kept);
    c.send("subscribe id=1 filter=$share/g/t:1");
    c.send("disconnect");
    rig.run();
  };
  leave("a");
  MqttClient& p = rig.connect("id=p");
  for (int i = 1; i <= 7; ++i) p.send("publish topic=t qos=1 id=" + std::to_string(i) + " payload=old");
  MqttClient& w = rig.connect("id=w" + kept);
  w.send("subscribe id=1 filter=n:1");
  rig.run();
  for (const char* id : {"b", "c", "d"}) leave(id);
  rig.connect("id=a clean=1 session_expiry=1000");
  for (int i = 0; i < 6; ++i) {
    MqttClient& q = rig.connect("id=q" + std::to_string(i));
    q.take();
    q.send("publish topic=n qos=1 id=9 payload=x");
    rig.run();
    EXPECT_THAT(q.take(), ElementsAre("puback id=9")) << i;
  }
  rig.restart();
  size_t got = 0;
  for (const char* id : {"b", "c", "d"})
    for (const auto& line : rig.connect(std::string("id=") + id + kept).take()) got += line.starts_with("publish");
  EXPECT_EQ(got, 7U);
}

/// Members of a group come, go, end and come back on other workers, one task of a random loop at a time, while
/// publishers on all workers send numbered messages. Model: every number is acknowledged and received by somebody; one
/// that was acknowledged by its receiver is seldom received by anybody else.
template <class Rig>
void move_members(Rig& rig, size_t workers, Random& random) {
  auto stagger = [&](uint64_t steps) {
    auto loops = rig.all_loops();
    for (uint64_t i = 0; i < steps; ++i) loops[random.below(loops.size())]->run_one();
  };
  std::map<std::string, std::set<std::string>> acknowledged_by;  // payload -> members
  std::set<std::string> received;
  bool all = false;  // every message is acknowledged
  std::vector<MqttClient*> members(3, nullptr);
  auto join = [&](size_t i) {
    const std::string id = " id=m" + std::to_string(i);
    if (members[i] && random.chance(0.5)) members[i]->drop();
    // Sometimes the old session ends here and a new one begins.
    const bool clean = i > 0 && random.chance(0.3);
    MqttClient& c = rig.open();
    c.on_packet = [&, id, client = &c](const std::string& line) {
      if (!line.starts_with("publish")) return;
      received.insert(field(line, "payload"));
      if (!all && random.chance(0.2)) return;
      acknowledged_by[field(line, "payload")].insert(id);
      client->send("puback id=" + field(line, "id"));
    };
    c.send("connect clean=" + std::string(clean ? "1" : "0") + " session_expiry=100" + id);
    c.send("subscribe id=1 filter=$share/g/t:1");
    members[i] = &c;
  };
  for (size_t i = 0; i < members.size(); ++i) join(i);
  rig.run();
  std::vector<MqttClient*> publishers;
  for (size_t w = 0; w < workers; ++w) publishers.push_back(&rig.connect("id=p" + std::to_string(w)));
  int sent = 0;
  for (int round = 0; round < 60; ++round) {
    for (int n = 0; n < 5; ++n) {
      const std::string number = std::to_string(++sent);
      publishers[random.below(workers)]->send("publish topic=t qos=1 id=" + number + " payload=" + number);
      stagger(random.below(20));
    }
    if (random.chance(0.5)) join(random.below(members.size()));
    stagger(random.below(60));
  }
  all = true;
  for (int i = 0; i < 3; ++i) {  // what is not acknowledged comes again
    for (size_t m = 0; m < members.size(); ++m) join(m);
    rig.run();
  }
  EXPECT_EQ(received.size(), static_cast<size_t>(sent));
  size_t accepted = 0;
  for (MqttClient* p : publishers)
    for (const auto& line : p->received()) accepted += line.starts_with("puback") ? 1 : 0;
  EXPECT_EQ(accepted, static_cast<size_t>(sent)) << "nobody waits for ever";
  size_t queued_twice = 0;
  for (const auto& [payload, by] : acknowledged_by) queued_twice += by.size() > 1 ? 1 : 0;
  // An acknowledgement that was on its way when its session ended came too late.
  EXPECT_LE(queued_twice, received.size() / 4);
}

class SharedMoves : public testing::TestWithParam<uint64_t> {
 protected:
  Random random{GetParam()};
  size_t workers = 2 + random.below(3);
  BrokerOptions options;
  void SetUp() override {
    options.session.inflight_max = 1 + random.below(10);
    options.shared_strategy = static_cast<routing::SharedStrategy>(random.below(6));
    options.session_expiry_max = 1000;
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, SharedMoves, testing::Range<uint64_t>(1, 61));

TEST_P(SharedMoves, lose_nothing_and_double_little) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  BrokerRig rig(workers, options);
  move_members(rig, workers, random);
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::session_ended), 0U);
}

TEST_P(SharedMoves, nor_do_they_on_disk) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  test::DurableRig rig(workers, options);
  move_members(rig, workers, random);
}

}  // namespace
}  // namespace ph::broker
