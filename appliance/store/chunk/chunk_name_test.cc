#include "store/chunk/chunk_name.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "base/random.h"

namespace ph::chunk {
namespace {

TEST(ChunkName, is_written_as_consumers_sort_it) {
  EXPECT_EQ(to_file_name("clicks", {20260713, 1}), "clicks-2026-07-13_000001");
  EXPECT_EQ(to_file_name("a-b", {19700101, 999999}), "a-b-1970-01-01_999999");
}

TEST(ChunkName, reads_back_what_it_wrote_and_its_compressed_copies) {
  EXPECT_EQ(parse_file_name("clicks", "clicks-2026-07-13_000042"), (ChunkName{20260713, 42}));
  EXPECT_EQ(parse_file_name("clicks", "clicks-2026-07-13_000042.gz"), (ChunkName{20260713, 42}));
  EXPECT_EQ(parse_file_name("clicks", "clicks-2026-07-13_000042.zst"), (ChunkName{20260713, 42}));
}

TEST(ChunkName, is_not_read_from_other_files) {
  for (const char* other :
       {"clicks_current", "clicks-2026-07-13_00042", "clicks-2026-13-01_000001", "clicks-2026-07-13",
        "clicks-2026-02-30_000001", "other-2026-07-13_000001", "clicks-2026-07-13_000001.tmp",
        "clicks2026-07-13_000001", "", "clicks-2026-07-13_0000x1", "clicks-0000-00-00_000001"})
    EXPECT_FALSE(parse_file_name("clicks", other)) << other;
}

TEST(ChunkName, of_a_category_that_begins_like_another_is_told_apart) {
  EXPECT_FALSE(parse_file_name("a", "a-b-2026-07-13_000001"));
  EXPECT_EQ(parse_file_name("a-b", "a-b-2026-07-13_000001"), (ChunkName{20260713, 1}));
}

TEST(ChunkName, with_more_than_six_digits_counts_as_the_last_of_its_date) {
  EXPECT_EQ(parse_file_name("c", "c-2026-07-13_1000000"), (ChunkName{20260713, kCounterMax}));
  EXPECT_EQ(next_name({20260713, kCounterMax}, 20260713), (ChunkName{20260714, 1}));
}

TEST(ChunkName, next_restarts_on_a_new_date_and_never_goes_back) {
  EXPECT_EQ(next_name({}, 20260713), (ChunkName{20260713, 1}));
  EXPECT_EQ(next_name({20260713, 7}, 20260713), (ChunkName{20260713, 8}));
  EXPECT_EQ(next_name({20260713, 7}, 20260714), (ChunkName{20260714, 1}));
  EXPECT_EQ(next_name({20260713, 7}, 20260712), (ChunkName{20260713, 8}));
  EXPECT_EQ(next_name({20991231, 7}, 20260712), (ChunkName{20991231, 8}));
  EXPECT_EQ(next_name({20281231, kCounterMax}, 20281231), (ChunkName{20290101, 1}));
  EXPECT_EQ(next_name({20280228, kCounterMax}, 20280228), (ChunkName{20280229, 1}));
  EXPECT_FALSE(next_name({99991231, kCounterMax}, 99991231));
}

TEST(ChunkName, order_of_names_is_the_order_of_their_text) {
  const uint64_t seed = 77;
  SCOPED_TRACE(seed);
  Random random(seed);
  ChunkName name{};
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    // A clock that wanders by days, back and forth; now and then a counter near its end.
    auto day = std::chrono::sys_days(std::chrono::days(20000 + random.below(400)));
    if (random.chance(0.02)) name.counter = kCounterMax;
    ChunkName next = next_name(name, date_of(WallTime(day), true));
    std::string next_text = to_file_name("c", next);
    ASSERT_GT(next, name);
    if (!text.empty() && name.counter != kCounterMax) {
      ASSERT_GT(next_text, text);
    }
    ASSERT_EQ(parse_file_name("c", next_text), next);
    name = next;
    text = next_text;
  }
}

class Zone {
 public:
  explicit Zone(const char* name) {
    setenv("TZ", name, 1);
    tzset();
  }
  ~Zone() {
    unsetenv("TZ");
    tzset();
  }
};

TEST(ChunkName, date_is_local_also_around_daylight_saving) {
  Zone zone("CET-1CEST,M3.5.0,M10.5.0/3");
  auto at = [](int64_t seconds) { return date_of(from_unix_ms(seconds * 1000), false); };
  EXPECT_EQ(at(1774738799), 20260328u);  // 2026-03-28T22:59:59Z: 23:59:59 CET
  EXPECT_EQ(at(1774738800), 20260329u);  // 2026-03-28T23:00:00Z: midnight CET
  EXPECT_EQ(at(1774821599), 20260329u);  // 2026-03-29T21:59:59Z: 23:59:59 CEST, a day of 23 hours
  EXPECT_EQ(at(1774821600), 20260330u);
  EXPECT_EQ(date_of(from_unix_ms(1774821600'000), true), 20260329u);
}

TEST(ChunkName, date_is_clamped_to_what_four_digits_hold) {
  EXPECT_EQ(date_of(from_unix_ms(-1), true), 19700101u);
  EXPECT_EQ(date_of(from_unix_ms(253402300800'000), true), 99991231u);
}

}  // namespace
}  // namespace ph::chunk
