#include "core/link/sender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/link/sender_state.h"
#include "support/sender_script.h"

namespace ph::link {
namespace {

using test::SenderScript;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

/// One source, `count` receivers, all ready.
struct Ready : SenderScript {
  explicit Ready(size_t count, SenderOptions o = {}, bool far = false)
      : SenderScript([&] {
          o.receivers = receivers(count).receivers;
          return std::move(o);
        }()) {
    sender().add_source({}, far);
    sender().start(now());
    for (size_t r = 0; r < count; ++r) ready(r);
    take();
  }
};

}  // namespace

TEST(Sender, settles_the_contiguous_prefix_and_tells_it_once) {
  Ready s(1);
  for (uint64_t i = 0; i < 4; ++i) s.offer(1, i * 30, i * 30 + 30);
  s.take();
  s.ack(0, 1, 30, 60);
  EXPECT_EQ(s.take(), "");
  s.received(0, Ack{StreamId{1}, {{0, 30}, {60, 120}}, {}, 0, {}});
  EXPECT_EQ(s.take(), "stream 1 settled 120, events 12, duplicates 0\n");
  EXPECT_EQ(s.sender().unacked_bytes(), 0u);
}

TEST(Sender, nothing_leaves_before_the_use_of_the_receiver_is_durable) {
  Ready s(1);
  s.durable_at_once = false;
  s.offer(1, 0, 30);
  EXPECT_EQ(s.take(), "will use r0 for stream 1\n");
  s.offer(1, 30, 60);
  EXPECT_EQ(s.take(), "");
  s.sender().durable(0, StreamId{1}, 0, s.now());
  EXPECT_EQ(s.sent(), "r0 [0,30) r0 [30,60)");
}

TEST(Sender, starts_only_after_every_used_receiver_was_asked) {
  SenderScript s(SenderScript::receivers(2));
  s.sender().add_source({{StreamId{1}, 100, 0, UINT64_MAX, {"r0", "r1"}}}, false);
  s.sender().start(s.now());
  s.ready(0);
  s.offer(1, 100, 200);
  EXPECT_EQ(s.sent(), "");
  s.connected(1);
  ASSERT_EQ(s.resumes(1).size(), 1u);
  // r1 has what the crashed process had sent: only the rest goes out, and nobody counts a possible duplicate.
  s.received(1, Resumed{{{StreamId{1}, 100, 180, {{100, 130}, {150, 180}}, {}, {}}}});
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, "stream 1 settled 130, events 3, duplicates 3")) << effects;
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [130,150) events 2")) << effects;
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [180,200) events 2")) << effects;
  EXPECT_FALSE(has(effects, "rerouted")) << effects;
}

TEST(Sender, a_batch_that_resumed_covers_is_acknowledged_without_sending) {
  SenderScript s(SenderScript::receivers(1));
  s.sender().add_source({{StreamId{1}, 0, 0, UINT64_MAX, {"r0"}}}, false);
  s.sender().start(s.now());
  s.connected(0);
  s.received(0, Resumed{{{StreamId{1}, 40, 90, {{40, 90}}, {}, {}}}});
  s.received(0, Credit{1000});
  s.take();
  s.offer(1, 0, 60);
  EXPECT_EQ(s.take(), "stream 1 settled 60, events 6, duplicates 6\n");
}

TEST(Sender, an_unreachable_used_receiver_is_waited_for_and_then_counted) {
  SenderScript s(SenderScript::receivers(2));
  s.sender().add_source({{StreamId{1}, 0, 0, 50, {"r1"}}}, false);
  s.sender().start(s.now());
  s.ready(0);
  s.offer(1, 0, 30);
  s.offer(1, 30, 90);
  s.offer(1, 90, 100);
  s.pass(4900ms);
  EXPECT_EQ(s.sent(), "");
  s.pass(200ms);
  std::string effects = s.take();
  // The second begins below what may have been handed out; the third no earlier run had.
  EXPECT_TRUE(has(effects, "rerouted unasked 9\n")) << effects;
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [90,100)")) << effects;
}

