// What version 1 wrote is read for ever: a segment of four messages, as a node of that version left it.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "store/commit/committer.h"
#include "store/spool/segment_log.h"
#include "store/spool/spool_check.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::spool {
namespace {

constexpr std::string_view kSegment =
    "50485345474d540af4e2a8fc01000000dd3645cf8fdac25f010000000000000001000000000000000000000000000000ce22"
    "992da2010000000000000000000050485345474d540af4e2a8fc01000000dd3645cf8fdac25f010000000000000001000000"
    "000000000000000000000000ce22992da20100000000000000000000504852312cd74e3638000000ad68753d010000000000"
    "000000000000000000000100000000000000ce22992da201000000000000010000001210046d71747403674f8c59ff9c481b"
    "8f6445392ade52158c843f538203ca000101cec5e4eca2340003742f3000007061796c6f616420305048523185d7eaf33800"
    "00007d3bbf25020000000000000001000000000000000100000000000000d022992da201000000000000010000001210046d"
    "71747403674f8c59ff9c481b8f6445392ade52158c843f538203ca010101d0c5e4eca2340003742f3100007061796c6f6164"
    "20315048523111e89dfb380000007ee82017030000000000000002000000000000000100000000000000d022992da2010000"
    "00000000010000001210046d71747403674f8c59ff9c481b8f6445392ade52158c843f538203ca020101d0c5e4eca2340003"
    "742f3200007061796c6f61642032504852311a28fcbf38000000d0740efa0400000000000000030000000000000001000000"
    "00000000d022992da201000000000000010000001210046d71747403674f8c59ff9c481b8f6445392ade52158c843f538203"
    "ca030101d0c5e4eca2340003742f3300007061796c6f61642033";
constexpr size_t kMessages = 4;

std::string from_hex(std::string_view digits) {
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    out.push_back(static_cast<char>(hex_digit(digits[i]) << 4 | hex_digit(digits[i + 1])));
  return out;
}

struct SegmentVersionTest : testing::Test {
  const std::string dir = "/data/spool/r";
  const std::string old = from_hex(kSegment);
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  std::unique_ptr<test::MemoryFiles> files;
  std::unique_ptr<test::MemoryStore> store;
  Random random{7};
  std::unique_ptr<SegmentLog> log;

  void SetUp() override { log_configure(LogLevel::off, false); }
  /// The data directory as the old version left it; with what is in its segment now.
  void upgrade(const std::string& segment) {
    log.reset();
    files = std::make_unique<test::MemoryFiles>();
    store = std::make_unique<test::MemoryStore>();
    files->make_directories(dir).value();
    files->append(dir + "/" + segment_name(1), segment);
    std::string end(1, '\x01');
    for (uint64_t word : {load_fixed<uint64_t>(old.data() + 16), uint64_t{1}, uint64_t{old.size()},
                          uint64_t{kMessages + 1}, uint64_t{kMessages + 1}, uint64_t{kMessages}})
      put_fixed(end, word);
    port::WriteBatch batch;
    batch.put("s/r/end", end);
    store->write(batch, true).value();
    open();
  }
  void open() {
    log.reset();
    auto opened = SegmentLog::open({.name = "r", .directory = dir}, *files, *store, random);
    ASSERT_TRUE(opened) << opened.error().to_string();
    log = std::move(*opened);
  }
  void append(const std::string& block) {
    commit::Committer committer(loop, disk, *store);
    log->append(Slice(block), 1, from_unix_ms(1));
    committer.touch(*log);
    loop.run_posted();
  }
  /// Payloads of messages, or "gap".
  std::vector<std::string> read() {
    std::vector<std::string> out;
    auto cursor = log->read_from(1);
    while (auto record = cursor->next().value()) {
      auto block = event::decode(record->block);
      out.emplace_back(record->damaged ? "gap" : block ? block->payload.view() : record->block.view());
    }
    return out;
  }
};

}  // namespace

TEST_F(SegmentVersionTest, what_version_1_wrote_is_read_and_what_comes_goes_into_a_segment_of_its_own) {
  const std::vector<std::string> messages{"payload 0", "payload 1", "payload 2", "payload 3"};
  upgrade(old);
  EXPECT_EQ(log->durable_end(), kMessages + 1);
  EXPECT_EQ(read(), messages);
  append("new");
  auto all = messages;
  all.emplace_back("new");
  EXPECT_EQ(read(), all);
  EXPECT_EQ(files->content(dir + "/" + segment_name(1)), old) << "nothing is added to it";
  EXPECT_EQ(log->stats().segments, 2u);
  open();
  append("newer");
  all.emplace_back("newer");
  EXPECT_EQ(read(), all);
  EXPECT_EQ(log->stats().segments, 2u);
  EXPECT_EQ(check_spool({*files, store.get(), "r", dir})->damaged_places(), 0u);
}

TEST_F(SegmentVersionTest, a_wiped_store_finds_all_of_version_1) {
  upgrade(old);
  log.reset();
  store = std::make_unique<test::MemoryStore>();
  open();
  EXPECT_EQ(log->durable_end(), kMessages + 1);
  append("new");
  EXPECT_EQ(read(), (std::vector<std::string>{"payload 0", "payload 1", "payload 2", "payload 3", "new"}));
}

TEST_F(SegmentVersionTest, S2_damage_of_version_1_costs_one_record_and_is_repaired) {
  for (size_t bit = 0; bit < old.size() * 8; bit += 3) {
    std::string harmed = old;
    harmed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    upgrade(harmed);
    const auto got = read();
    EXPECT_EQ(got.size(), kMessages) << bit;
    EXPECT_LE(std::ranges::count(got, "gap"), 1) << bit;
    log.reset();
    const SpoolPlace place{*files, store.get(), "r", dir};
    ASSERT_EQ(repair_spool(place)->places, 1u) << bit;
    ASSERT_EQ(check_spool(place)->damaged_places(), 0u) << bit;
    open();
    EXPECT_EQ(read(), got) << bit;
  }
}

TEST_F(SegmentVersionTest, S3_a_tail_that_version_1_tore_is_cut) {
  upgrade(old + old.substr(kRecordsOffset, 100));
  EXPECT_EQ(read().size(), kMessages);
  append("new");
  EXPECT_EQ(read().back(), "new");
  EXPECT_EQ(files->content(dir + "/" + segment_name(1)), old);
}

}  // namespace ph::spool
