// The process or the power dies again and again, at random moments of random traffic. Model: what was acknowledged to a
// publisher arrives; QoS 2 exactly once; first arrivals of one publisher and QoS in their order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::DurableRig;
using test::ManualLoop;
using test::MqttClient;

std::string field(const std::string& line, const std::string& key) {
  const size_t at = line.find(' ' + key + '=');
  if (at == line.npos) return {};
  const size_t from = at + key.size() + 2;
  return line.substr(from, line.find(' ', from) - from);
}

/// A publisher that repeats what is not acknowledged, as MQTT wants it, over connections and crashes.
struct Publisher {
  std::string id;
  int qos = 1;
  int next = 1;
  struct Message {
    std::string payload;
    bool sent = false;
    bool released = false;
  };
  std::map<int, Message> open;  // by packet id
  MqttClient* client = nullptr;
  bool connected = false;
  std::vector<std::string> acknowledged;

  void on_packet(const std::string& line) {
    if (line.starts_with("connack")) {
      connected = true;
      std::map<int, int> in_order;  // as first sent [MQTT-4.6.0-1]
      for (auto& [packet, m] : open) in_order[std::stoi(m.payload.substr(m.payload.find('.') + 1))] = packet;
      for (auto& [number, packet] : in_order) send(packet, open[packet], true);
      return;
    }
    const std::string packet_text = field(line, "id");
    if (packet_text.empty()) return;
    const int packet = std::stoi(packet_text);
    auto it = open.find(packet);
    if (line.starts_with("puback") && it != open.end()) {
      acknowledged.push_back(it->second.payload);
      open.erase(it);
    } else if (line.starts_with("pubrec") && it != open.end()) {
      if (!it->second.released) acknowledged.push_back(it->second.payload);
      it->second.released = true;
      client->send("pubrel id=" + packet_text);
    } else if (line.starts_with("pubcomp")) {
      if (it != open.end()) open.erase(it);
    }
  }
  void send(int packet, Message& m, bool again) {
    if (m.released) {
      client->send("pubrel id=" + std::to_string(packet));
      return;
    }
    client->send("publish topic=t/" + id + " qos=" + std::to_string(qos) + " id=" + std::to_string(packet) +
                 (again && m.sent ? " dup" : "") + " payload=" + m.payload);
    m.sent = true;
  }
  void publish() {
    // Few packet ids, so that they are used again soon.
    int packet = 1;
    while (open.contains(packet)) ++packet;
    if (packet > 4) return;
    Message& m = open[packet];
    m.payload = id + "." + std::to_string(next++);
    if (connected && !client->closed()) send(packet, m, false);
  }
};

/// Keeps events in the store, one a message, as a route's log does: together with what the broker gives along.
class StoreTap final : public port::MessageTap {
 public:
  explicit StoreTap(DurableRig& rig) : rig_(rig) {}
  bool wants(std::string_view) const override { return on; }
  void take(port::Message message, port::WriteBatch with, std::move_only_function<void(Result<>)> done) override {
    rig_.loop().post([this, message = std::move(message), with = std::move(with), done = std::move(done)]() mutable {
      if (++asked % 7 == 0) return done(fail("test.full", message.topic));
      with.put("tap/" + std::to_string(asked), std::string(message.payload.view()));
      rig_.committer().request({}, std::move(with), std::move(done));
    });
  }
  /// How often each payload is there.
  std::map<std::string, int> events() {
    std::map<std::string, int> out;
    EXPECT_TRUE(rig_.store.scan("tap/", [&](ByteView, ByteView v) { return ++out[std::string(v)], true; }).has_value());
    return out;
  }
  bool on = false;
  uint64_t asked = 0;

 private:
  DurableRig& rig_;
};

class DurableCrash : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, DurableCrash, testing::Range<uint64_t>(1, 61));

