#include "service/admin/drain.h"

#include <gtest/gtest.h>

namespace ph::admin {
namespace {

const Instant kStart{100s};

TEST(Drain, a_steady_queue_is_empty_when_it_says_so) {
  Drain drain;
  EXPECT_FALSE(drain.seconds());
  for (int s = 0; s <= 10; ++s) drain.note(1000 - 20 * static_cast<uint64_t>(s), kStart + s * 1s);
  ASSERT_TRUE(drain.seconds());
  EXPECT_NEAR(*drain.seconds(), 40, 0.001);
}

TEST(Drain, what_grows_or_stands_still_has_no_estimate) {
  Drain grows, stands;
  for (int s = 0; s <= 10; ++s) {
    grows.note(1000 + 20 * static_cast<uint64_t>(s), kStart + s * 1s);
    stands.note(1000, kStart + s * 1s);
  }
  EXPECT_FALSE(grows.seconds());
  EXPECT_FALSE(stands.seconds());
}

TEST(Drain, it_follows_a_change_of_pace) {
  Drain drain;
  uint64_t left = 1'000'000;
  int s = 0;
  for (; s <= 60; ++s) drain.note(left += 100, kStart + s * 1s);
  EXPECT_FALSE(drain.seconds());
  for (; s <= 180; ++s) drain.note(left -= 1000, kStart + s * 1s);
  ASSERT_TRUE(drain.seconds());
  EXPECT_NEAR(*drain.seconds(), static_cast<double>(left) / 1000, static_cast<double>(left) / 1000 * 0.02);
}

TEST(Drain, an_empty_queue_takes_no_time_and_a_new_one_is_not_judged_by_the_last) {
  Drain drain;
  drain.note(1000, kStart);
  drain.note(0, kStart + 1s);
  EXPECT_EQ(drain.seconds(), 0.0);
  drain.note(0, kStart + 2s);
  drain.note(5000, kStart + 3s);
  EXPECT_FALSE(drain.seconds());
}

}  // namespace
}  // namespace ph::admin
