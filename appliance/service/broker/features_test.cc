// What version 5 offers beyond moving messages: aliases towards the client, response information, payload format,
// reduced QoS and retain; and the bounds that one client meets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::BrokerRig;
using test::MqttClient;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class Features : public testing::Test {
 protected:
  BrokerOptions options;
  std::unique_ptr<BrokerRig> rig;
  MqttClient& open(const std::string& line) {
    if (!rig) rig = std::make_unique<BrokerRig>(1, options);
    return rig->connect(line);
  }
  MqttClient& connect(const std::string& line) {
    MqttClient& c = open(line);
    c.take();
    return c;
  }
  std::vector<std::string> say(MqttClient& c, const std::string& line) {
    c.send(line);
    rig->run();
    return c.take();
  }
};

// [MQTT-3.3.2-8], section 3.3.2.3.4
TEST_F(Features, topic_aliases_towards_the_client) {
  MqttClient& s = connect("id=s topic_alias_maximum=2");
  MqttClient& plain = connect("id=plain");
  say(s, "subscribe id=1 subscription_id=5 filter=#:1");
  say(plain, "subscribe id=1 filter=#:1");
  MqttClient& p = connect("id=p");
  say(p, "publish topic=long/topic payload=1");
  say(p, "publish topic=long/topic payload=2 qos=1 id=1");
  say(p, "publish topic=other/topic payload=3");
  say(p, "publish topic=third/topic payload=4");
  say(p, "publish topic=t payload=5");
  EXPECT_THAT(s.take(), ElementsAre("publish topic=long/topic payload=1 topic_alias=1 subscription_id=5",
                                    "publish topic= qos=1 id=1 payload=2 topic_alias=1 subscription_id=5",
                                    "publish topic=other/topic payload=3 topic_alias=2 subscription_id=5",
                                    "publish topic=third/topic payload=4 subscription_id=5",
                                    "publish topic=t payload=5 subscription_id=5"));
  for (const auto& line : plain.take()) EXPECT_THAT(line, Not(HasSubstr("alias")));
  // One that is used no more is given away.
  for (int i = 0; i < 20; ++i) say(p, "publish topic=third/topic payload=x");
  EXPECT_THAT(s.take().back(), StartsWith("publish topic= payload=x topic_alias="));
  // They end with the connection.
  s.drop();
  rig->run();
  MqttClient& again = connect("id=s topic_alias_maximum=2");
  say(again, "subscribe id=1 filter=#:1");
  say(p, "publish topic=other/topic payload=3");
  EXPECT_THAT(again.take(), ElementsAre("publish topic=other/topic payload=3 topic_alias=1"));
}

TEST_F(Features, an_alias_never_makes_a_packet_too_large) {
  MqttClient& s = connect("id=s topic_alias_maximum=9 maximum_packet_size=20");
  say(s, "subscribe id=1 filter=#:0");
  MqttClient& p = connect("id=p");
  say(p, "publish topic=123456 payload=123456789");  // 20 bytes
  say(p, "publish topic=123456 payload=123456");     // 17
  EXPECT_THAT(s.take(), ElementsAre("publish topic=123456 payload=123456789",
                                    "publish topic=123456 payload=123456 topic_alias=1"));
}

TEST_F(Features, response_information_is_for_those_who_ask) {
  options.response_information = "answers/%c/";
  EXPECT_THAT(open("id=a/b request_response_information=1").take()[0],
              HasSubstr("response_information=answers/a%2Fb/"));
  EXPECT_THAT(open("id=b request_response_information=0").take()[0], Not(HasSubstr("response_information")));
  EXPECT_THAT(open("id=c").take()[0], Not(HasSubstr("response_information")));
}

