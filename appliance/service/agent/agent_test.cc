// The agent's behaviour over a file system in memory: what is delivered, in which order, how often, and what is left.

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

TEST(Agent, delivers_lines_with_their_category_and_identity) {
  AgentBench b;
  b.append("clicks.log", "one\ntwo\n");
  b.append("views/202401010000.log", "three\n");
  b.start();
  b.pass(1s);
  EXPECT_EQ(b.far().lines, (std::vector<std::string>{"clicks|one", "clicks|two", "views|three"}));
  const event::Block& block = b.far().blocks.front();
  EXPECT_EQ(block.id.origin, b.node);
  EXPECT_EQ(block.id.first, 0u);
  EXPECT_EQ(block.id.last, 8u);
  EXPECT_EQ(block.events, 2u);
  EXPECT_EQ(block.accepted_at, b.far().blocks.back().accepted_at);
  auto counters = b.puller().source.counters();
  EXPECT_EQ(counters.in, 3u);
  EXPECT_EQ(counters.delivered, 3u);
  EXPECT_EQ(counters.queued, 0u);
  EXPECT_EQ(counters.unread_bytes, 0u);
}

TEST(Agent, a_partial_line_waits_for_its_newline) {
  AgentBench b;
  b.append("x.log", "whole\npart");
  b.start();
  b.pass(1s);
  EXPECT_EQ(b.far().lines, lines_of("x", "whole\n"));
  EXPECT_EQ(b.puller().source.counters().unread_bytes, 4u);
  b.append("x.log", "ial\n");
  b.pass(1s);
  EXPECT_EQ(b.far().lines, lines_of("x", "whole\npartial\n"));
}

TEST(Agent, names_that_are_no_source_files_are_left_alone) {
  AgentBench b;
  for (const char* name : {".hidden", "x.log.gz", "deep/below/x.log", ".dir/x.log", "_big", "bad\tname", "nowhere.log"})
    b.append(name, "never\n");
  b.files.replace_symlink("/spool/x.log.gz", b.at("link.log")).value();
  b.append(std::string(201, 'n'), "never\n");
  b.start();
  b.pass(200s);
  EXPECT_TRUE(b.far().lines.empty());
  EXPECT_EQ(b.left().size(), 8u);
  std::string reasons;
  for (const auto& s : b.agent->stats().staying) reasons += s.path + ": " + s.reason + "\n";
  EXPECT_NE(reasons.find("/spool/_big: category is empty"), std::string::npos) << reasons;
  EXPECT_NE(reasons.find("control character"), std::string::npos) << reasons;
  EXPECT_NE(reasons.find("longer than 200 bytes"), std::string::npos) << reasons;
  EXPECT_NE(reasons.find("nowhere.log: its category has no route"), std::string::npos) << reasons;
  EXPECT_EQ(b.agent->stats().staying_total, 4u);
}

// --- F1: the inode is used again
TEST(Agent, f1_a_new_file_on_the_inode_of_a_shipped_one_is_delivered_whole) {
  for (bool identical : {false, true}) {
    for (bool has_birth_times : {true, false}) {
      if (identical && !has_birth_times) continue;  // nothing could tell
      AgentBench b;
      b.files.reuse_inodes = true;
      b.append("a.log", numbered("L", 1, 1000));
      uint64_t inode = b.files.inode(b.at("a.log"))->number;
      if (!has_birth_times) b.files.inode(b.at("a.log"))->birth_ns = 0;
      b.start();
      b.pass(2s);
      ASSERT_EQ(b.far().lines.size(), 1000u);
      b.kill();
      b.files.unlink(b.at("a.log")).value();
      std::string fresh = identical ? numbered("L", 1, 1000) : numbered("M", 1, 10);
      b.append("b.log", fresh);
      ASSERT_EQ(b.files.inode(b.at("b.log"))->number, inode);
      if (!has_birth_times) b.files.inode(b.at("b.log"))->birth_ns = 0;
      b.start();
      b.pass(2s);
      EXPECT_EQ(b.far().lines,
                concat({lines_of("a", numbered("L", 1, 1000)), lines_of(has_birth_times ? "b" : "a", fresh)}));
      EXPECT_EQ(b.agent->stats().replaced + b.agent->stats().truncated, 1u);
      EXPECT_EQ(b.far().duplicates, 0u);
    }
  }
}

