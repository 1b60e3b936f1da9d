// Plain mode through the sink: what consumers of a tailed log see.
#include "store/chunk/plain_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/coding.h"
#include "store/chunk/sink_fixture.h"

namespace ph::chunk {
namespace {

using test::FileOp;

class PlainLog : public testing::Test {
 protected:
  PlainLog() {
    f.options.categories = {{.masks = {}, .mode = FileMode::plain}};
    f.restart();
  }
  std::string log(const std::string& name = "errors") { return f.files.content("/srv/events/" + name); }
  std::string write(const std::string& lines) { return f.write("errors", lines); }
  SinkFixture f;
};

TEST_F(PlainLog, is_appended_to) {
  EXPECT_EQ(write("one\n"), "ok");
  EXPECT_EQ(write("two\nthree\n"), "ok");
  EXPECT_EQ(log(), "one\ntwo\nthree\n");
  EXPECT_EQ(f.sink->stats().events, 3u);
}

TEST_F(PlainLog, goes_on_behind_what_an_earlier_installation_wrote) {
  f.files.append("/srv/events/errors", "old\n");
  write("new\n");
  EXPECT_EQ(log(), "old\nnew\n");
}

TEST_F(PlainLog, holds_no_byte_before_the_journal_is_durable) {
  write("one\n");
  bool looked = false;
  f.store.before_write = [&] {
    looked = true;
    EXPECT_EQ(log().find("two"), std::string::npos);
    f.store.fail_writes = true;
  };
  EXPECT_EQ(write("two\n"), "waiting");
  EXPECT_TRUE(looked);
  f.store.before_write = nullptr;
  EXPECT_EQ(log(), "one\n");
  f.store.fail_writes = false;
  f.advance(2s);
  EXPECT_EQ(log(), "one\ntwo\n");
}

TEST_F(PlainLog, rotated_away_goes_on_in_a_new_file) {
  write("one\n");
  f.files.rename("/srv/events/errors", "/srv/events/errors.1").value();
  write("two\n");
  EXPECT_EQ(log("errors.1"), "one\n");
  EXPECT_EQ(log(), "two\n");
  f.files.rename("/srv/events/errors", "/srv/events/errors.2").value();
  f.files.append("/srv/events/errors", "");  // logrotate's "create"
  write("three\n");
  EXPECT_EQ(log("errors.2"), "two\n");
  EXPECT_EQ(log(), "three\n");
}

TEST_F(PlainLog, copied_and_truncated_goes_on_without_a_hole) {
  write("one\ntwo\n");
  f.files.open("/srv/events/errors", port::OpenMode::write_create).value()->truncate(0).value();
  write("three\n");
  EXPECT_EQ(log(), "three\n");
}

TEST_F(PlainLog, does_not_write_over_lines_of_others) {
  write("one\n");
  f.files.append("/srv/events/errors", "foreign\n");
  write("two\n");
  EXPECT_EQ(log(), "one\nforeign\ntwo\n");
}

TEST_F(PlainLog, failed_copy_refuses_new_lines_and_is_made_up_by_itself) {
  write("one\n");
  f.files.fault = [&](FileOp op, const std::string& p) -> std::optional<Error> {
    if (op == FileOp::write && p == "/srv/events/errors") return Error{port::file_errors::no_space, p};
    return std::nullopt;
  };
  EXPECT_EQ(write("two\n"), "ok");  // in the journal
  EXPECT_EQ(log(), "one\n");
  EXPECT_EQ(write("three\n"), "file.no_space");
  EXPECT_NE(f.sink->stats().alarm, "");
  f.files.fault = nullptr;
  f.advance(2s);  // nobody writes: the retry alone
  EXPECT_EQ(log(), "one\ntwo\n");
  EXPECT_EQ(write("three\n"), "ok");
  EXPECT_EQ(log(), "one\ntwo\nthree\n");
  EXPECT_EQ(f.sink->stats().alarm, "");
  f.advance(10s);
  EXPECT_FALSE(f.loop->has_timers());
}

TEST_F(PlainLog, half_done_copy_is_completed_in_the_file_that_was_rotated_away) {
  write("one\n");
  int left = 1;
  f.files.fault = [&](FileOp op, const std::string& p) -> std::optional<Error> {
    if (op == FileOp::sync && p == "/srv/events/errors" && left-- > 0) return Error{port::file_errors::failed, p};
    return std::nullopt;
  };
  write("two\n");  // copied, not synced
  f.files.rename("/srv/events/errors", "/srv/events/errors.1").value();
  EXPECT_EQ(write("three\n"), "ok");
  EXPECT_EQ(log("errors.1"), "one\ntwo\n");
  EXPECT_EQ(log(), "three\n");
  EXPECT_EQ(f.sink->stats().maybe_duplicate, 0u);
}

TEST_F(PlainLog, half_done_copy_whose_file_is_gone_is_written_again_and_counted) {
  write("one\n");
  int left = 1;
  f.files.fault = [&](FileOp op, const std::string& p) -> std::optional<Error> {
    if (op == FileOp::sync && p == "/srv/events/errors" && left-- > 0) return Error{port::file_errors::failed, p};
    return std::nullopt;
  };
  write("two\n");
  f.files.unlink("/srv/events/errors").value();
  EXPECT_EQ(write("three\n"), "ok");
  EXPECT_EQ(log(), "two\nthree\n");
  EXPECT_EQ(f.sink->stats().maybe_duplicate, 1u);
}

TEST_F(PlainLog, journal_is_rolled_and_deleted_behind_the_copies) {
  std::string big(1024 * 1024, 'x');
  big.back() = '\n';
  for (int i = 0; i < 80; ++i) ASSERT_EQ(write(big), "ok");
  int segments = 0;
  for (const std::string& p : f.files.paths()) segments += p.starts_with("/data/files/journal/");
  EXPECT_LE(segments, 2);
  EXPECT_EQ(log().size(), 80u * big.size());
}

TEST_F(PlainLog, crash_at_any_operation_writes_every_line_once) {
  for (bool power : {false, true})
    for (uint64_t at = 1; at < 60; ++at) {
      SCOPED_TRACE(std::to_string(at) + (power ? " power" : " kill"));
      SinkFixture g(at + 1000 * power);
      g.options.categories = f.options.categories;
      g.restart();
      std::string expected;
      uint64_t n = 0;
      auto next = [&] {
        std::string line = "line " + std::to_string(n++) + "\n";
        return line + "again " + line;
      };
      for (int i = 0; i < 2; ++i)
        expected += next(), g.write("errors", "line " + std::to_string(i) + "\nagain line " + std::to_string(i) + "\n");
      // A consumer tails the file: nothing that it has read may change.
      std::string tailed;
      auto tail = [&] {
        std::string now = g.files.content("/srv/events/errors");
        ASSERT_EQ(now.substr(0, tailed.size()), tailed);
        tailed = now;
      };
      tail();
      g.files.crash_at(at);
      std::string during = next();
      size_t batch = g.batches();
      try {
        g.write("errors", during);
        g.write("errors", next());
      } catch (const test::SimulatedCrash&) {
      }
      if (!power) tail();
      g.files.no_crash();
      g.stop();
      if (power) g.cut_power();
      ASSERT_TRUE(g.start());
      if (g.is_stored(batch)) expected += during;
      if (g.batches() > batch + 1 && g.is_stored(batch + 1)) expected += "line 3\nagain line 3\n";
      if (!power) tail();
      std::string after = "after\n";
      ASSERT_EQ(g.write("errors", after), "ok");
      if (!power) tail();
      ASSERT_EQ(g.files.content("/srv/events/errors"), expected + after);
    }
}

/// Everything that happens to a plain log: groups, other people's rotations, faults, crashes. Rotated files are kept,
/// so that all of them together must hold every committed line once, in order.
TEST(PlainLogLife, agrees_with_a_naive_log_through_rotations_faults_and_crashes) {
  size_t stored = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SinkFixture f(seed);
    const Compression how = kCompressions[seed % 3];
    const std::string name = "/srv/events/log" + std::string(suffix_of(how));
    f.options.categories = {{.masks = {}, .mode = FileMode::plain, .compression = how}};
    f.options.sync_each_max = seed % 2 ? 32 : 0;
    f.restart();
    Random random(seed * 131);
    std::vector<std::pair<size_t, std::string>> batches;
    std::vector<std::string> rotated;
    auto all = [&] {
      std::string out;
      for (const std::string& path : rotated) out += unpacked(how, f.files.content(path)).value_or("<not whole>");
      return out + unpacked(how, f.files.content(name)).value_or("<not whole>");
    };
    auto write = [&] {
      std::string lines = "line " + std::to_string(batches.size()) + std::string(random.below(900), '.') + "\n";
      batches.emplace_back(f.batches(), lines);
      return f.write({lines_block("log", lines), lines_block("other", "noise\n")});
    };
    for (int step = 0; step < 120; ++step) {
      try {
        switch (random.below(12)) {
          case 0: {
            if (!f.files.exists(name)) break;
            f.no_crash();
            rotated.push_back("/srv/events/log." + std::to_string(rotated.size()));
            f.files.rename(name, rotated.back()).value();
            f.files.sync_directory("/srv/events").value();
            break;
          }
          case 1:
            f.advance(std::chrono::milliseconds(random.below(3000)));
            break;
          case 2:
            f.files.capacity = random.chance(0.6) ? UINT64_MAX : f.files.used() + random.below(2000);
            break;
          case 3:
            f.store.fail_writes = random.chance(0.3);
            break;
          case 4:
            f.crash_after(1 + random.below(40));
            break;
          case 5:
            throw test::SimulatedCrash{};
          default:
            write();
        }
      } catch (const test::SimulatedCrash&) {
        f.no_crash();
        f.files.capacity = UINT64_MAX;
        f.store.fail_writes = false;
        random.chance(0.5) ? f.cut_power() : f.stop();
        ASSERT_TRUE(f.start()) << f.start_error;
      }
    }
    f.no_crash();
    f.files.capacity = UINT64_MAX;
    f.store.fail_writes = false;
    f.advance(3s);
    ASSERT_EQ(write(), "ok");
    std::string expected;
    for (const auto& [number, lines] : batches)
      if (f.is_stored(number)) expected += lines, ++stored;
    ASSERT_EQ(all(), expected);
    ASSERT_EQ(f.sink->stats().maybe_duplicate, 0u);
  }
  EXPECT_GT(stored, 5000u);
}

TEST(Journal, mark_round_trips_and_any_damage_shows) {
  JournalMark mark{123, 1ull << 40};
  std::string bytes = encode(mark);
  EXPECT_EQ(*decode_journal_mark(bytes), mark);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_journal_mark(ByteView(bytes).substr(0, n)));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(decode_journal_mark(flipped));
  }
  std::string newer(1, 2);
  put_fixed<uint32_t>(newer, crc32c(newer));
  EXPECT_EQ(decode_journal_mark(newer).error().code, errors::newer_version);
}

