#include "service/broker/broker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::BrokerRig;
using test::MqttClient;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class BrokerOnWorkers : public testing::TestWithParam<size_t> {
 protected:
  BrokerRig rig{GetParam()};
  MqttClient& connect(const std::string& line) {
    MqttClient& c = rig.connect(line);
    EXPECT_THAT(c.take(), ElementsAre(StartsWith("connack"))) << line;
    return c;
  }
  void say(MqttClient& c, const std::string& line) {
    c.send(line);
    rig.run();
  }
};
INSTANTIATE_TEST_SUITE_P(Broker, BrokerOnWorkers, testing::Values(1, 2, 3),
                         [](const auto& p) { return std::to_string(p.param) + "_workers"; });

TEST_P(BrokerOnWorkers, delivers_at_each_qos) {
  for (const char* version : {"v=3", "v=4", "v=5"}) {
    MqttClient& subscriber = connect(std::string(version) + " id=s");
    MqttClient& publisher = connect(std::string(version) + " id=p");
    say(subscriber, "subscribe id=1 filter=a/+:2");
    EXPECT_THAT(subscriber.take(), ElementsAre("suback id=1 granted_qos_2"));

    say(publisher, "publish topic=a/b payload=zero");
    EXPECT_THAT(subscriber.take(), ElementsAre("publish topic=a/b payload=zero"));

    say(publisher, "publish topic=a/b qos=1 id=5 payload=one");
    EXPECT_THAT(publisher.take(), ElementsAre("puback id=5"));
    EXPECT_THAT(subscriber.take(), ElementsAre("publish topic=a/b qos=1 id=1 payload=one"));
    say(subscriber, "puback id=1");

    say(publisher, "publish topic=a/b qos=2 id=6 payload=two");
    EXPECT_THAT(publisher.take(), ElementsAre("pubrec id=6"));
    EXPECT_THAT(subscriber.take(), ElementsAre("publish topic=a/b qos=2 id=2 payload=two"));
    say(publisher, "pubrel id=6");
    EXPECT_THAT(publisher.take(), ElementsAre("pubcomp id=6"));
    say(subscriber, "pubrec id=2");
    EXPECT_THAT(subscriber.take(), ElementsAre("pubrel id=2"));
    say(subscriber, "pubcomp id=2");
    EXPECT_THAT(subscriber.take(), IsEmpty());
    say(subscriber, "disconnect");
    say(publisher, "disconnect");
    EXPECT_TRUE(subscriber.closed());
  }
  EXPECT_EQ(rig.broker->stats().sessions, 0U);
  EXPECT_EQ(rig.broker->stats().connections, 0U);
  EXPECT_EQ(rig.broker->stats().subscriptions, 0U);
}

// [MQTT-4.3.3-10]
TEST_P(BrokerOnWorkers, repeated_qos_2_publish_is_not_delivered_twice) {
  MqttClient& subscriber = connect("id=s");
  MqttClient& publisher = connect("id=p");
  say(subscriber, "subscribe id=1 filter=t:0");
  subscriber.take();
  say(publisher, "publish topic=t qos=2 id=6 payload=x");
  say(publisher, "publish topic=t qos=2 id=6 dup payload=x");
  EXPECT_THAT(publisher.take(), ElementsAre("pubrec id=6", "pubrec id=6"));
  EXPECT_THAT(subscriber.take(), ElementsAre("publish topic=t payload=x"));
  say(publisher, "pubrel id=6");
  say(publisher, "pubrel id=6");
  EXPECT_THAT(publisher.take(), ElementsAre("pubcomp id=6", "pubcomp id=6 reason=packet_identifier_not_found"));
}

TEST_P(BrokerOnWorkers, acknowledges_what_nobody_wants) {
  MqttClient& p5 = connect("id=p");
  say(p5, "publish topic=t qos=1 id=1 payload=x");
  EXPECT_THAT(p5.take(), ElementsAre("puback id=1 reason=no_matching_subscribers"));
  MqttClient& p4 = connect("v=4 id=q");
  say(p4, "publish topic=t qos=1 id=1 payload=x");
  EXPECT_THAT(p4.take(), ElementsAre("puback id=1"));
}

