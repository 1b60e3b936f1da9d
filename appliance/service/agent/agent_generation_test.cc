// The agent over a file system in memory: which file is which.

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

void copy(AgentBench& b, const std::string& from, const std::string& to) {
  b.append(to, b.files.content(b.at(from)));
}

TEST(Agent, f2_the_copy_of_a_copy_truncate_is_not_delivered_again_but_its_unread_tail_is) {
  for (bool down : {false, true}) {
    for (const std::string directory : {"", "a/"}) {
      AgentBench b;
      std::string log = directory + "a.log";
      b.append(log, numbered("L", 1, 1000));
      b.start();
      b.pass(2s);
      if (down) b.stop();
      b.append(log, "unread\n");
      copy(b, log, log + ".1");
      b.files.shrink(b.at(log), 0);
      b.append(log, "after\n");
      if (down) b.start();
      b.pass(2s);
      auto got = b.far().lines;
      auto want = concat({lines_of("a", numbered("L", 1, 1000)), {"a|unread", "a|after"}});
      std::sort(got.begin(), got.end());
      std::sort(want.begin(), want.end());
      EXPECT_EQ(got, want) << "down " << down;
      EXPECT_EQ(b.agent->stats().copies, 1u);
      EXPECT_EQ(b.puller().source.counters().dropped_bytes, 0u);
      b.restart();
      b.pass(200s);
      EXPECT_EQ(b.far().lines.size(), 1002u);
      EXPECT_TRUE(b.left().empty());
    }
  }
}

TEST(Agent, a_copy_seen_before_the_truncation_waits_for_it) {
  AgentBench b;
  b.options.rotate_age = 1h;
  b.append("a.log", numbered("L", 1, 1000));
  b.start();
  b.pass(1s);
  copy(b, "a.log", "a.log.1");
  b.pass(500ms);
  b.append("a.log", "late\n");  // behind the copying, before the truncation: read, not in the copy
  b.pass(500ms);
  b.files.shrink(b.at("a.log"), 0);
  b.append("a.log", "after\n");
  b.pass(10s);
  EXPECT_EQ(b.far().lines, concat({lines_of("a", numbered("L", 1, 1000)), {"a|late", "a|after"}}));
}

TEST(Agent, a_copy_is_known_though_its_original_is_truncated_between_the_looks_at_both) {
  AgentBench b;
  b.options.rotate_age = 1h;
  b.append("a.log", numbered("L", 1, 1000));
  b.start();
  b.pass(2s);
  bool truncated = false;
  b.files.fault = [&](test::FileOp op, const std::string& path) -> std::optional<Error> {
    if (op == test::FileOp::open && path == b.at("a.log.1") && !std::exchange(truncated, true))
      b.files.shrink(b.at("a.log"), 0);
    return std::nullopt;
  };
  copy(b, "a.log", "a.log.1");
  b.pass(2s);
  b.append("a.log", "after\n");
  b.pass(10s);
  EXPECT_TRUE(truncated);
  EXPECT_EQ(b.far().lines, concat({lines_of("a", numbered("L", 1, 1000)), {"a|after"}}));
}

TEST(Agent, a_backup_that_is_never_followed_by_a_truncation_is_delivered_once_too) {
  AgentBench b;
  b.append("a.log", numbered("L", 1, 1000));
  b.start();
  b.pass(1s);
  copy(b, "a.log", "a.log.1");
  b.pass(300s);
  EXPECT_EQ(b.far().lines, lines_of("a", numbered("L", 1, 1000)));
  EXPECT_TRUE(b.left().empty());
}

TEST(Agent, rotations_by_rename_with_the_same_content_are_no_copies) {
  AgentBench b;
  b.options.rotate_age = 1h;
  std::string banner = numbered("banner", 1, 1000);
  b.append("a.log", banner);
  b.start();
  b.pass(2s);
  b.stop();
  b.files.rename(b.at("a.log"), b.at("a.log.2")).value();
  b.append("a.log.1", banner);
  b.append("a.log", banner);
  b.start();
  b.pass(60s);
  EXPECT_EQ(b.far().lines, concat({lines_of("a", banner), lines_of("a", banner), lines_of("a", banner)}));
  EXPECT_EQ(b.agent->stats().copies, 0u);
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

}  // namespace
}  // namespace ph::agent