class JournalFile : public testing::Test {
 protected:
  JournalFile() {
    Journal j(files, "/j");
    j.open(0).value();
    j.begin(0).value();
    for (int i = 0; i < 5; ++i) {
      starts.push_back(files.content(kPath).size());
      j.append("cat" + std::to_string(i), Compression::none, {Slice("line " + std::to_string(i) + "\n")}, buffer)
          .value();
    }
    end = j.sync().value();
  }
  std::vector<std::string> read(uint64_t from = 0) {
    Journal j(files, "/j");
    j.open(end).value();
    std::vector<std::string> out;
    kept = 0;
    Result<> r = j.read(
        from, end,
        [&](std::string_view c, Compression, Slice s) { out.push_back(std::string(c) + ":" + std::string(s.view())); },
        [&](port::File&, const std::string&) { ++kept; });
    if (!r) out.push_back(std::string(r.error().code.name()));
    return out;
  }
  static constexpr const char* kPath = "/j/0000000000000000";
  test::MemoryFiles files;
  std::string buffer;
  std::vector<size_t> starts;
  uint64_t end = 0;
  int kept = 0;
};

TEST_F(JournalFile, reads_back_from_any_record) {
  EXPECT_THAT(read(), testing::ElementsAre("cat0:line 0\n", "cat1:line 1\n", "cat2:line 2\n", "cat3:line 3\n",
                                           "cat4:line 4\n"));
  EXPECT_THAT(read(starts[3] - Journal::kHeader), testing::ElementsAre("cat3:line 3\n", "cat4:line 4\n"));
  EXPECT_EQ(kept, 0);
}

