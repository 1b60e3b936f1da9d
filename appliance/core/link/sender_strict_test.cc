// Strict: what a sender does with staged batches while receivers come and go (amendment 17). That nothing is published
// twice over all of it is the simulator's to show.
#include <gtest/gtest.h>

#include "core/link/sender.h"
#include "support/sender_script.h"

namespace ph::link {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

struct Strict : test::SenderScript {
  explicit Strict(size_t count, Duration give_up = Duration::max(), bool before = true)
      : SenderScript(options(count, give_up, before)) {}
  static SenderOptions options(size_t count, Duration give_up, bool before) {
    SenderOptions o = receivers(count);
    o.strict = true;
    o.strict_before = before;
    o.strict_give_up = give_up;
    return o;
  }
  void start(std::vector<SenderStream> streams = {}) {
    sender().add_source(std::move(streams), false);
    sender().start(now());
    take();
  }
  void back(size_t r) {
    pass(std::chrono::seconds(2));
    connected(r);
  }
  /// RESUMED of stream 1: what is accepted, and the attempts that are staged.
  void resumed(size_t r, std::vector<Span> accepted, std::vector<Resumed::Staged> staged) {
    take();
    const uint64_t highest = accepted.empty() ? 0 : accepted.back().last;
    received(r, Resumed{{{StreamId{1}, 0, highest, std::move(accepted), {}, {}, std::move(staged)}}});
    received(r, Credit{1 << 30});
  }
};

TEST(SenderStrict, publishes_at_the_owner_once_it_is_recorded) {
  Strict s(1);
  s.start();
  s.ready(0);
  s.durable_at_once = false;
  s.offer(1, 0, 30);
  s.take();
  s.sender().durable(0, StreamId{1}, 0, s.now());
  EXPECT_EQ(s.sent(), "r0 [0,30)");
  s.stage(0, 1, 0, 30);
  EXPECT_EQ(s.take(), "r0 owns [0,30) of stream 1\n") << "not told before that is on disk";
  s.sender().owned(0, StreamId{1}, 0, s.attempts.at({0, 30}), s.now());
  EXPECT_EQ(s.take(), "to r0 DECIDE stream 1 publish 1 discard 0\n");
  EXPECT_EQ(s.sender().unacked_events(), 3u);
  s.ack(0, 1, 0, 30);
  EXPECT_EQ(s.take(), "stream 1 settled 30, events 3, duplicates 0\n");
  EXPECT_EQ(s.sender().receivers()[0].owned_batches, 0u);
}

TEST(SenderStrict, a_receiver_that_cannot_stage_is_refused) {
  Strict s(1);
  s.start();
  Hello old;
  old.node.raw[0] = 1;
  s.sender().connected(0, old, s.now());
  EXPECT_TRUE(has(s.take(), "disconnect r0: the receiver cannot stage"));
}

TEST(SenderStrict, what_was_only_staged_goes_elsewhere_at_once_and_is_discarded_there) {
  Strict s(2);
  s.start();
  s.ready(0);
  s.offer(1, 0, 30);
  EXPECT_EQ(s.sent(), "r0 [0,30)");
  const uint64_t first_attempt = s.attempts.at({0, 30});
  s.ready(1);
  s.lose(0);
  const std::string effects = s.take();
  EXPECT_TRUE(has(effects, "to r1 EVENTS stream 1 [0,30)")) << effects;
  EXPECT_FALSE(has(effects, "rerouted")) << effects;
  s.stage(1, 1, 0, 30);
  s.take();
  s.ack(1, 1, 0, 30);
  EXPECT_TRUE(has(s.take(), "settled 30"));
  s.back(0);
  s.resumed(0, {}, {{first_attempt, 0, 30}});
  EXPECT_TRUE(has(s.take(), "to r0 DECIDE stream 1 publish 0 discard 1"));
}

TEST(SenderStrict, an_owner_is_waited_for_and_told_again) {
  Strict s(2);
  s.start();
  s.ready(0);
  s.offer(1, 0, 30);
  s.stage(0, 1, 0, 30);
  s.take();
  s.ready(1);
  s.lose(0);
  s.pass(std::chrono::hours(24));
  EXPECT_FALSE(has(s.take(), "[0,30)")) << "it may have published";
  EXPECT_EQ(s.sender().receivers()[0].owned_batches, 1u);
  s.connected(0);
  s.resumed(0, {}, {{s.attempts.at({0, 30}), 0, 30}});
  EXPECT_TRUE(has(s.take(), "to r0 DECIDE stream 1 publish 1 discard 0"));
  s.ack(0, 1, 0, 30);
  EXPECT_TRUE(has(s.take(), "settled 30"));
}

TEST(SenderStrict, an_owner_that_has_published_says_so_in_resumed) {
  Strict s(2);
  s.start();
  s.ready(0);
  s.offer(1, 0, 30);
  s.stage(0, 1, 0, 30);
  s.lose(0);
  s.back(0);
  s.resumed(0, {{0, 30}}, {});
  const std::string effects = s.take();
  EXPECT_TRUE(has(effects, "settled 30")) << effects;
  EXPECT_FALSE(has(effects, "DECIDE")) << effects;
}

TEST(SenderStrict, an_owner_that_lost_its_disk_frees_what_it_owned) {
  Strict s(2);
  s.start();
  s.ready(0);
  s.offer(1, 0, 30);
  s.stage(0, 1, 0, 30);
  s.lose(0);
  s.ready(1);
  s.take();
  s.back(0);
  s.resumed(0, {}, {});
  EXPECT_TRUE(has(s.take(), "EVENTS stream 1 [0,30)"));
}

TEST(SenderStrict, owners_of_an_earlier_run_are_asked_before_anything_of_theirs_is_sent) {
  Strict s(2);
  SenderStream known{.stream = StreamId{1}, .settled = 0, .assigned = 90, .receivers = {"r0", "r1"}};
  known.owned = {{30, 60, 77, "r0"}};
  known.published = 30;
  s.start({known});
  s.offer(1, 0, 50);  // batches are cut elsewhere now
  s.offer(1, 50, 90);
  s.connected(1);
  s.resumed(1, {{0, 30}}, {});
  s.pass(std::chrono::seconds(30));
  EXPECT_EQ(s.sent(), "r1 [60,90)") << "what nobody was told to publish need not wait";
  s.stage(1, 1, 60, 90);
  s.take();
  s.ack(1, 1, 60, 90);
  s.pass(std::chrono::minutes(10));
  EXPECT_EQ(s.sent(), "");
  while (s.sender().receivers()[0].state != ReceiverState::connecting) s.pass(std::chrono::seconds(1));
  s.connected(0);
  s.resumed(0, {}, {{77, 30, 60}});
  EXPECT_TRUE(has(s.take(), "to r0 DECIDE stream 1 publish 1 discard 0"));
  s.ack(0, 1, 30, 60);
  const std::string effects = s.take();
  EXPECT_TRUE(has(effects, "settled 90")) << effects;
  EXPECT_FALSE(has(effects, "rerouted")) << effects;
}

TEST(SenderStrict, after_a_restart_nothing_passes_the_rest_of_a_batch_that_was_published_in_part) {
  Strict s(1);
  SenderStream known{.stream = StreamId{1}, .settled = 0, .assigned = 60, .receivers = {"r0"}};
  known.owned = {{0, 30, 77, "r0"}};
  s.start({known});
  s.offer(1, 0, 50);
  s.offer(1, 50, 90);
  s.connected(0);
  s.resumed(0, {}, {{77, 0, 30}});
  EXPECT_EQ(s.sent(), "r0 [30,50) r0 [50,90)");
}

TEST(SenderStrict, a_key_waits_for_the_owner_that_an_earlier_run_told_to_publish) {
  SenderOptions o = Strict::options(2, Duration::max(), true);
  o.hash = HashRule{HashRule::By::regex, ".", 0};  // one key: every line begins with 0
  test::SenderScript s(std::move(o));
  SenderStream known{.stream = StreamId{1}, .settled = 0, .assigned = 60, .receivers = {"r0", "r1"}};
  known.owned = {{0, 30, 77, "r0"}};
  s.sender().add_source({known}, false);
  s.sender().start(s.now());
  s.offer(1, 0, 90);
  s.ready(1);
  s.pass(std::chrono::minutes(1));
  EXPECT_EQ(s.sent(), "") << "the key's earlier lines may be published late";
  s.connected(0);
  s.take();
  s.received(0, Resumed{{{StreamId{1}, 0, 30, {{0, 30}}, {}, {}, {}}}});
  s.received(0, Credit{1 << 30});
  const std::string sent = s.sent();
  EXPECT_TRUE(has(sent, "[30,90)")) << sent;
}

TEST(SenderStrict, an_owner_given_up_is_counted_before_its_batches_leave) {
  Strict s(2, std::chrono::hours(1));
  s.start();
  s.ready(0);
  s.offer(1, 0, 30);
  s.stage(0, 1, 0, 30);
  s.take();
  s.lose(0);
  s.pass(std::chrono::minutes(59));
  s.ready(1);
  EXPECT_EQ(s.sent(), "");
  s.pass(std::chrono::minutes(2));
  s.pass(std::chrono::seconds(2));
  s.ready(1);
  const std::string effects = s.take();
  EXPECT_LT(effects.find("rerouted unasked 3"), effects.find("to r1 EVENTS stream 1 [0,30)")) << effects;
}

TEST(SenderStrict, an_owner_that_is_configured_no_more_is_told_of) {
  Strict s(1);
  SenderStream known{.stream = StreamId{1}, .settled = 0, .assigned = 30, .receivers = {"gone"}};
  known.owned = {{0, 30, 77, "gone"}};
  s.start({known});
  s.ready(0);
  s.offer(1, 0, 30);
  s.pass(std::chrono::minutes(1));
  EXPECT_EQ(s.sent(), "");
  EXPECT_EQ(s.sender().stranded_batches(), 1u);
}

TEST(SenderStrict, an_owner_that_an_operator_gives_up_frees_what_waits_and_is_counted_first) {
  Strict s(1);
  SenderStream known{.stream = StreamId{1}, .settled = 0, .assigned = 60, .receivers = {"gone", "r0"}};
  known.owned = {{0, 30, 77, "gone"}, {30, 60, 78, "r0"}};
  s.start({known});
  s.connected(0);
  s.take();
  s.received(0, Resumed{{{StreamId{1}, 0, 60, {{30, 60}}, {}, {}, {}}}});
  s.received(0, Credit{1 << 30});
  s.offer(1, 0, 60);
  s.pass(std::chrono::seconds(6));
  EXPECT_EQ(s.sent(), "");
  const auto away = s.sender().away_owners();
  ASSERT_EQ(away.size(), 1u);
  EXPECT_EQ(away[0].address, "gone");
  EXPECT_FALSE(away[0].configured);
  EXPECT_EQ(away[0].batches, 1u);
  EXPECT_EQ(away[0].streams, std::vector<StreamId>{StreamId{1}});
  EXPECT_EQ(s.sender().give_up("r0", s.now()), 0u) << "it is connected";
  EXPECT_EQ(s.sender().give_up("gone", s.now()), 1u);
  const std::string effects = s.take();
  EXPECT_LT(effects.find("rerouted unasked 3"), effects.find("to r0 EVENTS stream 1 [0,30)")) << effects;
  EXPECT_TRUE(has(effects, "to r0 EVENTS stream 1 [0,30)")) << effects;
  EXPECT_EQ(s.sender().given_up_batches(), 1u);
  EXPECT_TRUE(s.sender().away_owners().empty());
}

TEST(SenderStrict, what_was_given_up_before_a_restart_is_counted_and_not_waited_for) {
  Strict s(1);
  SenderStream known{.stream = StreamId{1}, .settled = 0, .assigned = 30, .receivers = {"gone"}};
  known.owned = {{0, 30, 77, "gone", true}};
  s.start({known});
  s.ready(0);
  s.offer(1, 0, 30);
  s.pass(std::chrono::seconds(6));
  const std::string effects = s.take();
  EXPECT_TRUE(has(effects, "[0,30)")) << effects;
  EXPECT_LT(effects.find("rerouted unasked 3"), effects.find("EVENTS stream 1 [0,30)")) << effects;
}

/// Lines of SenderScript end in their position: with the last but one digit as the key, a hundred bytes have ten keys.
struct TenKeys : test::SenderScript {
  static SenderOptions options(size_t count) {
    SenderOptions o = Strict::options(count, Duration::max(), true);
    o.hash = HashRule{HashRule::By::regex, "(.).$", 0};
    return o;
  }
  explicit TenKeys(size_t count) : SenderScript(options(count)) {}
};

TEST(SenderStrict, keys_pass_one_that_waits_for_its_old_owner) {
  TenKeys s(2);
  SenderStream known{.stream = StreamId{1}, .settled = 0, .assigned = 10, .receivers = {"r0", "r1"}};
  known.owned = {{0, 10, 77, "r0"}};  // the key 0
  s.sender().add_source({known}, false);
  s.sender().start(s.now());
  s.ready(1);
  s.offer(1, 0, 300);
  s.pass(std::chrono::seconds(6));  // r0 is away: all keys are r1's now
  std::string sent = s.sent();
  for (uint64_t line = 1; line < 30; ++line) {
    bool covered = false;
    for (const auto& [range, attempt] : s.attempts)
      covered |= range.first <= line * 10 && line * 10 + 10 <= range.second;
    EXPECT_EQ(covered, line % 10 != 0) << "line " << line << " of " << sent;
  }
}

TEST(SenderStrict, the_first_strict_run_counts_what_a_fast_one_may_have_left) {
  Strict s(2, Duration::max(), false);
  s.start({{.stream = StreamId{1}, .settled = 0, .assigned = 30, .receivers = {"r1"}}});
  s.ready(0);
  s.offer(1, 0, 30);
  s.pass(std::chrono::minutes(1));
  const std::string effects = s.take();
  EXPECT_EQ(s.sent(), "");
  EXPECT_TRUE(has(effects, "rerouted unasked 3")) << effects;
}

TEST(SenderStrict, a_receiver_with_no_room_to_publish_is_not_dropped_for_it) {
  Strict s(1);
  s.start();
  s.ready(0);
  s.offer(1, 0, 30);
  s.stage(0, 1, 0, 30);
  s.take();
  s.received(0, Hold{StreamId{1}, "disk full"});
  for (int i = 0; i < 20; ++i) {
    s.pass(std::chrono::seconds(20));
    const std::string effects = s.take();
    EXPECT_FALSE(has(effects, "disconnect")) << effects;
    if (has(effects, "PING")) s.received(0, Pong{});
  }
  s.received(0, Release{StreamId{1}});
  s.ack(0, 1, 0, 30);
  EXPECT_TRUE(has(s.take(), "settled 30"));
}

}  // namespace
}  // namespace ph::link
