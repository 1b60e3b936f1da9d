// The agent over a file system in memory: several targets, sinks, rejects, fairness, resources.

#include <gtest/gtest.h>

#include "base/limits.h"
#include "core/agent/records.h"
#include "core/agent/source_name.h"
#include "support/agent_bench.h"

namespace ph::agent {
namespace {

using test::AgentBench;
using test::lines_of;
using test::numbered;
using namespace std::chrono_literals;

TEST(Agent, two_targets_have_their_own_cursors_and_never_wait_for_each_other) {
  AgentBench b;
  b.options.routes = {{"all", {{"dead", false}, {"live", false}}}};
  b.append("x.log", numbered("L", 1, 1000));
  b.start();
  auto& live = *b.pullers[1];
  for (int i = 0; i < 70; ++i) {
    b.notice();
    live.run();
    b.loop.advance(1s);
    b.append("x.log", numbered("N", i, 1));
  }
  b.notice();
  live.run();
  EXPECT_EQ(b.far("all/live").lines.size(), 1070u);
  EXPECT_FALSE(live.source.counters().oldest_unacked);
  EXPECT_TRUE(b.pullers[0]->source.counters().oldest_unacked);
  EXPECT_GT(b.pullers[0]->source.counters().unread_bytes, 8000u);
  EXPECT_FALSE(b.left().empty());
  b.stop();
  b.start();
  b.pass(300s);
  EXPECT_EQ(b.far("all/dead").lines, b.far("all/live").lines);
  EXPECT_EQ(b.far("all/live").duplicates, 0u);
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, fresh_lines_go_beside_an_old_backlog_of_their_category) {
  AgentBench b;
  b.append("clicks/1.log", numbered("OLD", 1, 200'000));  // some megabytes
  b.start();
  auto& puller = *b.pullers[0];
  auto is_fresh = [&] { return puller.window.back().packed.view().find("NEW") != ByteView::npos; };
  ASSERT_TRUE(puller.pull(64 * 1024));
  while (!puller.window.empty()) puller.ack();
  b.loop.advance(1s);
  b.append("clicks/2.log", numbered("NEW", 1, 100'000));
  b.notice();
  ASSERT_TRUE(puller.pull(64 * 1024));
  EXPECT_FALSE(is_fresh()) << "oldest first";
  b.loop.advance(10s);  // nobody pulled for so long: it is behind
  b.notice();
  int fresh = 0;
  for (int i = 0; i < 12; ++i) {
    while (!puller.window.empty()) puller.ack();
    ASSERT_TRUE(puller.pull(64 * 1024));
    fresh += is_fresh();
  }
  EXPECT_EQ(fresh, 9) << "three to one";
}

TEST(Agent, both_targets_see_the_same_event_identity) {
  AgentBench b;
  b.options.routes = {{"all", {{"a", false}, {"b", false}}}};
  b.append("x.log", numbered("L", 1, 1000));
  b.start();
  while (b.pullers[0]->pull(4096)) {
  }
  b.pass(1s);
  ASSERT_FALSE(b.far("all/a").blocks.empty());
  EXPECT_EQ(b.far("all/a").blocks[0].id.stream, b.far("all/b").blocks[0].id.stream);
}

TEST(Agent, s10_restarts_with_an_unreachable_receiver_lose_and_double_nothing) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 1000));
  b.start();
  for (int i = 0; i < 5; ++i) {
    while (b.puller().pull(4096)) {
    }
    b.pass(1s, false);
    b.restart();
  }
  b.pass(1s);
  EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 1000)));
  EXPECT_EQ(b.far().duplicates, 0u);
  EXPECT_EQ(b.puller().source.counters().in, 1000u);
}

TEST(Agent, a_sink_commits_the_cursor_together_with_its_data) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 100));
  b.start();
  auto& source = b.puller().source;
  std::vector<port::WriteBatch> uncommitted;
  while (auto batch = source.next(4096)) {
    b.far().take(*batch);
    uncommitted.push_back(source.advance_entries(batch->stream, batch->last, batch->events));
  }
  b.pass(100s, false);
  EXPECT_EQ(b.left().size(), 1u) << "the sink has not committed: the file is all there is";
  for (auto& entries : uncommitted) b.store.write(entries, true).value();
  b.pass(100s, false);
  EXPECT_TRUE(b.left().empty());
  EXPECT_EQ(source.counters().delivered, 100u);
}

TEST(Agent, a_sink_that_is_killed_before_its_commit_gets_everything_again) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 100));
  b.start();
  auto batch = b.puller().source.next(1 << 20);
  (void)b.puller().source.advance_entries(batch->stream, batch->last, batch->events);
  b.pass(5s, false);
  b.restart();
  EXPECT_EQ(b.puller().source.counters().delivered, 0u);
  b.pass(1s);
  EXPECT_EQ(b.far().lines.size(), 100u);
  EXPECT_EQ(b.puller().source.counters().delivered, 100u);
}

