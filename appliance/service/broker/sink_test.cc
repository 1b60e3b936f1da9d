// Messages of the event plane on their way to subscribers: nobody who reads loses any, nobody who does not holds them
// up for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::BrokerRig;
using test::MqttClient;

class SinkOnWorkers : public testing::TestWithParam<size_t> {
 protected:
  static BrokerOptions small() {
    BrokerOptions options;
    options.session.mqueue_messages_max = 20;
    options.session.inflight_max = 4;
    options.stall_timeout = 5s;
    return options;
  }
  BrokerRig rig{GetParam(), small()};
  size_t done = 0;

  MqttClient& subscriber(const std::string& line, int qos) {
    MqttClient& c = rig.connect(line);
    c.send("subscribe id=1 filter=t/#:" + std::to_string(qos));
    rig.run();
    c.take();
    return c;
  }
  void publish(int from, int to) {
    for (int i = from; i < to; ++i) {
      port::Message m;
      m.topic = "t/x";
      m.payload = Slice(std::to_string(i));
      m.qos = 1;
      rig.broker->publish(m, [this](const Result<>& r) { done += r ? 1 : 0; });
    }
    rig.run();
  }
  /// What came, each acknowledged; in the order of arrival.
  std::vector<int> read(MqttClient& c) {
    std::vector<int> out;
    for (bool more = true; more; rig.run()) {
      const auto lines = c.take();
      more = !lines.empty();
      for (const auto& line : lines) {
        out.push_back(std::stoi(line.substr(line.find("payload=") + 8)));
        if (const size_t id = line.find(" id="); id != line.npos)
          c.send("puback id=" + line.substr(id + 4, line.find(" payload") - id - 4));
      }
    }
    return out;
  }
  static std::vector<int> numbers(int from, int to) {
    std::vector<int> out;
    for (int i = from; i < to; ++i) out.push_back(i);
    return out;
  }
  uint64_t dropped() const { return rig.broker->stats().dropped(session::Drop::queue_full); }
};
INSTANTIATE_TEST_SUITE_P(Broker, SinkOnWorkers, testing::Values(1, 3),
                         [](const auto& p) { return std::to_string(p.param) + "_workers"; });

TEST_P(SinkOnWorkers, a_client_that_reads_gets_all_and_the_answers_wait_for_it) {
  MqttClient& a = subscriber("id=a session_expiry=60", 1);
  publish(0, 100);
  EXPECT_EQ(done, 15U) << "four in flight and half a queue";
  EXPECT_EQ(read(a), numbers(0, 100));
  EXPECT_EQ(done, 100U);
  EXPECT_EQ(dropped(), 0U);
}

TEST_P(SinkOnWorkers, one_that_stalls_is_waited_for_once) {
  MqttClient& slow = subscriber("id=slow session_expiry=60", 1);
  MqttClient& fast = subscriber("id=fast", 1);
  publish(0, 40);
  EXPECT_EQ(read(fast), numbers(0, 40)) << "who reads is not delayed by who does not";
  EXPECT_LT(done, 40U);
  rig.advance(3s);
  EXPECT_LT(done, 40U);
  rig.advance(3s);
  EXPECT_EQ(done, 40U);
  EXPECT_EQ(dropped(), 16U) << "four in flight, twenty queued";
  publish(40, 60);
  EXPECT_EQ(read(fast), numbers(40, 60));
  EXPECT_EQ(done, 60U) << "it is not waited for again";
  read(slow);
  publish(60, 100);
  EXPECT_EQ(read(fast), numbers(60, 100));
  EXPECT_LT(done, 100U) << "it reads again, and is waited for again";
  EXPECT_EQ(read(slow), numbers(60, 100));
  EXPECT_EQ(done, 100U);
}

TEST_P(SinkOnWorkers, slow_progress_is_progress) {
  MqttClient& slow = subscriber("id=slow session_expiry=60", 1);
  publish(0, 40);
  std::vector<int> got;
  while (got.size() < 40) {
    rig.advance(2s);  // one acknowledgement in that time
    const auto lines = slow.take();
    for (const auto& line : lines) got.push_back(std::stoi(line.substr(line.find("payload=") + 8)));
    ASSERT_FALSE(lines.empty());
    slow.send("puback id=" + std::to_string(got.size() - 3));
    rig.run();
  }
  EXPECT_EQ(got, numbers(0, 40));
  EXPECT_EQ(done, 40U);
  EXPECT_EQ(dropped(), 0U);
}

TEST_P(SinkOnWorkers, one_that_goes_is_not_waited_for) {
  MqttClient& a = subscriber("id=a session_expiry=60", 1);
  publish(0, 40);
  EXPECT_LT(done, 40U);
  a.drop();
  rig.run();
  EXPECT_EQ(done, 40U);
  publish(40, 60);
  EXPECT_EQ(done, 60U) << "offline: its queue's bounds apply";
  EXPECT_EQ(dropped(), 36U);
}

TEST_P(SinkOnWorkers, qos_0_waits_for_a_congested_connection) {
  rig.fabric.window = 2'000;
  MqttClient& a = subscriber("id=a", 0);
  a.pause(true);
  const std::string big(800 * 1024, 'x');
  port::Message m;
  m.topic = "t/x";
  for (int i = 0; i < 5; ++i) {
    m.payload = Slice(big);
    rig.broker->publish(m, [this](const Result<>&) { ++done; });
  }
  rig.run();
  a.pause(false);
  rig.advance(1s);
  EXPECT_EQ(a.take().size(), 5U);
  EXPECT_EQ(done, 5U);
  EXPECT_EQ(rig.broker->stats().dropped(session::Drop::slow_consumer), 0U);
}

TEST(Sink, a_queue_of_none_is_waited_for_too) {
  BrokerOptions options;
  options.session.mqueue_messages_max = 0;
  options.session.inflight_max = 2;
  BrokerRig rig(1, options);
  MqttClient& a = rig.connect("id=a");
  a.send("subscribe id=1 filter=t:1");
  rig.run();
  a.take();
  size_t done = 0, got = 0;
  port::Message m;
  m.topic = "t";
  m.qos = 1;
  for (int i = 0; i < 20; ++i) rig.broker->publish(m, [&](const Result<>&) { ++done; });
  rig.run();
  EXPECT_EQ(done, 2U);
  for (int turn = 0; turn < 20; ++turn, rig.run())
    for (const auto& line : a.take()) {
      ++got;
      a.send("puback id=" + line.substr(line.find(" id=") + 4, line.find(" payload") - line.find(" id=") - 4));
    }
  EXPECT_EQ(got, 20U);
  EXPECT_EQ(done, 20U);
}

}  // namespace
}  // namespace ph::broker