TEST(Sender, with_one_receiver_uncertain_batches_wait_and_keep_their_order) {
  Ready s(1);
  for (uint64_t i = 0; i < 4; ++i) s.offer(1, i * 30, i * 30 + 30);
  s.take();
  s.lose(0);
  s.pass(60s);
  EXPECT_EQ(s.sender().receivers()[0].uncertain_batches, 4u);
  s.connected(0);
  EXPECT_EQ(s.sent(), "");
  s.received(0, Resumed{{{StreamId{1}, 0, 60, {{30, 60}}, {}, {}}}});
  s.received(0, Credit{1 << 20});
  EXPECT_EQ(s.sent(), "r0 [0,30) r0 [60,90) r0 [90,120)");
}

TEST(Sender, a_lost_receivers_batches_go_elsewhere_only_after_the_resume_timeout) {
  Ready s(2);
  s.offer(1, 0, 30);
  s.offer(1, 30, 60);
  std::string first = s.sent();
  s.lose(0);
  s.pass(4900ms);
  EXPECT_EQ(s.sent(), "");
  s.pass(200ms);
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, "rerouted unasked 6\nto r1 EVENTS")) << first << effects;
  // It comes back with the batch: known at two receivers now, acknowledged once.
  s.connected(0);
  s.received(0, Resumed{{{StreamId{1}, 0, 60, {{0, 60}}, {}, {}}}});
  EXPECT_TRUE(has(s.take(), "stream 1 settled 60, events 6"));
}

TEST(Sender, a_further_copy_leaves_only_when_it_is_counted_on_disk) {
  Ready s(2);
  s.offer(1, 0, 30);
  s.offer(1, 30, 60);
  s.take();
  s.lose(0);
  s.durable_at_once = false;
  s.pass(6s);
  s.offer(1, 60, 90);
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, "rerouted unasked 6\n")) << effects;
  EXPECT_FALSE(has(effects, "EVENTS")) << effects;
  s.pass(3s);
  EXPECT_EQ(s.sent(), "");
  s.sender().counted(0, StreamId{1}, s.now());
  EXPECT_EQ(s.sent(), "r1 [0,30) r1 [30,60) r1 [60,90)");
  // Counted once: with the same doubt nothing is counted again.
  s.lose(1);
  s.ready(1);
  EXPECT_FALSE(has(s.take(), "rerouted"));
}

TEST(Sender, copies_that_nobody_can_take_now_are_not_counted_and_not_forgotten) {
  Ready s(2);
  s.offer(1, 0, 30);
  s.offer(1, 30, 60);
  s.take();
  s.received(1, Hold{StreamId{1}, "full"});
  s.lose(0);
  s.pass(6s);
  EXPECT_FALSE(has(s.take(), "rerouted"));
  s.received(1, Release{StreamId{1}});
  EXPECT_TRUE(has(s.take(), "rerouted unasked 6\nto r1 EVENTS stream 1 [0,30)"));
}

TEST(Sender, a_receiver_that_comes_back_in_time_is_asked_and_nothing_is_counted) {
  Ready s(2);
  for (uint64_t i = 0; i < 4; ++i) s.offer(1, i * 30, i * 30 + 30);
  s.take();
  s.lose(0);
  s.pass(1s);
  s.connected(0);
  s.answer_nothing(0);
  s.received(0, Credit{1 << 20});
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, "EVENTS"));
  EXPECT_FALSE(has(effects, "rerouted"));
}

