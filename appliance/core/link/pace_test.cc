#include "core/link/pace.h"

#include <gtest/gtest.h>

#include "core/link/sender_state.h"
#include "support/sender_script.h"

namespace ph::link {
namespace {

using test::SenderScript;

}  // namespace

TEST(Pace, batches_become_about_a_seconds_worth) {
  Pace pace;
  EXPECT_EQ(pace.batch_bytes(), Pace::kBatchFirst);
  Instant at{};
  pace.begin(at);
  for (int i = 0; i < 20; ++i) pace.acked(6250, at += 1s);  // 50 kbit/s
  EXPECT_NEAR(static_cast<double>(pace.batch_bytes()), 6250, 700);
  pace.begin(at);
  for (int i = 0; i < 200; ++i) pace.acked(256 * 1024, at += 2ms);
  EXPECT_EQ(pace.batch_bytes(), Pace::kBatchMax);
}

TEST(Bucket, lets_through_the_rate_and_a_tenth_of_a_second_at_once) {
  Bucket bucket;
  EXPECT_TRUE(bucket.open(Instant{}));
  bucket.set(100'000, Instant{});
  uint64_t sent = 0;
  for (Instant now{}; now < Instant{} + 10s; now += 1ms)
    while (bucket.open(now)) {
      bucket.take(3000);
      sent += 3000;
    }
  EXPECT_NEAR(static_cast<double>(sent), 1'000'000, 14'000);
}

TEST(Bucket, tells_when_it_opens_and_nothing_passes_at_zero) {
  Bucket bucket;
  bucket.set(1000, Instant{});
  EXPECT_TRUE(bucket.open(Instant{} + 50ms));
  bucket.take(1050);
  EXPECT_FALSE(bucket.open(Instant{} + 60ms));
  Instant at = bucket.opens_at();
  EXPECT_TRUE(bucket.open(at));
  EXPECT_NEAR(std::chrono::duration<double>(at - Instant{}).count(), 1.05, 0.01);
  bucket.set(0, at);
  EXPECT_FALSE(bucket.open(at + 3600s));
  EXPECT_EQ(bucket.opens_at(), Instant::max());
  bucket.set(std::nullopt, at);
  EXPECT_TRUE(bucket.open(at));
}

TEST(Sender, a_rate_holds_over_all_receivers_and_its_end_wakes_the_rest) {
  SenderScript s(SenderScript::receivers(2));
  s.sender().add_source({}, false);
  s.sender().set_rate(0, s.now());
  s.sender().start(s.now());
  s.ready(0);
  s.ready(1);
  s.offer(1, 0, 30);
  s.offer(1, 30, 60);
  s.pass(5s);
  EXPECT_EQ(s.sent(), "");
  s.sender().set_rate(std::nullopt, s.now());
  std::string sent = s.sent();
  EXPECT_NE(sent.find("[0,30)"), sent.npos) << sent;
  EXPECT_NE(sent.find("[30,60)"), sent.npos) << sent;
}

TEST(Sender, connections_of_an_address_are_one_for_the_first_use) {
  auto options = SenderScript::receivers(1);
  options.connections = 3;
  SenderScript s(options);
  s.sender().add_source({}, false);
  s.sender().start(s.now());
  for (size_t r = 0; r < 3; ++r) s.ready(r);
  s.take();
  for (uint64_t i = 0; i < 3; ++i) s.offer(1, i * 30, i * 30 + 30);
  std::string effects = s.take();
  EXPECT_EQ(effects.find("will use"), effects.rfind("will use")) << effects;
  for (const char* to : {"to r0 EVENTS", "to r1 EVENTS", "to r2 EVENTS"})
    EXPECT_NE(effects.find(to), effects.npos) << effects;
}

TEST(Sender, an_answer_over_one_connection_tells_what_an_earlier_run_left_at_the_address) {
  auto options = SenderScript::receivers(1);
  options.connections = 2;
  SenderScript s(options);
  s.sender().add_source({{StreamId{1}, 0, 0, 60, {"r0"}}}, false);
  s.sender().start(s.now());
  s.offer(1, 0, 60);
  s.connected(1);
  s.received(1, Resumed{{{StreamId{1}, 0, 30, {{0, 30}}, {}, {}}}});
  s.received(1, Credit{1 << 20});
  EXPECT_EQ(s.sent(), "r1 [30,60)");
}

TEST(Sender, a_lost_connections_batches_wait_for_it_while_others_of_its_address_go_on) {
  auto options = SenderScript::receivers(1);
  options.connections = 2;
  SenderScript s(options);
  s.sender().add_source({}, false);
  s.sender().start(s.now());
  s.ready(0);
  s.ready(1);
  s.take();
  s.offer(1, 0, 30);
  s.offer(1, 30, 60);
  std::string first = s.sent();
  s.lose(0);
  s.offer(1, 60, 90);
  EXPECT_EQ(s.sent(), "r1 [60,90)") << first;
  s.pass(60s);
  EXPECT_EQ(s.sent(), "") << "its node may have them";
}

/// Three receivers and lines whose keys are known.
struct Hashed : SenderScript {
  Hashed()
      : SenderScript([] {
          auto o = receivers(3);
          o.hash = HashRule{HashRule::By::prefix, ":", 0};
          return o;
        }()) {
    sender().add_source({}, false);
    sender().start(now());
    for (size_t r = 0; r < 3; ++r) ready(r);
    take();
  }
  /// One line `<key>:<fill>\n` of ten bytes; a key that `r` owns.
  static std::string key_of(size_t r) {
    static const KeyFinder finder({HashRule::By::prefix, ":", 0});
    static const Owners owners({{"r0", 1}, {"r1", 1}, {"r2", 1}}, 1);
    for (int n = 10; n < 100; ++n)
      if (owners.of(*finder.partition(std::to_string(n) + ":", {})) == r) return std::to_string(n);
    return {};
  }
  void lines(uint64_t first, const std::vector<size_t>& owners) {
    std::string text;
    for (size_t r : owners) text += key_of(r) + ":......\n";
    event::Block block;
    block.kind = event::BlockKind::lines;
    block.category = "c";
    block.id = {NodeId{}, StreamId{1}, first, first + text.size()};
    block.events = owners.size();
    block.payload = Slice(text);
    std::string packed;
    put_varint(packed, text.size());
    put_sized(packed, event::encode(block));
    sender().offer(0, {StreamId{1}, first, first + text.size(), owners.size(), Slice(std::move(packed))}, now());
  }
};

TEST(SenderHash, each_line_goes_to_the_owner_of_its_key) {
  Hashed s;
  s.lines(0, {0, 0, 1, 2, 0});
  s.lines(50, {2, 2, 1});
  std::string sent = s.sent();
  for (const char* run : {"r0 [0,20)", "r1 [20,30)", "r2 [30,40)", "r0 [40,50)", "r2 [50,70)", "r1 [70,80)"})
    EXPECT_NE(sent.find(run), sent.npos) << sent;
}

TEST(SenderHash, a_receiver_that_is_away_keeps_its_keys_for_the_resume_timeout) {
  Hashed s;
  s.lines(0, {0, 1});
  s.take();
  s.ack(0, 1, 0, 10);
  s.ack(1, 1, 10, 20);
  s.lose(1);
  s.lines(20, {1, 0, 1});
  EXPECT_EQ(s.sent(), "r0 [30,40)") << "others pass what waits";
  s.pass(5100ms);
  std::string sent = s.sent();
  EXPECT_NE(sent.find("[20,30)"), sent.npos) << sent;
  EXPECT_NE(sent.find("[40,50)"), sent.npos) << sent;
  EXPECT_EQ(sent.find("r1"), sent.npos) << sent;
}

TEST(SenderHash, a_move_waits_for_what_the_old_owner_has) {
  Hashed s;
  s.lines(0, {0, 1, 2});
  s.take();
  s.ack(0, 1, 0, 10);
  s.ack(1, 1, 10, 20);
  s.ack(2, 1, 20, 30);
  s.lose(1);
  s.pass(5100ms);
  s.lines(30, {1});
  std::string interim = s.sent();
  ASSERT_NE(interim.find("[30,40)"), interim.npos);
  size_t other = interim.find("r0") != interim.npos ? 0 : 2;
  s.ready(1);
  s.take();
  s.lines(40, {1, 1});
  EXPECT_EQ(s.sent(), "") << "the interim owner has one of this key unacknowledged";
  s.ack(other, 1, 30, 40);
  EXPECT_EQ(s.sent(), "r1 [40,60)");
}

TEST(SenderHash, runs_are_cut_again_when_their_keys_part) {
  Hashed s;
  s.lose(0);
  s.lose(1);
  s.pass(5100ms);
  s.take();
  s.lose(2);  // so that nothing leaves; everything is the last one's who was there
  s.lines(0, {0, 1, 2, 2});
  s.pass(2s);  // it is tried again
  s.durable_at_once = false;
  for (size_t r = 0; r < 3; ++r) s.ready(r);
  EXPECT_EQ(s.sent(), "");
  for (size_t r = 0; r < 3; ++r) s.sender().durable(0, StreamId{1}, r, s.now());
  std::string sent = s.sent();
  for (const char* run : {"r0 [0,10)", "r1 [10,20)", "r2 [20,40)"}) EXPECT_NE(sent.find(run), sent.npos) << sent;
}

}  // namespace ph::link