// [MQTT-3.3.4-2..4]: once, at the highest QoS, with all identifiers.
TEST_P(BrokerOnWorkers, overlapping_subscriptions_give_one_copy) {
  MqttClient& subscriber = connect("id=s");
  MqttClient& publisher = connect("id=p");
  say(subscriber, "subscribe id=1 subscription_id=7 filter=a/#:0");
  say(subscriber, "subscribe id=2 subscription_id=300 filter=a/b:1 filter=+/b:1");
  subscriber.take();
  say(publisher, "publish topic=a/b qos=2 id=1 payload=x user=k:v content_type=text");
  const auto got = subscriber.take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_THAT(got[0], StartsWith("publish topic=a/b qos=1 id=1 payload=x"));
  EXPECT_THAT(got[0], testing::HasSubstr("subscription_id=7"));
  EXPECT_THAT(got[0], testing::HasSubstr("subscription_id=300 "));
  EXPECT_THAT(got[0], testing::HasSubstr("content_type=text user=k:v"));
}

TEST_P(BrokerOnWorkers, no_local_and_retain_as_published) {
  MqttClient& a = connect("id=a");
  MqttClient& b = connect("id=b");
  say(a, "subscribe id=1 filter=t:0:nl:rap");
  say(b, "subscribe id=1 filter=t:0");
  a.take();
  b.take();
  say(a, "publish topic=t retain payload=mine");
  EXPECT_THAT(a.take(), IsEmpty());
  EXPECT_THAT(b.take(), ElementsAre("publish topic=t payload=mine"));
  say(b, "publish topic=t retain payload=yours");
  EXPECT_THAT(a.take(), ElementsAre("publish topic=t retain payload=yours"));
}

TEST_P(BrokerOnWorkers, unsubscribe_ends_delivery) {
  MqttClient& s = connect("id=s");
  MqttClient& p = connect("id=p");
  say(s, "subscribe id=1 filter=a:0 filter=b:0");
  say(s, "unsubscribe id=2 filter=a filter=c");
  EXPECT_THAT(s.take(), ElementsAre("suback id=1 success success", "unsuback id=2 success no_subscription_existed"));
  say(p, "publish topic=a payload=x");
  say(p, "publish topic=b payload=y");
  EXPECT_THAT(s.take(), ElementsAre("publish topic=b payload=y"));
  EXPECT_EQ(rig.broker->stats().subscriptions, 1U);
}

TEST_P(BrokerOnWorkers, retained_messages_wait_for_subscribers) {
  MqttClient& p = connect("id=p");
  say(p, "publish topic=a/1 retain qos=1 id=1 payload=one");
  say(p, "publish topic=a/2 retain payload=two message_expiry=10");
  say(p, "publish topic=a/3 retain payload=three");
  say(p, "publish topic=a/3 retain");  // cleared
  EXPECT_EQ(rig.broker->stats().retained, 2U);
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=a/+:1");
  EXPECT_THAT(s.take(),
              UnorderedElementsAre("suback id=1 granted_qos_1", "publish topic=a/1 qos=1 id=1 retain payload=one",
                                   "publish topic=a/2 retain payload=two message_expiry=10"));
  rig.advance(4s);
  say(s, "subscribe id=2 filter=a/2:1");
  EXPECT_THAT(s.take(),
              ElementsAre("suback id=2 granted_qos_1", "publish topic=a/2 retain payload=two message_expiry=6"));
  rig.advance(6s);
  say(s, "subscribe id=3 filter=a/2:1");
  EXPECT_THAT(s.take(), ElementsAre("suback id=3 granted_qos_1"));
}

// [MQTT-3.3.1-10, MQTT-3.3.1-11]
TEST_P(BrokerOnWorkers, retain_handling_is_obeyed) {
  MqttClient& p = connect("id=p");
  say(p, "publish topic=t retain payload=x");
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=t:0:rh=2");
  say(s, "subscribe id=2 filter=t:0:rh=1");
  EXPECT_THAT(s.take(), ElementsAre("suback id=1 success", "suback id=2 success"));
  say(s, "unsubscribe id=3 filter=t");
  say(s, "subscribe id=4 filter=t:0:rh=1");
  EXPECT_THAT(s.take(),
              ElementsAre("unsuback id=3 success", "suback id=4 success", "publish topic=t retain payload=x"));
}

