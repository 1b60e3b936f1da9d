#include "store/chunk/files_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/coding.h"
#include "store/chunk/category_entry.h"
#include "store/chunk/disk_files.h"
#include "store/chunk/sink_fixture.h"

namespace ph::chunk {
namespace {

using test::FileOp;

constexpr int64_t kDay = 86'400'000;
constexpr int64_t kNoon = 1'783'936'800'000;  // 2026-07-13 10:00:00 UTC

std::function<std::optional<Error>(FileOp, const std::string&)> failing(FileOp op, ErrorCode code, std::string path) {
  return [=](FileOp o, const std::string& p) -> std::optional<Error> {
    if (o == op && p.find(path) != std::string::npos) return Error{code, p};
    return std::nullopt;
  };
}

TEST(FilesSink, first_line_makes_directory_chunk_and_link) {
  SinkFixture f;
  EXPECT_EQ(f.write("clicks", "one\ntwo\n"), "ok");
  EXPECT_EQ(f.listing("clicks"),
            "clicks-2026-07-13_000001 8\n"
            "clicks_current -> clicks-2026-07-13_000001");
  EXPECT_EQ(f.file("clicks", "clicks-2026-07-13_000001"), "one\ntwo\n");
  EXPECT_EQ(f.write("clicks", "three\n"), "ok");
  EXPECT_EQ(f.file("clicks", "clicks-2026-07-13_000001"), "one\ntwo\nthree\n");
}

TEST(FilesSink, interval_closes_a_chunk_without_waiting_for_more_lines) {
  SinkFixture f;
  f.write("clicks", "one\n");
  f.advance(4900ms);
  EXPECT_EQ(f.link("clicks"), "clicks-2026-07-13_000001");
  f.advance(200ms);
  EXPECT_EQ(f.listing("clicks"),
            "clicks-2026-07-13_000001 4\n"
            "clicks-2026-07-13_000002 0\n"
            "clicks_current -> clicks-2026-07-13_000002");
  EXPECT_EQ(f.consume("clicks"), "one\n");
  f.advance(std::chrono::hours(1));  // empty: no rotation
  EXPECT_EQ(f.listing("clicks"),
            "clicks-2026-07-13_000002 0\n"
            "clicks_current -> clicks-2026-07-13_000002");
  f.write("clicks", "two\n");
  EXPECT_EQ(f.listing("clicks"),
            "clicks-2026-07-13_000002 4\n"
            "clicks_current -> clicks-2026-07-13_000002");
}

TEST(FilesSink, interval_counts_from_the_first_line_of_a_chunk) {
  SinkFixture f;
  for (int i = 0; i < 12; ++i) {
    f.write("clicks", "x\n");
    f.advance(1s);
  }
  EXPECT_EQ(f.listing("clicks"),
            "clicks-2026-07-13_000001 10\n"
            "clicks-2026-07-13_000002 10\n"
            "clicks-2026-07-13_000003 4\n"
            "clicks_current -> clicks-2026-07-13_000003");
}

TEST(FilesSink, size_closes_a_chunk_within_one_group_and_never_within_a_block) {
  SinkFixture f;
  f.options.categories = {{.masks = {"c*"}, .chunk_max = 10}};
  f.restart();
  f.write({lines_block("clicks", "12345\n"), lines_block("clicks", "67890\n"), lines_block("clicks", "abcdefghijk\n"),
           lines_block("clicks", "z\n")});
  EXPECT_EQ(f.listing("clicks"),
            "clicks-2026-07-13_000001 12\n"
            "clicks-2026-07-13_000002 12\n"
            "clicks-2026-07-13_000003 2\n"
            "clicks_current -> clicks-2026-07-13_000003");
  EXPECT_EQ(f.consume("clicks"), "12345\n67890\nabcdefghijk\n");
}

TEST(FilesSink, link_never_passes_lines_that_are_not_committed) {
  SinkFixture f;
  f.options.categories = {{.masks = {}, .chunk_max = 10}};
  f.restart();
  f.write("c", "0123456789\n");
  f.store.before_write = [&] {
    // While the store is being written, two more chunks exist; the link stays below them.
    EXPECT_EQ(f.link("c"), "c-2026-07-13_000001");
  };
  f.write({lines_block("c", "abcdefghij\n"), lines_block("c", "k\n")});
  f.store.before_write = nullptr;
  EXPECT_EQ(f.link("c"), "c-2026-07-13_000003");
}

class CompressedChunks : public testing::TestWithParam<Compression> {
 protected:
  CompressedChunks() {
    f.options.categories = {{.masks = {"c*"}, .chunk_max = 12, .compression = GetParam()}};
    f.restart();
  }
  std::string name(int counter) { return to_file_name("c", {20260713, static_cast<uint32_t>(counter)}, GetParam()); }
  SinkFixture f;
};

TEST_P(CompressedChunks, are_named_closed_and_read_as_what_they_hold) {
  f.write("c", "12345\n");
  EXPECT_EQ(f.link("c"), name(1));
  EXPECT_EQ(unpacked(GetParam(), f.file("c", name(1))), "12345\n");
  f.write("c", "67890\n");  // chunk_max is of lines, not of what they take
  EXPECT_EQ(unpacked(GetParam(), f.file("c", name(1))), "12345\n67890\n");
  f.write("c", "abc\n");
  EXPECT_EQ(f.link("c"), name(2));
  f.advance(6s);
  EXPECT_EQ(f.link("c"), name(3));
  EXPECT_EQ(f.consume("c"), "12345\n67890\nabc\n");
}

TEST_P(CompressedChunks, are_cut_to_whole_members_after_a_crash) {
  f.write("c", "12345\n");
  std::string committed = f.file("c", name(1));
  f.files.crash_at(1);  // in the write
  EXPECT_THROW(f.write("c", "67890\n"), test::SimulatedCrash);
  f.files.no_crash();
  f.restart();
  f.advance(6s);
  EXPECT_EQ(f.file("c", name(1)), committed);
  EXPECT_EQ(f.write("c", "67890\n"), "ok");
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "12345\n67890\n");
}

TEST_P(CompressedChunks, go_on_under_new_names_when_the_setting_changes) {
  f.write("c", "one\n");
  f.advance(6s);  // an empty one waits under the old suffix
  f.options.categories[0].compression = Compression::none;
  f.restart();
  f.write("c", "two\n");
  EXPECT_EQ(f.link("c"), "c-2026-07-13_000003");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000003"), "two\n");
  EXPECT_FALSE(f.files.exists("/srv/events/c/" + name(2))) << "consumers meet no empty chunk";
  f.options.categories[0].compression = GetParam();
  f.restart();
  f.write("c", "three\n");
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "one\ntwo\nthree\n");
}