// --- F2: copy-truncate
TEST(Agent, f2_a_truncated_file_is_read_anew) {
  AgentBench b;
  b.append("a.log", numbered("L", 1, 1000));
  b.start();
  b.pass(1s);
  b.files.shrink(b.at("a.log"), 0);
  b.append("a.log", "after\n");
  b.pass(2s);
  auto want = concat({lines_of("a", numbered("L", 1, 1000)), {"a|after"}});
  EXPECT_EQ(b.far().lines, want);
  EXPECT_EQ(b.agent->stats().truncated, 1u);
  b.restart();
  b.pass(5s);
  EXPECT_EQ(b.far().lines, want);
  EXPECT_EQ(b.far().duplicates, 0u);
}

TEST(Agent, a_file_rewritten_longer_between_two_looks_is_read_anew) {
  AgentBench b;
  b.append("a.log", numbered("L", 1, 10));
  b.start();
  b.pass(1s);
  b.files.shrink(b.at("a.log"), 0);
  b.append("a.log", numbered("N", 1, 500));
  b.pass(1s);
  EXPECT_EQ(b.far().lines, concat({lines_of("a", numbered("L", 1, 10)), lines_of("a", numbered("N", 1, 500))}));
}

TEST(Agent, a_file_rewritten_to_the_same_size_is_read_anew) {
  AgentBench b;
  b.append("a.log", numbered("L", 1, 10));
  b.start();
  b.pass(1s);
  b.files.shrink(b.at("a.log"), 0);
  b.append("a.log", numbered("N", 1, 10));
  b.pass(1s);
  EXPECT_EQ(b.far().lines, concat({lines_of("a", numbered("L", 1, 10)), lines_of("a", numbered("N", 1, 10))}));
}

TEST(Agent, truncation_in_flight_keeps_the_old_stream_until_it_is_settled) {
  AgentBench b;
  b.append("a.log", numbered("L", 1, 1000));
  b.start();
  ASSERT_TRUE(b.puller().pull(4096));  // part of it is in flight
  uint64_t handed = b.puller().window.front().last;
  ASSERT_LT(handed, 8000u);
  b.files.shrink(b.at("a.log"), 0);
  b.append("a.log", "new\n");
  b.notice();
  EXPECT_EQ(b.puller().source.counters().dropped_bytes, 8000 - handed);
  StreamId old = b.puller().window.front().stream;
  b.pass(5s);
  EXPECT_EQ(b.far().lines.back(), "a|new");
  EXPECT_EQ(b.far().lines.size(), handed / 8 + 1);
  EXPECT_EQ(b.puller().closed, std::vector<StreamId>{old});
  auto c = b.puller().source.counters();
  EXPECT_EQ(c.in, c.delivered + c.dropped + c.dead_lettered + c.queued);
}

TEST(Agent, a_rewrite_during_a_read_is_noticed_and_the_bytes_are_thrown_away) {
  AgentBench b;
  b.append("a.log", numbered("L", 1, 100));
  b.start();
  int reads = 0;
  b.files.fault = [&](test::FileOp op, const std::string& path) -> std::optional<Error> {
    // Behind the read of the payload, before what verifies it.
    if (op == test::FileOp::stat && path == b.at("a.log") && ++reads == 2) {
      b.files.shrink(path, 0);
      b.append("a.log", numbered("N", 1, 200));
    }
    return std::nullopt;
  };
  b.puller().run();
  b.files.fault = nullptr;
  b.pass(1s);
  EXPECT_EQ(b.far().lines, lines_of("a", numbered("N", 1, 200)));
}

