// The agent over a file system in memory: cursors, kills, power cuts.

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

std::vector<std::string> concat(std::vector<std::vector<std::string>> parts) {
  std::vector<std::string> out;
  for (auto& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

TEST(Agent, after_a_kill_what_lagged_comes_again_as_duplicate_and_nothing_is_missing) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 20'000));
  b.start();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(b.puller().pull(8192));
  b.puller().deliver();  // the receiver has all three; no acknowledgement came back
  b.loop.run_posted();   // the receiver is on the list, durably
  b.restart();
  ASSERT_EQ(b.puller().open.size(), 1u);
  EXPECT_EQ(b.puller().open[0].settled, 0u);
  EXPECT_EQ(b.puller().open[0].receivers, std::vector<std::string>{"far:1"});
  b.pass(2s);
  EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 20'000)));
  auto c = b.puller().source.counters();
  EXPECT_GT(c.duplicate, 0u);
  EXPECT_EQ(c.duplicate, b.far().duplicates);
  EXPECT_EQ(c.delivered, 20'000u);
  EXPECT_EQ(c.in, 20'000u);
}

TEST(Agent, counters_survive_kills_and_always_add_up) {
  AgentBench b;
  b.start();
  for (int round = 0; round < 10; ++round) {
    b.append("x.log", numbered("L", round * 100, 100));
    b.notice();
    b.puller().pull(4096);
    auto c = b.puller().source.counters();
    EXPECT_EQ(c.in, c.delivered + c.dropped + c.dead_lettered + c.queued);
    b.pass(round % 2 ? 100ms : 900ms);
    b.restart();
  }
  b.pass(1s);
  auto c = b.puller().source.counters();
  EXPECT_EQ(c.delivered, 1000u);
  EXPECT_EQ(c.in, 1000u);
  EXPECT_EQ(c.queued, 0u);
}

TEST(Agent, nothing_leaves_before_the_receiver_is_on_disk) {
  AgentBench b;
  b.append("x.log", "one\n");
  b.start();
  auto batch = b.puller().source.next(1 << 20);
  ASSERT_TRUE(batch);
  b.disk.hold();
  bool durable = false;
  b.puller().source.will_use(batch->stream, "fra-1:3706", [&] { durable = true; });
  b.loop.run_posted();
  EXPECT_FALSE(durable);
  b.disk.release();
  b.loop.run_posted();
  ASSERT_TRUE(durable);
  auto record = b.store.get(cursor_key(batch->stream, "fra")).value();
  ASSERT_TRUE(record);
  EXPECT_EQ(decode_cursor(*record)->receivers, std::vector<std::string>{"fra-1:3706"});
  EXPECT_TRUE(b.store.get(generation_key(batch->stream)).value());
}

TEST(Agent, a_failing_store_is_tried_again_and_nothing_moves_meanwhile) {
  AgentBench b;
  b.append("x.log", "one\n");
  b.start();
  b.store.fail_writes = true;
  auto batch = b.puller().source.next(1 << 20);
  bool durable = false;
  b.puller().source.will_use(batch->stream, "fra-1:3706", [&] { durable = true; });
  b.pass(5s, false);
  EXPECT_FALSE(durable);
  EXPECT_GT(b.agent->stats().store_failures, 0u);
  b.store.fail_writes = false;
  b.pass(2s, false);
  EXPECT_TRUE(durable);
}

TEST(Agent, a_file_shorter_after_a_power_cut_goes_on_at_its_size_under_a_new_stream) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 100));
  b.start();
  b.pass(2s);
  ASSERT_EQ(b.far().lines.size(), 100u);
  b.kill();
  b.files.shrink(b.at("x.log"), 720);  // the last ten lines were never written back
  b.options.boot_id = "boot-2";
  b.start();
  b.append("x.log", numbered("M", 1, 10));
  b.pass(2s);
  EXPECT_EQ(b.far().lines, concat({lines_of("x", numbered("L", 1, 100)), lines_of("x", numbered("M", 1, 10))}));
  EXPECT_EQ(b.agent->stats().power_cuts, 1u);
  EXPECT_EQ(b.agent->stats().truncated, 0u);
}

TEST(Agent, other_lines_at_positions_sent_before_a_power_cut_are_not_taken_for_duplicates) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 50));
  b.start();
  b.pass(2s);
  b.append("x.log", numbered("L", 51, 10));
  b.notice();
  b.puller().pull();
  b.puller().deliver();  // accepted there; our cursor still stands before them
  b.kill();
  b.files.shrink(b.at("x.log"), 400);
  b.append("x.log", numbered("M", 51, 10));  // after the boot, before the agent
  b.options.boot_id = "boot-2";
  b.start();
  b.pass(2s);
  EXPECT_EQ(b.far().lines, concat({lines_of("x", numbered("L", 1, 60)), lines_of("x", numbered("M", 51, 10))}));
}

TEST(Agent, of_a_file_that_is_not_found_no_receiver_can_know_too_much) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.start();
  b.pass(2s);
  b.append("x.log", numbered("L", 11, 10));
  b.kill();
  b.files.rename(b.at("x.log"), "/elsewhere").value();
  b.start();
  ASSERT_EQ(b.puller().open.size(), 1u);
  EXPECT_GE(b.puller().open[0].assigned, 20u * 8);  // all that may have been handed out
  b.files.rename("/elsewhere", b.at("x.log")).value();
  b.pass(2s);
  EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 20)));
}

TEST(Agent, a_clean_stop_and_a_reboot_keep_every_stream) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 100));
  b.start();
  b.pass(2s);
  StreamId stream = b.far().has.begin()->first;
  b.stop();
  b.options.boot_id = "boot-2";
  b.start();
  b.append("x.log", "more\n");
  b.pass(2s);
  EXPECT_EQ(b.far().has.size(), 1u);
  EXPECT_EQ(b.far().has.begin()->first, stream);
  EXPECT_EQ(b.far().lines.size(), 101u);
  EXPECT_EQ(b.agent->stats().power_cuts, 0u);
}

}  // namespace
}  // namespace ph::agent
