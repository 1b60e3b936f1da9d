#include "core/link/receiver_memory.h"

#include <gtest/gtest.h>

#include <list>
#include <vector>

#include "base/random.h"

namespace ph::link {
namespace {

using Account = ReceiverMemory::Account;
constexpr uint64_t kKiB = 1024, kMiB = 1024 * 1024;

struct Memory {
  explicit Memory(uint64_t budget, size_t accounts) : memory(budget), all(accounts), eaten(accounts) {
    for (size_t i = 0; i < accounts; ++i) memory.open();
  }
  /// A whole frame of account i; it is admitted.
  bool frame(size_t i, uint64_t bytes) {
    EXPECT_TRUE(memory.admit(all[i], bytes));
    return memory.received(all[i], bytes, now);
  }
  void consume(size_t i, uint64_t bytes) {
    memory.consumed(bytes);
    eaten[i] += bytes;
  }
  std::optional<uint64_t> grant(size_t i) { return memory.grant(all[i], eaten[i]); }
  uint64_t left(size_t i) const { return all[i].granted() - all[i].received(); }

  ReceiverMemory memory;
  std::vector<Account> all;
  std::vector<uint64_t> eaten;
  Instant now{};
};

}  // namespace

TEST(ReceiverMemory, credit_is_absolute_and_counts_from_zero) {
  Memory m(64 * kMiB, 1);
  EXPECT_EQ(m.grant(0), 64 * kKiB);
  EXPECT_EQ(m.grant(0), std::nullopt) << "nothing changed";
  EXPECT_TRUE(m.frame(0, 10 * kKiB));
  EXPECT_EQ(m.grant(0), std::nullopt) << "it is still in memory";
  m.consume(0, 10 * kKiB);
  EXPECT_EQ(m.grant(0), 74 * kKiB);
  m.consume(0, 0);
  EXPECT_EQ(m.grant(0), std::nullopt);
}

TEST(ReceiverMemory, who_needs_more_gets_what_a_long_way_holds) {
  Memory m(64 * kMiB, 1000);
  for (size_t i = 0; i < 1000; ++i)
    EXPECT_EQ(m.grant(i), 64 * kMiB / 4 / 1000) << "a quarter of the budget for all of them";
  m.memory.needs(m.all[7], m.now);
  EXPECT_EQ(m.grant(7), 16 * kMiB);
  EXPECT_EQ(m.grant(8), std::nullopt);
}

TEST(ReceiverMemory, the_busy_ones_share_three_quarters) {
  Memory m(64 * kMiB, 1000);
  for (size_t i = 0; i < 1000; ++i) m.memory.needs(m.all[i], m.now);
  uint64_t sum = 0;
  for (size_t i = 0; i < 1000; ++i) sum += *m.grant(i);
  EXPECT_LE(sum, 48 * kMiB);
  EXPECT_GT(sum, 47 * kMiB);
}

TEST(ReceiverMemory, one_that_uses_up_its_credit_is_busy_without_saying_so) {
  Memory m(64 * kMiB, 10);
  m.grant(0);
  m.frame(0, 30 * kKiB);
  EXPECT_FALSE(m.all[0].busy());
  m.frame(0, 20 * kKiB);
  EXPECT_TRUE(m.all[0].busy());
}

TEST(ReceiverMemory, a_share_goes_back_after_two_seconds_without_use) {
  Memory m(64 * kMiB, 2);
  for (size_t i : {0u, 1u}) m.memory.needs(m.all[i], m.now), m.grant(i);
  m.now += 3s;
  // The first one goes on at a rate for which it needs its share, and never lacks credit.
  for (int frames = 0; frames < 40; ++frames) m.frame(0, 256 * kKiB), m.consume(0, 256 * kKiB), m.grant(0);
  EXPECT_FALSE(m.memory.look(m.all[0], m.now));
  EXPECT_TRUE(m.memory.look(m.all[1], m.now));
  EXPECT_FALSE(m.memory.look(m.all[1], m.now)) << "told once";
  EXPECT_EQ(m.memory.busy(), 1u);
}

TEST(ReceiverMemory, what_finds_no_room_is_let_in_in_turn) {
  Memory m(100, 4);
  EXPECT_TRUE(m.memory.admit(m.all[0], 80));
  EXPECT_FALSE(m.memory.admit(m.all[1], 30));
  EXPECT_FALSE(m.memory.admit(m.all[2], 10)) << "it would fit, and is behind one that does not";
  EXPECT_EQ(m.memory.let_in(), nullptr);
  m.memory.received(m.all[0], 80, m.now);
  m.memory.consumed(80);
  EXPECT_EQ(m.memory.let_in(), &m.all[1]);
  EXPECT_EQ(m.memory.let_in(), &m.all[2]);
  EXPECT_EQ(m.memory.let_in(), nullptr);
  EXPECT_EQ(m.memory.in_memory(), 40u);
  EXPECT_EQ(m.memory.waits(), 2u);
}

TEST(ReceiverMemory, a_frame_larger_than_all_of_it_is_let_in_alone) {
  Memory m(100, 2);
  EXPECT_TRUE(m.memory.admit(m.all[0], 20));
  EXPECT_FALSE(m.memory.admit(m.all[1], 5000));
  m.memory.finished(m.all[0]);
  EXPECT_EQ(m.memory.let_in(), &m.all[1]);
}

TEST(ReceiverMemory, who_is_gone_waits_for_nothing_and_holds_only_what_is_not_consumed) {
  Memory m(100, 3);
  EXPECT_TRUE(m.memory.admit(m.all[0], 60));
  m.memory.received(m.all[0], 60, m.now);
  EXPECT_TRUE(m.memory.admit(m.all[0], 40));
  EXPECT_FALSE(m.memory.admit(m.all[1], 30));
  EXPECT_FALSE(m.memory.admit(m.all[2], 10));
  m.memory.close(m.all[1]);
  m.memory.close(m.all[0]);
  EXPECT_EQ(m.memory.in_memory(), 60u) << "its group is still being written";
  EXPECT_EQ(m.memory.let_in(), &m.all[2]);
  m.memory.consumed(60);
  EXPECT_EQ(m.memory.in_memory(), 10u);
}

TEST(ReceiverMemory, a_frame_without_credit_is_told_of_and_one_that_goes_over_it_is_counted) {
  Memory m(64 * kMiB, 1);
  EXPECT_FALSE(m.frame(0, 1)) << "before any CREDIT";
  m.grant(0);
  EXPECT_TRUE(m.frame(0, 17 * kMiB)) << "it could not be cut";
  EXPECT_EQ(m.memory.over_credit(), 2u);
  EXPECT_FALSE(m.frame(0, 1));
}

/// Senders that take all they are given, of which some never say that they need it, over a receiver that consumes in
/// groups: the budget holds at every step, and nobody is left behind.
TEST(ReceiverMemory, many_greedy_senders_stay_within_it_and_all_get_on) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const size_t count = 2 + random.below(300);
    const uint64_t budget = (1 + random.below(8)) * kMiB;
    Memory m(budget, count);
    std::list<std::pair<size_t, uint64_t>> kept;
    std::vector<uint64_t> next(count), got(count);
    for (size_t i = 0; i < count; ++i) m.grant(i);
    auto whole = [&](size_t i) {
      ASSERT_TRUE(m.memory.received(m.all[i], next[i], m.now)) << "seed " << seed;
      got[i] += next[i];
      kept.emplace_back(i, std::exchange(next[i], 0));
    };
    for (int turn = 0; turn < 400; ++turn) {
      m.now += 10ms;
      for (size_t i = 0; i < count; ++i) {
        if (m.all[i].waiting()) continue;
        if (m.left(i) == 0 || m.left(i) > UINT64_MAX / 2) {
          if (i % 2 == 0) m.memory.needs(m.all[i], m.now);
          m.grant(i);
          continue;
        }
        next[i] = std::min<uint64_t>(m.left(i), 1 + random.below(256 * kKiB));
        if (m.memory.admit(m.all[i], next[i])) whole(i);
        ASSERT_LE(m.memory.in_memory(), budget) << "seed " << seed;
      }
      for (; !kept.empty(); kept.pop_front()) m.consume(kept.front().first, kept.front().second);
      while (Account* in = m.memory.let_in()) whole(static_cast<size_t>(in - m.all.data()));
      for (size_t i = 0; i < count; ++i) m.grant(i), m.memory.look(m.all[i], m.now);
    }
    for (size_t i = 0; i < count; ++i) EXPECT_GT(got[i], 400 * kKiB) << "seed " << seed << ", sender " << i;
    EXPECT_LE(m.memory.peak(), budget);
  }
}

}  // namespace ph::link