TEST(Sender, balances_by_weight) {
  SenderOptions o = SenderScript::receivers(2);
  o.receivers[1].weight = 3;
  SenderScript s(o);
  s.sender().add_source({}, false);
  s.sender().start(s.now());
  s.ready(0);
  s.ready(1);
  s.take();
  int got[2] = {};
  for (uint64_t i = 0; i < 400; ++i) {
    s.offer(1, i * 10, i * 10 + 10);
    std::string sent = s.sent();
    ASSERT_TRUE(has(sent, "r0") != has(sent, "r1")) << sent;
    size_t r = has(sent, "r1");
    ++got[r];
    s.ack(r, 1, i * 10, i * 10 + 10);
  }
  EXPECT_NEAR(got[1], 300, 3);
}

TEST(Sender, credit_decides_and_one_frame_may_overshoot) {
  SenderOptions o;
  o.frame_min = 1;
  Ready s(1, o);
  s.lose(0);
  s.pass(1s);
  s.ready(0, 1);
  s.offer(1, 0, 30);
  s.offer(1, 30, 60);
  EXPECT_EQ(s.sent(), "r0 [0,30)");
  s.received(0, Credit{100'000});
  EXPECT_EQ(s.sent(), "r0 [30,60)");
}

TEST(Sender, a_slow_receiver_cannot_fill_the_window_alone) {
  SenderOptions o;
  o.window_bytes = 256 * 1024;
  Ready s(2, o);
  uint64_t at = 0;
  for (int i = 0; i < 2000; ++i) {  // r0 never answers
    if (s.sender().room(0)) s.offer(1, at, at + 1000), at += 1000;
    std::string sent = s.sent();
    for (size_t p = sent.find("r1 ["); p != sent.npos; p = sent.find("r1 [", p + 1)) {
      uint64_t first = std::stoull(sent.substr(p + 4));
      s.ack(1, 1, first, first + 1000);
    }
  }
  EXPECT_EQ(at, 2'000'000u) << "r1 goes on";
  EXPECT_LE(s.sender().receivers()[0].in_flight_bytes, 130u * 1024);
}

TEST(Sender, hold_gives_batches_back_and_release_sends_them_with_the_next_epoch) {
  Ready s(1);
  s.offer(1, 0, 30);
  s.offer(2, 0, 30);
  s.take();
  s.received(0, Hold{StreamId{1}, "spool_full"});
  s.offer(1, 30, 60);
  s.offer(2, 30, 60);
  std::string effects = s.take();
  EXPECT_FALSE(has(effects, "EVENTS stream 1")) << effects;
  EXPECT_TRUE(has(effects, "EVENTS stream 2 [30,60)"));
  s.received(0, Release{StreamId{1}});
  effects = s.take();
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [0,30) events 3 settled 0 epoch 1"));
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [30,60) events 3 settled 0 epoch 1"));
}

TEST(Sender, a_held_stream_goes_to_another_receiver_and_counts_nothing) {
  Ready s(2);
  s.offer(1, 0, 30);
  bool at_0 = has(s.sent(), "r0");
  s.received(at_0 ? 0 : 1, Hold{StreamId{1}, "spool_full"});
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, at_0 ? "to r1 EVENTS stream 1 [0,30)" : "to r0 EVENTS stream 1 [0,30)"));
  EXPECT_FALSE(has(effects, "rerouted"));
}

// Amendment 15: what is held does not take the others' window.
TEST(Sender, a_held_source_leaves_room_for_the_others) {
  SenderOptions o = SenderScript::receivers(1);
  o.window_bytes = 64 * 1024;
  SenderScript s(o);
  s.sender().add_source({}, false);
  s.sender().add_source({}, false);
  s.sender().start(s.now());
  s.ready(0);
  s.offer(1, 0, 10);
  s.take();
  s.received(0, Hold{StreamId{1}, "spool_full"});
  uint64_t at = 10;
  while (s.sender().room(0) > 0) s.offer(1, at, at + 2000), at += 2000;
  EXPECT_LT(at, 64u * 1024);
  EXPECT_GT(s.sender().room(1), 40u * 1024);
  s.offer(2, 0, 10, 100, 1);
  EXPECT_EQ(s.sent(), "r0 [0,10)");
  s.received(0, Release{StreamId{1}});
  EXPECT_TRUE(has(s.take(), "EVENTS stream 1 [0,10)"));
}

