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

TEST(Agent, lines_in_flight_when_the_power_went_are_counted_before_they_come_again) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 50));
  b.start();
  b.pass(2s);
  b.append("x.log", numbered("L", 51, 10));
  b.notice();
  b.puller().pull();
  b.puller().deliver();  // accepted there; our cursor still stands before them
  b.kill();
  b.append("x.log", numbered("L", 61, 5));
  b.options.boot_id = "boot-2";
  for (int crash = 0; crash < 2; ++crash) {  // counted once, in the write that makes the new id durable
    b.start();
    b.loop.run_posted();
    EXPECT_EQ(b.puller().source.counters().maybe_duplicate, 15u);
    auto stored = decode_counters(b.store.get(counter_key("all", "fra")).value().value());
    EXPECT_EQ(stored->maybe_duplicate, 15u);
    EXPECT_EQ(b.far().lines.size(), 60u);
    if (crash == 0) b.kill();
  }
  b.pass(2s);
  EXPECT_EQ(b.far().lines.size(), 75u);
  EXPECT_EQ(b.puller().source.counters().delivered, 65u);
  EXPECT_EQ(b.puller().source.counters().maybe_duplicate, 15u);
}

TEST(Agent, nothing_is_handed_out_behind_what_the_store_knows_of) {
  AgentBench b;
  b.options.line_max = 1000;
  std::string text = numbered("L", 1, 400'000);
  b.append("x.log", text);
  b.start();
  ASSERT_TRUE(b.puller().pull());
  b.puller().deliver();
  auto key = cursor_key(b.puller().window.front().stream, "fra");
  auto bound = [&] { return decode_cursor(*b.store.get(key).value())->reserved; };
  EXPECT_GT(bound(), b.puller().window.back().last);
  b.disk.hold();
  while (b.puller().pull()) {
  }
  EXPECT_LE(b.puller().window.back().last, bound());
  EXPECT_LT(b.puller().window.back().last, text.size());
  b.disk.release();
  for (int i = 0; i < 100 && b.puller().window.back().last < text.size(); ++i) {
    b.loop.run_posted();
    while (b.puller().pull()) EXPECT_LE(b.puller().window.back().last, bound());
  }
  EXPECT_EQ(b.puller().window.back().last, text.size());
}

TEST(Agent, a_receiver_is_on_disk_before_it_is_used_also_while_dead_letters_fail) {
  AgentBench b;
  b.options.line_max = 100;
  b.options.oversize = Oversize::dead_letter;
  b.dead_letters.failing = true;
  b.append("x.log", "one\n" + std::string(200, 'e') + "\ntwo\n");
  b.start();
  auto batch = b.puller().source.next(1 << 20);
  ASSERT_TRUE(batch);
  bool durable = false;
  b.puller().source.will_use(batch->stream, "fra-1:3706", [&] { durable = true; });
  ASSERT_TRUE(b.puller().source.next(1 << 20));  // the dead letter
  b.puller().source.advanced(batch->stream, batch->last, batch->events, 0);
  b.loop.run_posted();
  ASSERT_TRUE(durable);
  auto record = b.store.get(cursor_key(batch->stream, "fra")).value();
  ASSERT_TRUE(record);
  EXPECT_EQ(decode_cursor(*record)->receivers, std::vector<std::string>{"fra-1:3706"});
  EXPECT_EQ(decode_cursor(*record)->settled, 0u) << "the cursor waits for the letter";
}

TEST(Agent, what_is_settled_and_not_far_is_asked_for_under_its_old_id_after_a_power_cut) {
  AgentBench b;
  b.options.routes = {{"all", {{"fra", true}}}};
  b.options.rotate_age = 1s;
  b.append("x.log", numbered("L", 1, 50));
  b.start();
  b.pass(5s);  // settled, and the end of the way has said nothing
  StreamId old = b.far().has.begin()->first;
  std::string name = b.left().front();
  b.append(name, numbered("L", 51, 10));
  for (std::string boot : {"boot-2", "boot-3"}) {
    b.kill();
    b.options.boot_id = boot;
    b.start();
    b.pass(5s);
  }
  EXPECT_EQ(b.left(), std::vector<std::string>{name});
  auto past = std::find_if(b.puller().open.begin(), b.puller().open.end(), [&](auto& o) { return o.stream == old; });
  ASSERT_NE(past, b.puller().open.end());
  EXPECT_EQ(past->settled, 50u * 8);
  EXPECT_EQ(past->far, 0u);
  EXPECT_EQ(past->receivers, std::vector<std::string>{"far:1"});
  for (auto& [stream, has] : b.far().has)  // the present ones first: nothing is released by them alone
    if (stream != old) b.puller().source.far_advanced(stream, 1000);
  b.pass(5s);
  EXPECT_EQ(b.left(), std::vector<std::string>{name});
  b.disk.hold();
  b.puller().source.far_advanced(old, 50 * 8);
  b.loop.run_posted();
  EXPECT_TRUE(b.puller().closed.empty()) << "receivers forget only what we need not ask for after a crash";
  b.disk.release();
  b.pass(10s);
  EXPECT_TRUE(b.left().empty());
  EXPECT_NE(std::find(b.puller().closed.begin(), b.puller().closed.end(), old), b.puller().closed.end());
  EXPECT_EQ(b.store.size(), 1u) << "only counters are left";
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