TEST_P(BrokerOnWorkers, will_is_published_when_the_connection_breaks) {
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=will/#:1");
  s.take();
  MqttClient& a = connect("id=a will=will/a:gone will_qos=1 will_retain");
  a.drop();
  rig.run();
  EXPECT_THAT(s.take(), ElementsAre("publish topic=will/a qos=1 id=1 payload=gone"));
  MqttClient& b = connect("id=b will=will/b:gone");
  say(b, "disconnect");
  MqttClient& c = connect("id=c will=will/c:gone");
  say(c, "disconnect reason=4");
  EXPECT_THAT(s.take(), ElementsAre("publish topic=will/c payload=gone"));
  MqttClient& late = connect("id=late");
  say(late, "subscribe id=1 filter=will/#:0");
  EXPECT_THAT(late.take(), ElementsAre("suback id=1 success", "publish topic=will/a retain payload=gone"));
}

// [MQTT-3.1.3-9]
TEST_P(BrokerOnWorkers, will_delay_waits_for_the_client_to_return) {
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=will:0");
  s.take();
  connect("id=a session_expiry=100 will=will:late will_delay=5").drop();
  rig.advance(3s);
  connect("id=a clean=0 session_expiry=100 will=will:later will_delay=5").drop();
  rig.advance(4s);
  EXPECT_THAT(s.take(), IsEmpty());
  rig.advance(2s);
  EXPECT_THAT(s.take(), ElementsAre("publish topic=will payload=later"));
  // The session ends before the delay does.
  connect("id=b session_expiry=2 will=will:short will_delay=50").drop();
  rig.advance(3s);
  EXPECT_THAT(s.take(), ElementsAre("publish topic=will payload=short"));
  // A clean start ends the session, and with it the delay.
  connect("id=c session_expiry=100 will=will:clean will_delay=50").drop();
  rig.run();
  connect("id=c clean=1");
  EXPECT_THAT(s.take(), ElementsAre("publish topic=will payload=clean"));
}

TEST_P(BrokerOnWorkers, second_connection_takes_over) {
  MqttClient& first = connect("id=c session_expiry=60");
  say(first, "subscribe id=1 filter=t:1");
  first.take();
  MqttClient& second = rig.connect("id=c clean=0 session_expiry=60");
  EXPECT_THAT(first.take(), ElementsAre("disconnect reason=session_taken_over"));
  EXPECT_TRUE(first.closed());
  EXPECT_THAT(second.take(), ElementsAre(StartsWith("connack present=1")));
  MqttClient& p = connect("id=p");
  say(p, "publish topic=t qos=1 id=1 payload=x");
  EXPECT_THAT(second.take(), ElementsAre("publish topic=t qos=1 id=1 payload=x"));
  MqttClient& third = rig.connect("id=c clean=1");
  EXPECT_THAT(second.take(), ElementsAre("disconnect reason=session_taken_over"));
  EXPECT_THAT(third.take(), ElementsAre(StartsWith("connack present=0")));
  EXPECT_EQ(rig.broker->stats().takeovers, 2U);
  EXPECT_EQ(rig.broker->stats().sessions, 2U);
}

TEST_P(BrokerOnWorkers, offline_session_gets_its_messages_in_order) {
  MqttClient& s = connect("v=4 id=s clean=0");
  say(s, "subscribe id=1 filter=t:2");
  say(s, "disconnect");
  MqttClient& p = connect("id=p");
  for (int i = 1; i <= 5; ++i)
    say(p,
        "publish topic=t qos=" + std::to_string(i % 3) + " id=" + std::to_string(i) + " payload=" + std::to_string(i));
  MqttClient& back = rig.connect("v=4 id=s clean=0");
  EXPECT_THAT(back.take(), ElementsAre("connack present=1 reason=success", "publish topic=t qos=1 id=1 payload=1",
                                       "publish topic=t qos=2 id=2 payload=2", "publish topic=t payload=3",
                                       "publish topic=t qos=1 id=3 payload=4", "publish topic=t qos=2 id=4 payload=5"));
  // Unacknowledged: sent again, in order, after the next reconnect only.
  say(back, "puback id=3");
  say(back, "pubrec id=2");
  back.drop();
  rig.run();
  MqttClient& again = rig.connect("v=4 id=s clean=0");
  EXPECT_THAT(again.take(), ElementsAre("connack present=1 reason=success", "publish topic=t qos=1 id=1 dup payload=1",
                                        "pubrel id=2", "publish topic=t qos=2 id=4 dup payload=5"));
}

