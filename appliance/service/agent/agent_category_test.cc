// The agent over a file system in memory: what categories may say of how their files are read.

#include <gtest/gtest.h>

#include "support/agent_bench.h"

namespace ph::agent {
namespace {

using test::AgentBench;
using test::lines_of;
using test::numbered;
using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

void dated(AgentBench& b, Duration timeout = 1s, size_t lines_max = 1000, size_t bytes_max = 64 * 1024) {
  b.options.categories.push_back({{"x"}, false, Multiline::make({"\\d\\d ", lines_max, bytes_max, timeout}).value()});
}

void tailed(AgentBench& b) {
  b.options.tail = true;
  b.options.rotate_age = 1s;
  b.options.rotate_bytes = 100;
}

}  // namespace

// --- events of several lines

TEST(AgentCategory, lines_that_belong_together_are_one_event) {
  AgentBench b;
  dated(b);
  b.append("x.log", "01 a\n02 b\n  at p\n  at q\\r\n03 c\n");
  b.append("y.log", "01 a\n  at p\n");
  b.start();
  b.pass(500ms);
  EXPECT_EQ(b.far().lines.size(), 4u) << "the last one may go on";
  b.append("x.log", "  of c\n");
  b.pass(800ms);
  EXPECT_EQ(b.far().lines.size(), 4u) << "it did go on: its time begins again";
  b.pass(1s);
  Lines x, y;
  for (const std::string& line : b.far().lines) (line.starts_with("x") ? x : y).push_back(line);
  EXPECT_EQ(x, (Lines{"x|01 a", "x|02 b\\n  at p\\n  at q\\\\r", "x|03 c\\n  of c"}));
  EXPECT_EQ(y, lines_of("y", "01 a\n  at p\n"));
  EXPECT_EQ(b.puller().source.counters().delivered, 5u);
  EXPECT_EQ(b.agent->stats().joined_events, 2u);
}

TEST(AgentCategory, a_run_of_single_lines_is_one_block) {
  AgentBench b;
  dated(b);
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "01 line " + std::to_string(i) + "\n";
  b.append("x.log", lines);
  b.start();
  b.pass(2s);
  EXPECT_EQ(b.far().lines, lines_of("x", lines));
  EXPECT_LE(b.far().blocks.size(), 2u);
}

TEST(AgentCategory, an_event_at_the_end_is_delivered_before_its_file_is_deleted) {
  AgentBench b;
  dated(b, 1h);
  b.options.rotate_age = 2s;
  b.append("x.log", "01 a\n  more\n  and no newline");
  b.start();
  b.pass(20s);
  EXPECT_EQ(b.far().lines, (Lines{"x|01 a\\n  more", "x|  and no newline"}));
  EXPECT_EQ(b.left(), Lines{});
}

TEST(AgentCategory, bounds_cut_an_event_and_positions_stay_bytes) {
  AgentBench b;
  dated(b, 1s, 3, 1'000'000);
  std::string lines = "01 a\n";
  for (int i = 0; i < 7; ++i) lines += "  " + std::to_string(i) + "\n";
  b.append("x.log", lines);
  b.start();
  b.pass(3s);
  EXPECT_EQ(b.far().lines, (Lines{"x|01 a\\n  0\\n  1", "x|  2\\n  3\\n  4", "x|  5\\n  6"}));
  EXPECT_EQ(b.far().blocks.back().id.last, lines.size());
}

TEST(AgentCategory, events_longer_than_a_read_and_longer_than_a_line_may_be) {
  AgentBench b;
  dated(b, 1s, 100'000, 256 * 1024);
  b.options.line_max = 5000;
  std::string event = "01 a\n";
  while (event.size() < 200'000) event += "  " + std::string(70, 'z') + "\n";
  const std::string over(6000, 'o');
  b.append("x.log", event + "02 b\n" + over + "\n03 c\n");
  b.start();
  b.pass(3s);
  ASSERT_EQ(b.far().lines.size(), 5u);
  EXPECT_EQ(b.far().lines[0].size(), event.size() + static_cast<size_t>(std::ranges::count(event, '\n')) - 2 + 2);
  EXPECT_EQ(b.far().lines[1], "x|02 b");
  EXPECT_EQ(b.far().lines[2] + b.far().lines[3].substr(2), "x|" + over);
  EXPECT_EQ(b.far().lines[4], "x|03 c");
}

TEST(AgentCategory, a_kill_anywhere_repeats_and_loses_nothing_of_several_lines) {
  std::string lines;
  Lines expected;
  for (int i = 10; i < 60; ++i) {
    lines += std::to_string(i) + " e\n";
    std::string line = "x|" + std::to_string(i) + " e";
    for (int k = 0; k < i % 4; ++k) {
      lines += "  more\n";
      line += "\\n  more";
    }
    expected.push_back(line);
  }
  for (int kill_after = 1; kill_after < 20; kill_after += 3) {
    AgentBench b(static_cast<uint64_t>(kill_after));
    dated(b);
    b.append("x.log", lines);
    b.start();
    for (int i = 0; i < kill_after; ++i) b.puller().pull(4096);
    b.puller().deliver();
    for (int i = 0; i < kill_after / 2; ++i) b.puller().ack();
    b.pass(300ms, false);
    b.restart();
    b.pass(3s);
    EXPECT_EQ(b.far().lines, expected) << kill_after;
  }
}

// --- files of others

TEST(AgentCategory, a_tailed_file_is_read_and_never_touched) {
  AgentBench b;
  tailed(b);
  b.append("x.log", numbered("L", 1, 100));
  b.append("dir/1.log", numbered("M", 1, 100));
  b.start();
  b.pass(300s);
  EXPECT_EQ(b.far().lines.size(), 200u);
  EXPECT_EQ(b.left(), (Lines{"dir/1.log", "x.log"}));
  EXPECT_EQ(b.agent->stats().rotated, 0u);
  EXPECT_FALSE(b.files.stat(b.at(".posthouse")).value().has_value()) << "not even a directory is made";
  b.append("x.log", numbered("N", 1, 10));
  b.stop();
  b.append("x.log", numbered("N", 11, 10));
  b.start();
  b.pass(2s);
  EXPECT_EQ(b.far().lines.size(), 220u) << "the cursor is kept";
}

TEST(AgentCategory, a_tailed_file_is_followed_through_anothers_rotations) {
  for (bool down : {false, true}) {
    AgentBench b;
    tailed(b);
    b.append("x.log", numbered("L", 1, 100));
    b.start();
    b.pass(2s);
    for (int turn = 1; turn <= 3; ++turn) {
      if (down) b.stop();
      b.append("x.log", numbered("L", turn * 100 + 1, 50));
      if (turn > 1) b.files.rename(b.at("x.log.1"), b.at("x.log.2")).value();
      b.files.rename(b.at("x.log"), b.at("x.log.1")).value();
      b.append("x.log.1", numbered("L", turn * 100 + 51, 10));
      b.append("x.log", numbered("L", turn * 100 + 61, 40));
      if (down) b.start();
      b.pass(5s);
    }
    EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 400))) << down;
    EXPECT_EQ(b.left(), (Lines{"x.log", "x.log.1", "x.log.2"}));
  }
}

