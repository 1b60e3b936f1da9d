#include "store/spool/spool_check.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/coding.h"
#include "base/log.h"
#include "base/random.h"
#include "store/commit/committer.h"
#include "store/spool/segment_log.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::spool {
namespace {

const std::string kDir = "/data/spool/r";

struct SpoolCheckTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  Random random{7};
  SpoolPlace place{files, &store, "r", kDir};
  uint64_t events = 0;

  void SetUp() override {
    log_configure(LogLevel::off, false);
    files.make_directories("/data").value();
  }
  static std::string text(uint64_t i) { return "record " + std::to_string(i) + std::string(40, 'x'); }
  std::unique_ptr<SegmentLog> open() {
    auto opened = SegmentLog::open({"r", kDir, 4096}, files, store, random);
    EXPECT_TRUE(opened);
    return opened ? std::move(*opened) : nullptr;
  }
  void fill(uint64_t count) {
    auto log = open();
    commit::Committer committer(loop, disk, store);
    uint64_t from = log->durable_end();
    for (uint64_t i = 0; i < count; ++i) log->append(Slice(text(from + i)), i % 3 + 1, from_unix_ms(1));
    committer.touch(*log);
    loop.run_posted();
    ASSERT_EQ(log->durable_end(), from + count);
    events = log->durable_events();
  }
  std::vector<std::string> segments() {
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
  static std::string told(const SpoolReport& report) {
    std::string out;
    for (const SegmentReport& s : report.segments) {
      out += s.file + " [" + std::to_string(s.first) + ", " + std::to_string(s.last) + ") " + s.note + "\n";
      for (const Damage& d : s.damage)
        out += s.file + " of " + std::to_string(s.bytes) + ": " + std::to_string(d.bytes) + " at " +
               std::to_string(d.offset) + ", [" + std::to_string(d.first) + ", " + std::to_string(d.last) + ") with " +
               std::to_string(d.events) + " events behind " + std::to_string(d.events_before) + ", " + d.reason + "\n";
    }
    return out;
  }
  size_t damaged() {
    auto report = check_spool(place);
    EXPECT_TRUE(report) << (report ? "" : report.error().to_string());
    return report ? report->damaged_places() : 999;
  }
  /// Whole records by sequence, and the sum of events with the lost ones.
  std::map<uint64_t, std::string> read(uint64_t* sum = nullptr, uint64_t* found = nullptr) {
    std::map<uint64_t, std::string> out;
    auto log = open();
    auto cursor = log->read_from(1, 0);
    uint64_t at = 1, total = 0;
    for (auto r = cursor->next(); r && *r; r = cursor->next()) {
      EXPECT_EQ((*r)->first, at);
      at = (*r)->sequence + 1;
      total += (*r)->events;
      if (!(*r)->damaged) out[(*r)->sequence] = std::string((*r)->block.view());
    }
    EXPECT_EQ(at, log->durable_end());
    if (sum) *sum = total;
    if (found) *found = log->stats().quarantined;
    return out;
  }
};

}  // namespace

TEST_F(SpoolCheckTest, a_whole_log_is_clean_and_listed_with_its_ranges) {
  EXPECT_EQ(damaged(), 0u) << "no log at all";
  fill(200);
  EXPECT_EQ(damaged(), 0u);
  auto list = list_spool(place);
  ASSERT_TRUE(list);
  ASSERT_EQ(list->segments.size(), segments().size());
  EXPECT_EQ(list->segments.front().first, 1u);
  EXPECT_EQ(list->segments.back().last, 201u);
  auto check = check_spool(place);
  uint64_t records = 0, sum = 0;
  for (size_t i = 0; i < check->segments.size(); ++i) {
    EXPECT_EQ(check->segments[i].first, list->segments[i].first);
    EXPECT_EQ(check->segments[i].last, list->segments[i].last);
    records += check->segments[i].records;
    sum += check->segments[i].events;
  }
  EXPECT_EQ(records, 200u);
  EXPECT_EQ(sum, events);
  EXPECT_EQ(repair_spool(place)->places, 0u);
}