TEST_P(BrokerOnWorkers, session_ends_when_it_expires) {
  MqttClient& s = connect("id=s session_expiry=10");
  say(s, "subscribe id=1 filter=t:1");
  s.drop();
  rig.run();
  EXPECT_EQ(rig.broker->stats().sessions, 1U);
  MqttClient& p = connect("id=p");
  say(p, "publish topic=t qos=1 id=1 payload=x");
  rig.advance(11s);
  EXPECT_EQ(rig.broker->stats().sessions, 1U) << "the publisher's";
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::session_ended), 1U);
  EXPECT_THAT(rig.connect("id=s clean=0").take(), ElementsAre(StartsWith("connack present=0")));
}

// [MQTT-3.14.2-...]: expiry may be changed at DISCONNECT, but not from 0.
TEST_P(BrokerOnWorkers, disconnect_changes_the_session_expiry) {
  MqttClient& s = connect("id=s session_expiry=10");
  say(s, "disconnect session_expiry=0");
  EXPECT_EQ(rig.broker->stats().sessions, 0U);
  MqttClient& t = connect("id=t");
  say(t, "disconnect session_expiry=5");
  EXPECT_THAT(t.take(), ElementsAre("disconnect reason=protocol_error"));
}

TEST_P(BrokerOnWorkers, expired_messages_are_not_delivered) {
  MqttClient& s = connect("id=s session_expiry=100");
  say(s, "subscribe id=1 filter=t:1");
  s.drop();
  rig.run();
  MqttClient& p = connect("id=p");
  say(p, "publish topic=t qos=1 id=1 payload=short message_expiry=5");
  say(p, "publish topic=t qos=1 id=2 payload=long message_expiry=60");
  rig.advance(10s);
  EXPECT_THAT(
      rig.connect("id=s clean=0 session_expiry=100").take(),
      ElementsAre(StartsWith("connack present=1"), "publish topic=t qos=1 id=1 payload=long message_expiry=50"));
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::expired), 1U);
}

TEST_P(BrokerOnWorkers, nameless_clients_get_a_name) {
  EXPECT_THAT(rig.connect("id=").take(), ElementsAre(testing::HasSubstr("assigned_client_id=auto-")));
  EXPECT_THAT(rig.connect("v=4 id=").take(), ElementsAre("connack present=0 reason=success"));
  MqttClient& bad = rig.connect("v=4 id= clean=0");
  EXPECT_THAT(bad.take(), ElementsAre("connack present=0 reason=client_identifier_not_valid"));
  EXPECT_TRUE(bad.closed());
}

TEST_P(BrokerOnWorkers, packets_behind_connect_are_not_lost) {
  MqttClient& c = rig.open();
  c.send("connect id=c").send("subscribe id=1 filter=t:0").send("publish topic=t payload=x").send("pingreq");
  rig.run();
  EXPECT_THAT(c.take(), UnorderedElementsAre(StartsWith("connack"), "suback id=1 success", "publish topic=t payload=x",
                                             "pingresp"));
}

TEST_P(BrokerOnWorkers, what_takes_long_is_handled_in_turns_with_others_between) {
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=t:0");
  s.take();
  MqttClient& many = connect("id=many will=t:dead");
  MqttClient& one = connect("id=one");
  for (auto& loop : rig.loops) loop->look_cost = 20ms;
  std::vector<std::string> expected;
  for (int i = 0; i < 50; ++i) expected.push_back("many" + std::to_string(i));
  for (const auto& payload : expected) many.send("publish topic=t payload=" + payload);
  many.send("disconnect");
  one.send("publish topic=t payload=one");
  rig.run();
  auto got = test::payloads(s.take());
  const auto at = std::ranges::find(got, "one");
  ASSERT_NE(at, got.end());
  if (GetParam() == 1) {  // others have loops of their own, which this rig runs one after the other
    EXPECT_NE(at + 1, got.end()) << "it waited for all of the others";
  }
  got.erase(at);
  EXPECT_EQ(got, expected);
  EXPECT_TRUE(many.closed());
}

