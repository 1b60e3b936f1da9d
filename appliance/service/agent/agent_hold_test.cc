// The agent whose target holds some of its categories.

#include <gtest/gtest.h>

#include "support/agent_bench.h"

namespace ph::agent {
namespace {

using test::AgentBench;
using test::lines_of;
using test::numbered;
using namespace std::chrono_literals;

std::vector<std::string> lines(AgentBench& b, const std::string& category) {
  std::vector<std::string> out;
  for (const std::string& line : b.far().lines)
    if (line.starts_with(category + "|")) out.push_back(line);
  return out;
}

TEST(AgentHold, what_is_taken_back_is_read_again_and_others_go_on) {
  for (bool restarted : {false, true}) {
    AgentBench b;
    b.options.rotate_age = 1h;
    b.append("held/1", numbered("H", 0, 2000));
    b.start();
    auto& source = b.puller().source;
    auto one = source.next(4096);
    auto two = source.next(4096);
    ASSERT_TRUE(one && two);
    source.advanced(one->stream, one->last, one->events, 0);
    ASSERT_TRUE(source.take_back(two->stream, two->first));
    EXPECT_EQ(source.counters().queued, 0u);
    EXPECT_EQ(b.agent->stats().held_lanes, 1u);
    EXPECT_EQ(b.agent->stats().taken_back_bytes, two->last - two->first);
    b.append("held/2", numbered("I", 0, 10));  // has its place behind the first
    b.append("other/1", numbered("O", 0, 1000));
    b.pass(1s);
    EXPECT_EQ(lines(b, "other"), lines_of("other", numbered("O", 0, 1000)));
    EXPECT_EQ(lines(b, "held"), std::vector<std::string>{});
    if (restarted)
      b.restart();
    else
      source.resume(two->stream);
    b.far().has[one->stream].assign(one->last, true);  // as the receiver has it
    b.pass(1s);
    auto want = lines_of("held", numbered("H", 0, 2000));
    want.erase(want.begin(), want.begin() + static_cast<ptrdiff_t>(one->events));
    for (const auto& line : lines_of("held", numbered("I", 0, 10))) want.push_back(line);
    EXPECT_EQ(lines(b, "held"), want) << restarted;
    EXPECT_EQ(b.agent->stats().held_lanes, 0u);
    auto c = b.puller().source.counters();
    EXPECT_EQ(c.in, 3010u);
    EXPECT_EQ(c.queued, 0u);
  }
}

TEST(AgentHold, what_cannot_be_read_again_is_not_taken_back) {
  AgentBench b;
  b.append("a.log", numbered("L", 0, 2000));
  b.start();
  auto& source = b.puller().source;
  auto one = source.next(4096);
  auto two = source.next(4096);
  EXPECT_FALSE(source.take_back(one->stream, one->first + 1)) << "no end of a batch";
  EXPECT_FALSE(source.take_back(StreamId{1}, 0));
  b.files.shrink(b.at("a.log"), 0);
  b.notice();
  EXPECT_FALSE(source.take_back(one->stream, one->first));
  EXPECT_EQ(b.agent->stats().held_lanes, 0u);
}

TEST(AgentHold, a_held_file_that_is_truncated_loses_what_was_taken_back_and_frees_its_lane) {
  AgentBench b;
  b.append("a.log", numbered("L", 0, 2000));
  b.start();
  auto& source = b.puller().source;
  auto one = source.next(4096);
  ASSERT_TRUE(source.take_back(one->stream, 0));
  b.files.shrink(b.at("a.log"), 0);
  b.append("a.log", "new\n");
  b.pass(1s);
  EXPECT_EQ(b.far().lines, std::vector<std::string>{"a|new"});
  EXPECT_EQ(source.counters().dropped_bytes, 2000u * 8);
  EXPECT_EQ(b.agent->stats().held_lanes, 0u);
}

}  // namespace
}  // namespace ph::agent