INSTANTIATE_TEST_SUITE_P(Kinds, CompressedChunks, testing::Values(Compression::gzip, Compression::zstd));

TEST(FilesSink, first_mask_that_matches_wins_for_every_setting) {
  SinkFixture f;
  f.options.categories = {{.masks = {"logs_*", "errors"}, .mode = FileMode::plain, .compression = Compression::gzip},
                          {.masks = {"*_slow"}, .chunk_interval = 60s, .compression = Compression::zstd},
                          {.masks = {"small*", "logs_*"}, .chunk_max = 5},
                          {.masks = {"*"}, .chunk_interval = 1s}};
  f.restart();
  for (const char* category : {"logs_slow", "x_slow", "small_a", "other"})
    f.write({lines_block(category, "12345\n"), lines_block(category, "67890\n")});
  f.advance(2s);
  EXPECT_EQ(gunzipped(f.files.content("/srv/events/logs_slow.gz")), "12345\n67890\n");
  EXPECT_EQ(f.link("x_slow"), "x_slow-2026-07-13_000001.zst");
  EXPECT_EQ(f.file("small_a", "small_a-2026-07-13_000001"), "12345\n");
  EXPECT_EQ(f.link("small_a"), "small_a-2026-07-13_000002");
  EXPECT_EQ(f.link("other"), "other-2026-07-13_000002") << "the others' interval is longer";
}

TEST(FilesSink, new_date_restarts_the_counter) {
  SinkFixture f;
  f.write("c", "a\n");
  f.wall(kNoon + kDay);
  f.advance(6s);
  f.write("c", "b\n");
  EXPECT_EQ(f.listing("c"),
            "c-2026-07-13_000001 2\n"
            "c-2026-07-14_000001 2\n"
            "c_current -> c-2026-07-14_000001");
}

TEST(FilesSink, waiting_empty_chunk_of_an_old_date_is_never_left_behind) {
  SinkFixture f;
  f.write("c", "a\n");
  f.advance(6s);
  EXPECT_EQ(f.link("c"), "c-2026-07-13_000002");
  f.wall(kNoon + kDay);
  f.write("c", "b\n");
  EXPECT_EQ(f.listing("c"),
            "c-2026-07-13_000001 2\n"
            "c-2026-07-14_000001 2\n"
            "c_current -> c-2026-07-14_000001");
}