// --- F3: rotations while the agent is down
TEST(Agent, f3_rotations_while_down_are_delivered_in_generation_order) {
  for (const std::string directory : {"", "app/"}) {
    AgentBench b;
    b.append(directory + "app.log", numbered("A", 1, 100));
    b.start();
    b.pass(1s);
    b.stop();
    b.append(directory + "app.log", numbered("A", 101, 100));
    auto path = [&](const char* name) { return b.at(directory + name); };
    b.files.rename(path("app.log"), path("app.log.1")).value();
    b.append(directory + "app.log", numbered("B", 1, 100));
    b.files.rename(path("app.log.1"), path("app.log.2")).value();
    b.files.rename(path("app.log"), path("app.log.1")).value();
    b.append(directory + "app.log", numbered("C", 1, 100));
    b.start();
    b.pass(2s);
    EXPECT_EQ(b.far().lines, concat({lines_of("app", numbered("A", 1, 200)), lines_of("app", numbered("B", 1, 100)),
                                     lines_of("app", numbered("C", 1, 100))}));
    EXPECT_EQ(b.far().duplicates, 0u);
    EXPECT_EQ(b.agent->stats().renamed, 0u) << "renames while down are no event of this process";
  }
}

TEST(Agent, unknown_rotations_are_read_oldest_first) {
  AgentBench b;
  b.append("app.log.2", numbered("A", 1, 10));
  b.append("app.log.1", numbered("B", 1, 10));
  b.append("app.log", numbered("C", 1, 10));
  // Whatever their times of birth say: a copy is younger than what it was copied from.
  b.files.inode(b.at("app.log"))->birth_ns = 1;
  b.start();
  b.pass(1s);
  EXPECT_EQ(b.far().lines, concat({lines_of("app", numbered("A", 1, 10)), lines_of("app", numbered("B", 1, 10)),
                                   lines_of("app", numbered("C", 1, 10))}));
}

TEST(Agent, a_rename_keeps_the_generation_its_category_and_cursor) {
  AgentBench b;
  b.append("x.log", "one\n");
  b.append("d/a", "one\n");
  b.start();
  b.pass(1s);
  b.files.rename(b.at("x.log"), b.at("y.log")).value();
  b.files.rename(b.at("d/a"), b.at("d/b")).value();
  b.append("y.log", "two\n");
  b.append("d/b", "two\n");
  b.pass(1s);
  auto lines = b.far().lines;
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"d|one", "d|two", "x|one", "x|two"}));
  EXPECT_EQ(b.agent->stats().renamed, 2u);
}

// --- F4: a writer that holds a renamed file
TEST(Agent, f4_a_held_renamed_file_is_read_on_and_deleted_only_when_free) {
  AgentBench b;
  b.append("x.log", "c1\n");
  auto close = b.files.hold(b.at("x.log"));
  auto held = b.files.inode(b.at("x.log"));
  b.start();
  b.pass(1s);
  b.files.rename(b.at("x.log"), b.at("x.old")).value();
  b.files.append(held, "c2\n");
  b.append("x.log", "c3\n");
  b.pass(1s);
  b.restart();
  b.files.append(held, "c4\n");
  b.pass(2s);
  EXPECT_EQ(b.far().lines, lines_of("x", "c1\nc2\nc3\nc4\n"));
  b.pass(300s);
  ASSERT_EQ(b.left().size(), 1u) << "the free one is gone, the held one stays";
  EXPECT_EQ(b.files.inode(b.at(b.left().front())), held);
  b.files.append(held, "c5\n");
  b.pass(1s);
  EXPECT_EQ(b.far().lines.back(), "x|c5");
  std::string reasons;
  b.pass(31s);
  for (const auto& s : b.agent->stats().staying) reasons += s.reason;
  EXPECT_NE(reasons.find("another process has it open"), std::string::npos);
  close();
  b.pass(100s);
  EXPECT_TRUE(b.left().empty());
  EXPECT_EQ(b.far().lines.size(), 5u);
  EXPECT_EQ(b.far().duplicates, 0u);
}