TEST(Sender, what_is_held_goes_back_to_a_source_that_takes_it_and_leaves_the_window_to_its_other_streams) {
  SenderOptions o = SenderScript::receivers(1);
  o.window_bytes = 64 * 1024;
  SenderScript s(o);
  s.takes_back = true;
  s.sender().add_source({}, false);
  s.sender().start(s.now());
  s.ready(0);
  const size_t room = s.sender().room(0);
  for (uint64_t at = 0; at < 40'000; at += 2000) s.offer(1, at, at + 2000);
  s.take();
  s.ack(0, 1, 0, 2000);
  s.take();
  EXPECT_LT(s.sender().room(0), room / 2);
  s.received(0, Hold{StreamId{1}, "spool_full"});
  EXPECT_TRUE(has(s.take(), "stream 1 parked from 2000"));
  EXPECT_EQ(s.sender().room(0), room);
  EXPECT_EQ(s.sender().unacked_bytes(), 0u);
  for (uint64_t at = 0; at < 40'000; at += 2000) {  // one after the other
    s.offer(2, at, at + 2000);
    s.take();
    s.ack(0, 2, at, at + 2000);
  }
  s.received(0, Release{StreamId{1}});
  EXPECT_TRUE(has(s.take(), "stream 1 released"));
  s.offer(1, 2000, 3000);  // cut otherwise than before
  EXPECT_TRUE(has(s.take(), "EVENTS stream 1 [2000,3000)"));
  s.ack(0, 1, 2000, 3000);
  EXPECT_TRUE(has(s.take(), "stream 1 settled 3000"));
  s.received(0, Hold{StreamId{1}, "spool_full"});
  EXPECT_TRUE(has(s.take(), "stream 1 parked from 3000"));
  s.lose(0);
  EXPECT_TRUE(has(s.take(), "stream 1 released")) << "whoever connects next may take it";
}

TEST(Sender, what_another_receiver_may_have_is_not_given_back) {
  Ready s(2);
  s.takes_back = true;
  s.offer(1, 0, 30);
  s.offer(1, 30, 60);
  s.take();
  s.lose(0);
  s.received(1, Hold{StreamId{1}, "spool_full"});
  const std::string effects = s.take();
  EXPECT_FALSE(has(effects, "parked from 0 ")) << effects;
  EXPECT_GT(s.sender().unacked_bytes(), 0u);
}

// S8 and amendment 14.
TEST(Sender, a_rejected_line_is_cut_out_of_its_block_and_not_counted) {
  Ready s(1);
  s.offer(1, 0, 1000);
  s.take();
  s.received(0, Ack{StreamId{1}, {{0, 1000}}, {}, 0, {{490, 500, "category is empty"}}});
  auto effects = s.sender().take_effects();
  ASSERT_EQ(effects.size(), 2u);
  const auto& rejected = std::get<effect::Rejected>(effects[0]);
  auto block = event::decode(rejected.block);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->payload.view(), "000000490\n");
  EXPECT_EQ(std::get<effect::Advanced>(effects[1]).events, 99u);
}

TEST(Sender, a_reject_told_twice_is_reported_once) {
  Ready s(1);
  s.offer(1, 0, 100);
  s.take();
  s.received(0, Ack{StreamId{1}, {{10, 20}}, {}, 0, {{10, 20, "no"}}});
  EXPECT_TRUE(has(s.take(), "rejected [10,20): no"));
  s.lose(0);
  s.pass(1s);
  s.connected(0);
  s.received(0, Resumed{{{StreamId{1}, 0, 20, {{10, 20}}, {}, {{10, 20, "no"}}}}});
  s.received(0, Credit{1 << 20});
  std::string effects = s.take();
  EXPECT_FALSE(has(effects, "rejected"));
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [0,10) events 1"));
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [20,100) events 8"));
}