TEST_P(BrokerOnWorkers, what_takes_long_behind_connect_is_handled_in_turns_too) {
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=t:0");
  s.take();
  for (auto& loop : rig.loops) loop->look_cost = 20ms;
  MqttClient& c = rig.open();
  c.send("connect id=c");
  for (int i = 0; i < 20; ++i) c.send("publish topic=t payload=" + std::to_string(i));
  c.send("pingreq");
  rig.run();
  EXPECT_EQ(test::payloads(s.take()).size(), 20U);
  EXPECT_THAT(c.take(), ElementsAre(StartsWith("connack"), "pingresp"));
  say(c, "publish topic=t payload=late");
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t payload=late"));
}

TEST_P(BrokerOnWorkers, split_packets_are_joined) {
  rig.fabric.chunk_max = 1;
  MqttClient& s = connect("id=s");
  MqttClient& p = rig.open();
  p.send("connect id=p").send("publish topic=t qos=1 id=1 payload=" + std::string(50, 'x'));
  say(s, "subscribe id=1 filter=t:1");
  rig.run();
  EXPECT_THAT(s.take(),
              ElementsAre("suback id=1 granted_qos_1", "publish topic=t qos=1 id=1 payload=" + std::string(50, 'x')));
}

TEST_P(BrokerOnWorkers, silent_clients_are_closed) {
  MqttClient& never = rig.open();
  MqttClient& c = connect("id=c keep_alive=2 will=t:dead");
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=t:0");
  s.take();
  rig.advance(2500ms);
  say(c, "pingreq");
  rig.advance(2500ms);
  EXPECT_THAT(c.take(), ElementsAre("pingresp"));
  rig.advance(1500ms);
  EXPECT_THAT(c.take(), ElementsAre("disconnect reason=keep_alive_timeout"));
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t payload=dead"));
  EXPECT_FALSE(never.closed());
  rig.advance(10s);
  EXPECT_TRUE(never.closed()) << "no CONNECT within 15 s";
}

TEST_P(BrokerOnWorkers, topic_aliases) {
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=t:0");
  s.take();
  MqttClient& p = connect("id=p");
  say(p, "publish topic=t topic_alias=3 payload=1");
  say(p, "publish topic= topic_alias=3 payload=2");
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t payload=1", "publish topic=t payload=2"));
  say(p, "publish topic= topic_alias=4 payload=3");
  EXPECT_THAT(p.take(), ElementsAre("disconnect reason=topic_alias_invalid"));
  MqttClient& q = connect("id=q");
  say(q, "publish topic=t topic_alias=33 payload=3");
  EXPECT_THAT(q.take(), ElementsAre("disconnect reason=topic_alias_invalid"));
}

TEST_P(BrokerOnWorkers, stop_closes_everything) {
  MqttClient& c = connect("id=c session_expiry=60 will=w:x");
  rig.broker->stop();
  rig.run();
  EXPECT_THAT(c.take(), ElementsAre("disconnect reason=server_shutting_down"));
  EXPECT_TRUE(c.closed());
  EXPECT_EQ(rig.broker->stats().connections, 0U);
}

TEST(Broker, anonymous_is_for_loopback_by_default) {
  BrokerRig rig;
  rig.fabric.client_address = "192.0.2.7";
  EXPECT_THAT(rig.connect("id=c").take(), ElementsAre("connack present=0 reason=not_authorized"));
  BrokerOptions options;
  options.listeners.push_back({{"127.0.0.1", 1883}, nullptr, 100, Anonymous::always});
  options.listeners.push_back({{"127.0.0.1", 1884}, nullptr, 100, Anonymous::loopback});
  BrokerRig open(1, options);
  open.fabric.client_address = "192.0.2.7";
  EXPECT_THAT(open.connect("id=c").take(), ElementsAre(StartsWith("connack present=0 reason=success")));
}