TEST(Agent, a_held_file_never_blocks_further_rotations) {
  AgentBench b;
  b.start();
  std::vector<std::function<void()>> closers;
  for (int i = 0; i < 100; ++i) {
    b.append("x.log", numbered("L", i, 1));
    closers.push_back(b.files.hold(b.at("x.log")));
    b.pass(63s);
    ASSERT_FALSE(b.files.exists(b.at("x.log"))) << i;
  }
  EXPECT_EQ(b.agent->stats().rotated, 100u);
  EXPECT_EQ(b.agent->stats().rotated_waiting, 100u);
  for (auto& close : closers) close();
  b.pass(100s);
  EXPECT_TRUE(b.left().empty());
  EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 0, 100)));
}

// --- F5: same beginnings
TEST(Agent, f5_files_with_the_same_first_bytes_and_empty_ones_are_never_mistaken) {
  std::string head = numbered("same", 1, 500);  // more than 4 KiB
  ASSERT_GT(head.size(), 4096u);
  AgentBench b;
  b.append("a.log", head);
  b.append("b.log", head);
  for (const char* empty : {"e1.log", "e2.log", "e3.log"}) b.append(empty, "");
  b.start();
  b.pass(1s);
  b.restart();
  b.append("a.log", "tail a\n");
  b.append("b.log", "tail b\n");
  b.append("e2.log", "tail e2\n");
  b.append("e3.log", "tail e3\n");
  b.pass(1s);
  b.restart();
  b.pass(1s);
  auto got = b.far().lines;
  std::sort(got.begin(), got.end());
  auto want =
      concat({lines_of("a", head + "tail a\n"), lines_of("b", head + "tail b\n"), {"e2|tail e2", "e3|tail e3"}});
  std::sort(want.begin(), want.end());
  EXPECT_EQ(got, want);
  EXPECT_EQ(b.far().duplicates, 0u);
}

TEST(Agent, a_short_file_that_grows_keeps_its_generation_over_restarts) {
  AgentBench b;
  std::string all;
  b.start();
  for (int i = 0; i < 60; ++i) {
    std::string more = numbered("grow" + std::to_string(i % 7), i, 1 + i % 20);
    b.append("x.log", more);
    all += more;
    b.pass(700ms);
    if (i % 3 == 0) b.restart();
  }
  b.pass(1s);
  EXPECT_EQ(b.far().lines, lines_of("x", all));
  EXPECT_EQ(b.far().duplicates, 0u);
  EXPECT_EQ(b.agent->stats().truncated, 0u);
}

// --- kill -9 and cursors
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

// --- power cuts
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

// --- rotation and deletion
TEST(Agent, an_old_acknowledged_file_is_rotated_and_deleted) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.append("cat/202401010000.log", numbered("M", 1, 10));
  b.start();
  b.pass(59s);
  EXPECT_EQ(b.left().size(), 2u);
  EXPECT_TRUE(b.files.exists(b.at("x.log")));
  b.pass(5s);
  EXPECT_TRUE(b.left().empty());
  EXPECT_EQ(b.agent->stats().deleted, 2u);
  EXPECT_EQ(b.puller().closed.size(), 2u);
  b.pass(1s);
  EXPECT_EQ(b.agent->stats().generations, 0u);
}

TEST(Agent, a_large_file_is_rotated_at_once_and_a_writer_goes_on_under_the_old_name) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 150'000));
  b.start();
  b.pass(500ms);
  EXPECT_FALSE(b.files.exists(b.at("x.log")));
  b.append("x.log", "next\n");
  b.pass(5s);
  EXPECT_EQ(b.far().lines.size(), 150'001u);
  EXPECT_EQ(b.far().lines.back(), "x|next");
  EXPECT_EQ(b.left(), std::vector<std::string>{"x.log"});
}