TEST(AgentCategory, a_tailed_file_is_followed_through_copy_and_truncate) {
  AgentBench b;
  tailed(b);
  b.append("x.log", numbered("L", 1, 100));
  b.start();
  b.pass(2s);
  b.append("x.log.1", b.files.content(b.at("x.log")));
  b.files.shrink(b.at("x.log"), 0);
  b.append("x.log", numbered("L", 101, 5));
  b.pass(20s);
  EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 105)));
}

TEST(AgentCategory, one_category_may_be_tailed_and_another_not) {
  AgentBench b;
  b.options.rotate_age = 1s;
  b.options.categories.push_back({{"sys*"}, true, nullptr});
  b.append("syslog", "a\n");
  b.append("app.log", "b\n");
  b.start();
  b.pass(20s);
  EXPECT_EQ(b.left(), Lines{"syslog"});
}

// --- which files

TEST(AgentCategory, patterns_say_which_files_are_begun) {
  AgentBench b;
  b.options.tail = true;
  b.options.include = {"*.log", "app/*"};
  b.options.exclude = {"debug*", "app/old*"};
  for (const char* name : {"x.log", "x.txt", "debug.log", "app/1", "app/old-1", "lib/1.log", "lib/1", "x.log.2"})
    b.append(name, std::string(name) + "\n");
  b.start();
  b.pass(2s);
  Lines got = b.far().lines;
  std::ranges::sort(got);
  EXPECT_EQ(got, (Lines{"app|app/1", "lib|lib/1.log", "x|x.log", "x|x.log.2"}));
  b.append("x.txt", "more\n");
  b.append("x.log", "more\n");
  b.pass(2s);
  EXPECT_EQ(b.far().lines.size(), 5u);
  b.options.exclude = {"*"};  // what was begun is read to its end
  b.append("x.log", "again\n");
  b.restart();
  b.pass(2s);
  EXPECT_EQ(b.far().lines.size(), 6u);
}

}  // namespace ph::agent