TEST(FilesSink, clock_that_steps_back_goes_on_counting) {
  SinkFixture f;
  f.write("c", "a\n");
  f.wall(kNoon - 40 * kDay);
  f.advance(6s);
  f.write("c", "b\n");
  f.advance(6s);
  f.write("c", "c\n");
  EXPECT_EQ(f.listing("c"),
            "c-2026-07-13_000001 2\n"
            "c-2026-07-13_000002 2\n"
            "c-2026-07-13_000003 2\n"
            "c_current -> c-2026-07-13_000003");
}

TEST(FilesSink, names_go_on_after_a_restart_with_an_earlier_clock_and_nothing_left) {
  SinkFixture f;
  f.write("c", "a\n");
  f.advance(6s);
  f.consume("c");
  f.files.unlink("/srv/events/c/" + f.link("c")).value();
  f.files.unlink("/srv/events/c/c_current").value();
  f.wall(kNoon - 40 * kDay);
  f.restart();  // the store alone knows
  f.write("c", "b\n");
  EXPECT_EQ(f.link("c"), "c-2026-07-13_000002");
  f.stop();
  f.store = {};
  ASSERT_TRUE(f.start());  // the directory alone knows
  f.write("c", "c\n");
  EXPECT_EQ(f.link("c"), "c-2026-07-13_000003");
}

TEST(FilesSink, the_counter_runs_over_into_the_next_date_and_that_date_comes_later) {
  SinkFixture f;
  f.files.append("/srv/events/c/c-2026-07-13_999998", "old\n");
  f.write("c", "last of its date\n");
  EXPECT_EQ(f.link("c"), "c-2026-07-13_999999");
  f.advance(6s);
  f.write("c", "first of the next\n");
  EXPECT_EQ(f.link("c"), "c-2026-07-14_000001");
  f.wall(kNoon + kDay);
  f.advance(6s);
  f.restart();
  f.write("c", "that date has come\n");
  EXPECT_EQ(f.link("c"), "c-2026-07-14_000003");
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "old\nlast of its date\nfirst of the next\nthat date has come\n");
}

TEST(FilesSink, when_no_name_is_left_lines_wait_and_nothing_is_overwritten) {
  SinkFixture f;
  f.files.append("/srv/events/c/c-9999-12-31_999999", "the end\n");
  EXPECT_EQ(f.write("c", "x\n"), "chunk.names_used_up");
  EXPECT_EQ(f.file("c", "c-9999-12-31_999999"), "the end\n");
  EXPECT_EQ(f.write("d", "x\n"), "ok");
}

TEST(FilesSink, chunk_dated_in_the_future_hides_nothing) {
  SinkFixture f;
  f.wall(kNoon + 3650 * kDay);
  f.write("c", "future\n");
  f.wall(kNoon);
  f.advance(6s);
  f.write("c", "now\n");
  f.restart();
  f.write("c", "later\n");
  f.advance(6s);
  EXPECT_EQ(f.listing("c"),
            "c-2036-07-10_000001 7\n"
            "c-2036-07-10_000002 4\n"
            "c-2036-07-10_000003 6\n"
            "c-2036-07-10_000004 0\n"
            "c_current -> c-2036-07-10_000004");
  EXPECT_EQ(f.consume("c"), "future\nnow\nlater\n");
}

TEST(FilesSink, dates_follow_daylight_saving_of_the_zone) {
  setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
  tzset();
  SinkFixture f;
  f.options.utc = false;
  f.restart();
  f.wall(1'774'735'199'000 + 3'600'000);  // 2026-03-28 23:59:59 CET
  f.write("c", "a\n");
  f.wall(1'774'821'599'000);  // 2026-03-29 23:59:59 CEST, 23 hours later
  f.advance(6s);
  f.write("c", "b\n");
  unsetenv("TZ");
  tzset();
  EXPECT_EQ(f.listing("c"),
            "c-2026-03-28_000001 2\n"
            "c-2026-03-30_000001 2\n"
            "c_current -> c-2026-03-30_000001");
}

