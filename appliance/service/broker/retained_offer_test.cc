// More retained messages for a new subscription than its session's queue holds (worker_retained.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "service/broker/broker.h"
#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::BrokerRig;
using test::MqttClient;

constexpr int kMessages = 30;

BrokerOptions small() {
  BrokerOptions options;
  options.session.inflight_max = 2;
  options.session.mqueue_messages_max = 3;
  return options;
}

std::string field(const std::string& line, const std::string& name) {
  const size_t at = line.find(' ' + name + '=');
  if (at == line.npos) return {};
  const std::string rest = line.substr(at + name.size() + 2);
  return rest.substr(0, rest.find(' '));
}

class RetainedOffers : public testing::TestWithParam<size_t> {
 protected:
  RetainedOffers() {
    for (int i = 1; i <= kMessages; ++i)
      publisher.send("publish topic=r/" + std::to_string(i) + " qos=1 id=" + std::to_string(i) + " retain payload=old");
    rig.run();
  }
  /// Acknowledges whatever comes from now on.
  void answer(MqttClient& c) {
    c.on_packet = [this, &c](const std::string& line) {
      if (!line.starts_with("publish")) return;
      got.insert(field(line, "topic") + '=' + field(line, "payload"));
      if (const std::string id = field(line, "id"); !id.empty()) c.send("puback id=" + id);
    };
  }
  size_t lost() const { return rig.broker->stats().dropped(session::Drop::queue_full); }

  BrokerRig rig{GetParam(), small()};
  MqttClient& publisher = rig.connect("id=p");
  std::multiset<std::string> got;
};
INSTANTIATE_TEST_SUITE_P(Broker, RetainedOffers, testing::Values(1, 2, 3),
                         [](const auto& p) { return std::to_string(p.param) + "_workers"; });

TEST_P(RetainedOffers, all_arrive_as_the_client_acknowledges) {
  MqttClient& s = rig.connect("id=s");
  answer(s);
  std::string filters = "subscribe id=1 filter=r/#:1 filter=r/+:1";
  for (int i = 0; i < 40; ++i) filters += " filter=none/" + std::to_string(i) + "/+:1";  // more than one turn looks up
  s.send(filters + " filter=r/7:0");
  rig.run();
  EXPECT_EQ(got.size(), 2U * kMessages + 1);
  for (int i = 1; i <= kMessages; ++i) EXPECT_EQ(got.count("r/" + std::to_string(i) + "=old"), i == 7 ? 3U : 2U) << i;
  EXPECT_EQ(lost(), 0U);
}

TEST_P(RetainedOffers, what_changes_before_its_turn_comes_live_or_not_at_all) {
  MqttClient& s = rig.connect("id=s");
  s.send("subscribe id=1 filter=r/#:1");
  rig.run();
  std::set<std::string> before;  // on their way already: not acknowledged yet, so that no more come
  for (const std::string& line : s.take())
    if (line.starts_with("publish")) before.insert(field(line, "topic"));
  ASSERT_EQ(before.size(), 2U);
  for (int i = 1; i <= kMessages; ++i)
    publisher.send("publish topic=r/" + std::to_string(i) + " retain" + (i % 2 ? " payload=new" : ""));
  rig.run();
  answer(s);
  for (int id = 1; id <= 2; ++id) s.send("puback id=" + std::to_string(id));
  rig.run();
  // Of the old values only one more: it was in the queue.
  EXPECT_LE(std::count_if(got.begin(), got.end(), [](const std::string& g) { return g.ends_with("=old"); }), 1);
}

TEST_P(RetainedOffers, a_session_that_stays_keeps_what_its_queue_holds) {
  MqttClient& s = rig.connect("id=s session_expiry=60");
  s.send("subscribe id=1 filter=r/#:1");
  rig.run();
  s.drop();
  rig.run();
  EXPECT_EQ(lost(), kMessages - 2U - 3U);
  MqttClient& again = rig.open();
  answer(again);
  again.send("connect id=s clean=0 session_expiry=60");
  rig.run();
  EXPECT_EQ(got.size(), 5U);
}

TEST_P(RetainedOffers, a_session_whose_client_went_at_once_gets_them_a_few_filters_a_turn) {
  if (GetParam() > 1) GTEST_SKIP() << "what follows SUBSCRIBE overtakes the offer, which comes with SUBACK";
  MqttClient& s = rig.connect("id=s session_expiry=60");
  std::string filters = "subscribe id=1";
  for (int i = 0; i < 40; ++i) filters += " filter=none/" + std::to_string(i) + "/+:1";
  s.send(filters + " filter=r/7:1 filter=r/8:1").send("disconnect");
  rig.run();
  ASSERT_TRUE(s.closed());
  MqttClient& again = rig.open();
  answer(again);
  again.send("connect id=s clean=0 session_expiry=60");
  rig.run();
  EXPECT_EQ(got, (std::multiset<std::string>{"r/7=old", "r/8=old"}));

  again.send(filters + " filter=r/9:1");  // and comes back before they are all looked for
  again.send("disconnect");
  MqttClient& back = rig.open();
  answer(back);
  back.send("connect id=s clean=0 session_expiry=60");
  rig.run();
  EXPECT_EQ(got.count("r/9=old"), 1U);
}

TEST_P(RetainedOffers, unsubscribing_ends_them) {
  MqttClient& s = rig.connect("id=s");
  s.send("subscribe id=1 filter=r/#:1").send("unsubscribe id=2 filter=r/#");
  rig.run();
  answer(s);
  for (const std::string& line : s.take())
    if (line.starts_with("publish")) s.send("puback id=" + field(line, "id"));
  rig.run();
  EXPECT_LE(got.size(), 1U);
  EXPECT_EQ(lost(), 0U);
}

}  // namespace
}  // namespace ph::broker
