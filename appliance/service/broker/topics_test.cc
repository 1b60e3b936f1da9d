// What clients call a topic and what the broker does: $delayed, rewriting, mountpoints, auto- and exclusive
// subscriptions; and $SYS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "service/broker/delayed.h"
#include "service/broker/sys_topics.h"
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

class Topics : public testing::TestWithParam<size_t> {
 protected:
  BrokerOptions options;
  std::unique_ptr<BrokerRig> rig;
  MqttClient& open(const std::string& line, size_t listener = 0) {
    if (!rig) rig = std::make_unique<BrokerRig>(GetParam(), options);
    rig->clients.push_back(std::make_unique<MqttClient>(rig->client_network, rig->broker->endpoints()[listener]));
    rig->clients.back()->send("connect " + line);
    rig->run();
    return *rig->clients.back();
  }
  MqttClient& connect(const std::string& line, size_t listener = 0) {
    MqttClient& c = open(line, listener);
    EXPECT_THAT(c.take(), ElementsAre(HasSubstr("reason=success")));
    return c;
  }
  std::vector<std::string> say(MqttClient& c, const std::string& line) {
    c.send(line);
    rig->run();
    return c.take();
  }
};
INSTANTIATE_TEST_SUITE_P(Broker, Topics, testing::Values(1, 3),
                         [](const auto& p) { return std::to_string(p.param) + "_workers"; });

TEST_P(Topics, delayed_messages_wait_for_their_time) {
  options.delayed_messages_max = 3;
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=t/#:1");
  MqttClient& p = connect("id=p");
  EXPECT_THAT(say(p, "publish topic=$delayed/5/t/a qos=1 id=1 payload=later message_expiry=9"),
              ElementsAre("puback id=1"));
  EXPECT_THAT(say(p, "publish topic=$delayed/2/t/b qos=2 id=2 payload=soon"), ElementsAre("pubrec id=2"));
  EXPECT_THAT(say(p, "publish topic=$delayed/0/t/c payload=now"), IsEmpty());
  EXPECT_THAT(say(p, "publish topic=$delayed/5/t/d qos=1 id=3 payload=full"),
              ElementsAre("puback id=3 reason=quota_exceeded"));
  EXPECT_EQ(rig->broker->stats().delayed, 3U);
  EXPECT_EQ(rig->broker->stats().limited(session::Limit::delayed), 1U);
  EXPECT_THAT(s.take(), IsEmpty());
  rig->advance(1s);
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t/c payload=now"));
  rig->advance(2s);
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t/b qos=1 id=1 payload=soon"));
  p.drop();
  rig->advance(3s);
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t/a qos=1 id=2 payload=later message_expiry=9"));
  EXPECT_EQ(rig->broker->stats().delayed, 0U);
}

TEST_P(Topics, delayed_needs_seconds_and_a_topic) {
  MqttClient& p = connect("id=p");
  for (const char* bad : {"$delayed/x/t", "$delayed/5", "$delayed/5/", "$delayed//t", "$delayed/4294968/t",
                          "$delayed/99999999999999999999/t", "$delayed/1/$SYS/x", "$delayed/1/$delayed/1/t"})
    EXPECT_THAT(say(p, std::string("publish qos=1 id=1 payload=x topic=") + bad),
                ElementsAre("puback id=1 reason=topic_name_invalid"))
        << bad;
  EXPECT_EQ(rig->broker->stats().delayed, 0U);
}

TEST_P(Topics, rules_rewrite_publishes_and_subscriptions) {
  using On = routing::RewriteRule::On;
  options.rewrite = {{On::both, "old/+/#", "new/{2}/{1}"}, {On::publish, "in", "in/%c"}};
  MqttClient& s = connect("id=s");
  MqttClient& p = connect("id=p will=in:bye");
  say(s, "subscribe id=1 filter=old/a/b:0 filter=in/#:0 filter=$share/g/old/x/y:0");
  say(p, "publish topic=old/a/b payload=1");
  say(p, "publish topic=new/b/a payload=2");
  say(p, "publish topic=new/y/x payload=3");
  say(p, "publish topic=in payload=4");
  p.drop();
  rig->run();
  EXPECT_THAT(s.take(), ElementsAre("publish topic=new/b/a payload=1", "publish topic=new/b/a payload=2",
                                    "publish topic=new/y/x payload=3", "publish topic=in/p payload=4",
                                    "publish topic=in/p payload=bye"));
  EXPECT_THAT(say(s, "unsubscribe id=2 filter=old/a/b filter=$share/g/old/x/y"),
              ElementsAre("unsuback id=2 success success"));
}

