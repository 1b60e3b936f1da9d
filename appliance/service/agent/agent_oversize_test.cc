// The agent over a file system in memory: over-long lines.

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

}  // namespace
}  // namespace ph::agent