TEST(FilesSink, honours_chunks_of_an_earlier_installation) {
  SinkFixture f;
  f.files.append("/srv/events/c/c-2026-07-13_000041", "old\n");
  f.files.append("/srv/events/c/c-2026-07-13_000042", "open\n");
  f.files.append("/srv/events/c/c-2026-07-12_000900.gz", "z");
  f.files.append("/srv/events/c/notes.txt", "?");
  f.files.replace_symlink("c-2026-07-13_000042", "/srv/events/c/c_current").value();
  f.write("c", "new\n");
  EXPECT_EQ(f.listing("c"),
            "c-2026-07-12_000900.gz 1\n"
            "c-2026-07-13_000041 4\n"
            "c-2026-07-13_000042 5\n"
            "c-2026-07-13_000043 4\n"
            "c_current -> c-2026-07-13_000043\n"
            "notes.txt 1");
}

TEST(FilesSink, honours_the_link_of_an_earlier_installation_whose_chunks_are_consumed) {
  SinkFixture f;
  f.files.make_directories("/srv/events/c").value();
  f.files.replace_symlink("/old/place/c-2027-01-01_000005", "/srv/events/c/c_current").value();
  f.write("c", "new\n");
  EXPECT_EQ(f.link("c"), "c-2027-01-01_000006");
}

TEST(FilesSink, consumer_may_delete_the_open_chunk) {
  SinkFixture f;
  f.write("c", "a\n");
  f.files.unlink("/srv/events/c/c-2026-07-13_000001").value();
  EXPECT_EQ(f.write("c", "b\n"), "ok");
  EXPECT_EQ(f.listing("c"),
            "c-2026-07-13_000002 2\n"
            "c_current -> c-2026-07-13_000002");
  EXPECT_EQ(f.sink->stats().vanished_chunks, 1u);
}

TEST(FilesSink, open_chunk_deleted_between_write_and_commit_costs_no_line) {
  SinkFixture f;
  f.write("c", "a\n");
  f.files.fault = [&](FileOp op, const std::string& path) -> std::optional<Error> {
    if (op == FileOp::sync && path.ends_with("_000001") && f.files.exists(path)) f.files.unlink(path).value();
    return std::nullopt;
  };
  EXPECT_EQ(f.write("c", "b\n"), "ok");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000002"), "b\n");
}

TEST(FilesSink, open_chunk_emptied_or_written_by_others_is_left_alone) {
  SinkFixture f;
  f.write("c", "a\n");
  f.files.append("/srv/events/c/c-2026-07-13_000001", "foreign\n");
  EXPECT_EQ(f.write("c", "b\n"), "ok");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000001"), "a\nforeign\n");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000002"), "b\n");
}

TEST(FilesSink, directory_removed_by_a_consumer_comes_back) {
  SinkFixture f;
  f.write("c", "a\n");
  f.files.unlink("/srv/events/c/c-2026-07-13_000001").value();
  f.files.unlink("/srv/events/c/c_current").value();
  f.files.remove_directory("/srv/events/c").value();
  EXPECT_EQ(f.write("c", "b\n"), "ok");
  EXPECT_EQ(f.listing("c"),
            "c-2026-07-13_000002 2\n"
            "c_current -> c-2026-07-13_000002");
}

TEST(FilesSink, refuses_names_that_would_leave_the_directory) {
  SinkFixture f;
  for (std::string bad : {std::string(".."), std::string("../evil"), std::string("a/b"), std::string(),
                          std::string(300, 'x'), std::string("a\nb"), std::string("a\0b", 3), std::string(".hidden")})
    EXPECT_FALSE(f.sink->refuses(bad).empty()) << bad;
  EXPECT_EQ(f.sink->stats().rejected, 8u);
  EXPECT_EQ(f.write("good", "x\n"), "ok");
  for (const std::string& path : f.files.paths())
    EXPECT_TRUE(path == "/" || path == "/srv" || path == "/data" || path.starts_with("/srv/events") ||
                path.starts_with("/data/files"))
        << path;
}

TEST(FilesSink, refuses_more_categories_than_allowed_but_keeps_those_it_has) {
  SinkFixture f;
  f.options.categories_max = 2;
  f.restart();
  EXPECT_EQ(f.write("a", "1\n"), "ok");
  EXPECT_EQ(f.write("b", "1\n"), "ok");
  EXPECT_EQ(f.write("c", "1\n"), "too many categories");
  f.restart();
  EXPECT_EQ(f.write("c", "1\n"), "too many categories");
  EXPECT_EQ(f.write("a", "2\n"), "ok");
}

