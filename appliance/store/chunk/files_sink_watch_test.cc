// Retention and quotas of the files sink.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/chunk/sink_fixture.h"

namespace ph::chunk {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::ElementsAre;

class Watched : public testing::Test {
 protected:
  void use(CategoryOptions category) {
    f.options.categories = {std::move(category)};
    f.restart();
  }
  /// A closed chunk of that many bytes; the files' clock is the wall's.
  void write_chunk(const std::string& category, size_t bytes) {
    stamp();
    ASSERT_EQ(f.write(category, std::string(bytes - 1, 'x') + "\n"), "ok");
    f.advance(5s);
  }
  void stamp() {
    f.files.clock_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(f.loop->wall_now().time_since_epoch()).count();
  }
  /// Long enough for a round of looks, and what follows it.
  void look() {
    for (int i = 0; i < 15; ++i) f.advance(1s);
  }
  std::vector<int> closed(const std::string& category) {
    std::vector<int> out;
    for (int n = 1; n < 100; ++n)
      if (f.files.exists("/srv/events/" + category + "/" +
                         to_file_name(category, {20260713, static_cast<uint32_t>(n)})) &&
          to_file_name(category, {20260713, static_cast<uint32_t>(n)}) < f.link(category))
        out.push_back(n);
    return out;
  }
  SinkFixture f;
};

TEST_F(Watched, old_chunks_go_and_the_open_one_stays) {
  use({.retention = {.keep = hours(1)}});
  write_chunk("c", 100);
  f.advance(minutes(30));
  write_chunk("c", 50);
  stamp();
  f.write("c", "open\n");
  look();
  EXPECT_THAT(closed("c"), ElementsAre(1, 2, 3)) << "the waiting chunk was closed by its interval";
  f.advance(minutes(30));
  look();
  EXPECT_THAT(closed("c"), ElementsAre(2, 3));
  EXPECT_EQ(f.sink->stats().expired, (Removed{1, 100}));
  f.advance(hours(10));
  look();
  EXPECT_THAT(closed("c"), ElementsAre());
  EXPECT_TRUE(f.files.exists("/srv/events/c/" + f.link("c"))) << "the one that the link names";
  EXPECT_EQ(f.sink->stats().expired, (Removed{3, 155}));
  EXPECT_EQ(f.sink->stats().over_max, Removed{});
  stamp();
  f.write("c", "more\n");  // counted in the store with the next group at the latest
  f.restart();
  EXPECT_EQ(f.sink->stats().expired, (Removed{3, 155}));
}

TEST_F(Watched, a_clock_that_jumps_ahead_removes_nothing) {
  use({.retention = {.keep = hours(1)}});
  write_chunk("c", 100);
  look();
  f.wall(1'783'936'800'000 + 10ll * 365 * 86'400'000);
  look();
  EXPECT_THAT(closed("c"), ElementsAre(1));
  f.advance(hours(1));
  look();
  EXPECT_THAT(closed("c"), ElementsAre()) << "an hour is an hour by any clock";
}

TEST_F(Watched, the_oldest_go_when_a_category_has_too_much) {
  use({.retention = {.max = 250}});
  for (int i = 0; i < 4; ++i) write_chunk("c", 100);
  write_chunk("d", 200);
  look();
  EXPECT_THAT(closed("c"), ElementsAre(3, 4));
  EXPECT_THAT(closed("d"), ElementsAre(1)) << "each category by itself";
  EXPECT_EQ(f.sink->stats().over_max, (Removed{2, 200}));
}

TEST_F(Watched, the_oldest_of_all_categories_go_when_there_is_too_much) {
  f.options.max = 350;
  f.restart();
  write_chunk("a", 100);
  write_chunk("b", 100);
  write_chunk("a", 100);
  write_chunk("b", 100);
  write_chunk("b", 100);
  look();
  EXPECT_THAT(closed("a"), ElementsAre(2));
  EXPECT_THAT(closed("b"), ElementsAre(2, 3));
  EXPECT_EQ(f.sink->stats().over_max, (Removed{2, 200}));
}

TEST_F(Watched, much_is_removed_in_steps_oldest_first) {
  f.options.max = 1000;
  f.restart();
  for (int i = 0; i < 60; ++i) write_chunk("a", 100);
  write_chunk("b", 100);
  for (int i = 0; i < 5; ++i) look();
  EXPECT_THAT(closed("a"), ElementsAre(52, 53, 54, 55, 56, 57, 58, 59, 60));
  EXPECT_THAT(closed("b"), ElementsAre(1));
}

TEST_F(Watched, nothing_is_removed_without_a_rule) {
  for (int i = 0; i < 5; ++i) write_chunk("c", 100);
  f.advance(hours(1000));
  look();
  EXPECT_EQ(closed("c").size(), 5u);
  EXPECT_EQ(f.sink->stats().stored_bytes, 0u) << "nobody looks";
  EXPECT_FALSE(f.loop->has_timers());
}

TEST_F(Watched, a_category_over_its_quota_waits_until_its_consumer_came) {
  use({.masks = {"c"}, .quota = 150});
  write_chunk("c", 100);
  EXPECT_EQ(f.sink->obstacle("c"), "");
  write_chunk("c", 100);
  EXPECT_EQ(f.sink->obstacle("c"), "the category's quota is used up");
  EXPECT_EQ(f.sink->obstacle("d"), "");
  EXPECT_EQ(f.sink->refuses("c"), "");
  look();
  EXPECT_EQ(f.sink->obstacle("c"), "the category's quota is used up");
  ASSERT_EQ(f.sink->obstacles().size(), 1u);
  EXPECT_EQ(f.sink->obstacles()[0].code, "quota_used_up");
  EXPECT_EQ(f.sink->obstacles()[0].path, "/srv/events/c");
  f.consume("c");
  for (int i = 0; i < 3; ++i) f.advance(1s);
  EXPECT_EQ(f.sink->obstacle("c"), "");
  EXPECT_TRUE(f.sink->obstacles().empty());
}

TEST_F(Watched, a_quota_counts_what_was_there_before_the_start) {
  write_chunk("c", 100);
  use({.mode = FileMode::chunks, .quota = 50});
  look();
  EXPECT_EQ(f.sink->obstacle("c"), "the category's quota is used up");
}

TEST_F(Watched, a_quota_of_all_files_counts_plain_logs_too) {
  f.options.categories = {{.masks = {"p*"}, .mode = FileMode::plain}};
  f.options.quota = 150;
  f.restart();
  write_chunk("c", 100);
  write_chunk("p", 100);
  look();
  for (const char* category : {"c", "p", "fresh"})
    EXPECT_EQ(f.sink->obstacle(category), "the quota of all received files is used up");
  EXPECT_EQ(f.sink->obstacles().size(), 1u);
  f.consume("c");
  look();
  EXPECT_EQ(f.sink->obstacle("c"), "");
}

TEST_F(Watched, what_is_over_a_quota_is_refused_and_counted_where_that_is_asked_for) {
  f.options.over_quota = OverQuota::refuse;
  use({.masks = {"c"}, .quota = 50});
  write_chunk("c", 100);
  look();
  EXPECT_EQ(f.sink->obstacle("c"), "");
  EXPECT_EQ(f.sink->refuses("c"), "the category's quota is used up");
  EXPECT_EQ(f.sink->refuses("d"), "");
  EXPECT_EQ(f.sink->stats().over_quota, 1u);
  EXPECT_EQ(f.sink->stats().rejected, 1u);
  f.consume("c");
  look();
  EXPECT_EQ(f.sink->refuses("c"), "");
  f.write("d", "x\n");
  f.write("d", "x\n");
  f.restart();
  EXPECT_EQ(f.sink->stats().over_quota, 1u);
}

TEST_F(Watched, looks_go_on_while_every_group_fails) {
  use({.retention = {.max = 100}});
  for (int i = 0; i < 4; ++i) write_chunk("c", 100);
  look();
  for (int i = 0; i < 4; ++i) write_chunk("c", 100);
  f.files.capacity = f.files.used();
  for (int i = 0; i < 40; ++i) {
    f.write("d", "does not fit\n");
    f.advance(1s);
  }
  EXPECT_LE(closed("c").size(), 2u);
}

}  // namespace
}  // namespace ph::chunk