TEST_F(SpoolCheckTest, S2_check_names_segment_and_offset_and_repair_keeps_the_bad_bytes) {
  fill(200);
  auto path = segments()[1];
  std::string bytes = files.content(path);
  size_t at = bytes.find("record") + 3;
  bytes[at] ^= 1;
  set_content(path, bytes);
  auto report = check_spool(place);
  ASSERT_EQ(report->damaged_places(), 1u);
  const Damage& d = report->segments[1].damage.at(0);
  EXPECT_EQ(kDir + "/" + segment_name(d.segment), path);
  EXPECT_EQ(d.offset, kRecordsOffset) << "of its batch";
  EXPECT_GE(d.offset + d.bytes, at - 3 + text(1).size());
  EXPECT_EQ(d.last, d.first + 1);
  auto repaired = repair_spool(place);
  ASSERT_TRUE(repaired);
  EXPECT_EQ(repaired->places, 1u);
  EXPECT_EQ(repaired->quarantined_bytes, d.bytes);
  EXPECT_EQ(damaged(), 0u);
  std::string kept = files.content(path + ".quarantine");
  ASSERT_EQ(kept.size(), 24 + d.bytes);
  EXPECT_EQ(kept.substr(0, 8), "PHQUAR1\n");
  EXPECT_EQ(load_fixed<uint64_t>(kept.data() + 8), d.offset);
  EXPECT_EQ(kept.substr(24), bytes.substr(d.offset, d.bytes));
  EXPECT_EQ(files.content(path).size(), bytes.size());
  uint64_t sum = 0;
  EXPECT_EQ(read(&sum).size(), 199u);
  EXPECT_EQ(sum, events);
  EXPECT_EQ(damaged(), 0u);
}

TEST_F(SpoolCheckTest, repair_ends_the_alarm_and_keeps_the_count) {
  fill(200);
  auto path = segments()[1];
  std::string bytes = files.content(path);
  bytes[bytes.find("record") + 3] ^= 1;
  set_content(path, bytes);
  read(nullptr);  // finds it
  auto stats = [&] { return open()->stats(); };
  EXPECT_EQ(stats().quarantined, 1u);
  EXPECT_EQ(stats().unrepaired, 1u);
  ASSERT_TRUE(repair_spool(place));
  EXPECT_EQ(stats().quarantined, 1u);
  EXPECT_EQ(stats().unrepaired, 0u);
}

TEST_F(SpoolCheckTest, unacknowledged_bytes_are_no_damage) {
  fill(20);
  files.append(segments().back(), "half a rec");
  files.append(kDir + "/" + segment_name(99), std::string(300, 'x'));
  auto report = check_spool(place);
  EXPECT_EQ(report->damaged_places(), 0u);
  EXPECT_EQ(report->unacknowledged_bytes, 310u);
  files.unlink(kDir + "/" + segment_name(99)).value();
  place.store = nullptr;
  report = check_spool(place);
  EXPECT_EQ(report->damaged_places(), 0u);
  EXPECT_EQ(report->unacknowledged_bytes, 10u);
}

TEST_F(SpoolCheckTest, ranges_given_up_on_purpose_are_no_damage) {
  fill(300);
  {
    auto log = open();
    size_t before = log->stats().segments;
    log->release_range(100, 200);
    EXPECT_LT(log->stats().segments, before);
  }
  EXPECT_EQ(damaged(), 0u);
  uint64_t sum = 0, found = 0;
  read(&sum, &found);
  EXPECT_EQ(sum, events);
  EXPECT_EQ(found, 0u);
}