TEST(Agent, a_rejected_block_is_a_dead_letter_before_the_cursor_passes_it) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.start();
  auto batch = b.puller().source.next(1 << 20);
  bool durable = false;
  b.puller().source.will_use(batch->stream, "fra", [&] { durable = true; });
  b.loop.run_posted();
  ASSERT_TRUE(durable);
  Reader in(batch->packed.view());
  in.varint();
  Slice block{std::string(in.sized())};
  b.dead_letters.failing = true;
  b.puller().source.rejected(batch->stream, batch->first, batch->last, block, "category holds a slash");
  b.puller().source.rejected(batch->stream, batch->first, batch->last, block, "category holds a slash");  // re-reported
  b.puller().source.advanced(batch->stream, batch->last, 0, 0);
  b.pass(5s, false);
  EXPECT_EQ(decode_cursor(*b.store.get(cursor_key(batch->stream, "fra")).value())->settled, 0u);
  b.dead_letters.failing = false;
  b.pass(5s, false);
  EXPECT_EQ(decode_cursor(*b.store.get(cursor_key(batch->stream, "fra")).value())->settled, 80u);
  ASSERT_EQ(b.dead_letters.letters.size(), 1u);
  EXPECT_EQ(b.dead_letters.letters[0].reason, "category holds a slash");
  auto c = b.puller().source.counters();
  EXPECT_EQ(c.dead_lettered, 10u);
  EXPECT_EQ(c.in, 10u);
  EXPECT_EQ(c.queued, 0u);
}

TEST(Agent, a_renewed_stream_begins_again_at_settled) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 1000));
  b.start();
  ASSERT_TRUE(b.puller().pull(4096));
  b.puller().ack();
  ASSERT_TRUE(b.puller().pull(4096));
  StreamId old = b.puller().window.front().stream;
  uint64_t settled = b.puller().window.front().first;
  b.puller().window.clear();
  b.puller().source.renew(old);
  auto batch = b.puller().source.next(4096);
  ASSERT_TRUE(batch);
  EXPECT_NE(batch->stream, old);
  EXPECT_EQ(batch->first, settled);
  EXPECT_EQ(b.agent->stats().renewed, 1u);
}

TEST(Agent, categories_take_turns) {
  AgentBench b;
  b.append("big.log", numbered("L", 1, 100'000));
  b.append("small.log", "one\n");
  b.append("tiny.log", "one\n");
  b.start();
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(b.puller().pull(4096));
  b.puller().deliver();
  for (const auto& block : b.far().blocks) seen.insert(block.category);
  EXPECT_EQ(seen.size(), 3u);
}

TEST(Agent, thousands_of_idle_categories_hold_few_descriptors_and_no_timers) {
  AgentBench b;
  b.options.rotate_age = 10h;
  for (int i = 0; i < 3000; ++i) b.append("c" + std::to_string(i) + ".log", "one\n");
  b.start();
  b.pass(1s);
  EXPECT_EQ(b.far().lines.size(), 3000u);
  auto stats = b.agent->stats();
  EXPECT_LE(stats.descriptors, b.options.descriptors_max);
  EXPECT_EQ(stats.generations, 3000u);
  uint64_t scans = stats.scans;
  uint64_t writes = b.store.writes;
  b.loop.advance(20s);
  EXPECT_EQ(b.store.writes, writes);
  EXPECT_EQ(b.agent->stats().scans, scans);
}

TEST(Agent, a_directory_that_cannot_be_watched_is_polled) {
  AgentBench b;
  b.refuse_watches = true;
  b.append("x.log", "one\n");
  b.start();
  b.pass(2s);
  b.append("x.log", "two\n");
  b.append("new/file", "three\n");
  b.pass(3s);
  EXPECT_EQ(b.far().lines, (std::vector<std::string>{"x|one", "x|two", "new|three"}));
  EXPECT_GT(b.agent->stats().directories_polled, 0u);
  b.refuse_watches = false;
  b.pass(3s);
  EXPECT_EQ(b.agent->stats().directories_polled, 0u);
}

TEST(Agent, an_unreadable_file_is_tried_again_and_said) {
  AgentBench b;
  b.append("x.log", "one\n");
  bool denied = true;
  b.files.fault = [&](test::FileOp op, const std::string& path) -> std::optional<Error> {
    if (denied && op == test::FileOp::open) return Error{port::file_errors::denied, path};
    return std::nullopt;
  };
  b.start();
  b.pass(40s);
  EXPECT_TRUE(b.far().lines.empty());
  ASSERT_EQ(b.agent->stats().staying.size(), 1u);
  EXPECT_NE(b.agent->stats().staying[0].reason.find("file.denied"), std::string::npos);
  denied = false;
  b.pass(40s);
  EXPECT_EQ(b.far().lines, lines_of("x", "one\n"));
}

TEST(Agent, a_newer_record_stops_the_start_and_a_damaged_one_does_not) {
  AgentBench b;
  b.append("x.log", "one\n");
  b.start();
  b.pass(2s);
  b.kill();
  std::string key;
  b.store
      .scan(kCursorPrefix,
            [&](ByteView k, ByteView) {
              key = k;
              return false;
            })
      .value();
  port::WriteBatch damage;
  damage.put(key, "\x01xx");
  b.store.write(damage, true).value();
  b.start();
  EXPECT_EQ(b.agent->stats().records_damaged, 1u);
  b.kill();
  port::WriteBatch newer;
  newer.put(key, "\x03xx");
  b.store.write(newer, true).value();
  auto opened = Agent::open(b.options, b.loop, b.disk, b.files, {}, b.store, b.dead_letters, b.node);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, errors::newer_version);
}

}  // namespace
}  // namespace ph::agent