TEST_P(Topics, no_rule_makes_a_publish_one_of_the_brokers_own) {
  options.rewrite = {{routing::RewriteRule::On::both, "old/+/#", "{1}/{2}"}};
  MqttClient& s = connect("id=s");
  say(s, "subscribe id=1 filter=$SYS/#:0 filter=old/x/#:0");
  MqttClient& p = connect("id=p");
  EXPECT_THAT(say(p, "publish topic=old/$SYS/brokers/version qos=1 id=1 payload=forged retain"),
              ElementsAre("puback id=1 reason=not_authorized"));
  EXPECT_THAT(say(p, "publish topic=old/x/y qos=1 id=2 payload=good"), ElementsAre("puback id=2"));
  EXPECT_THAT(s.take(), ElementsAre("publish topic=x/y payload=good"));
}

TEST_P(Topics, clients_under_a_mountpoint_see_nothing_else) {
  options.listeners.push_back({{"127.0.0.1", 1883}, nullptr});
  options.listeners.push_back({{"127.0.0.1", 1884}, nullptr});
  options.listeners[1].mountpoint = "tenant/%c/";
  options.sys_interval = 10s;
  MqttClient& outside = connect("id=o");
  say(outside, "subscribe id=1 filter=tenant/#:0");
  MqttClient& a = connect("id=a session_expiry=60 will=gone:x", 1);
  MqttClient& b = connect("id=b", 1);
  say(a, "subscribe id=1 filter=#:1 filter=$SYS/#:0 filter=$share/g/t:0");
  say(b, "subscribe id=1 filter=#:0");
  EXPECT_THAT(say(b, "publish topic=t payload=of_b"), ElementsAre("publish topic=t payload=of_b"));
  EXPECT_THAT(a.take(), IsEmpty());
  EXPECT_THAT(say(a, "publish topic=t qos=1 id=1 payload=of_a"),
              testing::UnorderedElementsAre("puback id=1", "publish topic=t payload=of_a",
                                            "publish topic=t qos=1 id=1 payload=of_a"));
  outside.send("publish topic=tenant/a/cmd retain payload=do");
  rig->run();
  EXPECT_THAT(a.take(), ElementsAre("publish topic=cmd payload=do"));
  EXPECT_THAT(say(b, "publish topic=$SYS/x qos=1 id=1 payload=x"), ElementsAre("puback id=1 reason=not_authorized"));
  a.drop();
  rig->run();
  EXPECT_THAT(outside.take(),
              ElementsAre("publish topic=tenant/b/t payload=of_b", "publish topic=tenant/a/t payload=of_a",
                          "publish topic=tenant/a/cmd payload=do", "publish topic=tenant/a/gone payload=x"));
  // The session is nobody's who comes without the mountpoint, and the other way round.
  EXPECT_THAT(open("id=a session_expiry=60 clean=0").take(), testing::Not(testing::Contains(HasSubstr("topic="))));
  MqttClient& o = connect("id=o2 session_expiry=60");
  say(o, "subscribe id=1 filter=tenant/#:0");
  MqttClient& inside = connect("id=o2 session_expiry=60 clean=0", 1);
  say(b, "publish topic=t payload=secret");
  EXPECT_THAT(inside.take(), IsEmpty());
}

TEST_P(Topics, a_mountpoint_of_a_name_is_for_that_name_alone) {
  options.listeners.push_back({{"127.0.0.1", 1883}, nullptr});
  options.listeners.push_back({{"127.0.0.1", 1884}, nullptr});
  options.listeners[1].mountpoint = "%c/";
  options.sys_interval = 10s;
  MqttClient& outside = connect("id=o");
  say(outside, "subscribe id=1 filter=#:0");
  std::vector<MqttClient*> clients;
  const std::vector<std::string> names = {"a/b", "a_b", "a+b", "a%2Fb", "$SYS", "$share"};
  for (const std::string& name : names) clients.push_back(&connect("id=" + name, 1));
  for (MqttClient* c : clients) say(*c, "subscribe id=1 filter=#:0 filter=g/t:0");
  for (MqttClient* c : clients) c->take();
  for (size_t i = 0; i < clients.size(); ++i) {
    clients[i]->send("publish topic=g/t payload=mine retain");
    rig->run();
    for (size_t k = 0; k < clients.size(); ++k)
      EXPECT_THAT(clients[k]->take(), testing::SizeIs(k == i ? 1 : 0)) << names[i] << " " << names[k];
  }
  EXPECT_THAT(outside.take(),
              ElementsAre("publish topic=a%2Fb/g/t payload=mine", "publish topic=a_b/g/t payload=mine",
                          "publish topic=a%2Bb/g/t payload=mine", "publish topic=a%252Fb/g/t payload=mine",
                          "publish topic=%24SYS/g/t payload=mine", "publish topic=%24share/g/t payload=mine"));
}