TEST(FilesSink, something_else_in_a_categorys_place_is_an_obstacle_until_it_is_gone) {
  SinkFixture f;
  f.options.categories = {{.masks = {"p"}, .mode = FileMode::plain}};
  f.restart();
  f.files.append("/srv/events/c", "a file");
  f.files.make_directories("/srv/events/p").value();
  f.files.replace_symlink("/elsewhere", "/srv/events/link").value();
  for (std::string name : {"c", "p", "link"}) {
    EXPECT_EQ(f.sink->refuses(name), "") << "not for ever";
    EXPECT_NE(f.sink->obstacle(name), "") << name;
  }
  EXPECT_EQ(f.sink->stats().rejected, 0u);
  ASSERT_EQ(f.sink->obstacles().size(), 3u);
  EXPECT_EQ(f.sink->obstacles()[0].path, "/srv/events/c");
  EXPECT_EQ(f.write("other", "x\n"), "ok");
  f.files.unlink("/srv/events/c").value();
  f.files.remove_directory("/srv/events/p").value();
  EXPECT_EQ(f.sink->obstacle("c"), "");
  ASSERT_EQ(f.sink->obstacles().size(), 1u) << "also without being asked for one of them";
  EXPECT_EQ(f.sink->obstacles()[0].path, "/srv/events/link");
  EXPECT_EQ(f.write({lines_block("c", "1\n"), lines_block("p", "2\n")}), "ok");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000001"), "1\n");
  EXPECT_EQ(f.files.content("/srv/events/p"), "2\n");
}

TEST(FilesSink, plain_log_that_cannot_be_written_is_an_alarm_although_its_lines_are_durable) {
  SinkFixture f;
  f.options.categories = {{.masks = {"p"}, .mode = FileMode::plain}};
  f.restart();
  f.files.fault = [](FileOp, const std::string& p) -> std::optional<Error> {
    return p == "/srv/events/p" ? std::optional(Error{port::file_errors::denied, p}) : std::nullopt;
  };
  EXPECT_EQ(f.write("p", "1\n"), "ok") << "in the journal";
  EXPECT_THAT(f.sink->stats().alarm, testing::HasSubstr("/srv/events/p"));
  EXPECT_EQ(f.write("chunks", "x\n"), "ok");
  EXPECT_THAT(f.sink->stats().alarm, testing::HasSubstr("/srv/events/p"));
  f.files.fault = nullptr;
  f.advance(2s);
  EXPECT_EQ(f.files.content("/srv/events/p"), "1\n");
  EXPECT_EQ(f.sink->stats().alarm, "");
}

TEST(FilesSink, bad_name_is_no_obstacle) {
  SinkFixture f;
  EXPECT_EQ(f.sink->obstacle(".."), "");
  EXPECT_NE(f.sink->refuses(".."), "");
}

TEST(FilesSink, directory_replaced_by_a_file_fails_one_group_and_then_stops_no_other_category) {
  SinkFixture f;
  EXPECT_EQ(f.sink->obstacle("c"), "");
  f.write("c", "a\n");
  f.files.unlink("/srv/events/c/c-2026-07-13_000001").value();
  f.files.unlink("/srv/events/c/c_current").value();
  f.files.remove_directory("/srv/events/c").value();
  f.files.append("/srv/events/c", "a file");
  EXPECT_EQ(f.sink->obstacle("c"), "") << "it was there a moment ago";
  EXPECT_NE(f.write("c", "b\n"), "ok");
  EXPECT_NE(f.sink->obstacle("c"), "");
  EXPECT_EQ(f.write("other", "x\n"), "ok");
  f.advance(6s);
  EXPECT_EQ(f.consume("other"), "x\n");
  f.files.unlink("/srv/events/c").value();
  EXPECT_EQ(f.sink->obstacle("c"), "");
  EXPECT_EQ(f.write("c", "b\n"), "ok");
}

TEST(FilesSink, first_matching_mask_decides) {
  SinkFixture f;
  f.options.categories = {{.masks = {"err*", "warn"}, .mode = FileMode::plain}, {.masks = {"*"}, .chunk_max = 1}};
  f.restart();
  f.write({lines_block("errors", "e\n"), lines_block("warnings", "w\n"), lines_block("warnings", "v\n")});
  EXPECT_EQ(f.files.content("/srv/events/errors"), "e\n");
  EXPECT_EQ(f.link("warnings"), "warnings-2026-07-13_000002");
}

