#include "store/spool/segment_log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "base/log.h"
#include "codec/event/block.h"
#include "store/spool/segment_batch.h"
#include "store/spool/segment_format.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::spool {
namespace {

const std::string kDir = "/data/spool/r";

/// A log over fakes, with the committer that drives it. reopen() is a restart.
struct SegmentLogTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  Random random{7};
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<SegmentLog> log;
  uint64_t segment_bytes = 4096;

  void SetUp() override {
    log_configure(LogLevel::off, false);
    files.make_directories("/data").value();
    open();
  }
  void open() {
    committer.reset();
    log.reset();
    auto opened = SegmentLog::open({"r", kDir, segment_bytes}, files, store, random);
    ASSERT_TRUE(opened) << opened.error().to_string();
    log = std::move(*opened);
    committer = std::make_unique<commit::Committer>(loop, disk, store);
  }
  void power_cut() {
    committer.reset();
    log.reset();
    files.cut_power();
    store.cut_power(random);
  }
  /// Appends records [from, to) as one group; whether it became durable.
  bool append(uint64_t from, uint64_t to, size_t pad = 40) {
    auto ok = std::make_shared<bool>(false);  // the answer may come after we have returned
    for (uint64_t i = from; i < to; ++i)
      log->append(Slice(text(i, pad)), i % 3 + 1, from_unix_ms(1000 + static_cast<int64_t>(i)));
    committer->request({log.get()}, {}, [ok](const Result<>& r) { *ok = r.has_value(); });
    loop.run_posted();
    return *ok;
  }
  static std::string text(uint64_t i, size_t pad = 40) {
    return "record " + std::to_string(i) + " " + std::string(pad, static_cast<char>('a' + i % 26));
  }
  struct Read {
    std::vector<std::string> blocks;  // whole ones
    std::vector<uint64_t> sequences;  // of whole ones
    uint64_t gaps = 0;
    uint64_t events = 0;
    uint64_t lost_events = 0;
    uint64_t position = 0;
  };
  Read read(uint64_t from = 1, std::optional<uint64_t> events = {}) {
    Read out;
    auto cursor = log->read_from(from, events);
    uint64_t position = cursor->position();
    std::optional<uint64_t> total = events;
    for (;;) {
      auto record = cursor->next();
      if (!record) {
        ADD_FAILURE() << record.error().to_string();
        break;
      }
      if (!*record) break;
      const Record& r = **record;
      EXPECT_EQ(r.first, position);
      EXPECT_GE(r.sequence, r.first);
      if (total) {
        EXPECT_EQ(r.events_before, *total);
      }
      total = r.events_before + r.events;
      position = r.sequence + 1;
      EXPECT_EQ(cursor->position(), position);
      if (r.damaged) {
        ++out.gaps;
        out.lost_events += r.events;
        auto block = event::decode(r.block);
        EXPECT_TRUE(block && block->gap && block->events == r.events);
      } else {
        out.blocks.emplace_back(r.block.view());
        out.sequences.push_back(r.sequence);
        out.events += r.events;
      }
    }
    EXPECT_EQ(position, log->durable_end());
    if (total) {
      EXPECT_EQ(*total, log->durable_events());
    }
    out.position = position;
    return out;
  }
  std::vector<std::string> segment_paths() {
    std::vector<std::string> out;
    for (const auto& p : files.paths())
      if (p.starts_with(kDir + "/") && p.ends_with(".seg")) out.push_back(p);
    return out;
  }
  void set_content(const std::string& path, std::string bytes) {
    auto inode = files.inode(path);
    inode->bytes = inode->durable = std::move(bytes);
    inode->pending.clear();
  }
};

void copy(test::MemoryStore& from, test::MemoryStore& to) {
  port::WriteBatch batch;
  from.scan("",
            [&](ByteView key, ByteView value) {
              batch.put(std::string(key), std::string(value));
              return true;
            })
      .value();
  to.write(batch, true).value();
}

