#include <gtest/gtest.h>

#include "core/security/flapping.h"
#include "core/security/rate.h"

namespace ph::security {
namespace {

constexpr Instant kStart{std::chrono::hours(1)};

TEST(RateBucket, keeps_the_rate_over_time_whatever_the_bites) {
  for (uint64_t bite : {1U, 7U, 100U, 5000U}) {
    RateBucket bucket;
    Instant now = kStart;
    uint64_t passed = 0;
    while (now < kStart + 100s) {
      passed += bite;
      now += bucket.take(bite, 100, now);
      now += 1ms;
    }
    EXPECT_LE(passed, 100 * 101 + bite) << bite;
    EXPECT_GE(passed, 100 * 90U) << bite;
  }
}

TEST(RateBucket, lets_a_second_come_at_once_and_forgives_what_is_too_much) {
  RateBucket bucket;
  EXPECT_EQ(bucket.take(100, 100, kStart), 0s);
  EXPECT_EQ(bucket.take(50, 100, kStart), 500ms);
  EXPECT_LE(bucket.take(UINT64_MAX, 1, kStart), RateBucket::kDebtMax);
  RateBucket unlimited;
  EXPECT_EQ(unlimited.take(UINT64_MAX, 0, kStart), 0s);
}

TEST(SharedRateBucket, refuses_beyond_the_rate_and_goes_on_later) {
  SharedRateBucket bucket;
  int taken = 0;
  for (int i = 0; i < 100; ++i) taken += bucket.try_take(10, kStart);
  EXPECT_EQ(taken, 10);
  EXPECT_FALSE(bucket.try_take(10, kStart + 50ms));
  EXPECT_TRUE(bucket.try_take(10, kStart + 100ms));
  EXPECT_TRUE(bucket.try_take(0, kStart));
  EXPECT_GT(bucket.take(20, 10, kStart), 1s);
}

TEST(Flapping, reports_who_comes_and_goes_too_often) {
  Flapping flapping;
  const FlappingLimits limits{true, 3, 10s};
  EXPECT_FALSE(flapping.ended("a", limits, kStart));
  EXPECT_FALSE(flapping.ended("b", limits, kStart));
  EXPECT_FALSE(flapping.ended("a", limits, kStart + 1s));
  EXPECT_TRUE(flapping.ended("a", limits, kStart + 2s));
  EXPECT_FALSE(flapping.ended("a", limits, kStart + 3s)) << "counted anew";
  EXPECT_FALSE(flapping.ended("b", limits, kStart + 9s));
  EXPECT_FALSE(flapping.ended("b", limits, kStart + 10s)) << "the window began anew";
  EXPECT_FALSE(flapping.ended("b", limits, kStart + 11s));
  flapping.sweep(limits, kStart + 60s);
  EXPECT_EQ(flapping.size(), 0U);
  EXPECT_FALSE(flapping.ended("c", {}, kStart));
  EXPECT_EQ(flapping.size(), 0U);
}

}  // namespace
}  // namespace ph::security