TEST(FilesSink, messages_become_lines_and_gaps_nothing) {
  SinkFixture f;
  f.options.categories = {{.masks = {"json"}, .format = MessageFormat::json}};
  f.restart();
  event::Block m;
  m.kind = event::BlockKind::message;
  m.category = "raw";
  m.topic = "a/b";
  m.events = 1;
  m.payload = Slice(std::string("two\nlines"));
  event::Block j = m, gap;
  j.category = "json";
  gap.gap = true;
  gap.category = "gap";
  EXPECT_EQ(f.write({m, j, gap}), "ok");
  EXPECT_EQ(f.file("raw", "raw-2026-07-13_000001"), "two\\nlines\n");
  EXPECT_EQ(f.file("json", "json-2026-07-13_000001"),
            "{\"topic\":\"a/b\",\"time\":\"1970-01-01T00:00:00.000Z\",\"qos\":0,\"retain\":false,"
            "\"payload\":\"two\\nlines\"}\n");
  EXPECT_EQ(f.listing("gap"), "");
}

TEST(FilesSink, message_of_two_slices_is_not_cut_by_a_full_chunk) {
  SinkFixture f;
  f.options.categories = {{.masks = {}, .chunk_max = 4}};
  f.restart();
  event::Block m;
  m.kind = event::BlockKind::message;
  m.category = "c";
  m.events = 1;
  m.payload = Slice(std::string("longer than a chunk"));
  f.write({m, m});
  EXPECT_EQ(f.file("c", "c-2026-07-13_000001"), "longer than a chunk\n");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000002"), "longer than a chunk\n");
}

TEST(FilesSink, full_disk_fails_the_group_leaves_no_torn_line_and_recovers) {
  SinkFixture f;
  f.write("c", "first\n");
  f.files.capacity = f.files.used() + 3;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(f.write("c", "second\n"), "file.no_space");
    EXPECT_THAT(f.sink->stats().alarm, testing::HasSubstr("file.no_space"));
    f.advance(6s);
  }
  EXPECT_EQ(f.consume("c"), "first\n");
  f.files.capacity = UINT64_MAX;
  EXPECT_EQ(f.write("c", "second\n"), "ok");
  EXPECT_EQ(f.sink->stats().alarm, "");
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "second\n");
  EXPECT_EQ(f.sink->stats().events, 2u);
}

TEST(FilesSink, reserve_is_never_eaten) {
  SinkFixture f;
  f.disk_reserve = 1000;
  f.files.append("/ballast", std::string(3000, 'x'));
  f.files.capacity = 4010;
  f.restart();
  EXPECT_TRUE(f.sink->room());
  EXPECT_EQ(f.write("c", "123456789\n"), "ok");
  uint64_t before = f.files.operations;
  EXPECT_EQ(f.write("c", "1\n"), "file.no_space");
  EXPECT_EQ(f.files.operations, before) << "nothing was tried";
  EXPECT_FALSE(f.sink->room());
  f.advance(6s);  // the chunk is closed all the same
  EXPECT_EQ(f.consume("c"), "123456789\n");
  EXPECT_EQ(f.write("c", "1\n"), "ok");
}

TEST(FilesSink, failed_sync_abandons_the_chunk_at_its_committed_size) {
  SinkFixture f;
  f.write("c", "first\n");
  int left = 1;
  f.files.fault = [&](FileOp op, const std::string& p) -> std::optional<Error> {
    if (op == FileOp::sync && p.ends_with("_000001") && left-- > 0) return Error{port::file_errors::failed, p};
    return std::nullopt;
  };
  EXPECT_EQ(f.write("c", "second\n"), "file.failed");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000001"), "first\n");
  EXPECT_EQ(f.write("c", "second\n"), "ok");
  EXPECT_EQ(f.listing("c"),
            "c-2026-07-13_000001 6\n"
            "c-2026-07-13_000002 7\n"
            "c_current -> c-2026-07-13_000002");
  EXPECT_EQ(f.sink->stats().abandoned_chunks, 1u);
}

TEST(FilesSink, cut_that_may_not_be_durable_is_made_again_after_a_crash) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SinkFixture f(seed);
    f.write("c", "first\n");
    f.files.fault = failing(FileOp::sync, port::file_errors::failed, "_000001");
    EXPECT_EQ(f.write("c", "torn\n"), "file.failed");
    EXPECT_EQ(f.write("c", "second\n"), "ok");
    f.files.fault = nullptr;
    // The disk kept the torn bytes although we cut them.
    auto inode = f.files.inode("/srv/events/c/c-2026-07-13_000001");
    f.cut_power();
    inode->bytes = inode->durable = "first\ntor";
    f.start();
    f.advance(10s);
    EXPECT_EQ(f.consume("c"), "first\nsecond\n");
  }
}