TEST(Broker, refuses_what_is_no_mqtt) {
  BrokerRig rig;
  MqttClient& http = rig.open();
  http.send_raw("GET / HTTP/1.1\r\n\r\n");
  MqttClient& early = rig.open();
  early.send("pingreq");
  MqttClient& future = rig.open();
  future.send("hex 10 0c 00 04 4d 51 54 54 06 02 00 00 00 00");
  rig.run();
  EXPECT_TRUE(http.closed());
  EXPECT_TRUE(early.closed());
  EXPECT_THAT(early.take(), IsEmpty());
  EXPECT_THAT(future.take(), ElementsAre("connack present=0 reason=unsupported_protocol_version"));
  EXPECT_EQ(rig.broker->stats().connections, 0U);
}

TEST(Broker, says_its_limits_in_connack) {
  BrokerRig rig;
  EXPECT_THAT(rig.connect("id=c").take(),
              ElementsAre("connack present=0 reason=success receive_maximum=100 topic_alias_maximum=32 "
                          "maximum_packet_size=1048576"));
  MqttClient& big = rig.connect("id=big");
  big.take();
  big.send_raw("\x30\xff\xff\xff\x7f");
  rig.run();
  EXPECT_THAT(big.take(), ElementsAre("disconnect reason=packet_too_large"));
}

TEST(Broker, receive_maximum_of_the_server_is_enforced) {
  BrokerRig rig;
  MqttClient& c = rig.connect("id=c");
  c.take();
  for (int i = 1; i <= 101; ++i) c.send("publish topic=t qos=2 id=" + std::to_string(i) + " payload=x");
  rig.run();
  const auto got = c.take();
  ASSERT_EQ(got.size(), 101U);
  EXPECT_EQ(got.back(), "disconnect reason=receive_maximum_exceeded");
}

TEST(Broker, clients_receive_maximum_is_respected) {
  BrokerRig rig;
  MqttClient& s = rig.connect("id=s receive_maximum=2");
  s.send("subscribe id=1 filter=t:1");
  rig.run();
  s.take();
  MqttClient& p = rig.connect("id=p");
  for (int i = 1; i <= 4; ++i)
    p.send("publish topic=t qos=1 id=" + std::to_string(i) + " payload=" + std::to_string(i));
  rig.run();
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t qos=1 id=1 payload=1", "publish topic=t qos=1 id=2 payload=2"));
  s.send("puback id=2");
  rig.run();
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t qos=1 id=3 payload=3"));
}

TEST(Broker, packets_over_the_clients_maximum_are_dropped) {
  BrokerRig rig;
  MqttClient& s = rig.connect("id=s maximum_packet_size=100");
  s.send("subscribe id=1 filter=t:1");
  rig.run();
  s.take();
  MqttClient& p = rig.connect("id=p");
  p.send("publish topic=t qos=1 id=1 payload=" + std::string(200, 'x'));
  p.send("publish topic=t qos=1 id=2 payload=small");
  rig.run();
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t qos=1 id=2 payload=small"));
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::too_large), 1U);
}

TEST(Broker, slow_subscriber_is_bounded_and_then_closed) {
  BrokerOptions options;
  options.session.output_soft = 10'000;
  options.session.mqueue_messages_max = 20;
  options.stall_timeout = 5s;
  BrokerRig rig(1, options);
  rig.fabric.window = 4'000;
  MqttClient& slow = rig.connect("id=slow");
  MqttClient& fast = rig.connect("id=fast");
  MqttClient& p = rig.connect("id=p");
  slow.send("subscribe id=1 filter=t:1");
  fast.send("subscribe id=1 filter=t:1");
  rig.run();
  fast.take();
  slow.pause(true);
  const std::string payload(1000, 'x');
  size_t received = 0;
  for (int i = 1; i <= 60; ++i) {
    p.send("publish topic=t payload=" + payload);
    p.send("publish topic=t qos=1 id=" + std::to_string(i) + " payload=" + payload);
    rig.run();
    for (const auto& line : fast.take()) {
      if (line.starts_with("publish")) ++received;
      if (line.find("qos=1") != line.npos)
        fast.send("puback id=" + line.substr(line.find("id=") + 3, line.find(" payload") - line.find("id=") - 3));
    }
  }
  EXPECT_EQ(received, 120U) << "one slow subscriber does not slow another";
  const BrokerStats stats = rig.broker->stats();
  EXPECT_GT(stats.dropped(session::Drop::slow_consumer), 30U);
  EXPECT_GT(stats.dropped(session::Drop::queue_full), 0U);
  rig.advance(6s);
  EXPECT_EQ(rig.broker->stats().slow_consumers, 1U);
  EXPECT_EQ(rig.broker->stats().connections, 2U);
}