TEST(Sender, a_reject_of_the_run_before_is_reported_when_its_event_is_offered) {
  SenderScript s(SenderScript::receivers(1));
  s.sender().add_source({{StreamId{1}, 0, 0, UINT64_MAX, {"r0"}}}, false);
  s.sender().start(s.now());
  s.connected(0);
  s.received(0, Resumed{{{StreamId{1}, 0, 100, {{0, 100}}, {}, {{40, 60, "no"}}}}});
  s.take();
  s.offer(1, 0, 50);
  EXPECT_EQ(s.take(), "stream 1 rejected [40,50): no\nstream 1 settled 50, events 4, duplicates 4\n");
  s.offer(1, 50, 80);
  EXPECT_EQ(s.take(), "stream 1 rejected [50,60): no\nstream 1 settled 80, events 2, duplicates 2\n");
}

TEST(Sender, receivers_keep_a_reject_until_the_cursor_is_stored_behind_it) {
  for (bool confirms : {true, false}) {
    SenderOptions o;
    o.confirms_stored = confirms;
    Ready s(1, o);
    s.offer(1, 0, 30);
    s.take();
    s.received(0, Ack{StreamId{1}, {{0, 30}}, {}, 0, {{10, 20, "no"}}});
    s.offer(1, 30, 40);
    EXPECT_TRUE(has(s.take(), "settled 10 epoch"));
    if (confirms)
      s.sender().stored(0, StreamId{1}, 30, s.now());
    else
      s.pass(10s);
    s.ack(0, 1, 30, 40);
    s.offer(1, 40, 50);
    EXPECT_TRUE(has(s.take(), "settled 40 epoch")) << confirms;
  }
}

// Amendment 3.
TEST(Sender, a_receiver_that_knows_more_than_was_given_out_renews_the_stream) {
  SenderScript s(SenderScript::receivers(1));
  s.sender().add_source({{StreamId{1}, 50, 0, 100, {"r0"}}}, false);
  s.sender().start(s.now());
  s.connected(0);
  s.received(0, Resumed{{{StreamId{1}, 50, 101, {{50, 101}}, {}, {}}}});
  s.received(0, Credit{1 << 20});
  EXPECT_TRUE(has(s.take(), "renew stream 1\n"));
  s.offer(1, 50, 60);  // was pulled before the source heard of it
  EXPECT_EQ(s.sent(), "");
  s.offer(9, 50, 60);
  EXPECT_EQ(s.sent(), "r0 [50,60)");
}

TEST(Sender, a_renewed_stream_is_still_asked_how_far_it_is) {
  SenderScript s(SenderScript::receivers(1));
  s.sender().add_source({{StreamId{1}, 50, 10, 100, {"r0"}}}, true);
  s.sender().start(s.now());
  s.connected(0);
  s.received(0, Resumed{{{StreamId{1}, 50, 101, {{50, 101}}, {{10, 30}, {90, 101}}, {}}}});
  s.received(0, Credit{1 << 20});
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, "renew stream 1\n")) << effects;
  EXPECT_TRUE(has(effects, "stream 1 far 30\n")) << effects;
  s.offer(9, 50, 60);
  s.take();
  s.ack(0, 9, 50, 60);
  s.lose(0);
  s.pass(1s);
  s.connected(0);
  s.received(0, Resumed{{{StreamId{1}, 50, 101, {{50, 101}}, {{10, 50}}, {}}, {StreamId{9}, 60, 60, {}, {}, {}}}});
  effects = s.take();
  EXPECT_FALSE(has(effects, "renew")) << effects;
  EXPECT_TRUE(has(effects, "stream 1 far 50\n")) << effects;
  s.sender().close_stream(StreamId{1});
  EXPECT_TRUE(has(s.take(), "CLOSE stream 1"));
}

