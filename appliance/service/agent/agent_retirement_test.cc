// The agent over a file system in memory: rotation, the proof, deletion.

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

TEST(Agent, a_power_cut_takes_no_rotated_file_along) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    AgentBench b(seed);
    b.options.rotate_age = 1s;
    b.append("x.log", numbered("L", 1, 10));
    b.files.make_durable(b.at("x.log"));
    b.start();
    b.pass(3s, false);  // rotated, and nobody has taken a line
    ASSERT_EQ(b.left().front().rfind(".posthouse/", 0), 0u) << seed;
    b.kill();
    Random random(seed);
    b.files.cut_power();
    b.store.cut_power(random);
    b.options.boot_id = "boot-2";
    b.start();
    b.pass(20s);
    EXPECT_EQ(b.far().lines, lines_of("x", numbered("L", 1, 10))) << seed;
  }
}

TEST(Agent, without_a_hidden_directory_nothing_is_rotated_until_it_can_be_made) {
  AgentBench b;
  b.options.rotate_age = 1s;
  b.append("x.log", numbered("L", 1, 10));
  b.files.fault = [](test::FileOp op, const std::string&) -> std::optional<Error> {
    if (op != test::FileOp::make_directory) return std::nullopt;
    return Error{port::file_errors::denied, "read-only", 0};
  };
  b.start();
  b.pass(5s);
  EXPECT_EQ(b.left(), std::vector<std::string>{"x.log"});
  ASSERT_EQ(b.agent->stats().staying.size(), 1u);
  EXPECT_NE(b.agent->stats().staying[0].reason.find("read-only"), std::string::npos);
  b.files.fault = nullptr;
  b.pass(200s);
  EXPECT_TRUE(b.left().empty());
}

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

}  // namespace
}  // namespace ph::agent
