#include "store/spool/waiting_ages.h"

#include <gtest/gtest.h>

namespace ph::spool {
namespace {

constexpr Duration kKeep = 32s;
const Instant kStart{1000s};

TEST(WaitingAges, what_waited_for_keep_is_told_once_and_what_came_later_is_not) {
  WaitingAges ages(kKeep);
  EXPECT_FALSE(ages.due(1));
  EXPECT_TRUE(ages.note(10, kStart));
  EXPECT_FALSE(ages.note(11, kStart + 500ms)) << "a mark every keep / 32";
  EXPECT_TRUE(ages.note(20, kStart + 1s));
  EXPECT_FALSE(ages.note(20, kStart + 9s)) << "nothing came";
  EXPECT_FALSE(ages.expired(kStart + 31s));
  EXPECT_EQ(ages.expired(kStart + 32s), 10u);
  EXPECT_FALSE(ages.expired(kStart + 32s));
  EXPECT_EQ(ages.expired(kStart + 40s), 20u);
}

TEST(WaitingAges, it_says_when_to_be_asked_again) {
  WaitingAges ages(kKeep);
  ages.note(10, kStart);
  EXPECT_EQ(ages.due(10), kStart + kKeep);
  EXPECT_EQ(ages.due(11), kStart + 1s) << "a mark for what came behind the last one";
  ages.note(11, kStart + 1s);
  ages.settled(10);
  EXPECT_EQ(ages.due(11), kStart + 1s + kKeep);
}

TEST(WaitingAges, ages_survive_a_restart_on_another_clock) {
  WaitingAges ages(kKeep);
  ages.note(10, kStart);
  ages.note(20, kStart + 5s);
  const std::string stored = ages.encode(kStart + 12s);
  WaitingAges again(kKeep);
  const Instant boot{3s};  // before which this clock had not begun
  ASSERT_TRUE(again.decode(stored, boot));
  EXPECT_FALSE(again.expired(boot + 19s));
  EXPECT_EQ(again.expired(boot + 20s), 10u);
  EXPECT_EQ(again.expired(boot + 25s), 20u);
}

TEST(WaitingAges, a_shorter_keep_after_a_restart_counts_at_once) {
  WaitingAges ages(kKeep);
  ages.note(10, kStart);
  const std::string stored = ages.encode(kStart + 12s);
  WaitingAges again(10s);
  ASSERT_TRUE(again.decode(stored, kStart));
  EXPECT_EQ(again.expired(kStart), 10u);
}

TEST(WaitingAges, the_number_of_marks_is_bounded) {
  WaitingAges ages(kKeep);
  for (int s = 0; s < 10'000; ++s) {
    ages.note(static_cast<uint64_t>(s) + 1, kStart + s * 100ms);
    ages.expired(kStart + s * 100ms);
  }
  EXPECT_LT(ages.encode(kStart + 1000s).size(), 34u * 8);
}

TEST(WaitingAges, damage_and_newer_versions_are_refused_whole) {
  WaitingAges ages(kKeep);
  ages.note(10, kStart);
  ages.note(300, kStart + 5s);
  const std::string stored = ages.encode(kStart + 12s);
  for (size_t n = 0; n < stored.size(); ++n) {
    WaitingAges again(kKeep);
    EXPECT_FALSE(again.decode(ByteView(stored).substr(0, n), kStart)) << n;
    EXPECT_FALSE(again.due(1));
  }
  std::string newer = stored;
  newer[0] = 2;
  EXPECT_FALSE(WaitingAges(kKeep).decode(newer, kStart));
  EXPECT_FALSE(WaitingAges(kKeep).decode(stored + "x", kStart));
}

}  // namespace
}  // namespace ph::spool
