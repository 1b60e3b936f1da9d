// The agent over a file system in memory: copies that are written over older copies, in whatever way and time.

#include <gtest/gtest.h>

#include "support/agent_bench.h"

namespace ph::agent {
namespace {

using test::AgentBench;
using test::lines_of;
using test::numbered;
using namespace std::chrono_literals;

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// `cp from to`, where `to` may exist: the same inode is emptied and written again.
void copy_over(AgentBench& b, const std::string& from, const std::string& to) {
  const std::string bytes = b.files.content(b.at(from));
  if (b.files.exists(b.at(to))) b.files.shrink(b.at(to), 0);
  b.append(to, bytes);
}

struct Tailing : AgentBench {
  Tailing() { options.tail = true; }
};

TEST(AgentCopy, a_copy_over_the_copy_of_last_time_is_not_delivered_again) {
  for (const std::string directory : {"", "a/"}) {
    // Longer and shorter than the one before.
    for (const std::vector<int>& counts : {std::vector{100, 200, 400}, std::vector{400, 200, 100, 1, 300}}) {
      Tailing b;
      const std::string log = directory + "a.log";
      std::string all;
      int at = 0;
      b.start();
      for (int count : counts) {
        const std::string lines = numbered("L", at, count);
        at += count;
        all += lines;
        b.append(log, lines);
        b.pass(2s);
        copy_over(b, log, log + ".1");
        b.files.shrink(b.at(log), 0);
        b.pass(2s);
      }
      b.pass(100s);
      EXPECT_EQ(sorted(b.far().lines), sorted(lines_of("a", all)));
      EXPECT_EQ(b.puller().source.counters().dropped_bytes, 0u);
    }
  }
}

/// The rotator goes on while we compare: the copy is emptied for the next one, or compressed and deleted.
TEST(AgentCopy, a_copy_that_goes_while_it_is_looked_at_is_not_taken_for_a_file_of_its_own) {
  for (const test::FileOp op : {test::FileOp::read, test::FileOp::open}) {
    Tailing b;
    b.start();
    b.append("a.log", numbered("L", 0, 100));
    b.pass(2s);
    copy_over(b, "a.log", "a.log.1");
    b.files.shrink(b.at("a.log"), 0);
    int times = 0;
    b.files.fault = [&](test::FileOp now, const std::string& path) -> std::optional<Error> {
      if (now != op || path != b.at("a.log.1") || times++ > 0) return {};
      if (op == test::FileOp::read) {
        b.files.shrink(path, 0);
        return {};
      }
      EXPECT_TRUE(b.files.unlink(path));
      return Error{port::file_errors::not_found, path};
    };
    b.pass(4s);
    EXPECT_GT(times, 0);
    b.append("a.log", numbered("L", 100, 50));
    b.pass(4s);
    copy_over(b, "a.log", "a.log.1");
    b.files.shrink(b.at("a.log"), 0);
    b.pass(100s);
    EXPECT_EQ(sorted(b.far().lines), sorted(lines_of("a", numbered("L", 0, 150))));
    EXPECT_EQ(b.puller().source.counters().dropped_bytes, 0u);
    EXPECT_EQ(b.agent->stats().dropped_bytes, 0u);
  }
}

TEST(AgentCopy, a_copy_over_a_copy_is_known_after_a_restart_and_its_unread_tail_delivered) {
  for (bool killed : {false, true}) {
    Tailing b;
    b.append("a.log", numbered("L", 0, 300));
    b.start();
    b.pass(2s);
    copy_over(b, "a.log", "a.log.1");
    b.files.shrink(b.at("a.log"), 0);
    b.append("a.log", numbered("L", 300, 400));
    b.pass(2s);
    if (killed) b.kill();
    if (!killed) b.stop();
    b.append("a.log", numbered("L", 700, 10));
    copy_over(b, "a.log", "a.log.1");
    b.files.shrink(b.at("a.log"), 0);
    b.append("a.log", numbered("L", 710, 500));
    b.start();
    b.pass(100s);
    EXPECT_EQ(sorted(b.far().lines), sorted(lines_of("a", numbered("L", 0, 1210)))) << killed;
    EXPECT_EQ(b.puller().source.counters().dropped_bytes, 0u);
  }
}

TEST(AgentCopy, what_was_in_flight_when_it_was_copied_and_cut_away_while_down_is_asked_for_not_sent_again) {
  for (bool cut : {false, true}) {  // or copied long before it is cut, so that the copy is known
    Tailing b;
    b.append("a.log", numbered("L", 0, 2000));
    b.start();
    b.puller().pull(4096);
    b.puller().ack();
    b.pass(1s, false);
    if (!cut) {
      b.puller().run();
      copy_over(b, "a.log", "a.log.1");
      b.pass(10s, false);
      b.kill();
    } else {
      b.puller().pull(4096);
      b.puller().deliver();
      b.pass(1s, false);
      b.kill();
      copy_over(b, "a.log", "a.log.1");
    }
    b.files.shrink(b.at("a.log"), 0);
    b.append("a.log", "after\n");
    b.start();
    b.pass(10s);
    auto want = lines_of("a", numbered("L", 0, 2000));
    want.push_back("a|after");
    EXPECT_EQ(sorted(b.far().lines), sorted(want)) << cut;
    auto c = b.puller().source.counters();
    EXPECT_EQ(c.dropped_bytes, 0u);
    EXPECT_EQ(c.maybe_duplicate, 0u);
    EXPECT_EQ(c.delivered, 2001u);
  }
}

TEST(AgentCopy, an_empty_file_with_a_rotations_name_is_no_copy_yet) {
  for (bool tail : {false, true}) {
    AgentBench b;
    b.options.tail = tail;
    b.options.rotate_age = 1h;
    b.append("a.log", numbered("L", 0, 100));
    b.start();
    b.pass(2s);
    b.append("a.log.1", "");
    b.pass(10s);
    for (size_t size : {1u, 700u, 800u}) {  // written by a copier that is stopped again and again
      b.append("a.log.1", b.files.content(b.at("a.log")).substr(b.files.content(b.at("a.log.1")).size(), size));
      b.pass(10s);
    }
    b.files.shrink(b.at("a.log"), 0);
    b.append("a.log", "after\n");
    b.pass(10s);
    auto want = lines_of("a", numbered("L", 0, 100));
    want.push_back("a|after");
    EXPECT_EQ(b.far().lines, want) << tail;
  }
}

TEST(AgentCopy, a_chain_of_copies_is_delivered_once) {
  Tailing b;
  std::string all;
  b.start();
  for (int turn = 0; turn < 5; ++turn) {
    const std::string lines = numbered("L", turn * 100, 100 - turn);
    all += lines;
    b.append("a.log", lines);
    b.pass(turn % 2 ? 2s : 100ms);
    if (b.files.exists(b.at("a.log.1"))) copy_over(b, "a.log.1", "a.log.2");
    if (turn % 3 == 1) b.pass(5s);
    copy_over(b, "a.log", "a.log.1");
    b.files.shrink(b.at("a.log"), 0);
    b.pass(100ms);
  }
  b.pass(100s);
  EXPECT_EQ(sorted(b.far().lines), sorted(lines_of("a", all)));
}

TEST(AgentCopy, a_chain_of_copies_that_is_seen_when_it_is_over_is_delivered_once) {
  Tailing b;
  std::string all;
  b.start();
  for (int turn = 0; turn < 6; ++turn) {  // each as long as it likes
    const std::string lines = numbered("L", turn * 1000, turn % 2 ? 700 : 2);
    all += lines;
    b.append("a.log", lines);
    b.pass(1s);
    for (int n = turn; n > 0; --n)
      if (b.files.exists(b.at("a.log." + std::to_string(n))))
        copy_over(b, "a.log." + std::to_string(n), "a.log." + std::to_string(n + 1));
    copy_over(b, "a.log", "a.log.1");
    b.files.shrink(b.at("a.log"), 0);
    b.pass(turn % 3 ? 5s : 100ms);
    ASSERT_EQ(sorted(b.far().lines), sorted(lines_of("a", all))) << turn;
  }
}

TEST(AgentCopy, bytes_that_were_delivered_are_not_dropped_when_their_file_is_written_anew_unseen) {
  for (size_t unread : {0u, 10u}) {
    Tailing b;
    b.append("a.log", numbered("L", 0, 100));
    b.start();
    b.pass(2s);
    b.append("a.log", numbered("U", 0, static_cast<int>(unread)));
    if (unread) b.notice();
    b.files.shrink(b.at("a.log"), 0);
    b.append("a.log", numbered("N", 0, 500));  // longer, before anybody looks
    b.notice();
    b.pass(2s);
    EXPECT_EQ(b.far().lines.size(), 600u);
    EXPECT_EQ(b.puller().source.counters().dropped_bytes, 0u);
    EXPECT_EQ(b.agent->stats().dropped_bytes, 0u);
  }
}

TEST(AgentCopy, unread_bytes_of_a_backlog_are_dropped_to_the_byte) {
  Tailing b;
  b.append("a.log", numbered("L", 0, 1000));
  b.start();
  ASSERT_TRUE(b.puller().pull(4096));
  const uint64_t handed = b.puller().window.front().last;
  b.append("a.log", numbered("L", 1000, 100));
  b.notice();
  b.files.shrink(b.at("a.log"), 0);
  b.append("a.log", numbered("N", 0, 5000));
  b.pass(2s);
  EXPECT_EQ(b.puller().source.counters().dropped_bytes, 1100 * 8 - handed);
  EXPECT_EQ(b.agent->stats().dropped_bytes, 1100 * 8 - handed);
}

TEST(AgentCopy, a_file_with_two_names_keeps_its_own) {
  Tailing b;
  b.append("a.log", numbered("L", 0, 10));
  b.start();
  b.pass(1s);
  b.files.link(b.at("a.log"), b.at("a.log.1"));
  b.append("a.log", numbered("L", 10, 10));
  b.pass(100s);
  b.restart();
  b.pass(100s);
  EXPECT_EQ(b.far().lines, lines_of("a", numbered("L", 0, 20)));
  EXPECT_EQ(b.agent->stats().renamed, 0u);
  b.files.unlink(b.at("a.log")).value();
  b.append("a.log", numbered("L", 20, 10));
  b.pass(100s);
  EXPECT_EQ(b.far().lines, lines_of("a", numbered("L", 0, 30)));
}

/// A program that rotates as it likes, and one that writes lines in between.
class Rotator {
 public:
  Rotator(AgentBench& b, Random& random) : b_(b), random_(random), way_(random.below(5)) {}