TEST(Agent, nothing_unacknowledged_is_deleted) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.start();
  b.pass(300s, false);
  EXPECT_EQ(b.left().size(), 1u);
  while (b.puller().pull()) {
  }
  b.puller().deliver();
  b.pass(300s, false);
  EXPECT_EQ(b.left().size(), 1u);
  b.pass(10s);
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, deletion_waits_until_the_cursor_is_in_the_store) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.start();
  b.pass(70s, false);
  ASSERT_EQ(b.left().size(), 1u);
  b.store.fail_writes = true;
  b.pass(60s);
  EXPECT_EQ(b.left().size(), 1u);
  b.store.fail_writes = false;
  b.pass(10s);
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, with_ack_far_deletion_waits_for_the_far_watermark) {
  AgentBench b;
  b.options.routes = {{"all", {{"fra", true}}}};
  b.append("x.log", numbered("L", 1, 10));
  b.start();
  b.pass(120s);
  EXPECT_EQ(b.far().lines.size(), 10u);
  EXPECT_EQ(b.left().size(), 1u);
  b.restart();
  ASSERT_EQ(b.puller().open.size(), 1u);
  EXPECT_EQ(b.puller().open[0].settled, 80u);
  EXPECT_EQ(b.puller().open[0].far, 0u);
  b.pass(120s);
  EXPECT_EQ(b.left().size(), 1u);
  b.puller().source.far_advanced(b.puller().open[0].stream, 80);
  b.pass(120s);
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, an_unterminated_last_line_is_delivered_once_nobody_can_finish_it) {
  AgentBench b;
  b.append("x.log", "whole\ntail");
  auto close = b.files.hold(b.at("x.log"));
  b.start();
  b.pass(200s);
  EXPECT_EQ(b.far().lines, lines_of("x", "whole\n")) << "its writer may still finish it";
  close();
  b.pass(120s);
  EXPECT_EQ(b.far().lines, lines_of("x", "whole\ntail\n"));
  EXPECT_TRUE(b.far().blocks.back().newline_added);
  EXPECT_EQ(b.agent->stats().newline_added, 1u);
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, without_a_proof_the_file_stays_and_the_status_says_why) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.files.inode(b.at("x.log"))->lease_supported = false;
  b.start();
  b.pass(1000s);
  EXPECT_EQ(b.left().size(), 1u);
  ASSERT_EQ(b.agent->stats().staying.size(), 1u);
  EXPECT_NE(b.agent->stats().staying[0].reason.find("no proof"), std::string::npos);
  b.append("x.log", "the next file is not held up\n");
  b.pass(100s);
  EXPECT_EQ(b.far().lines.size(), 11u);
  EXPECT_EQ(b.left().size(), 1u);
}

TEST(Agent, an_opener_that_meets_the_deletion_loses_no_line) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  auto inode = b.files.inode(b.at("x.log"));
  b.start();
  std::function<void()> close;
  b.files.fault = [&](test::FileOp op, const std::string& path) -> std::optional<Error> {
    if (op == test::FileOp::unlink && !close) close = b.files.hold(path);  // blocks in open() while we hold the lease
    return std::nullopt;
  };
  b.pass(65s);
  ASSERT_TRUE(close);
  EXPECT_TRUE(b.left().empty());
  EXPECT_EQ(inode->links, 0u);
  b.files.append(inode, "late 1\nlate ");
  b.pass(5s);
  b.files.append(inode, "2\nunfinished");
  b.pass(5s);
  EXPECT_EQ(b.agent->stats().drained_after_unlink, 1u);
  EXPECT_EQ(b.agent->stats().generations, 1u);
  close();
  b.pass(20s);
  EXPECT_EQ(b.far().lines,
            concat({lines_of("x", numbered("L", 1, 10)), lines_of("x", "late 1\nlate 2\nunfinished\n")}));
  EXPECT_EQ(b.agent->stats().generations, 0u);
  EXPECT_EQ(inode->own_handles, 0);
}