TEST(FilesSink, store_that_refuses_makes_the_group_wait_and_everything_behind_it) {
  SinkFixture f;
  f.write("c", "first\n");
  f.store.fail_writes = true;
  EXPECT_EQ(f.write("c", "second\n"), "waiting");
  EXPECT_EQ(f.write("c", "third\n"), "waiting");
  f.store.fail_writes = false;
  f.advance(2s);
  EXPECT_EQ(f.write("c", "fourth\n"), "ok");
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "first\nsecond\nthird\nfourth\n");
}

TEST(FilesSink, store_batch_that_was_called_failed_but_is_durable_loses_no_line) {
  SinkFixture f;
  f.write("c", "first\n");
  // The store keeps the batch and says that it failed, as a disk may that dies in the sync; then it stays broken.
  size_t before = f.batches();
  bool kept = false;
  f.store.before_write = [&] {
    if (std::exchange(kept, true)) return;
    // Apply by hand what the group is about to write: the chunk's new size and the request's entry.
    auto bytes = *f.store.get("f/c/c");
    auto entry = std::get<ChunkEntry>(*decode_entry(*bytes));
    entry.last.size += 7;
    port::WriteBatch batch;
    batch.put("f/c/c", encode(CategoryEntry(entry)));
    batch.put("test/" + std::to_string(before), "");
    f.store.write(batch, true).value();
    f.store.fail_writes = true;
  };
  EXPECT_EQ(f.write("c", "second\n"), "waiting");
  f.stop();
  f.store.before_write = nullptr;
  f.store.fail_writes = false;
  f.restart();
  ASSERT_TRUE(f.is_stored(before));
  f.advance(10s);
  EXPECT_EQ(f.consume("c"), "first\nsecond\n");
}

TEST(FilesSink, restart_cuts_the_open_chunk_to_its_committed_size_and_keeps_the_bytes) {
  SinkFixture f;
  f.write("c", "first\n");
  f.files.append("/srv/events/c/c-2026-07-13_000001", "not commit");
  f.restart();
  f.advance(10s);
  EXPECT_EQ(f.consume("c"), "first\n");
  ASSERT_EQ(f.cut_files().size(), 1u);
  EXPECT_EQ(f.cut_files()[0], "/data/files/cut/c-2026-07-13_000001@6.0");
  EXPECT_EQ(f.files.content(f.cut_files()[0]), "not commit");
  EXPECT_EQ(f.sink->stats().recovered_cut_bytes, 10u);
}

TEST(FilesSink, chunk_shorter_than_committed_is_not_extended) {
  SinkFixture f;
  f.write("c", "first\nsecond\n");
  f.files.open("/srv/events/c/c-2026-07-13_000001", port::OpenMode::write_create).value()->truncate(6).value();
  f.restart();
  f.write("c", "third\n");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000001"), "first\n");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000002"), "third\n");
  EXPECT_EQ(f.sink->stats().shortened_chunks, 1u);
}

TEST(FilesSink, chunk_that_is_another_file_now_is_not_cut) {
  SinkFixture f;
  f.write("c", "first\n");
  f.files.unlink("/srv/events/c/c-2026-07-13_000001").value();
  f.files.append("/srv/events/c/c-2026-07-13_000001", "restored from a backup\n");
  f.restart();
  f.write("c", "next\n");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000001"), "restored from a backup\n");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000002"), "next\n");
}

TEST(FilesSink, chunks_that_others_made_meanwhile_are_honoured) {
  SinkFixture f;
  f.write("c", "ours\n");
  f.stop();
  f.files.append("/srv/events/c/c-2026-07-13_000002", "theirs\n");
  f.files.append("/srv/events/c/c-2026-07-13_000003", "theirs, too\n");
  f.start();
  f.write("c", "ours again\n");
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "ours\ntheirs\ntheirs, too\nours again\n");
}

TEST(FilesSink, name_taken_while_running_fails_one_group_and_then_is_honoured) {
  SinkFixture f;
  f.write("c", "ours\n");
  f.advance(6s);
  f.files.append("/srv/events/c/c-2026-07-13_000003", "theirs\n");
  f.write("c", "a\n");
  f.advance(6s);
  f.advance(2s);
  EXPECT_EQ(f.write("c", "b\n"), "ok");
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "ours\na\ntheirs\nb\n");
}