TEST_P(DurableCrash, loses_doubles_and_reorders_nothing) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  BrokerOptions options;
  options.session.inflight_max = 1 + random.below(8);
  DurableRig rig(1 + random.below(3), options);
  StoreTap tap(rig);
  if (random.chance(0.5)) {
    tap.on = true;
    rig.tap = &tap;
    rig.restart();
  }

  constexpr size_t kPublishers = 3;
  std::vector<Publisher> publishers(kPublishers);
  for (size_t i = 0; i < kPublishers; ++i) {
    publishers[i].id = std::to_string(i);
    publishers[i].qos = static_cast<int>(i % 2) + 1;
  }
  // The subscriber keeps its side of QoS 2, as a client with a session of its own.
  std::vector<std::string> arrived;
  std::map<std::string, int> deliveries;  // that a client hands to its user
  std::set<std::string> pending_pubrec;   // packet ids of QoS 2 that were received and not released
  MqttClient* subscriber = nullptr;
  auto on_subscriber = [&](const std::string& line) {
    const std::string packet = field(line, "id");
    if (line.starts_with("publish")) {
      const std::string payload = field(line, "payload");
      const bool two = field(line, "qos") == "2";
      const bool known = two && pending_pubrec.contains(packet);
      if (!known && deliveries[payload]++ == 0) arrived.push_back(payload);
      if (two) pending_pubrec.insert(packet);
      if (random.chance(0.8)) subscriber->send((two ? "pubrec id=" : "puback id=") + packet);
    } else if (line.starts_with("pubrel")) {
      pending_pubrec.erase(packet);
      if (random.chance(0.8)) subscriber->send("pubcomp id=" + packet);
    }
  };
  auto connect_subscriber = [&] {
    subscriber = &rig.open();
    subscriber->on_packet = on_subscriber;
    subscriber->send("connect v=4 id=s clean=0");
  };
  auto connect_publisher = [&](Publisher& p) {
    p.client = &rig.open();
    p.connected = false;
    p.client->on_packet = [&p](const std::string& line) { p.on_packet(line); };
    p.client->send("connect v=4 id=p" + p.id + " clean=0");
  };
  auto step = [&](uint64_t steps) {
    auto loops = rig.all_loops();
    for (uint64_t i = 0; i < steps; ++i) loops[random.below(loops.size())]->run_one();
  };
  auto crash = [&] {
    if (random.chance(0.5))
      rig.kill(&random);
    else
      rig.kill();
    rig.start();
    subscriber = nullptr;
    for (auto& p : publishers) {
      p.client = nullptr;
      p.connected = false;
    }
  };

  connect_subscriber();
  rig.run();
  subscriber->send("subscribe id=1 filter=t/#:2");
  rig.run();
  int crashes = 0;
  for (int i = 0; i < 300; ++i) {
    if (!subscriber && random.chance(0.2)) connect_subscriber();
    for (auto& p : publishers) {
      if ((!p.client || p.client->closed()) && random.chance(0.3)) connect_publisher(p);
      if (random.chance(0.5)) p.publish();
    }
    if (random.chance(0.03) && subscriber) {
      subscriber->drop();
      subscriber = nullptr;
    }
    step(random.below(60));
    if (random.chance(0.04)) {
      crash();
      ++crashes;
    }
  }
  EXPECT_GT(crashes, 0);
  // Calm: everybody connects and finishes.
  for (int i = 0; i < 400; ++i) {
    bool done = true;
    for (auto& p : publishers) {
      if (!p.client || p.client->closed()) connect_publisher(p);
      done = done && p.open.empty();
    }
    if (subscriber) subscriber->drop();
    connect_subscriber();
    rig.run();
    size_t total = 0;
    for (auto& p : publishers) total += static_cast<size_t>(p.next - 1);
    if (done && arrived.size() >= total) break;
  }
  for (auto& p : publishers) {
    SCOPED_TRACE("publisher " + p.id + " qos " + std::to_string(p.qos));
    EXPECT_TRUE(p.open.empty());
    std::vector<std::string> got;
    for (const auto& a : arrived)
      if (a.starts_with(p.id + ".")) got.push_back(a);
    for (const auto& a : p.acknowledged) EXPECT_TRUE(deliveries.contains(a)) << a << " was acknowledged, and is lost";
    if (p.qos != 2) continue;
    for (const auto& a : got) EXPECT_EQ(deliveries[a], 1) << a;
    std::vector<std::string> expected;
    for (int n = 1; n < p.next; ++n) expected.push_back(p.id + "." + std::to_string(n));
    if (!tap.on) {  // one that a tap refuses comes again behind those that were taken
      EXPECT_EQ(got, expected);
    }
  }
  EXPECT_EQ(rig.journal().stats().damaged_records, 0U);
  if (!tap.on) return;
  const auto events = tap.events();
  for (auto& p : publishers)
    for (int n = 1; n < p.next; ++n) {
      const std::string payload = p.id + "." + std::to_string(n);
      EXPECT_GE(events.contains(payload) ? events.at(payload) : 0, 1) << payload;
      if (p.qos == 2) {
        EXPECT_EQ(events.at(payload), 1) << payload;
      }
    }
}