// Any damage: check finds it, repair makes the next check clean, what was whole stays, the sums stay exact.
TEST_F(SpoolCheckTest, property_after_repair_a_check_is_clean_and_nothing_whole_is_lost) {
  fill(150);
  auto paths = segments();
  std::map<std::string, std::string> whole;
  for (const auto& p : paths) whole[p] = files.content(p);
  port::WriteBatch clean_store;
  store.scan("", [&](ByteView k, ByteView v) { return clean_store.put(std::string(k), std::string(v)), true; }).value();
  const char* given = std::getenv("PH_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 4711;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random dice(seed);
  for (int round = 0; round < 800; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<std::string> stray;
    for (const auto& p : files.paths())
      if (p.starts_with(kDir + "/") && !whole.contains(p)) stray.push_back(p);
    for (const auto& p : stray) files.unlink(p).value();
    for (const auto& [p, bytes] : whole) {
      if (!files.exists(p)) files.append(p, bytes);
      set_content(p, bytes);
    }
    port::WriteBatch reset;
    store.scan("", [&](ByteView k, ByteView) { return reset.remove(std::string(k)), true; }).value();
    store.write(reset, true).value();
    store.write(clean_store, true).value();

    for (uint64_t n = 1 + dice.below(3); n > 0; --n) {
      const auto& path = paths[dice.below(paths.size())];
      if (!files.exists(path)) continue;
      std::string bytes = files.content(path);
      if (bytes.empty()) continue;
      size_t at = dice.below(bytes.size());
      switch (dice.below(5)) {
        case 0:
          bytes[at] ^= static_cast<char>(1 << dice.below(8));
          break;
        case 1:
          bytes.replace(at, std::min<size_t>(dice.below(500), bytes.size() - at), 0, 'x');  // bytes vanish
          break;
        case 2: {
          size_t count = std::min<size_t>(dice.below(900), bytes.size() - at);
          bytes.replace(at, count, count, '\0');
          break;
        }
        case 3:
          bytes.resize(at);
          break;
        default:
          if (dice.chance(0.5)) {
            files.unlink(path).value();
            continue;
          }
          bytes.replace(0, std::min<size_t>(kRecordsOffset, bytes.size()),
                        std::min<size_t>(kRecordsOffset, bytes.size()), 'z');
      }
      set_content(path, bytes);
    }
    bool with_store = dice.chance(0.8);
    place.store = with_store ? &store : nullptr;
    size_t places = damaged();
    port::WriteBatch snapshot;  // reading notes damage in the store: look at a copy of it
    store.scan("", [&](ByteView k, ByteView v) { return snapshot.put(std::string(k), std::string(v)), true; }).value();
    std::map<uint64_t, std::string> before;
    uint64_t sum = 0;
    if (with_store) {
      std::map<std::string, std::string> now;
      for (const auto& p : files.paths())
        if (p.starts_with(kDir + "/")) now[p] = files.content(p);
      before = read(&sum);
      ASSERT_EQ(sum, events);
      for (const auto& [p, b] : now) {
        if (!files.exists(p)) files.append(p, b);
        set_content(p, b);
      }
      ASSERT_EQ(before.size() == 150, places == 0 || before.size() == 150);
    }
    auto repaired = repair_spool(place);
    ASSERT_TRUE(repaired) << repaired.error().to_string();
    ASSERT_EQ(damaged(), 0u) << told(*check_spool(place)) << "before: " << told(repaired->before);
    if (!with_store) continue;
    auto after = read(&sum);
    ASSERT_EQ(after, before);
    ASSERT_EQ(sum, events) << told(repaired->before);
    for (const auto& [sequence, body] : after) ASSERT_EQ(body, text(sequence));
  }
}

TEST_F(SpoolCheckTest, S1_a_crash_at_any_operation_of_a_repair_loses_nothing) {
  fill(60);
  auto path = segments()[0];
  std::string bytes = files.content(path);
  bytes[bytes.find("record 5")] ^= 1;
  set_content(path, bytes);
  for (uint64_t at = 1; at < 14; ++at) {
    files.crash_at(at);
    try {
      ASSERT_TRUE(repair_spool(place));
    } catch (const test::SimulatedCrash&) {
    }
    files.no_crash();
    files.cut_power();
    auto again = repair_spool(place);
    ASSERT_TRUE(again);
    EXPECT_EQ(damaged(), 0u);
    EXPECT_EQ(read().size(), 59u);
    EXPECT_NE(files.content(path + ".quarantine").find(bytes.substr(bytes.find("record 6") - 60, 20)), 0u);
    set_content(path, bytes);
  }
}

}  // namespace ph::spool