TEST(FilesSink, damaged_store_entry_stops_nothing_and_cuts_nothing) {
  SinkFixture f;
  f.write("c", "first\n");
  f.files.append("/srv/events/c/c-2026-07-13_000001", "tail");
  f.stop();
  port::WriteBatch batch;
  batch.put("f/c/c", "garbage");
  f.store.write(batch, true).value();
  f.start();
  EXPECT_EQ(f.write("c", "second\n"), "ok");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000001"), "first\ntail");
  EXPECT_EQ(f.file("c", "c-2026-07-13_000002"), "second\n");
  EXPECT_EQ(f.sink->stats().damaged_entries, 1u);
}

TEST(FilesSink, store_entry_of_a_newer_version_is_refused_at_start) {
  SinkFixture f;
  f.write("c", "first\n");
  f.stop();
  std::string newer = "\x09 future";
  put_fixed<uint32_t>(newer, crc32c(newer));
  port::WriteBatch batch;
  batch.put("f/c/c", newer);
  f.store.write(batch, true).value();
  EXPECT_FALSE(f.start());
  EXPECT_THAT(f.start_error, testing::HasSubstr("chunk.newer_version"));
}

TEST(FilesSink, counters_survive_a_restart) {
  SinkFixture f;
  f.write("c", "1\n2\n3\n");
  f.write("d", "4\n");
  f.write("d", "5\n");
  f.restart();
  FilesSinkStats s = f.sink->stats();
  EXPECT_EQ(s.events, 5u);
  EXPECT_EQ(s.bytes, 10u);
  EXPECT_EQ(s.open_categories, 2u);
}

TEST(FilesSink, idle_categories_cost_nothing) {
  SinkFixture f;
  // As a restart finds them: 10,000 categories, all closed and consumed.
  port::WriteBatch batch;
  for (int i = 0; i < 10'000; ++i) {
    ChunkEntry entry;
    entry.last = {{20260713, 7}, {1, 1}, 100};
    batch.put("f/c/category_" + std::to_string(i), encode(CategoryEntry(entry)));
  }
  f.store.write(batch, true).value();
  f.restart();
  f.advance(10s);
  EXPECT_EQ(f.sink->stats().open_categories, 10'000u);
  uint64_t operations = f.files.operations, groups = f.committer->groups();
  f.advance(std::chrono::hours(24));
  EXPECT_EQ(f.files.operations, operations);
  EXPECT_EQ(f.committer->groups(), groups);
  EXPECT_FALSE(f.loop->has_timers());
}

TEST(FilesSink, many_categories_in_one_group_hold_few_files_open) {
  SinkFixture f;
  f.options.categories_max = 2000;
  f.restart();
  int open = 0, most = 0;
  f.store.before_write = [&] {
    open = 0;
    for (const std::string& path : f.files.paths()) open += f.files.inode(path)->own_handles;
    most = std::max(most, open);
  };
  std::vector<event::Block> blocks;
  for (int i = 0; i < 700; ++i) blocks.push_back(lines_block("c" + std::to_string(i), "x\n"));
  EXPECT_EQ(f.write(blocks), "ok");
  EXPECT_EQ(f.write(blocks), "ok");
  EXPECT_GT(most, 100);
  EXPECT_LE(most, static_cast<int>(OpenFiles::kMax));
  EXPECT_EQ(f.file("c0", "c0-2026-07-13_000001"), "x\nx\n");
  EXPECT_EQ(f.file("c699", "c699-2026-07-13_000001"), "x\nx\n");
}

TEST(FilesSink, group_that_waits_behind_a_failed_one_fails_with_it_and_comes_again) {
  SinkFixture f;
  f.write("c", "a\n");
  f.disk->hold();
  std::vector<std::string> outcomes;
  auto ask = [&](const std::string& line) {
    f.sink->append(lines_block("c", line));
    f.committer->request({f.sink.get()}, {}, [&](const Result<>& r) { outcomes.push_back(r ? "ok" : "failed"); });
    f.loop->run_posted();
  };
  f.files.fault = failing(FileOp::write, port::file_errors::failed, "_000001");
  ask("b\n");
  ask("c\n");
  f.disk->release();
  f.loop->run_posted();
  EXPECT_THAT(outcomes, testing::ElementsAre("failed", "failed"));
  f.files.fault = nullptr;
  ask("b\n");
  ask("c\n");
  EXPECT_THAT(outcomes, testing::ElementsAre("failed", "failed", "ok", "ok"));
  f.advance(6s);
  EXPECT_EQ(f.consume("c"), "a\nb\nc\n");
}

}  // namespace
}  // namespace ph::chunk
