// Durable sessions: what was acknowledged is there after a kill, and nothing leaves before it is on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/session/records.h"
#include "support/broker_rig.h"

namespace ph::broker {
namespace {

using test::broker_records;
using test::DurableRig;
using test::MqttClient;
using test::payloads;
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
  void kill_at_end(char at);
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

TEST_P(Durable, shared_messages_survive_a_kill_and_are_handed_on) {
  leave_session("a", "filter=$share/g/t:1");
  leave_session("b", "filter=$share/g/t:1");
  MqttClient& p = connect("id=p");
  for (int i = 1; i <= 20; ++i)
    say(p, "publish topic=t qos=1 id=" + std::to_string(i) + " payload=" + std::to_string(i));
  EXPECT_THAT(p.take(), SizeIs(20)) << "acknowledged once the members' workers have them on disk";
  rig.restart();
  EXPECT_EQ(rig.stats().subscriptions, 2U);
  // The session of one member ends: the other one gets all.
  MqttClient& clean = connect("id=a");
  say(clean, "disconnect");
  MqttClient& b = rig.connect(std::string("id=b receive_maximum=100") + kKept);
  rig.run();
  auto got = payloads(b.take());
  EXPECT_THAT(got, SizeIs(20));
  EXPECT_EQ(std::set<std::string>(got.begin(), got.end()).size(), 20U);
  EXPECT_EQ(rig.stats().dropped(session::Drop::session_ended), 0U);
}

TEST_P(Durable, a_broken_record_of_a_shared_entry_is_no_record) {
  const std::vector<uint32_t> ids{7, 300};
  const std::string whole = session::encode_entry(1, true, false, 5, 77, ids, "$share/g/t");
  const auto record = session::decode_entry(whole);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->shared, "$share/g/t");
  EXPECT_EQ(record->subscription_ids, ids);
  EXPECT_EQ(record->number, 77U);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(session::decode_entry(ByteView(whole).substr(0, n))) << n;
  EXPECT_FALSE(session::decode_entry(whole + "x"));
  EXPECT_EQ(session::decode_entry(session::encode_entry(2, false, false, 0, 1, {}))->shared, "");
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

TEST_P(Durable, a_payload_is_stored_once_and_goes_with_its_last_entry) {
  for (int i = 0; i < 6; ++i) leave_session("s" + std::to_string(i), "filter=t:2");
  MqttClient& p = connect("id=p");
  say(p, "publish topic=t qos=1 id=1 payload=shared");
  say(p, "publish topic=t qos=2 id=2 payload=shared");
  EXPECT_EQ(broker_records(rig.store)['m'], 2U);
  EXPECT_EQ(broker_records(rig.store)['q'], 12U);
  rig.restart();
  for (int i = 0; i < 6; ++i) {
    MqttClient& s = rig.connect("id=s" + std::to_string(i) + kKept);
    for (const auto& line : s.take()) {
      const std::string id =
          line.substr(line.find(" id=") + 4, line.find(' ', line.find(" id=") + 4) - line.find(" id=") - 4);
      if (line.find("qos=1") != line.npos) say(s, "puback id=" + id);
      if (line.find("qos=2") == line.npos) continue;
      say(s, "pubrec id=" + id);
      say(s, "pubcomp id=" + id);
    }
    EXPECT_EQ(broker_records(rig.store)['m'], i < 5 ? 2U : 0U) << i;
  }
  EXPECT_EQ(broker_records(rig.store), (std::map<char, size_t>{{'s', 6}, {'u', 6}}));
}

TEST_P(Durable, an_ended_session_leaves_nothing) {
  for (const char* id : {"s", "t"}) leave_session(id, "filter=t:1 filter=u:1");
  MqttClient& p = rig.connect("v=4 id=p clean=0 will=w:x");
  for (int i = 1; i <= 900; ++i) p.send("publish topic=t qos=1 id=" + std::to_string(i % 50 + 1) + " payload=x");
  p.send("publish topic=v qos=2 id=100 payload=x");
  rig.run();
  EXPECT_EQ(broker_records(rig.store)['q'], 1800U);
  connect("id=s clean=1 session_expiry=0");  // in steps, while others go on
  EXPECT_EQ(broker_records(rig.store)['q'], 900U);
  p.drop();
  rig.restart();  // in the middle of nothing: what is to be erased stays to be erased
  rig.run();
  rig.advance(std::chrono::hours(2) + 1s);
  EXPECT_EQ(broker_records(rig.store), (std::map<char, size_t>{}));
  EXPECT_EQ(rig.stats().sessions, 0U);
}

TEST_P(Durable, a_session_is_there_after_a_kill_right_behind_connack) {
  rig.sleep(std::chrono::hours(1));
  rig.restart();
  MqttClient& c = rig.open();
  bool open = false;
  c.on_packet = [&](const std::string& line) { open |= line.starts_with("connack"); };
  c.send(std::string("connect id=s") + kKept);
  auto loops = rig.all_loops();
  while (!open)
    for (auto* l : loops)
      if (!open) l->run_one();
  rig.restart();
  rig.run();
  rig.advance(std::chrono::seconds(5));
  EXPECT_EQ(rig.stats().sessions, 1U);
  EXPECT_THAT(rig.connect(std::string("id=s") + kKept).take(), ElementsAre(HasSubstr("present=1")));
}

TEST_P(Durable, a_kill_while_a_session_is_erased) {
  for (const char at : {'e', 'x'}) kill_at_end(at);
}

void Durable::kill_at_end(char at) {
  SCOPED_TRACE(at);
  leave_session("s", "filter=t:1");
  MqttClient& p = connect("v=4 id=p");
  for (int i = 1; i <= 900; ++i) p.send("publish topic=t qos=1 id=" + std::to_string(i % 50 + 1) + " payload=x");
  rig.run();
  rig.open().send("connect id=s clean=1");
  auto loops = rig.all_loops();
  while (broker_records(rig.store)[at] == 0)
    for (auto* l : loops) l->run_one();
  EXPECT_EQ(broker_records(rig.store)['s'], 0U);
  rig.restart();
  rig.run();
  EXPECT_EQ(broker_records(rig.store), (std::map<char, size_t>{}));
}

// The bounds of a queue hold for what is in the store: QoS 0 first, then the oldest.
TEST_P(Durable, a_stored_queue_keeps_its_bounds) {
  leave_session("s", "filter=t:1");
  MqttClient& p = connect("v=4 id=p");
  for (int i = 1; i <= 1100; ++i)
    p.send("publish topic=t qos=1 id=" + std::to_string(i % 50 + 1) + " payload=" + std::to_string(i));
  rig.run();
  const uint64_t before = rig.stats().dropped(session::Drop::queue_full);
  rig.restart();
  MqttClient& q = connect("v=4 id=q");
  for (int i = 1101; i <= 1200; ++i)
    q.send("publish topic=t qos=1 id=" + std::to_string(i % 50 + 1) + " payload=" + std::to_string(i));
  rig.run();
  // What was not yet on disk could not be dropped, so the queue was over its bound for a turn.
  EXPECT_EQ(before + rig.stats().dropped(session::Drop::queue_full), 200U);
  EXPECT_EQ(broker_records(rig.store)['q'], 1000U);
  MqttClient& s = rig.open();
  std::vector<std::string> got;
  s.on_packet = [&](const std::string& line) {
    if (!line.starts_with("publish")) return;
    got.push_back(payloads({line})[0]);
    const size_t at = line.find(" id=") + 4;
    s.send("puback id=" + line.substr(at, line.find(' ', at) - at));
  };
  s.send(std::string("connect id=s") + kKept);
  rig.run();
  ASSERT_EQ(got.size(), 1000U);
  EXPECT_EQ(got.front(), "201");
  EXPECT_EQ(got.back(), "1200");
  EXPECT_EQ(broker_records(rig.store)['m'], 0U);
}

TEST_P(Durable, an_undecodable_record_costs_itself) {
  for (const char* id : {"s", "t", "u"}) leave_session(id, "filter=t:1 filter=u:1");
  MqttClient& p = connect("id=p");
  for (int i = 1; i <= 3; ++i)
    say(p, "publish topic=t qos=1 id=" + std::to_string(i) + " payload=" + std::to_string(i));
  for (int i = 1; i <= 3; ++i)
    say(p, "publish retain topic=r/" + std::to_string(i) + " qos=1 id=" + std::to_string(i) + " payload=r" +
               std::to_string(i));
  rig.kill();
  std::map<char, std::string> first;
  ASSERT_TRUE(rig.store
                  .scan("m/",
                        [&](ByteView key, ByteView) {
                          if (key.size() > 3) first.emplace(key[2], key);
                          return true;
                        })
                  .has_value());
  port::WriteBatch zeros;
  for (const auto& [letter, key] : first) zeros.put(key, std::string(20, '\0'));
  ASSERT_TRUE(rig.store.write(zeros, true).has_value());
  rig.start();
  EXPECT_EQ(rig.stats().sessions, 2U);  // one lost its own record, and so all,
  EXPECT_EQ(rig.stats().retained, 2U);
  rig.run();
  size_t messages = 0;
  for (const char* id : {"s", "t", "u"}) {
    MqttClient& c = rig.connect("id=" + std::string(id) + kKept);
    messages += payloads(c.take()).size();
  }
  EXPECT_EQ(messages, 4U);  // and the others lost the message that was damaged
  EXPECT_GE(rig.journal().stats().damaged_records, 3U);
}

TEST_P(Durable, wills_wait_over_a_kill) {
  leave_session("watch", "filter=w/#:1");
  MqttClient& a = rig.connect(std::string("id=a") + kKept + " will=w/a:gone will_qos=1 will_delay=60");
  EXPECT_THAT(a.take(), ElementsAre(StartsWith("connack")));
  MqttClient& b = rig.connect(std::string("id=b") + kKept + " will=w/b:gone will_qos=1 will_delay=60");
  a.drop();
  rig.advance(30s);
  say(b, "disconnect");
  rig.kill();
  rig.sleep(20s);
  rig.start();
  rig.advance(9s);
  MqttClient& w = rig.connect(std::string("id=watch") + kKept);
  EXPECT_THAT(payloads(w.take()), IsEmpty());
  rig.advance(3s);
  auto got = w.take();
  EXPECT_THAT(payloads(got), ElementsAre("gone"));
  rig.advance(100s);
  EXPECT_THAT(payloads(w.take()), IsEmpty());
}

TEST_P(Durable, sessions_expire_while_nothing_runs) {
  leave_session("s", "filter=t:1");
  rig.kill();
  rig.sleep(999s);
  rig.start();
  EXPECT_EQ(rig.stats().sessions, 1U);
  rig.kill();
  rig.sleep(2s);
  rig.start();
  rig.advance(1s);
  EXPECT_EQ(rig.stats().sessions, 0U);
  EXPECT_EQ(broker_records(rig.store), (std::map<char, size_t>{}));
}

TEST_P(Durable, a_failing_disk_holds_acknowledgements_back) {
  leave_session("s", "filter=t:1");
  MqttClient& p = connect("id=p");
  rig.store.fail_writes = true;
  say(p, "publish topic=t qos=1 id=1 payload=x");
  rig.advance(5s);
  EXPECT_THAT(p.take(), IsEmpty());
  EXPECT_GT(rig.journal().stats().store_failures, 0U);
  rig.store.fail_writes = false;
  rig.advance(2s);
  EXPECT_THAT(p.take(), ElementsAre(StartsWith("puback id=1")));
}

/// What one worker is told by another and what it is told by the disk may come in either order.
TEST_P(Durable, the_event_plane_is_answered_in_every_order_of_events) {
  leave_session("s", "filter=a/#:1");
  constexpr size_t kMessages = 20;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    size_t answered = 0;
    for (size_t i = 0; i < kMessages; ++i) {
      port::Message m;
      m.topic = "a/" + std::to_string(random.below(3));
      m.payload = Slice(std::to_string(i));
      m.qos = 1;
      rig.broker().publish(std::move(m), [&](const Result<>& r) { answered += r ? 1 : 0; });
      for (uint64_t step = random.below(8); step > 0; --step)
        rig.all_loops()[random.below(rig.all_loops().size())]->run_one();
    }
    rig.run();
    EXPECT_EQ(answered, kMessages);
  }
}

/// The connection closes when what DISCONNECT changed is on disk: who waits for that can rely on it.
TEST_P(Durable, a_disconnect_holds_once_the_connection_is_closed) {
  leave_session("watch", "filter=w/#:1");
  for (const bool ends : {true, false}) {
    SCOPED_TRACE(ends);
    MqttClient& c = connect(std::string("id=s will=w/s:gone will_qos=1") + kKept);
    say(c, "subscribe id=1 filter=t:1");
    c.take();
    rig.disk().hold();
    say(c, ends ? "disconnect session_expiry=0" : "disconnect");
    EXPECT_FALSE(c.closed());
    rig.disk().release();
    auto loops = rig.all_loops();
    while (!c.closed())
      for (auto* l : loops) l->run_one();
    rig.restart();
    rig.advance(2s);
    EXPECT_EQ(rig.stats().sessions, ends ? 1U : 2U);
    EXPECT_THAT(payloads(rig.connect(std::string("id=watch") + kKept).take()), IsEmpty()) << "a will was sent";
  }
}

TEST(DurableLazy, what_a_group_has_is_handed_on_before_it_is_written) {
  DurableRig rig(2, {}, Durability::lazy);
  for (const char* id : {"a", "b"}) {
    MqttClient& c = rig.connect("id=" + std::string(id) + kKept);
    c.send("subscribe id=1 filter=$share/g/t:1");
    rig.run();
    c.send("disconnect");
    rig.run();
    if (*id == 'b') break;
    MqttClient& p = rig.connect("id=p");
    for (int i = 1; i <= 20; ++i)
      p.send("publish topic=t qos=1 id=" + std::to_string(i) + " payload=" + std::to_string(i));
    rig.run();
  }
  rig.connect("id=a clean=1");
  rig.advance(1s);
  size_t got = 0;
  for (const auto& line : rig.connect(std::string("id=b receive_maximum=100") + kKept).take())
    got += line.starts_with("publish") ? 1 : 0;
  EXPECT_EQ(got, 20U);
  EXPECT_EQ(rig.stats().dropped(session::Drop::session_ended), 0U);
}

/// Many sessions that end at once cost few commits.
TEST_P(Durable, ended_sessions_are_erased_many_at_a_time) {
  constexpr int kSessions = 300;
  for (int i = 0; i < kSessions; ++i) leave_session("s" + std::to_string(i), "filter=t:1");
  rig.disk().hold();
  for (int i = 0; i < kSessions; ++i) rig.open().send("connect id=s" + std::to_string(i) + " clean=1");
  rig.run();
  const uint64_t before = rig.committer().groups();
  rig.disk().release();
  rig.run();
  EXPECT_EQ(broker_records(rig.store), (std::map<char, size_t>{}));
  EXPECT_LT(rig.committer().groups() - before, 40U);
}

/// QoS 2 of a route with ack = "far": PUBREC waits for the far end over a restart, too.
class FarTap final : public port::MessageTap {
 public:
  explicit FarTap(DurableRig& rig) : rig_(rig) {}
  bool wants(std::string_view) const override { return true; }
  void take(port::Message message, port::WriteBatch with, std::move_only_function<void(Result<>)> done) override {
    ++taken;
    rig_.loop().post([this, key = message.far_key, with = std::move(with), done = std::move(done)]() mutable {
      if (!key.empty()) with.put(key, "far");
      rig_.committer().request({}, std::move(with), [this, done = std::move(done)](const Result<>&) mutable {
        waiting.push_back([done = std::move(done)]() mutable { done({}); });
      });
    });
  }
  void resume_far(std::string waits_for, port::Task done) override {
    EXPECT_EQ(waits_for, "far");
    waiting.push_back(std::move(done));
  }
  void reach() {
    for (auto& w : std::exchange(waiting, {})) w();
  }
  std::vector<port::Task> waiting;
  size_t taken = 0;