TEST(Agent, a_file_with_a_second_name_stays) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.files.inode(b.at("x.log"))->links = 2;
  b.start();
  b.pass(100s);
  EXPECT_EQ(b.left().size(), 1u);
  b.files.inode(b.at(b.left()[0]))->links = 1;
  b.pass(400s);
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, rotation_never_renames_over_anything_and_a_failed_one_is_said) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.start();
  b.files.fault = [](test::FileOp op, const std::string& path) -> std::optional<Error> {
    if (op == test::FileOp::rename) return Error{port::file_errors::denied, path};
    return std::nullopt;
  };
  b.pass(200s);
  EXPECT_EQ(b.left(), std::vector<std::string>{"x.log"});
  ASSERT_EQ(b.agent->stats().staying.size(), 1u);
  EXPECT_NE(b.agent->stats().staying[0].reason.find("file.denied"), std::string::npos);
  b.files.fault = nullptr;
  b.pass(100s);
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, a_file_put_in_the_place_of_the_one_to_rotate_is_not_lost) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.start();
  bool swapped = false;
  b.files.fault = [&](test::FileOp op, const std::string& path) -> std::optional<Error> {
    if (op == test::FileOp::rename && path == b.at("x.log") && !swapped) {
      swapped = true;
      b.files.rename(path, b.at("x.log.1")).value();  // between our stat and our rename
      b.append("x.log", numbered("M", 1, 10));
    }
    return std::nullopt;
  };
  b.pass(62s);
  ASSERT_TRUE(swapped);
  b.pass(300s);
  EXPECT_EQ(b.far().lines, concat({lines_of("x", numbered("L", 1, 10)), lines_of("x", numbered("M", 1, 10))}));
  EXPECT_TRUE(b.left().empty());
  EXPECT_EQ(b.far().duplicates, 0u);
}

TEST(Agent, a_kill_anywhere_in_rotation_and_deletion_loses_and_doubles_nothing) {
  for (uint64_t at = 1;; ++at) {
    AgentBench b(at);
    b.append("x.log", numbered("L", 1, 10) + "tail");
    b.append("y.log", numbered("M", 1, 10));
    b.start();
    b.pass(50s);
    b.files.crash_at(at);
    bool crashed = false;
    try {
      b.pass(20s);
    } catch (const test::SimulatedCrash&) {
      crashed = true;
    }
    b.files.no_crash();
    if (crashed) b.restart();
    b.pass(200s);
    auto got = b.far().lines;
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, concat({lines_of("x", numbered("L", 1, 10) + "tail\n"), lines_of("y", numbered("M", 1, 10))})) << at;
    EXPECT_TRUE(b.left().empty()) << at;
    EXPECT_EQ(b.store.size(), 1u) << "only counters are left, at " << at;
    if (!crashed) {
      EXPECT_GT(at, 5u);
      break;
    }
  }
}

TEST(Agent, a_power_cut_that_takes_a_deletion_back_sends_nothing_twice) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    AgentBench b(seed);
    b.append("x.log", numbered("L", 1, 10));
    b.files.open(b.at("x.log"), port::OpenMode::write_create).value()->sync().value();
    b.files.sync_directory("/spool").value();
    b.files.sync_directory("/").value();
    b.start();
    Random random(seed);
    b.pass(58s + random.below(60) * 100ms);
    b.kill();
    b.files.cut_power();
    b.store.cut_power(random);
    b.options.boot_id = "boot-2";
    b.start();
    b.pass(200s);
    EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 10))) << seed;
    EXPECT_TRUE(b.left().empty()) << seed;
  }
}