TEST_P(Topics, everybody_gets_the_auto_subscriptions) {
  options.auto_subscribe = {{"inbox/%c", 1, false, false, 0}, {"news", 0, false, true, 2}, {"u/%u", 0}};
  MqttClient& p = connect("id=p");
  say(p, "publish topic=inbox/c retain payload=kept");
  say(p, "publish topic=news retain payload=old");
  p.take();
  MqttClient& c = open("id=c session_expiry=60");
  EXPECT_THAT(c.take(), ElementsAre(StartsWith("connack"), "publish topic=inbox/c retain payload=kept"));
  say(p, "publish topic=news retain payload=new");
  EXPECT_THAT(c.take(), ElementsAre("publish topic=news retain payload=new"));
  say(p, "publish topic=inbox/c qos=1 id=1 payload=mine");
  EXPECT_THAT(c.take(), ElementsAre("publish topic=inbox/c qos=1 id=1 payload=mine"));
  c.drop();
  rig->run();
  EXPECT_THAT(open("id=c session_expiry=60 clean=0").take()[0], StartsWith("connack present=1"));
  EXPECT_EQ(rig->broker->stats().subscriptions, 6U);
}

TEST_P(Topics, an_exclusive_filter_has_one_subscriber) {
  MqttClient& a = connect("id=a session_expiry=60");
  MqttClient& b = connect("id=b");
  EXPECT_THAT(say(a, "subscribe id=1 filter=$exclusive/t/+:1 filter=$exclusive/u:0 filter=n:0 filter=$exclusive/:0"),
              ElementsAre("suback id=1 granted_qos_1 success success topic_filter_invalid"));
  EXPECT_THAT(say(a, "subscribe id=2 filter=$exclusive/t/+:1"), ElementsAre("suback id=2 granted_qos_1"));
  EXPECT_THAT(say(b, "subscribe id=1 filter=$exclusive/t/+:1 filter=t/#:0 filter=$exclusive/u:0"),
              ElementsAre("suback id=1 quota_exceeded success quota_exceeded"));
  EXPECT_THAT(say(b, "publish topic=t/1 payload=x"), ElementsAre("publish topic=t/1 payload=x"));
  EXPECT_THAT(a.take(), ElementsAre("publish topic=t/1 payload=x"));
  say(a, "unsubscribe id=3 filter=$exclusive/u");
  EXPECT_THAT(say(b, "subscribe id=2 filter=$exclusive/u:0"), ElementsAre("suback id=2 success"));
  // It stays the session's while that is offline, and wherever it goes.
  a.drop();
  rig->run();
  EXPECT_THAT(say(b, "subscribe id=3 filter=$exclusive/t/+:1"), ElementsAre("suback id=3 quota_exceeded"));
  MqttClient& back = open("id=a session_expiry=60 clean=0");
  EXPECT_THAT(back.take(), ElementsAre(StartsWith("connack present=1")));
  EXPECT_THAT(say(b, "subscribe id=4 filter=$exclusive/t/+:1"), ElementsAre("suback id=4 quota_exceeded"));
  say(b, "publish topic=t/1 qos=1 id=9 payload=y");
  EXPECT_THAT(back.take(), ElementsAre("publish topic=t/1 qos=1 id=1 payload=y"));
  b.take();
  say(back, "disconnect session_expiry=0");
  EXPECT_THAT(say(b, "subscribe id=5 filter=$exclusive/t/+:1"), ElementsAre("suback id=5 granted_qos_1"));
}

TEST_P(Topics, an_exclusive_filter_that_was_refused_is_free) {
  options.subscriptions_max = 1;
  options.channel.topic_levels_max = 3;
  MqttClient& a = connect("id=a session_expiry=60");
  MqttClient& b = connect("id=b");
  EXPECT_THAT(say(a, "subscribe id=1 filter=$exclusive/h:1 filter=$exclusive/t:1 filter=$exclusive/a/b/c/d:1"),
              ElementsAre("suback id=1 granted_qos_1 quota_exceeded topic_filter_invalid"));
  EXPECT_THAT(say(b, "subscribe id=1 filter=$exclusive/h:1"), ElementsAre("suback id=1 quota_exceeded"));
  EXPECT_THAT(say(b, "subscribe id=2 filter=$exclusive/t:1"), ElementsAre("suback id=2 granted_qos_1"));
  // Whoever has it keeps it when it asks again, and is gone before the answer comes.
  a.send("subscribe id=2 filter=$exclusive/h:1");
  a.send("disconnect");
  rig->run();
  say(b, "unsubscribe id=3 filter=$exclusive/t");
  EXPECT_THAT(say(b, "subscribe id=4 filter=$exclusive/h:1"), ElementsAre("suback id=4 quota_exceeded"));
}

