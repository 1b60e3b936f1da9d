// Durable sessions: what was acknowledged is there after a kill, and nothing leaves before it is on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::DurableRig;
using test::MqttClient;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

constexpr const char* kKept = " clean=0 session_expiry=1000";

class Durable : public testing::TestWithParam<size_t> {
 protected:
  DurableRig rig{GetParam()};
  MqttClient& connect(const std::string& line) {
    MqttClient& c = rig.connect(line);
    c.take();
    return c;
  }
  void say(MqttClient& c, const std::string& line) {
    c.send(line);
    rig.run();
  }
  /// A session with a subscription, whose client is away.
  void leave_session(const std::string& id, const std::string& filter) {
    MqttClient& c = connect("id=" + id + kKept);
    say(c, "subscribe id=1 " + filter);
    EXPECT_THAT(c.take(), ElementsAre(StartsWith("suback")));
    say(c, "disconnect");
  }
  std::vector<std::string> payloads(const std::vector<std::string>& lines) {
    std::vector<std::string> out;
    for (const auto& line : lines)
      if (line.starts_with("publish")) out.push_back(line.substr(line.find("payload=") + 8));
    for (auto& p : out) p = p.substr(0, p.find(' '));
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Broker, Durable, testing::Values(1, 2, 3),
                         [](const auto& p) { return std::to_string(p.param) + "_workers"; });

TEST_P(Durable, session_subscriptions_and_queue_survive_a_kill) {
  leave_session("s", "filter=a/+:1 filter=b:2:rap subscription_id=9");
  MqttClient& p = connect("id=p");
  for (int i = 1; i <= 5; ++i)
    say(p, "publish topic=a/x qos=1 id=" + std::to_string(i) + " payload=" + std::to_string(i));
  EXPECT_THAT(p.take(), SizeIs(5));
  rig.restart();
  EXPECT_EQ(rig.stats().sessions, 1U);
  EXPECT_EQ(rig.stats().subscriptions, 2U);
  MqttClient& s = rig.connect(std::string("id=s") + kKept);
  auto got = s.take();
  ASSERT_THAT(got, SizeIs(6));
  EXPECT_THAT(got[0], HasSubstr("present=1"));
  EXPECT_THAT(payloads(got), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(got[1], HasSubstr("subscription_id=9"));
  // Live messages go on behind them.
  MqttClient& q = connect("id=q");
  say(q, "publish topic=a/y qos=1 id=1 payload=6");
  EXPECT_THAT(payloads(s.take()), ElementsAre("6"));
}

TEST_P(Durable, nothing_is_acknowledged_before_it_is_on_disk) {
  leave_session("s", "filter=t:1");
  MqttClient& p = connect("id=p");
  rig.disk().hold();
  say(p, "publish topic=t qos=1 id=1 payload=x");
  say(p, "publish topic=other qos=1 id=2 payload=x");  // nobody's: but acks keep their order
  EXPECT_THAT(p.take(), IsEmpty());
  MqttClient& other = connect("id=o");
  say(other, "subscribe id=3 filter=x:1");
  EXPECT_THAT(other.take(), ElementsAre("suback id=3 granted_qos_1"));  // no session, no waiting
  say(other, "publish topic=x qos=1 id=4 payload=free");
  EXPECT_THAT(other.take(), testing::UnorderedElementsAre("puback id=4", HasSubstr("payload=free")));
  MqttClient& kept = rig.connect(std::string("id=kept") + kKept);
  EXPECT_THAT(kept.take(), IsEmpty());
  rig.disk().release();
  rig.run();
  EXPECT_THAT(p.take(), ElementsAre(StartsWith("puback id=1"), StartsWith("puback id=2")));
  EXPECT_THAT(kept.take(), ElementsAre(StartsWith("connack")));
  rig.disk().hold();
  say(kept, "subscribe id=1 filter=k:1");
  EXPECT_THAT(kept.take(), IsEmpty());
  rig.disk().release();
  rig.run();
  EXPECT_THAT(kept.take(), ElementsAre("suback id=1 granted_qos_1"));
}

TEST_P(Durable, what_was_received_is_gone_after_a_kill) {
  leave_session("s", "filter=t:2");
  MqttClient& p = connect("id=p");
  for (int i = 1; i <= 4; ++i)
    say(p, "publish topic=t qos=" + std::to_string(i % 2 + 1) + " id=" + std::to_string(i) +
               " payload=" + std::to_string(i));
  MqttClient& s = connect(std::string("id=s") + kKept);
  say(s, "pubrec id=1");
  say(s, "puback id=2");
  say(s, "pubrec id=3");
  say(s, "pubcomp id=3");
  rig.restart();
  MqttClient& again = rig.connect(std::string("id=s") + kKept);
  auto got = again.take();
  EXPECT_THAT(payloads(got), ElementsAre("4"));
  EXPECT_THAT(got, Contains("pubrel id=1"));
  EXPECT_THAT(got, Contains(StartsWith("publish topic=t qos=1 id=4 dup payload=4")));
}

}  // namespace
}  // namespace ph::broker