TEST_F(JournalFile, what_lies_behind_the_end_never_happened) {
  files.append(kPath, "torn record");
  EXPECT_EQ(read().size(), 5u);
}

TEST_F(JournalFile, flipped_bit_costs_one_record_or_shows_as_lost_and_keeps_the_segment) {
  auto inode = files.inode(kPath);
  std::string whole = inode->bytes;
  for (size_t bit = Journal::kHeader * 8; bit < whole.size() * 8; ++bit) {
    inode->bytes = whole;
    inode->bytes[bit / 8] = static_cast<char>(inode->bytes[bit / 8] ^ (1 << bit % 8));
    auto out = read();
    ASSERT_LT(out.size(), 5u);
    ASSERT_GE(kept, 1);
    for (const std::string& line : out) ASSERT_TRUE(line.ends_with("line " + line.substr(3, 1) + "\n")) << line;
    bool in_length = [&] {
      for (size_t s : starts)
        if (bit / 8 >= s + 4 && bit / 8 < s + 8) return true;
      return false;
    }();
    if (!in_length) {
      ASSERT_EQ(out.size(), 4u);
    }
  }
}

TEST_F(JournalFile, cut_short_anywhere_gives_the_records_before_the_cut) {
  auto inode = files.inode(kPath);
  std::string whole = inode->bytes;
  for (size_t size = 0; size < whole.size(); ++size) {
    inode->bytes = whole.substr(0, size);
    size_t complete = 0;
    while (complete + 1 < starts.size() && starts[complete + 1] <= size) ++complete;
    ASSERT_EQ(read().size(), size < Journal::kHeader ? 0 : complete) << size;
    ASSERT_GE(kept, 1);
  }
}