 private:
  DurableRig& rig_;
};

TEST_P(Durable, pubrec_waits_for_the_far_end_over_restarts) {
  FarTap tap(rig);
  rig.tap = &tap;
  rig.restart();
  leave_session("s", "filter=t:2");
  MqttClient& p = connect(std::string("id=p") + kKept);
  say(p, "publish topic=t qos=2 id=7 payload=x");
  EXPECT_EQ(broker_records(rig.store)['f'], 1U);
  for (int restarts = 0; restarts < 2; ++restarts) {
    tap.waiting.clear();
    rig.restart();
    rig.run();
    ASSERT_EQ(tap.waiting.size(), 1U);
    MqttClient& again = connect(std::string("id=p") + kKept);
    say(again, "publish topic=t qos=2 id=7 payload=x dup");
    EXPECT_THAT(again.take(), IsEmpty()) << "the far end has not got it";
    if (restarts == 0) continue;
    tap.reach();
    rig.run();
    EXPECT_THAT(again.take(), ElementsAre(StartsWith("pubrec id=7")));
    EXPECT_EQ(broker_records(rig.store)['f'], 0U);
    say(again, "pubrel id=7");
    EXPECT_THAT(again.take(), ElementsAre(StartsWith("pubcomp id=7")));
  }
  EXPECT_EQ(tap.taken, 1U);
  EXPECT_THAT(payloads(rig.connect(std::string("id=s") + kKept).take()), ElementsAre("x"));
}

TEST(DurableLazy, acknowledges_at_once_and_writes_within_a_second) {
  DurableRig rig(2, {}, Durability::lazy);
  rig.disk().hold();
  MqttClient& s = rig.connect(std::string("id=s") + kKept);
  s.send("subscribe id=1 filter=t:2");
  rig.run();
  EXPECT_THAT(s.take(), ElementsAre(StartsWith("connack"), StartsWith("suback")));
  MqttClient& p = rig.connect(std::string("id=p") + kKept);
  p.send("publish topic=t qos=2 id=1 payload=x").send("pubrel id=1");
  rig.run();
  EXPECT_THAT(p.take(), ElementsAre(StartsWith("connack"), StartsWith("pubrec id=1"), StartsWith("pubcomp id=1")));
  EXPECT_THAT(s.take(), ElementsAre(StartsWith("publish topic=t qos=2 id=1")));
  rig.disk().release();
  rig.advance(1s);
  rig.restart();
  MqttClient& again = rig.connect(std::string("id=s") + kKept);
  auto got = again.take();
  EXPECT_THAT(got, Contains(HasSubstr("payload=x")));
}

/// A disk that takes nothing, and a client that sends 64 MiB; at the end the disk is back.
void expect_held_back(Durability durability, const std::string& publish) {
  constexpr int kMany = 1'300;
  DurableRig rig(2, {}, durability);
  rig.connect(std::string("id=s") + kKept).send("subscribe id=1 filter=t/#:1");
  rig.run();
  rig.disk().hold();
  MqttClient& p = rig.connect("id=p");
  MqttClient& listener = rig.connect("id=l");
  listener.send("subscribe id=1 filter=other:0");
  rig.run();
  listener.take();
  const std::string payload(50 * 1024, 'x');
  for (int i = 0; i < kMany; ++i) {
    p.send("publish topic=t/" + std::to_string(i) + publish + " payload=" + payload);
    rig.run();
  }
  rig.advance(1s);
  EXPECT_GT(rig.journal().stats().waiting_bytes, limits::kJournalBytesMax);
  EXPECT_LT(rig.journal().stats().waiting_bytes, limits::kJournalBytesMax * 5 / 4);
  EXPECT_EQ(rig.broker().stats().limits[static_cast<size_t>(session::Limit::journal)], 1U) << "waits, and says so";
  for (int i = 0; i < 2; ++i) {
    listener.send("pingreq");
    rig.run();
    EXPECT_THAT(listener.take(), testing::ElementsAre("pingresp")) << "the disk is nothing to who only listens";
  }
  EXPECT_EQ(rig.broker().stats().limits[static_cast<size_t>(session::Limit::journal)], 1U);
  rig.disk().release();
  for (int i = 0; i < 20; ++i) rig.advance(100ms);
  EXPECT_EQ(rig.broker().stats().messages_in, kMany) << "nothing of it is lost";
  EXPECT_EQ(rig.journal().stats().waiting_bytes, 0U);
}

TEST(DurableLazy, who_sends_more_than_the_disk_takes_is_not_read_from) {
  expect_held_back(Durability::lazy, " qos=1 id=1");
}

TEST(DurableSessions, retained_messages_that_nobody_waits_for_are_not_piled_up_either) {
  expect_held_back(Durability::fsync, " qos=0 retain=1");
}

/// The disk takes nothing, and a client comes back again and again with something to write down.
TEST(DurableSessions, clients_that_come_over_and_over_do_not_pile_up_what_the_disk_does_not_take) {
  constexpr int kMany = 1'900;
  DurableRig rig(2);
  rig.connect(std::string("id=s") + kKept + " will_delay=900 will=w:" + std::string(60 * 1024, 'x'));
  rig.run();
  rig.disk().hold();
  for (int i = 0; i < kMany; ++i) {
    MqttClient& c = rig.connect(std::string("id=s") + kKept + " will_delay=900 will=w:" + std::string(60 * 1024, 'x'));
    c.drop();
    rig.run();
  }
  EXPECT_LT(rig.journal().stats().waiting_bytes, limits::kJournalBytesMax * 5 / 2);
  EXPECT_GT(rig.broker().stats().connects_shed, 0U);
  EXPECT_THAT(rig.connect("id=other").take(), Contains(HasSubstr("success"))) << "leaves nothing on the disk";
  rig.disk().release();
  rig.advance(1s);
  EXPECT_THAT(rig.connect(std::string("id=s") + kKept).take(), Contains(HasSubstr("present=1")));
}

TEST(DurableStop, an_orderly_end_writes_everything) {
  DurableRig rig(2, {}, Durability::lazy);
  MqttClient& s = rig.connect(std::string("id=s") + kKept);
  s.send("subscribe id=1 filter=t:1");
  rig.run();
  s.send("disconnect");
  MqttClient& p = rig.connect("id=p");
  p.send("publish topic=t qos=1 id=1 payload=x");
  rig.run();
  rig.disk().release();
  rig.broker().stop();
  rig.run();
  rig.advance(1s);
  EXPECT_TRUE(rig.broker().drained());
  rig.restart();
  EXPECT_THAT(rig.connect(std::string("id=s") + kKept).take(), Contains(HasSubstr("payload=x")));
}

TEST(DurableNumbers, do_not_run_out_where_nothing_is_written) {
  test::MemoryStore store;
  test::ManualLoop loop;
  test::ManualDisk disk(loop);
  commit::Committer committer(loop, disk, store);
  auto journal = Journal::open(Durability::fsync, loop, store, committer);
  ASSERT_TRUE(journal.has_value());
  constexpr uint64_t kMany = Journal::kNumbersAhead / 4;
  uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t first = (*journal)->take_numbers(kMany);
    EXPECT_GE(first, last);
    last = first + kMany;
    loop.run_posted();
  }
  // What was given out is not given out again after a crash.
  auto next = Journal::open(Durability::fsync, loop, store, committer);
  ASSERT_TRUE(next.has_value());
  EXPECT_GE((*next)->take_numbers(1), last);
}

TEST(DurableFormat, a_newer_one_is_not_opened) {
  DurableRig rig;
  rig.kill();
  port::WriteBatch newer;
  newer.put("m/v", "\x02");
  ASSERT_TRUE(rig.store.write(newer, true).has_value());
  test::ManualLoop loop;
  test::ManualDisk disk(loop);
  commit::Committer committer(loop, disk, rig.store);
  auto journal = Journal::open(Durability::fsync, loop, rig.store, committer);
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(journal.error().code, errors::state_newer);
}

}  // namespace
}  // namespace ph::broker
