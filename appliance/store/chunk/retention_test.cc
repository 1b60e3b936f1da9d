#include "store/chunk/retention.h"

#include <gtest/gtest.h>

namespace ph::chunk {
namespace {

using std::chrono::hours;

TEST(AgeClock, counts_from_the_last_write) {
  AgeClock clock;
  clock.tick(Instant{} + 5s, from_unix_ms(1'000'000));
  EXPECT_EQ(clock.age_of(999'000'000'000), 1s);
  EXPECT_EQ(clock.age_of(1'001'000'000'000), -1s);
  clock.tick(Instant{} + 15s, from_unix_ms(1'010'000));
  EXPECT_EQ(clock.age_of(999'000'000'000), 11s);
}

TEST(AgeClock, that_jumps_ahead_makes_nothing_old) {
  AgeClock clock;
  clock.tick(Instant{}, from_unix_ms(1'000'000));
  const int64_t jump_ms = 55ll * 365 * 24 * 3600 * 1000;
  clock.tick(Instant{} + 10s, from_unix_ms(1'010'000 + jump_ms));
  EXPECT_EQ(clock.age_of(1'000'000'000'000), 10s) << "written before the jump";
  EXPECT_EQ(clock.age_of((1'010'000 + jump_ms) * 1'000'000), 0s);
  clock.tick(Instant{} + 10s + hours(2), from_unix_ms(1'010'000 + jump_ms + 7'200'000));
  EXPECT_EQ(clock.age_of(1'000'000'000'000), hours(2) + 10s) << "and ages on";
  EXPECT_EQ(clock.age_of((1'010'000 + jump_ms) * 1'000'000), hours(2));
}

TEST(AgeClock, that_goes_back_keeps_what_it_wrote_longer) {
  AgeClock clock;
  clock.tick(Instant{}, from_unix_ms(1'000'000'000));
  clock.tick(Instant{} + 10s, from_unix_ms(900'000'000));
  EXPECT_LT(clock.age_of(1'000'000'000'000'000), 0s);
}

}  // namespace
}  // namespace ph::chunk