TEST(Sender, one_node_under_two_addresses_is_not_a_rollback) {
  SenderScript s(SenderScript::receivers(2));
  s.sender().add_source({}, false);
  s.sender().start(s.now());
  Hello same;
  same.node.raw[3] = 7;
  for (size_t r = 0; r < 2; ++r) {
    s.sender().connected(r, same, s.now());
    s.answer_nothing(r);
    s.received(r, Credit{1 << 20});
  }
  s.take();
  for (uint64_t i = 0; i < 4; ++i) s.offer(1, i * 10, i * 10 + 10);
  s.take();
  s.lose(0);
  s.pass(1s);
  s.sender().connected(0, same, s.now());
  s.received(0, Resumed{{{StreamId{1}, 0, 40, {{0, 40}}, {}, {}}}});
  EXPECT_TRUE(has(s.take(), "stream 1 settled 40"));
}

TEST(Sender, far_acknowledgements_release_in_order_and_never_past_settled) {
  Ready s(2, {}, true);
  s.offer(1, 0, 10);
  EXPECT_EQ(s.sent(), "r0 [0,10)");
  s.offer(1, 10, 20);
  EXPECT_EQ(s.sent(), "r0 [10,20)") << "meanwhile the use of r1 becomes durable";
  s.offer(1, 20, 30);
  EXPECT_EQ(s.sent(), "r1 [20,30)");
  s.received(1, Ack{StreamId{1}, {{20, 30}}, {{20, 30}}, 0, {}});
  EXPECT_EQ(s.take(), "");
  s.received(0, Ack{StreamId{1}, {{0, 20}}, {{0, 10}}, 0, {}});
  EXPECT_EQ(s.take(), "stream 1 settled 30, events 3, duplicates 0\nstream 1 far 10\n");
  s.received(0, Ack{StreamId{1}, {}, {{10, 20}}, 0, {}});
  EXPECT_EQ(s.take(), "stream 1 far 30\n");
  s.offer(1, 30, 40);
  EXPECT_TRUE(has(s.take(), "far 30"));
}

// Amendment 18 and L1: a slow link makes progress and is left alone.
TEST(Sender, any_progress_restarts_the_request_timeout) {
  Ready s(1);
  s.offer(1, 0, 30);
  for (int i = 0; i < 20; ++i) {
    s.pass(25s);
    s.sender().progressed(0, s.now());
  }
  EXPECT_FALSE(has(s.take(), "disconnect"));
  s.pass(31s);
  EXPECT_TRUE(has(s.take(), "disconnect r0: no progress within the request timeout"));
}

TEST(Sender, an_idle_receiver_is_pinged_and_dropped_when_it_does_not_answer) {
  Ready s(1);
  s.pass(11s);
  EXPECT_EQ(s.take(), "to r0 PING\n");
  s.received(0, Pong{});
  s.pass(9s);
  EXPECT_EQ(s.take(), "");
  s.pass(32s);
  EXPECT_TRUE(has(s.take(), "to r0 PING\ndisconnect r0"));
}

TEST(Sender, a_batch_that_stays_unanswered_while_later_ones_are_acknowledged_is_asked_for) {
  Ready s(1);
  for (uint64_t i = 0; i < 100; ++i) s.offer(1, i * 10, i * 10 + 10);
  s.take();
  for (uint64_t i = 1; i < 100; ++i) {
    s.ack(0, 1, i * 10, i * 10 + 10);
    s.pass(1s);
  }
  EXPECT_TRUE(has(s.take(), "disconnect r0: a batch stayed unanswered"));
}