// --- F8
TEST(Agent, f8_ten_thousand_cycles_leave_the_store_small) {
  AgentBench b;
  b.options.rotate_age = 1s;
  b.start();
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 50; ++k) b.append("c" + std::to_string(k) + ".log", "line " + std::to_string(i) + "\n");
    b.pass(3s);
  }
  b.pass(10s);
  EXPECT_EQ(b.far().lines.size(), 10'000u);
  EXPECT_EQ(b.agent->stats().deleted, 10'000u);
  EXPECT_TRUE(b.left().empty());
  EXPECT_LT(b.store.bytes(), 1000u);
  EXPECT_EQ(b.puller().closed.size(), 10'000u);
}

TEST(Agent, files_deleted_by_others_leave_nothing_behind) {
  AgentBench b;
  b.append("open.log", "one\n");
  b.append("idle.log", "one\n");
  b.options.descriptors_max = 1;
  b.start();
  b.pass(1s);
  b.append("idle.log", "two\n");
  b.pass(1s);  // the one descriptor is that of idle.log now
  b.append("open.log", "unread");
  b.notice();
  b.files.unlink(b.at("open.log")).value();
  b.files.unlink(b.at("idle.log")).value();
  b.pass(100s);
  EXPECT_EQ(b.agent->stats().generations, 0u);
  EXPECT_EQ(b.agent->stats().descriptors, 0u);
  EXPECT_EQ(b.store.size(), 1u);
}

TEST(Agent, what_was_unread_in_a_file_deleted_under_us_is_delivered_from_the_descriptor) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 2000));
  b.start();
  ASSERT_TRUE(b.puller().pull(4096));
  b.files.unlink(b.at("x.log")).value();
  b.pass(10s);
  EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 2000)));
  b.pass(10s);
  EXPECT_EQ(b.agent->stats().generations, 0u);
  EXPECT_EQ(b.puller().source.counters().dropped_bytes, 0u);
}

TEST(Agent, a_listing_that_misses_a_name_collects_nothing) {
  AgentBench b;
  b.append("x.log", numbered("L", 1, 10));
  b.options.rotate_age = 1h;
  b.start();
  b.pass(1s);
  b.files.rename(b.at("x.log"), "/elsewhere").value();  // neither name is seen for one scan
  b.watcher->overflow();
  b.loop.run_posted();
  b.files.rename("/elsewhere", b.at("x.log")).value();
  b.append("x.log", "more\n");
  b.pass(100s);
  EXPECT_EQ(b.far().lines, concat({lines_of("x", numbered("L", 1, 10)), {"x|more"}}));
  EXPECT_EQ(b.far().duplicates, 0u);
  EXPECT_EQ(b.agent->stats().overflows, 1u);
}

// --- F9: over-long lines
std::string endless(size_t size) {
  std::string s(size, 'e');
  for (size_t i = 0; i < size; i += 1000) s[i] = static_cast<char>('a' + i / 1000 % 26);
  return s;
}