std::vector<std::string> texts(uint64_t from, uint64_t to) {
  std::vector<std::string> out;
  for (uint64_t i = from; i < to; ++i) out.push_back(SegmentLogTest::text(i));
  return out;
}

}  // namespace

TEST_F(SegmentLogTest, reads_back_what_was_committed_across_segments_and_restarts) {
  EXPECT_EQ(log->durable_end(), 1u);
  ASSERT_TRUE(append(1, 4));
  ASSERT_TRUE(append(4, 200));
  EXPECT_EQ(read().blocks, texts(1, 200));
  EXPECT_GT(log->stats().segments, 3u);
  open();
  EXPECT_EQ(read().blocks, texts(1, 200));
  ASSERT_TRUE(append(200, 300));
  EXPECT_EQ(read().blocks, texts(1, 300));
  EXPECT_EQ(read(150).blocks, texts(150, 300));
  EXPECT_EQ(read(300).blocks.size(), 0u);
}

TEST_F(SegmentLogTest, shows_a_reader_nothing_before_the_group_is_durable) {
  ASSERT_TRUE(append(1, 3));
  auto cursor = log->read_from(1);
  while (*cursor->next()) continue;
  log->append(Slice(text(3)), 1, {});
  committer->touch(*log);
  disk.hold();
  loop.run_posted();
  EXPECT_FALSE(*cursor->next());
  log->append(Slice(text(4)), 1, {});  // joins the next group
  committer->touch(*log);
  int grown = 0;
  auto watch = log->watch([&] { ++grown; });
  disk.release();
  loop.run_posted();
  EXPECT_EQ(grown, 2);
  EXPECT_EQ((*cursor->next())->block.view(), text(3));
  EXPECT_EQ((*cursor->next())->block.view(), text(4));
  EXPECT_FALSE(*cursor->next());
}

TEST_F(SegmentLogTest, makes_one_write_and_one_sync_per_group) {
  segment_bytes = 1 << 20;
  open();
  ASSERT_TRUE(append(1, 2));
  uint64_t before = files.operations;
  ASSERT_TRUE(append(2, 1000));
  EXPECT_EQ(files.operations - before, 2u);
}

TEST_F(SegmentLogTest, never_uses_a_sequence_twice_across_an_empty_log_and_restarts) {
  ASSERT_TRUE(append(1, 100));
  log->release_below(log->durable_end());
  EXPECT_EQ(segment_paths().size(), 0u);
  EXPECT_EQ(log->first_sequence(), 100u);
  open();
  EXPECT_EQ(log->durable_end(), 100u);
  EXPECT_EQ(log->append(Slice(text(100)), 1, {}), 100u);
  committer->touch(*log);
  loop.run_posted();
  EXPECT_EQ(read(100).blocks, texts(100, 101));
}

TEST_F(SegmentLogTest, deletes_whole_segments_behind_the_released_sequence) {
  ASSERT_TRUE(append(1, 200));
  size_t segments = segment_paths().size();
  uint64_t bytes = log->bytes_from(1);
  log->release_below(2);
  EXPECT_EQ(segment_paths().size(), segments);
  log->release_below(100);
  EXPECT_LT(segment_paths().size(), segments);
  EXPECT_LT(log->bytes_from(100), bytes);
  EXPECT_EQ(read(100).blocks, texts(100, 200));
  open();
  EXPECT_EQ(log->first_sequence(), 100u);
  EXPECT_EQ(read(100).blocks, texts(100, 200));
}