TEST_P(Topics, sys_says_what_the_broker_does) {
  options.sys_interval = 10s;
  options.node_name = "n1";
  options.version = "1.2";
  MqttClient& c = connect("id=c");
  say(c, "publish topic=t retain payload=x");
  EXPECT_GT(rig->broker->stats().packets_in, 0U);
  EXPECT_EQ(rig->broker->stats().retained, 1U) << "$SYS is not among the clients' retained messages";
  rig->advance(10s);
  MqttClient& s = connect("id=s");
  s.send("subscribe id=1 filter=#:0 filter=+/#:0");
  rig->run();
  for (const auto& line : s.take()) EXPECT_THAT(line, Not(HasSubstr("$SYS")));
  s.send("subscribe id=2 filter=$SYS/#:0");
  rig->run();
  std::map<std::string, std::string> got;
  for (const auto& line : s.take()) {
    const size_t topic = line.find("topic="), payload = line.find(" payload=");
    if (topic == line.npos) continue;
    std::string name = line.substr(topic + 6, payload - topic - 6);
    if (const size_t retain = name.find(" retain"); retain != name.npos) name.resize(retain);
    got[name] = line.substr(payload + 9);
  }
  EXPECT_EQ(got["$SYS/brokers"], "n1");
  EXPECT_EQ(got["$SYS/brokers/n1/version"], "1.2");
  EXPECT_EQ(got["$SYS/brokers/n1/uptime"], "10");
  EXPECT_EQ(got["$SYS/brokers/n1/stats/connections.count"], "1");
  EXPECT_EQ(got["$SYS/broker/version"], "posthouse version 1.2");
  EXPECT_EQ(got["$SYS/broker/uptime"], "10 seconds");
  EXPECT_EQ(got["$SYS/broker/clients/connected"], "1");
  EXPECT_EQ(got["$SYS/broker/publish/messages/received"], "1");
  EXPECT_EQ(got["$SYS/broker/retained messages/count"], "1");
  EXPECT_TRUE(got.contains("$SYS/broker/load/messages/received/1min"));
  rig->advance(10s);
  const auto later = s.take();
  EXPECT_THAT(later, testing::Contains("publish topic=$SYS/broker/clients/connected payload=2"));
  EXPECT_THAT(later, Not(testing::Contains(HasSubstr("$SYS/brokers/n1/version")))) << "unchanged";
}

TEST(DelayedStore, keeps_order_and_bounds) {
  auto message = [](const std::string& text) {
    auto m = std::make_shared<session::Message>();
    m->payload = Slice(text);
    return m;
  };
  DelayedStore store(3, 10);
  EXPECT_TRUE(store.add(Instant{} + 2s, {message("b")}));
  EXPECT_TRUE(store.add(Instant{} + 1s, {message("a")}));
  EXPECT_TRUE(store.add(Instant{} + 2s, {message("c")}));
  EXPECT_FALSE(store.add(Instant{} + 2s, {message("d")}));
  std::vector<DelayedStore::Entry> out;
  EXPECT_FALSE(store.take_due(Instant{}));
  while (auto e = store.take_due(Instant{} + 2s)) out.push_back(*e);
  std::string payloads;
  for (const auto& e : out) payloads += e.message->payload.view();
  EXPECT_EQ(payloads, "abc");
  EXPECT_EQ(store.size(), 3U);
  EXPECT_FALSE(store.add(Instant{}, {message("d")})) << "what is on its way out counts";
  for (const auto& e : out) store.finished(e);
  EXPECT_EQ(store.bytes(), 0U);
  EXPECT_FALSE(store.add(Instant{}, {message("a"), 0, false, {"client", "user", ""}})) << "so does who sent it";
  EXPECT_FALSE(store.add(Instant{}, {message("much too long")}));
  store.restore(Instant{}, {message("longer than may be")});
  EXPECT_EQ(store.size(), 1U);
}

}  // namespace
}  // namespace ph::broker