class DurableTakeover : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, DurableTakeover, testing::Range<uint64_t>(1, 61));

/// A publisher connects again and again, on other workers, while what it sent is still being written down.
TEST_P(DurableTakeover, qos_2_keeps_its_order) {
  Random random(GetParam());
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  DurableRig rig(3);
  MqttClient& s = rig.connect("v=4 id=s clean=0");
  std::vector<std::string> arrived;
  s.on_packet = [&](const std::string& line) {
    if (line.starts_with("pubrel")) s.send("pubcomp id=" + field(line, "id"));
    if (!line.starts_with("publish")) return;
    arrived.push_back(field(line, "payload"));
    s.send("pubrec id=" + field(line, "id"));
  };
  s.send("subscribe id=1 filter=t/#:2");
  rig.run();
  Publisher p{"p", 2};
  const auto connect = [&] {
    p.client = &rig.open();
    p.connected = false;
    p.client->on_packet = [&p, from = p.client](const std::string& line) {
      if (p.client == from) p.on_packet(line);  // it does not listen to connections that it has given up
    };
    p.client->send("connect v=4 id=p clean=0");
  };
  auto loops = rig.all_loops();
  for (int i = 0; i < 200; ++i) {
    if (i == 0 || random.chance(0.1)) connect();
    p.publish();
    for (uint64_t n = random.below(20); n > 0; --n) loops[random.below(loops.size())]->run_one();
  }
  for (int i = 0; i < 10 && !p.open.empty(); ++i) {
    connect();
    rig.run();
  }
  EXPECT_GT(rig.stats().moves, 0U);
  std::vector<std::string> expected;
  for (int n = 1; n < p.next; ++n) expected.push_back("p." + std::to_string(n));
  EXPECT_EQ(arrived, expected);
}

class DurableSuccession : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, DurableSuccession, testing::Range<uint64_t>(1, 121));

/// A member of a shared subscription begins anew, and dies while its old session's messages are handed on. Model: the
/// session that CONNACK promised is there, with what was acknowledged for it and nothing older; the old one's messages
/// are with the others, or with it if it is still the one.
TEST_P(DurableSuccession, the_new_session_is_the_one_and_the_old_messages_are_with_others) {
  Random random(GetParam());
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  DurableRig rig(1 + random.below(4));
  const std::string kept = " receive_maximum=1000 session_expiry=1000";
  const auto leave = [&](const std::string& id) {
    MqttClient& c = rig.connect("id=" + id + " clean=0" + kept);
    c.send("subscribe id=1 filter=$share/g/old:1");
    c.send("disconnect");
    rig.run();
  };
  for (uint64_t n = random.below(4); n > 0; --n) rig.connect("id=first" + std::to_string(n) + kept);
  leave("a");
  constexpr size_t kMessages = 30;
  MqttClient& p = rig.connect("id=p");
  for (size_t i = 1; i <= kMessages; ++i)
    p.send("publish topic=old qos=1 id=" + std::to_string(i) + " payload=" + std::to_string(i));
  rig.run();
  for (const char* id : {"b", "c", "d"}) leave(id);
  for (uint64_t n = random.below(4); n > 0; --n) rig.connect("id=spacer");
  p.take();

  MqttClient& again = rig.open();
  bool open = false;
  bool subscribed = false;
  again.on_packet = [&](const std::string& line) {
    open |= line.starts_with("connack");
    subscribed |= line.starts_with("suback");
    if (line.starts_with("suback")) p.send("publish topic=new qos=1 id=99 payload=new");
  };
  again.send("connect id=a clean=1" + kept);
  again.send("subscribe id=1 filter=new:1");
  auto loops = rig.all_loops();
  for (uint64_t steps = random.below(120); steps > 0; --steps) loops[random.below(loops.size())]->run_one();
  const bool acknowledged = !p.take().empty();
  if (random.chance(0.5))
    rig.kill(&random);
  else
    rig.kill();
  rig.start();
  rig.run();

  std::multiset<std::string> old;
  for (const char* id : {"b", "c", "d"})
    for (const auto& line : rig.connect(std::string("id=") + id + " clean=0" + kept).take())
      if (line.starts_with("publish")) old.insert(field(line, "payload"));
  MqttClient& a = rig.connect("id=a clean=0" + kept);
  bool got_new = false;
  for (const auto& line : a.take()) {
    if (line.starts_with("connack") && open) {
      EXPECT_NE(line.find("present=1"), line.npos) << line;
    }
    if (!line.starts_with("publish")) continue;
    if (field(line, "topic") == "new") {
      got_new = true;
      continue;
    }
    EXPECT_FALSE(open) << "of a session that has ended: " << line;
    old.insert(field(line, "payload"));
  }
  EXPECT_EQ(old.size(), kMessages) << "each with one of them, once";
  EXPECT_EQ(std::set<std::string>(old.begin(), old.end()).size(), kMessages);
  if (acknowledged) {
    EXPECT_TRUE(got_new);
  }
  EXPECT_EQ(rig.journal().stats().damaged_records, 0U);
  // Nothing of the old session is left once all is calm.
  rig.run();
  EXPECT_TRUE(
      rig.store.scan(session::keys::kEnding, [](ByteView, ByteView) { return ADD_FAILURE(), true; }).has_value());
}