TEST_F(JournalFile, of_the_version_before_compression_is_read) {
  // The same segment without the byte that says how the lines are compressed.
  std::string old = files.inode(kPath)->bytes.substr(0, Journal::kHeader);
  old[6] = 1;
  for (int i = 0; i < 5; ++i) {
    std::string rest;
    put_sized(rest, "cat" + std::to_string(i));
    rest += "line " + std::to_string(i) + "\n";
    std::string length;
    put_fixed<uint32_t>(length, static_cast<uint32_t>(rest.size()));
    put_fixed<uint32_t>(old, crc32c(rest, crc32c(length)));
    old += length + rest;
  }
  end = old.size() - Journal::kHeader;
  files.inode(kPath)->bytes = old;
  EXPECT_THAT(read(), testing::ElementsAre("cat0:line 0\n", "cat1:line 1\n", "cat2:line 2\n", "cat3:line 3\n",
                                           "cat4:line 4\n"));
}

TEST_F(JournalFile, of_a_newer_version_is_refused) {
  files.inode(kPath)->bytes[6] = 3;
  EXPECT_THAT(read(), testing::ElementsAre("chunk.newer_version"));
}

TEST_F(PlainLog, of_another_compression_goes_to_another_file) {
  write("one\n");
  for (Compression how : {Compression::gzip, Compression::zstd, Compression::none}) {
    f.options.categories[0].compression = how;
    f.restart();
    EXPECT_EQ(write("two\n"), "ok");
    EXPECT_EQ(write("three\n"), "ok");
    f.advance(2s);
  }
  EXPECT_EQ(log(), "one\ntwo\nthree\n");
  EXPECT_EQ(gunzipped(log("errors.gz")), "two\nthree\n");
  EXPECT_EQ(unzstd(log("errors.zst")), "two\nthree\n");
}

TEST_F(PlainLog, whose_file_is_that_of_another_category_is_refused) {
  f.options.categories = {{.masks = {"*.gz"}, .mode = FileMode::plain},
                          {.masks = {}, .mode = FileMode::plain, .compression = Compression::gzip}};
  f.restart();
  EXPECT_EQ(write("one\n"), "ok");
  EXPECT_EQ(f.write("errors.gz", "two\n"), "its file is that of another category");
  EXPECT_EQ(f.write("others.gz", "three\n"), "ok");
  EXPECT_EQ(gunzipped(log("errors.gz")), "one\n");
}

TEST_F(PlainLog, damaged_journal_position_overwrites_nothing_and_goes_on) {
  write("one\n");
  f.stop();
  port::WriteBatch batch;
  batch.put("f/journal", "garbage");
  f.store.write(batch, true).value();
  ASSERT_TRUE(f.start());
  EXPECT_EQ(write("two\n"), "ok");
  EXPECT_EQ(log(), "one\ntwo\n");
}

}  // namespace
}  // namespace ph::chunk