TEST(Agent, f9_split_delivers_every_byte_of_a_long_line_in_pieces) {
  for (size_t line_max : {size_t{1000}, size_t{300'000}}) {
    AgentBench b;
    b.options.line_max = line_max;
    std::string line = endless(1'000'000);
    b.append("x.log", "before\n" + line + "\nafter\n");
    b.start();
    b.pass(1s);
    b.restart();
    b.pass(1s);
    ASSERT_GE(b.far().lines.size(), 3u);
    EXPECT_EQ(b.far().lines.front(), "x|before");
    EXPECT_EQ(b.far().lines.back(), "x|after");
    std::string joined;
    for (size_t i = 1; i + 1 < b.far().lines.size(); ++i) {
      EXPECT_LE(b.far().lines[i].size() - 2, line_max);
      joined += b.far().lines[i].substr(2);
    }
    EXPECT_EQ(joined, line);
    EXPECT_EQ(b.agent->stats().oversize_lines + 0, 0u) << "counted by the process that read it";
  }
}

TEST(Agent, f9_truncate_delivers_the_beginning_and_counts_the_rest) {
  for (bool restart : {false, true}) {
    AgentBench b;
    b.options.line_max = 1000;
    b.options.oversize = Oversize::truncate;
    std::string line = endless(20'000'000);
    b.append("x.log", "before\n" + line + "\nafter\nagain\n");
    b.start();
    if (restart) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(b.puller().pull());
      while (!b.puller().window.empty()) b.puller().ack();
      b.pass(1s, false);
      b.restart();
    }
    b.pass(1s);
    EXPECT_EQ(b.far().lines, (std::vector<std::string>{"x|before", "x|" + line.substr(0, 1000), "x|after", "x|again"}));
    if (!restart) {
      EXPECT_EQ(b.agent->stats().oversize_lines, 1u);
      EXPECT_EQ(b.agent->stats().oversize_bytes, line.size() + 1 - 1000);
    }
    EXPECT_EQ(b.puller().source.counters().delivered, 4u);
    EXPECT_EQ(b.puller().source.counters().in, 4u);
  }
}

TEST(Agent, f9_dead_letter_keeps_the_beginning_aside_before_the_cursor_passes) {
  AgentBench b;
  b.options.line_max = 1000;
  b.options.oversize = Oversize::dead_letter;
  b.dead_letters.failing = true;
  b.append("x.log", "before\n" + endless(50'000) + "\nafter\n");
  b.start();
  b.pass(5s);
  EXPECT_EQ(b.far().lines, lines_of("x", "before\nafter\n"));
  EXPECT_GT(b.agent->stats().dead_letter_failures, 0u);
  b.restart();  // the cursor did not pass: it comes again, and the letter with it
  b.dead_letters.failing = false;
  b.pass(3s);
  EXPECT_EQ(b.far().lines, lines_of("x", "before\nafter\n"));
  ASSERT_EQ(b.dead_letters.letters.size(), 1u);
  EXPECT_EQ(b.dead_letters.letters[0].reason, "line_oversize");
  auto block = event::decode(b.dead_letters.letters[0].block);
  ASSERT_TRUE(block.has_value()) << block.error().to_string();
  EXPECT_TRUE(block->truncated);
  EXPECT_EQ(block->payload.size(), 1001u);
  auto c = b.puller().source.counters();
  EXPECT_EQ(c.dead_lettered, 1u);
  EXPECT_EQ(c.delivered, 2u);
  EXPECT_EQ(c.in, 3u);
}

TEST(Agent, a_long_line_that_never_ends_is_cut_while_it_grows) {
  for (Oversize policy : {Oversize::split, Oversize::truncate}) {
    AgentBench b;
    b.options.line_max = 1000;
    b.options.oversize = policy;
    b.options.rotate_bytes = 100'000'000;
    b.start();
    for (int i = 0; i < 50; ++i) {
      b.append("x.log", std::string(700, 'z'));
      b.pass(100ms);
    }
    b.append("x.log", "\nlast\n");
    b.pass(1s);
    EXPECT_EQ(b.far().lines.size(), policy == Oversize::split ? 36u : 2u);
    EXPECT_EQ(b.far().lines.back(), "x|last");
  }
}

TEST(Agent, a_line_longer_than_a_block_but_not_than_line_max_stays_whole) {
  AgentBench b;
  std::string line = endless(700'000);
  b.append("x.log", "a\n" + line + "\nb\n");
  b.start();
  b.pass(1s);
  EXPECT_EQ(b.far().lines, (std::vector<std::string>{"x|a", "x|" + line, "x|b"}));
  b.append("y.log", line + "\n");
  b.notice();
  ASSERT_TRUE(b.puller().pull(100)) << "a batch is at least one line";
  EXPECT_GT(b.puller().window.front().packed.size(), line.size());
}

TEST(Agent, another_line_max_after_a_restart_shifts_nothing) {
  AgentBench b;
  b.options.line_max = 1000;
  std::string line = endless(10'500);
  b.append("x.log", line + "\nnext\n");
  b.start();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b.puller().pull());
  while (!b.puller().window.empty()) b.puller().ack();
  b.pass(1s, false);
  b.kill();
  b.options.line_max = 100'000;
  b.start();
  b.pass(1s);
  std::string joined;
  for (const auto& l : b.far().lines) joined += l.substr(2);
  EXPECT_EQ(joined, line + "next");
}

// --- targets
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

// --- fairness, resources
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
  newer.put(key, "\x02xx");
  b.store.write(newer, true).value();
  auto opened = Agent::open(b.options, b.loop, b.disk, b.files, {}, b.store, b.dead_letters, b.node);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, errors::newer_version);
}

}  // namespace
}  // namespace ph::agent