// L2: a session dropped right after HELLO backs off; L4: first retries are quick.
TEST(Sender, probes_with_growing_delays_that_hello_does_not_reset) {
  Ready s(1);
  s.lose(0);
  Duration longest{}, first{};
  for (int i = 0; i < 20; ++i) {
    Instant lost = s.now();
    while (!has(s.take(), "connect r0")) s.pass(10ms);
    Duration waited = s.now() - lost;
    if (i == 0) first = waited;
    longest = std::max(longest, waited);
    s.connected(0);
    s.lose(0);
  }
  EXPECT_LE(first, 110ms);
  EXPECT_GT(longest, 3s);
  EXPECT_LE(longest, 10s + 10ms);
  while (!has(s.take(), "connect r0")) s.pass(10ms);
  s.connected(0);
  s.answer_nothing(0);
  Instant lost = s.now();
  s.lose(0);
  while (!has(s.take(), "connect r0")) s.pass(10ms);
  EXPECT_LE(s.now() - lost, 110ms) << "RESUMED resets it";
}

// L4: a receiver that was away is used again within a second or two of its return; after a long outage within ten.
TEST(Sender, probes_each_second_while_an_outage_is_young) {
  Ready s(1);
  s.lose(0);
  Instant away = s.now();
  Duration early{}, late{};
  while (s.now() - away < 3600s) {
    Instant lost = s.now();
    while (!has(s.take(), "connect r0")) s.pass(20ms);
    Duration waited = s.now() - lost;
    if (lost - away < 60s) early = std::max(early, waited);
    late = std::max(late, waited);
    s.sender().disconnected(0, "net.refused", s.now());
  }
  EXPECT_LE(early, 1s + 20ms);
  EXPECT_GT(early, 500ms);
  EXPECT_GT(late, 5s);
  EXPECT_LE(late, 10s + 20ms);
}

// S7: who takes the connection and ends it, with or without a HELLO, is backed off from further each time.
TEST(Sender, probes_who_drops_it_with_growing_delays) {
  Ready s(1);
  s.lose(0);
  Duration longest{};
  for (int i = 0; i < 12; ++i) {
    Instant lost = s.now();
    while (!has(s.take(), "connect r0")) s.pass(10ms);
    longest = std::max(longest, s.now() - lost);
    s.sender().reached(0);
    s.sender().disconnected(0, "net.reset", s.now());
  }
  EXPECT_GT(longest, 3s);
}

TEST(Sender, disconnects_who_breaks_the_protocol) {
  std::vector<std::function<void(Ready&)>> faults = {
      [](Ready& s) { s.ack(0, 1, 0, 31); },
      [](Ready& s) { s.received(0, Ack{StreamId{1}, {}, {}, 0, {{30, 40, "x"}}}); },
      [](Ready& s) { s.received(0, Resumed{}); },
      [](Ready& s) { s.received(0, Resume{}); },
      [](Ready& s) { s.received(0, Hello{}); },
  };
  for (auto& fault : faults) {
    Ready s(1);
    s.offer(1, 0, 30);
    s.take();
    fault(s);
    EXPECT_TRUE(has(s.take(), "disconnect r0"));
    EXPECT_EQ(s.sender().receivers()[0].uncertain_batches, 1u);
    s.sender().disconnected(0, "late", s.now());  // what the driver may still say
    EXPECT_EQ(s.sender().receivers()[0].failures, 1u);
  }
}

TEST(Sender, goodbye_ends_the_connection_and_the_batches_wait_for_an_answer) {
  Ready s(1);
  s.offer(1, 0, 30);
  s.take();
  s.received(0, Goodbye{"stopping"});
  EXPECT_EQ(s.take(), "disconnect r0: peer said goodbye: stopping\n");
  EXPECT_EQ(s.sender().receivers()[0].uncertain_batches, 1u);
  EXPECT_EQ(s.sender().room(), 0u);
}