class DurableEvents : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, DurableEvents, testing::Range<uint64_t>(1, 81));

/// Events of a source whose cursor moves with the broker's commits, published again from there after each crash: each
/// reaches each durable session once, and one of a group.
TEST_P(DurableEvents, reach_each_session_once) {
  Random random(GetParam());
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  BrokerOptions options;
  options.session.inflight_max = 1000;
  DurableRig rig(1 + random.below(3), options);
  const std::vector<std::string> ids{"a", "b", "c"};
  for (const auto& id : ids) {
    MqttClient& c = rig.connect("id=" + id + " clean=0 session_expiry=100000");
    c.send("subscribe id=1 filter=e/#:1 filter=$share/g/e/#:1");
    c.send("disconnect");
    rig.run();
  }
  constexpr uint64_t kEvents = 40;
  constexpr uint64_t kSlice = 8;
  auto cursor = [&]() -> uint64_t {
    const auto value = rig.store.get("cursor");
    return value && *value ? std::stoull(**value) : 0;
  };
  uint64_t life = 0;
  std::function<void(uint64_t)> publish = [&](uint64_t from) {
    const uint64_t upto = std::min(from + kSlice, kEvents);
    auto left = std::make_shared<uint64_t>(upto - from);
    for (uint64_t n = from; n < upto; ++n) {
      port::Message m;
      m.topic = "e/" + std::to_string(n % 3);
      m.payload = Slice(std::to_string(n));
      m.qos = 1;
      m.retain = n % 5 == 0;
      m.stream = StreamId{7};
      m.position = n;
      rig.broker().publish(std::move(m), [&, left, upto, mine = life](const Result<>&) {
        if (--*left > 0 || mine != life) return;
        port::WriteBatch moved;
        moved.put("cursor", std::to_string(upto));
        rig.broker().settle(StreamId{7}, upto, std::move(moved), [&, upto, mine] {
          if (mine == life && upto < kEvents) publish(upto);
        });
      });
    }
  };
  publish(0);
  for (uint64_t crashes = 1 + random.below(6); crashes > 0; --crashes) {
    auto loops = rig.all_loops();
    for (uint64_t steps = random.below(150); steps > 0; --steps) loops[random.below(loops.size())]->run_one();
    if (random.chance(0.5))
      rig.kill(&random);
    else
      rig.kill();
    rig.start();
    ++life;
    if (cursor() < kEvents) publish(cursor());
  }
  rig.run();
  EXPECT_EQ(cursor(), kEvents);
  std::map<std::string, int> shared;
  for (const auto& id : ids) {
    std::map<std::string, int> own;
    for (const auto& line : rig.connect("id=" + id + " receive_maximum=1000 clean=0 session_expiry=100000").take())
      if (line.starts_with("publish")) ++own[field(line, "payload")];
    EXPECT_EQ(own.size(), kEvents) << id;
    for (const auto& [payload, count] : own) {
      EXPECT_LE(count, 2) << payload;
      if (count == 2) ++shared[payload];
    }
  }
  for (uint64_t n = 0; n < kEvents; ++n) EXPECT_EQ(shared[std::to_string(n)], 1) << n;
  EXPECT_TRUE(rig.store.scan(session::keys::kGot, [](ByteView, ByteView) { return ADD_FAILURE(), true; }).has_value());
}

}  // namespace
}  // namespace ph::broker