/// A descriptor would keep its bytes, and on a full disk nothing would ever come that moves the cursor on.
TEST_F(SegmentLogTest, a_deleted_segment_is_held_open_by_no_cursor_that_is_past_it) {
  segment_bytes = 4 << 20;
  open();
  ASSERT_TRUE(append(1, 10'000, 100));
  auto done = log->read_from(1), behind = log->read_from(1);
  auto read_to = [](SegmentLog::Cursor& cursor, uint64_t until) {
    while (cursor.position() < until) ASSERT_TRUE(cursor.next().value().has_value());
  };
  read_to(*done, 10'000);
  read_to(*behind, 5'000);
  ASSERT_EQ(segment_paths().size(), 1u);
  auto inode = files.inode(segment_paths().front());
  log->release_below(10'000);
  EXPECT_TRUE(segment_paths().empty());
  EXPECT_EQ(inode->own_handles, 1) << "of the one that is not through";
  read_to(*behind, 10'000);
  behind.reset();
  EXPECT_EQ(inode->own_handles, 0);
  ASSERT_TRUE(append(10'000, 10'002));
  auto record = done->next().value();
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->sequence, 10'000u);
  EXPECT_EQ(record->block.view(), text(10'000));
  EXPECT_FALSE(record->damaged);
}

TEST_F(SegmentLogTest, keeps_records_of_16_MiB) {
  std::string big(limits::kRecordMax, 'x');
  ASSERT_TRUE(append(1, 2));
  log->append(Slice(big), 1, {});
  ASSERT_TRUE(append(3, 4));
  auto got = read();
  ASSERT_EQ(got.blocks.size(), 3u);
  EXPECT_TRUE(got.blocks[1] == big);
  EXPECT_EQ(got.blocks[2], text(3));
}

TEST_F(SegmentLogTest, abandons_the_segment_after_a_failed_write_or_sync_and_goes_on_in_a_new_one) {
  for (auto op : {test::FileOp::write, test::FileOp::sync, test::FileOp::create, test::FileOp::sync_directory}) {
    uint64_t from = log->durable_end();
    uint64_t events = log->durable_events();
    if (op == test::FileOp::create || op == test::FileOp::sync_directory) segment_bytes = 1, open();
    ASSERT_TRUE(append(from, from + 3));
    files.fault = [op](test::FileOp o, const std::string&) -> std::optional<Error> {
      if (o == op) return Error{port::file_errors::failed, "injected"};
      return std::nullopt;
    };
    EXPECT_FALSE(append(from + 3, from + 5));
    EXPECT_FALSE(append(from + 3, from + 5));
    files.fault = nullptr;
    uint64_t next = log->append(Slice(text(from + 3)), 1, {});
    EXPECT_EQ(next, from + 7);  // four sequences are used up
    ASSERT_TRUE(append(from + 4, from + 6));
    auto expected = texts(from, from + 6);
    EXPECT_EQ(read(from, events).blocks, expected);
    EXPECT_EQ(read(from, events).gaps, 0u);
    open();
    EXPECT_EQ(read(from, events).blocks, expected);
    EXPECT_EQ(read(from + 5).blocks, texts(from + 3, from + 6)) << "from inside the unused sequences";
  }
}

TEST_F(SegmentLogTest, what_the_store_refuses_is_invisible_until_it_takes_it) {
  ASSERT_TRUE(append(1, 3));
  store.fail_writes = true;
  EXPECT_FALSE(append(3, 120));
  EXPECT_EQ(read().blocks, texts(1, 3));
  store.fail_writes = false;
  loop.advance(2s);
  EXPECT_EQ(read().blocks, texts(1, 120));
  open();
  EXPECT_EQ(read().blocks, texts(1, 120));
  ASSERT_TRUE(append(120, 121));
  open();
  EXPECT_EQ(read().blocks, texts(1, 121));
}

TEST_F(SegmentLogTest, what_waits_behind_a_failed_group_fails_with_it) {
  ASSERT_TRUE(append(1, 3));
  std::vector<bool> outcomes;
  auto ask = [&](uint64_t n) {
    log->append(Slice(text(n)), 1, {});
    committer->request({log.get()}, {}, [&](const Result<>& r) { outcomes.push_back(r.has_value()); });
  };
  disk.hold();
  ask(3);
  loop.run_posted();
  ask(4);
  files.fault = [](test::FileOp op, const std::string&) -> std::optional<Error> {
    return op == test::FileOp::sync ? std::optional(Error{port::file_errors::failed, "EIO"}) : std::nullopt;
  };
  disk.release();
  loop.run_posted();
  files.fault = nullptr;
  EXPECT_EQ(outcomes, (std::vector<bool>{false, false}));
  ASSERT_TRUE(append(3, 5));
  EXPECT_EQ(read().blocks, texts(1, 5));
  open();
  EXPECT_EQ(read().blocks, texts(1, 5));
  EXPECT_EQ(read().sequences, (std::vector<uint64_t>{1, 2, 5, 6}));
}

TEST_F(SegmentLogTest, a_failure_elsewhere_in_the_group_does_not_cost_the_segment) {
  struct Failing : commit::Participant {
    void begin(port::WriteBatch&) override {}
    Result<> flush() override { return fail("test.failed"); }
    void finished(const Result<>&) override {}
  } failing;
  ASSERT_TRUE(append(1, 3));
  bool ok = true;
  committer->touch(failing);
  log->append(Slice(text(3)), 1, {});
  committer->request({log.get()}, {}, [&](const Result<>& r) { ok = r.has_value(); });
  loop.run_posted();
  EXPECT_FALSE(ok);
  ASSERT_TRUE(append(3, 5));
  EXPECT_EQ(log->stats().segments, 1u);
  EXPECT_EQ(read().blocks, texts(1, 5));
}

TEST_F(SegmentLogTest, a_full_disk_fails_groups_and_leaves_nothing_behind_and_recovers_by_itself) {
  ASSERT_TRUE(append(1, 50));
  uint64_t used = files.used();
  files.capacity = used + 1000;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(append(50, 100));
  EXPECT_EQ(files.used(), used);
  files.capacity = UINT64_MAX;
  ASSERT_TRUE(append(50, 100));
  EXPECT_EQ(read().blocks, texts(1, 100));
}

TEST_F(SegmentLogTest, what_a_failed_group_left_does_not_come_back_with_a_power_cut) {
  uint64_t next = 0;
  std::vector<std::string> expected;
  auto appended = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) expected.push_back(text(next + i));
    ASSERT_TRUE(append(next, next + count));
    next += count;
  };
  for (int round = 0; round < 30; ++round) {
    appended(3);
    files.capacity = files.used() + 250;
    ASSERT_FALSE(append(next, next + 8));
    files.capacity = UINT64_MAX;
    // Named in the store, cleaned up, forgotten; or not all of that yet.
    for (int group = 0; group < round % 5; ++group) appended(1);
    std::map<std::string, size_t> sizes;
    for (const std::string& path : segment_paths()) sizes[path] = files.content(path).size();
    power_cut();
    if (round % 5 < 3) sizes.clear();
    for (const auto& [path, size] : sizes) ASSERT_EQ(files.content(path).size(), size) << path << " in " << round;
    open();
    Read all = read();
    ASSERT_EQ(all.gaps, 0u) << round;
    ASSERT_EQ(all.blocks, expected) << round;
  }
}

TEST_F(SegmentLogTest, S2_a_flipped_bit_costs_one_record_and_is_counted_once) {
  segment_bytes = 128 << 10;
  open();
  for (uint64_t i = 1; i <= 3000; i += 500) ASSERT_TRUE(append(i, i + 500));
  std::string path;
  for (const auto& p : segment_paths())
    if (files.content(p).find(text(1500)) != std::string::npos) path = p;
  std::string bytes = files.content(path);
  bytes[bytes.find(text(1500))] ^= 1;
  set_content(path, bytes);
  open();
  uint64_t total = log->durable_events();
  auto got = read();
  EXPECT_EQ(got.blocks.size(), 2999u);
  EXPECT_EQ(got.gaps, 1u);
  EXPECT_EQ(got.events + got.lost_events, total);
  EXPECT_EQ(got.lost_events, 1500u % 3 + 1);
  EXPECT_EQ(read().gaps, 1u);
  EXPECT_EQ(log->stats().quarantined, 1u);
  open();
  EXPECT_EQ(read().gaps, 1u);
  EXPECT_EQ(log->stats().quarantined, 1u);
  log->release_below(log->durable_end());
  ASSERT_TRUE(append(3001, 3002));
  log->release_below(log->durable_end());
  bool kept = false;
  for (const auto& p : files.paths()) kept = kept || (p == path + ".damaged" && files.content(p) == bytes);
  EXPECT_TRUE(kept) << "the bad bytes are kept";
  EXPECT_EQ(log->stats().quarantined, 1u);
}

TEST_F(SegmentLogTest, S3_a_newest_segment_cut_at_any_byte_gives_all_earlier_records_and_a_valid_next_append) {
  segment_bytes = 1 << 20;
  open();
  ASSERT_TRUE(append(1, 6));
  auto path = segment_paths().front();
  const std::string whole = files.content(path);
  const size_t last = whole.find(text(4)) + text(4).size(), behind = whole.find(text(5)) + text(5).size();
  for (bool store_wiped : {false, true}) {
    for (size_t cut = last; cut <= whole.size(); ++cut) {
      test::MemoryStore before;
      copy(store, before);
      test::MemoryFiles fresh;
      fresh.make_directories(kDir).value();
      fresh.append(path, whole.substr(0, cut));
      test::MemoryStore empty;
      port::KeyedStore& used = store_wiped ? static_cast<port::KeyedStore&>(empty) : before;
      auto opened = SegmentLog::open({"r", kDir, segment_bytes}, fresh, used, random);
      ASSERT_TRUE(opened);
      uint64_t good = cut >= behind ? 5 : 4;  // what is behind is the foot of its batch
      auto& l = **opened;
      EXPECT_EQ(l.durable_end(), store_wiped ? good + 1 : 6u) << cut;
      commit::Committer c(loop, disk, used);
      uint64_t next = l.append(Slice(std::string("next")), 1, {});
      EXPECT_GE(next, store_wiped ? good + 1 : 6u);
      EXPECT_LE(next, 6u);
      c.touch(l);
      loop.run_posted();
      auto cursor = l.read_from(1);
      for (uint64_t i = 1; i <= good; ++i) EXPECT_EQ((*cursor->next())->block.view(), text(i)) << cut;
      if (!store_wiped && good == 4) {
        EXPECT_TRUE((*cursor->next())->damaged);
        EXPECT_EQ(l.stats().quarantined, 1u);
      }
      EXPECT_EQ((*cursor->next())->block.view(), "next") << cut;
      EXPECT_FALSE(*cursor->next());
    }
  }
}

TEST_F(SegmentLogTest, an_all_zero_preallocated_segment_is_empty) {
  ASSERT_TRUE(append(1, 4));
  auto zero = kDir + "/" + segment_name(9);
  files.append(zero, std::string(4096, '\0'));
  open();
  EXPECT_EQ(read().blocks, texts(1, 4));
  EXPECT_GE(log->append(Slice(text(4)), 1, {}), 9u);
  committer->touch(*log);
  loop.run_posted();
  EXPECT_EQ(read().blocks, texts(1, 5));
  files.append(kDir + "/" + segment_name(90), std::string(4096, '\0'));
  store
      .write(
          [&] {
            port::WriteBatch b;
            b.remove("s/r/end");
            return b;
          }(),
          true)
      .value();
  open();
  EXPECT_EQ(read().blocks, texts(1, 5));
}

TEST_F(SegmentLogTest, a_wiped_store_keeps_whole_records_and_begins_a_new_epoch) {
  ASSERT_TRUE(append(1, 150));
  uint64_t epoch = log->epoch(), events = log->durable_events();
  files.append(segment_paths().back(), "torn");
  test::MemoryStore empty;
  auto opened = SegmentLog::open({"r", kDir, segment_bytes}, files, empty, random);
  ASSERT_TRUE(opened);
  committer.reset();
  log = std::move(*opened);
  committer = std::make_unique<commit::Committer>(loop, disk, empty);
  EXPECT_NE(log->epoch(), epoch);
  EXPECT_EQ(log->durable_events(), events);
  EXPECT_EQ(read().blocks, texts(1, 150));
  ASSERT_TRUE(append(150, 160));
  EXPECT_EQ(read().blocks, texts(1, 160));
  EXPECT_EQ(log->stats().quarantined, 0u);
}

TEST_F(SegmentLogTest, a_missing_segment_is_a_gap_with_its_events_counted) {
  ASSERT_TRUE(append(1, 200));
  auto paths = segment_paths();
  ASSERT_GT(paths.size(), 3u);
  ASSERT_TRUE(files.unlink(paths[1]));
  uint64_t lost =
      *parse_segment_name(paths[2].substr(kDir.size() + 1)) - *parse_segment_name(paths[1].substr(kDir.size() + 1));
  open();
  auto got = read();
  EXPECT_EQ(got.gaps, 1u);
  EXPECT_EQ(got.blocks.size(), 199 - lost);
  EXPECT_EQ(log->stats().quarantined, lost);
  EXPECT_EQ(got.events + got.lost_events, log->durable_events());
  ASSERT_TRUE(files.unlink(paths.back()));
  open();
  got = read();
  EXPECT_EQ(got.gaps, 2u);
  EXPECT_EQ(got.events + got.lost_events, log->durable_events());
  ASSERT_TRUE(append(200, 201));
  EXPECT_EQ(read().blocks.back(), text(200));
}

TEST_F(SegmentLogTest, a_newer_version_is_refused_and_nothing_is_touched) {
  ASSERT_TRUE(append(1, 4));
  auto path = segment_paths().front();
  std::string bytes = files.content(path);
  for (size_t at : {size_t{0}, kSegmentHeaderSize}) {
    bytes[at + 12] = kSegmentVersion + 1;
    uint32_t crc = crc32c(ByteView(bytes).substr(at + 12, kSegmentHeaderSize - 12));
    std::memcpy(bytes.data() + at + 8, &crc, 4);
  }
  set_content(path, bytes);
  committer.reset();
  log.reset();
  auto opened = SegmentLog::open({"r", kDir, segment_bytes}, files, store, random);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, errors::newer_version);
  EXPECT_EQ(files.content(path), bytes);
}

TEST_F(SegmentLogTest, a_read_error_is_reported_twice_then_costs_what_cannot_be_read) {
  ASSERT_TRUE(append(1, 4));
  auto cursor = log->read_from(1);
  int failures = 0;
  files.fault = [&](test::FileOp op, const std::string&) -> std::optional<Error> {
    if (op != test::FileOp::read) return std::nullopt;
    ++failures;
    return Error{port::file_errors::failed, "EIO"};
  };
  EXPECT_FALSE(cursor->next());
  EXPECT_FALSE(cursor->next());
  files.fault = nullptr;
  EXPECT_EQ((*cursor->next())->block.view(), text(1)) << "a passing error loses nothing";
  files.fault = [&](test::FileOp op, const std::string&) -> std::optional<Error> {
    if (op == test::FileOp::read) return Error{port::file_errors::failed, "EIO"};
    return std::nullopt;
  };
  auto other = log->read_from(1);
  EXPECT_FALSE(other->next());
  EXPECT_FALSE(other->next());
  EXPECT_FALSE(other->next());
  auto record = other->next();
  ASSERT_TRUE(record && *record);
  EXPECT_TRUE((*record)->damaged);
  EXPECT_EQ((*record)->sequence, 3u);
}

TEST_F(SegmentLogTest, a_payload_that_holds_a_segment_is_never_taken_for_records) {
  segment_bytes = 1 << 20;
  open();
  ASSERT_TRUE(append(1, 10));
  auto path = segment_paths().front();
  const size_t before = files.content(path).size();
  log->append(Slice(files.content(path)), 1, {});  // the spool's own file as an event
  committer->touch(*log);
  loop.run_posted();
  const size_t behind = files.content(path).size();
  ASSERT_TRUE(append(11, 13));
  std::string bytes = files.content(path);
  bytes[before + 10] ^= 4;  // neither end of its batch says where the next one is
  bytes[bytes.rfind(kBatchFootMagic, behind) + 10] ^= 4;
  set_content(path, bytes);
  open();
  auto got = read();
  EXPECT_EQ(got.gaps, 1u);
  EXPECT_EQ(got.blocks.size(), 11u);
  EXPECT_EQ(got.sequences.back(), 12u);
}

// Flip any bit anywhere: the records that the flip does not touch are read unchanged, and the sums stay exact.
TEST_F(SegmentLogTest, property_any_damage_leaves_the_other_records_and_exact_sums) {
  ASSERT_TRUE(append(1, 120));
  auto paths = segment_paths();
  std::map<std::string, std::string> whole;
  for (const auto& p : paths) whole[p] = files.content(p);
  const char* given = std::getenv("PH_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 20260101;
  Random dice(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int round = 0; round < 1500; ++round) {
    const auto& path = paths[dice.below(paths.size())];
    std::string bytes = whole[path];
    size_t harmed = 1 + dice.below(3), at = dice.below(bytes.size());
    uint64_t kind = dice.below(4);
    if (kind == 0) {
      for (size_t i = 0; i < harmed; ++i) bytes[dice.below(bytes.size())] ^= static_cast<char>(1 << dice.below(8));
    } else if (kind == 1) {
      size_t n = std::min<size_t>(1 + dice.below(700), bytes.size() - at);
      bytes.replace(at, n, n, '\0');
    } else if (kind == 2) {
      bytes.resize(at);
    } else {
      bytes[at] ^= static_cast<char>(1 << dice.below(8));
    }
    set_content(path, bytes);
    port::WriteBatch forget;
    store.scan("s/r/q/", [&](ByteView key, ByteView) { return forget.remove(std::string(key)), true; }).value();
    store.write(forget, true).value();
    committer.reset();
    log.reset();
    open();
    ASSERT_EQ(log->durable_end(), 120u);
    auto got = read();
    for (size_t i = 0; i < got.blocks.size(); ++i) ASSERT_EQ(got.blocks[i], text(got.sequences[i])) << round;
    ASSERT_EQ(got.events + got.lost_events, log->durable_events()) << round;
    if (kind == 3) {
      ASSERT_GE(got.blocks.size(), 118u) << round;
    }
    uint64_t from = 1 + dice.below(119);
    auto part = read(from);
    for (size_t i = 0; i < part.blocks.size(); ++i) ASSERT_EQ(part.blocks[i], text(part.sequences[i])) << round;
    for (const auto& p : paths) set_content(p, whole[p]);
  }
}

// A crash at every changing operation, with random torn and lost writes: what was acknowledged is there, what was not
// is absent or whole, and no sequence comes twice.
TEST_F(SegmentLogTest, property_crashes_lose_nothing_acknowledged_and_reuse_no_sequence) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random dice(seed);
    test::MemoryFiles fs(seed);
    test::MemoryStore kv;
    fs.make_directories("/data").value();
    fs.sync_directory("/").value();
    std::map<uint64_t, std::string> acked;
    std::set<uint64_t> seen_by_reader;
    uint64_t serial = 0, highest = 0;
    for (int life = 0; life < 12; ++life) {
      fs.no_crash();
      kv.before_write = nullptr;
      bool power = dice.chance(0.6);
      test::ManualLoop l;
      test::ManualDisk d(l);
      try {
        fs.crash_at(1 + dice.below(life == 0 ? 40 : 30));
        auto opened = SegmentLog::open({"r", kDir, 2048}, fs, kv, dice);
        ASSERT_TRUE(opened) << opened.error().to_string();
        auto& spool = **opened;
        auto cursor = spool.read_from(1);
        auto expected = acked.begin();
        for (;;) {
          auto r = cursor->next();
          ASSERT_TRUE(r) << r.error().to_string();
          if (!*r) break;
          ASSERT_FALSE((*r)->damaged) << "life " << life << " first " << (*r)->first << " last " << (*r)->sequence;
          ASSERT_NE(expected, acked.end()) << "unacknowledged record " << (*r)->block.view();
          ASSERT_EQ((*r)->sequence, expected->first);
          ASSERT_EQ((*r)->block.view(), expected->second);
          ++expected;
        }
        ASSERT_EQ(expected, acked.end());
        commit::Committer c(l, d, kv);
        // A crash between the files' sync and the store's write, too.
        uint64_t writes_left = dice.below(12);
        kv.before_write = [&] {
          if (writes_left-- == 0) throw test::SimulatedCrash{};
        };
        for (int group = 0; group < 12; ++group) {
          std::map<uint64_t, std::string> sent;
          for (uint64_t n = 1 + dice.below(8); n > 0; --n) {
            std::string body = "event " + std::to_string(++serial) + std::string(dice.below(400), 'x');
            uint64_t s = spool.append(Slice(body), 1, {});
            ASSERT_GT(s, highest) << "reused";
            sent[s] = body;
          }
          bool failing = dice.chance(0.2);
          if (failing)
            fs.fault = [&dice](test::FileOp op, const std::string&) -> std::optional<Error> {
              bool hit = (op == test::FileOp::write || op == test::FileOp::sync) && dice.chance(0.5);
              return hit ? std::optional(Error{port::file_errors::failed, "EIO"}) : std::nullopt;
            };
          c.request({&spool}, {}, [&](const Result<>& r) {
            if (r) acked.insert(sent.begin(), sent.end());
            if (r) highest = sent.rbegin()->first;
          });
          l.run_posted();
          fs.fault = nullptr;
        }
      } catch (const test::SimulatedCrash&) {
      }
      fs.fault = nullptr;
      kv.before_write = nullptr;
      if (power) {
        fs.cut_power();
        kv.cut_power(dice);
      }
    }
  }
}

TEST_F(SegmentLogTest, S1_a_crash_at_every_operation_of_a_retirement_loses_nothing_unreleased) {
  for (bool power : {false, true}) {
    for (uint64_t at = 1; at < 12; ++at) {
      SCOPED_TRACE(at);
      test::MemoryFiles fs(at);
      test::MemoryStore kv;
      fs.make_directories("/data").value();
      fs.sync_directory("/").value();
      test::ManualLoop l;
      test::ManualDisk d(l);
      try {
        auto opened = SegmentLog::open({"r", kDir, 1024}, fs, kv, random);
        ASSERT_TRUE(opened);
        commit::Committer c(l, d, kv);
        for (uint64_t i = 1; i <= 100; ++i) (*opened)->append(Slice(text(i)), 1, {});
        c.touch(**opened);
        l.run_posted();
        fs.crash_at(at);
        (*opened)->release_below(61);
      } catch (const test::SimulatedCrash&) {
      }
      fs.no_crash();
      if (power) {
        fs.cut_power();
        kv.cut_power(random);
      }
      auto opened = SegmentLog::open({"r", kDir, 1024}, fs, kv, random);
      ASSERT_TRUE(opened);
      auto cursor = (*opened)->read_from(61);
      for (uint64_t i = 61; i <= 100; ++i) {
        auto r = cursor->next();
        ASSERT_TRUE(r && *r);
        ASSERT_EQ((*r)->block.view(), text(i));
      }
      EXPECT_EQ((*opened)->stats().quarantined, 0u);
      (*opened)->release_below((*opened)->durable_end());
      EXPECT_LE((*opened)->stats().segments, 1u);
    }
  }
}

TEST_F(SegmentLogTest, opens_20000_segments_without_reading_them) {
  for (uint64_t i = 1; i <= 20'000; ++i) files.append(kDir + "/" + segment_name(i), std::string(200, 'x'));
  port::WriteBatch batch;
  batch.put("s/r/end", encode(DurableEnd{5, 20'000, 200, 20'001, 20'001, 20'000}));
  store.write(batch, true).value();
  uint64_t reads = 0;
  files.fault = [&](test::FileOp op, const std::string&) -> std::optional<Error> {
    reads += op == test::FileOp::read;
    return std::nullopt;
  };
  open();
  EXPECT_EQ(log->stats().segments, 20'000u);
  EXPECT_LE(reads, 2u);
}

}  // namespace ph::spool