TEST_F(Features, payload_format_is_checked_where_that_is_configured) {
  options.channel.payload_format_check = true;
  MqttClient& p = connect("id=p");
  EXPECT_THAT(say(p, "publish topic=t qos=1 id=1 payload=\xff payload_format=1"),
              ElementsAre("puback id=1 reason=payload_format_invalid"));
  EXPECT_THAT(say(p, "publish topic=t qos=2 id=2 payload=\xff payload_format=1"),
              ElementsAre("pubrec id=2 reason=payload_format_invalid"));
  EXPECT_THAT(say(p, "publish topic=t qos=1 id=3 payload=\xff payload_format=0"),
              ElementsAre("puback id=3 reason=no_matching_subscribers"));
  EXPECT_THAT(say(p, "publish topic=t qos=1 id=4 payload=ok payload_format=1"),
              ElementsAre("puback id=4 reason=no_matching_subscribers"));
  EXPECT_THAT(say(p, "publish topic=t payload=\xff payload_format=1"),
              ElementsAre("disconnect reason=payload_format_invalid"));
}

// [MQTT-3.2.2-9 .. 14]
TEST_F(Features, less_qos_and_no_retain_are_told_and_enforced) {
  options.channel.qos_max = 1;
  options.channel.retain_available = false;
  MqttClient& c = open("id=c");
  const auto connack = c.take();
  EXPECT_THAT(connack[0], HasSubstr("maximum_qos=1"));
  EXPECT_THAT(connack[0], HasSubstr("retain_available=0"));
  EXPECT_THAT(say(c, "subscribe id=1 filter=t:2"), ElementsAre("suback id=1 granted_qos_1"));
  EXPECT_THAT(say(c, "publish topic=t qos=2 id=1 payload=x"), ElementsAre("disconnect reason=qos_not_supported"));
  EXPECT_THAT(say(connect("id=c"), "publish topic=t retain payload=x"),
              ElementsAre("disconnect reason=retain_not_supported"));
  EXPECT_THAT(open("id=d will=t:x will_qos=2").take(), ElementsAre(HasSubstr("qos_not_supported")));
  EXPECT_THAT(open("id=d will=t:x will_retain=1").take(), ElementsAre(HasSubstr("retain_not_supported")));
}

// Section 3.3.4, the other way that the text allows.
TEST_F(Features, overlapping_subscriptions_may_give_a_copy_each) {
  options.overlapping_each = true;
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 subscription_id=7 filter=a/#:0");
  say(s, "subscribe id=2 subscription_id=8 filter=a/b:1");
  say(connect("id=p"), "publish topic=a/b qos=1 id=1 payload=x");
  EXPECT_THAT(s.take(), testing::UnorderedElementsAre("publish topic=a/b payload=x subscription_id=7",
                                                      "publish topic=a/b qos=1 id=1 payload=x subscription_id=8"));
}

TEST_F(Features, bounds_refuse_and_count) {
  options.sessions_max = 2;
  options.subscriptions_max = 1;
  options.channel.topic_levels_max = 3;
  options.channel.client_id_max = 5;
  options.channel.receive_max = 1;
  MqttClient& a = connect("id=a session_expiry=60");
  connect("id=b");
  EXPECT_THAT(open("id=c").take(), ElementsAre("connack present=0 reason=quota_exceeded"));
  EXPECT_THAT(open("v=4 id=c").take().size(), 1U);
  EXPECT_THAT(open("id=toolong").take(), ElementsAre("connack present=0 reason=client_identifier_not_valid"));
  EXPECT_THAT(say(a, "subscribe id=1 filter=a/b/c/d:0 filter=a:0 filter=b:0"),
              ElementsAre("suback id=1 topic_filter_invalid success quota_exceeded"));
  EXPECT_THAT(say(a, "publish topic=a/b/c/d payload=x"), ElementsAre("disconnect reason=topic_name_invalid"));
  EXPECT_THAT(open("id=a session_expiry=60 clean=0").take(), ElementsAre(StartsWith("connack present=1")))
      << "a session that is there is none more";
  using enum session::Limit;
  const BrokerStats stats = rig->broker->stats();
  EXPECT_EQ(stats.limited(sessions), 2U);
  EXPECT_EQ(stats.limited(client_id), 1U);
  EXPECT_EQ(stats.limited(subscriptions), 1U);
  EXPECT_EQ(stats.limited(topic_levels), 2U);
}

}  // namespace
}  // namespace ph::broker