  void write() {
    if (step_ > 0) return;
    const int count = 1 + static_cast<int>(random_.below(random_.chance(0.1) ? 600 : 20));
    b_.append("a.log", numbered("L", written, count));
    written += count;
  }
  /// One step of a rotation; `settled`: all that was written is at its receivers.
  void rotate(bool settled) {
    if (step_ == 0) {
      if (!b_.files.exists(b_.at("a.log")) || b_.files.content(b_.at("a.log")).empty()) return;
      if (over() && !settled) return;  // else the rotator takes lines away that nobody could have read
      begin();
    }
    const std::string bytes = b_.files.content(b_.at("a.log"));
    const size_t have = b_.files.content(b_.at(to_)).size();
    if (++step_ < 4 && have < bytes.size()) {
      b_.append(to_, bytes.substr(have, step_ == 3 ? bytes.npos : random_.below(bytes.size() - have + 1)));
      return;
    }
    if (have < bytes.size()) b_.append(to_, bytes.substr(have));
    if (to_.front() == '.') b_.files.rename(b_.at(to_), b_.at("a.log.1")).value();
    b_.files.shrink(b_.at("a.log"), 0);
    step_ = 0;
    ++turns;
  }
  int written = 0;
  int turns = 0;

 private:
  bool over() const { return way_ == 0 || way_ == 1 || way_ == 4; }
  void begin() {
    step_ = 1;
    to_ = "a.log.1";
    switch (way_) {
      case 0:  // cp over the old copy
        if (b_.files.exists(b_.at(to_))) b_.files.shrink(b_.at(to_), 0);
        break;
      case 1:  // install: the old copy goes, another comes
        if (b_.files.exists(b_.at(to_))) b_.files.unlink(b_.at(to_)).value();
        break;
      case 2:  // logrotate copytruncate: older ones are renamed up
        for (int n = 50; n > 0; --n)
          if (const std::string from = b_.at("a.log." + std::to_string(n)); b_.files.exists(from))
            b_.files.rename(from, b_.at("a.log." + std::to_string(n + 1))).value();
        break;
      case 3:  // dateext
        to_ = "a.log-20240131-" + std::to_string(1'700'000'000 + turns);
        break;
      default:  // rsync: a dotfile that is renamed over the old copy
        to_ = ".a.log.1.tmp";
    }
    if (!b_.files.exists(b_.at(to_))) b_.append(to_, "");
  }

  AgentBench& b_;
  Random& random_;
  uint64_t way_;
  int step_ = 0;
  std::string to_;
};

void run(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  AgentBench b(seed);
  Random random(seed);
  b.options.tail = true;
  b.options.routes = {{"all", {{"one", false}, {"two", random.chance(0.5)}}}};
  b.options.descriptors_max = 1 + random.below(4);
  b.far_at_once = true;
  Rotator rotator(b, random);
  b.start();
  for (int i = 0; i < 300; ++i) {
    bool settled = true;
    for (auto& puller : b.pullers) {
      auto c = puller->source.counters();
      settled &= c.queued == 0 && c.unread_bytes == 0 && c.delivered == static_cast<uint64_t>(rotator.written);
    }
    if (random.chance(0.5))
      rotator.write();
    else
      rotator.rotate(settled);
    if (random.chance(0.05)) {
      b.restart();
    } else if (random.chance(0.02)) {
      b.stop();
      b.start();
    }
    if (random.chance(0.2)) continue;  // nobody looks
    for (auto& puller : b.pullers) {
      if (random.chance(0.5)) puller->pull(4096 + random.below(20'000));
      if (random.chance(0.3)) puller->deliver();
      while (!puller->window.empty() && random.chance(0.6) && puller->ack()) {
      }
    }
    if (random.chance(0.6)) b.notice();
    b.loop.advance(Duration(random.below(400'000'000)));
    if (random.chance(0.1)) b.pass(random.chance(0.3) ? 5s : 500ms);
    if (testing::Test::HasFailure()) return;
  }
  b.pass(100s);
  const auto want = sorted(lines_of("a", numbered("L", 0, rotator.written)));
  for (const char* target : {"all/one", "all/two"}) {
    ASSERT_EQ(sorted(b.far(target).lines), want) << target << " after " << rotator.turns << " rotations";
    auto c = b.pullers[target == std::string("all/two")]->source.counters();
    EXPECT_EQ(c.delivered, want.size()) << target;
    EXPECT_EQ(c.dropped_bytes, 0u) << target;
    EXPECT_EQ(c.maybe_duplicate, 0u) << target;
  }
}

TEST(AgentCopy, every_line_once_however_and_whenever_it_is_rotated_by_copying) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    run(seed);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace ph::agent