TEST(Broker, queue_bounds_drop_qos_0_first_then_the_oldest) {
  BrokerOptions options;
  options.session.mqueue_messages_max = 3;
  BrokerRig rig(1, options);
  MqttClient& s = rig.connect("v=4 id=s clean=0");
  s.send("subscribe id=1 filter=t:1").send("disconnect");
  MqttClient& p = rig.connect("v=4 id=p");
  p.send("publish topic=t qos=1 id=1 payload=1").send("publish topic=t payload=zero");
  p.send("publish topic=t qos=1 id=2 payload=2").send("publish topic=t qos=1 id=3 payload=3");
  p.send("publish topic=t qos=1 id=4 payload=4").send("publish topic=t payload=zero again");
  rig.run();
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::queue_full), 3U);
  EXPECT_THAT(rig.connect("v=4 id=s clean=0").take(),
              ElementsAre(StartsWith("connack"), "publish topic=t qos=1 id=1 payload=2",
                          "publish topic=t qos=1 id=2 payload=3", "publish topic=t qos=1 id=3 payload=4"));
}

TEST(Broker, subscriptions_and_retained_are_bounded) {
  BrokerOptions options;
  options.subscriptions_max = 2;
  options.retained_messages_max = 1;
  BrokerRig rig(1, options);
  MqttClient& c = rig.connect("id=c");
  c.take();
  c.send("subscribe id=1 filter=a:0 filter=b:0 filter=c:0 filter=$share/g/x:0");
  rig.run();
  EXPECT_THAT(c.take(), ElementsAre("suback id=1 success success quota_exceeded quota_exceeded"));
  c.send("publish topic=a retain payload=1").send("publish topic=b retain payload=2");
  rig.run();
  EXPECT_THAT(c.take(), ElementsAre("publish topic=a payload=1", "publish topic=b payload=2"));
  EXPECT_EQ(rig.broker->stats().retained, 1U);
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::retained_full), 1U);
}

TEST(Broker, a_worker_that_does_not_keep_up_holds_publishers_back) {
  BrokerOptions options;
  options.mailbox_bytes_max = 5'000;
  BrokerRig rig(2, options);
  MqttClient& p = rig.connect("id=p");  // on worker 0
  MqttClient& s = rig.connect("id=s");  // on worker 1
  s.send("subscribe id=1 filter=t:1");
  rig.run();
  s.take();
  p.take();
  rig.fabric.chunk_max = 1'000;
  for (int i = 1; i <= 50; ++i)
    p.send("publish topic=t qos=1 id=" + std::to_string(i) + " payload=" + std::string(500, 'x'));
  for (int turns = 0; turns < 100; ++turns) {
    rig.client_loop.run_posted();
    rig.loops[0]->run_posted();  // worker 1 stands still
  }
  const size_t acknowledged = p.take().size();
  EXPECT_GT(acknowledged, 3U);
  EXPECT_LT(acknowledged, 20U) << "it is not read any more";
  size_t received = 0;
  for (int turns = 0; turns < 100; ++turns) {
    rig.advance(10ms);
    for (const auto& line : s.take()) {
      if (!line.starts_with("publish")) continue;
      ++received;
      s.send("puback id=" + line.substr(line.find("id=") + 3, line.find(" payload") - line.find("id=") - 3));
    }
  }
  EXPECT_EQ(received, 50U);
  EXPECT_EQ(p.take().size(), 50U - acknowledged);

  // QoS 0 is dropped instead, and counted.
  for (int i = 0; i < 50; ++i) p.send("publish topic=t payload=" + std::string(500, 'y'));
  for (int turns = 0; turns < 100; ++turns) {
    rig.client_loop.run_posted();
    rig.loops[0]->run_posted();
  }
  rig.run();
  const uint64_t dropped = rig.broker->stats().dropped(session::Drop::mailbox_full);
  EXPECT_GT(dropped, 20U);
  EXPECT_EQ(s.take().size(), 50U - dropped);
}

}  // namespace
}  // namespace ph::broker
