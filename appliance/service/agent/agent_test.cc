// The agent over a file system in memory: what is delivered and what is left alone.

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

}  // namespace
}  // namespace ph::agent