TEST(Sender, a_stream_is_closed_when_it_is_settled) {
  Ready s(1);
  s.offer(1, 0, 30);
  s.take();
  s.sender().close_stream(StreamId{1});
  EXPECT_EQ(s.take(), "");
  s.ack(0, 1, 0, 30);
  EXPECT_EQ(s.take(), "stream 1 settled 30, events 3, duplicates 0\nto r0 CLOSE stream 1\n");
  s.ack(0, 1, 0, 30);  // a late repetition
  EXPECT_EQ(s.take(), "");
}

TEST(Sender, a_connection_that_asked_about_a_stream_closes_it_when_the_others_did_so_meanwhile) {
  SenderOptions o;
  o.connections = 2;
  Ready s(1, o);
  s.ready(1);
  s.offer(1, 0, 30);
  ASSERT_EQ(s.sent(), "r0 [0,30)");
  s.lose(1);
  s.pass(2s);
  s.connected(1);
  s.sender().close_stream(StreamId{1});
  s.ack(0, 1, 0, 30);
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, "to r0 CLOSE stream 1\n")) << effects;
  EXPECT_FALSE(has(effects, "to r1 CLOSE stream 1\n")) << effects;
  s.answer_nothing(1);
  EXPECT_EQ(s.take(), "to r1 CLOSE stream 1\n");
}

TEST(Sender, the_window_bounds_what_is_offered_and_wanted_tells_when_it_opens) {
  SenderOptions o;
  o.window_bytes = 100 * 1024;
  Ready s(1, o);
  uint64_t at = 0;
  while (s.sender().room() > 0) s.offer(1, at, at + 5000), at += 5000;
  EXPECT_GT(at, 60'000u);
  EXPECT_LT(at, 110'000u);
  s.take();
  bool wanted = false;
  for (uint64_t acked = 5000; !wanted && acked <= at; acked += 5000) {
    s.ack(0, 1, 0, acked);
    wanted = has(s.take(), "wanted");
    EXPECT_EQ(wanted, s.sender().room() > 0) << "not for crumbs";
  }
  EXPECT_TRUE(wanted);
}

TEST(Sender, a_stream_does_not_run_far_ahead_of_a_hole) {
  Ready s(2);
  s.offer(1, 0, 10);
  bool at_0 = has(s.sent(), "r0");
  size_t other = at_0 ? 1 : 0;
  s.received(at_0 ? 0 : 1, Credit{});
  uint64_t at = 10;
  for (; s.sender().room(0) > 0 && at < 100'000; at += 10) {
    s.offer(1, at, at + 10);
    s.take();
    s.ack(other, 1, 10, at + 10);
    s.ack(1 - other, 1, 10, at + 10);
    s.take();
  }
  EXPECT_EQ(at / 10, kSpanMax);
  s.ack(1 - other, 1, 0, 10);
  EXPECT_GT(s.sender().room(0), 0u);
}

TEST(Sender, what_fits_no_frame_is_split_by_blocks_or_refused) {
  SenderOptions o;
  o.window_bytes = 64 << 20;
  Ready s(1, o);
  std::string packed;
  uint64_t at = 0;
  for (size_t bytes : {9u << 20, 9u << 20, 17u << 20}) {
    event::Block b;
    b.category = "events";
    b.id = {NodeId{}, StreamId{1}, at, at + bytes};
    b.events = 1;
    b.payload = Slice(std::string(bytes - 1, 'x') + "\n");
    put_varint(packed, bytes);
    put_sized(packed, event::encode(b));
    at += bytes;
  }
  s.sender().offer(0, {StreamId{1}, 0, at, 3, Slice(std::move(packed))}, s.now());
  std::string effects = s.take();
  EXPECT_TRUE(has(effects, "rejected [18874368,36700160): frame_too_long"));
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [0,9437184) events 1"));
  EXPECT_TRUE(has(effects, "EVENTS stream 1 [9437184,18874368) events 1"));
  s.ack(0, 1, 0, 18874368);
  EXPECT_TRUE(has(s.take(), "settled 36700160, events 2"));
}

}  // namespace ph::link
