#include "store/spool/segment_batch.h"

#include <gtest/gtest.h>

#include <map>

#include "base/coding.h"
#include "base/random.h"
#include "codec/event/block.h"
#include "store/spool/segment_reader.h"
#include "support/memory_files.h"

namespace ph::spool {
namespace {

const RecordSeed kSeed{0x1234'5678'9abc'def0, 100};
const std::string kPath = "/s/" + segment_name(100);

std::string message(uint64_t n, const std::string& topic, size_t payload = 40) {
  event::Block b;
  b.kind = event::BlockKind::message;
  b.category = "mqtt";
  b.id = {Random(5).node_id(), StreamId{77}, 5000 + n, 5001 + n};
  b.events = 1;
  b.accepted_at = from_unix_ms(1'700'000'000'000 + static_cast<int64_t>(n / 3));
  b.topic = topic;
  b.qos = 1;
  b.payload = Slice(std::to_string(n) + std::string(payload, static_cast<char>('a' + n % 26)));
  return event::encode(b);
}

std::string lines(uint64_t n) {
  event::Block b;
  b.category = "clicks";
  b.id = {Random(6).node_id(), StreamId{78}, 1000 * n, 1000 * n + 12};
  b.events = 3;
  b.accepted_at = from_unix_ms(1'690'000'000'000);
  b.hops = {"ams"};
  b.payload = Slice(std::string("abc\ndef\nghi\n"));
  return event::encode(b);
}

struct Stored {
  std::vector<std::string> blocks;
  std::vector<uint64_t> events;
  std::string bytes;  // a segment
};

void add_batch(Stored& to, const std::vector<std::string>& blocks) {
  if (to.bytes.empty()) to.bytes = encode(SegmentHeader{kSeed.epoch, kSeed.segment, kSeed.segment, 0, {}});
  std::vector<BatchInput> inputs;
  uint64_t before = 0;
  for (uint64_t e : to.events) before += e;
  const uint64_t first = kSeed.segment + to.blocks.size();
  for (const std::string& block : blocks) {
    const auto decoded = event::decode(Slice(block));
    const uint64_t events = decoded ? decoded->events : to.blocks.size() % 4;
    inputs.push_back({events, decoded ? decoded->accepted_at : from_unix_ms(-5), block});
    to.blocks.push_back(block);
    to.events.push_back(events);
  }
  encode_batch(inputs, {to.bytes.size(), first, 0, before}, kSeed, to.bytes);
}

/// Two batches: topics that many share, that few share, blocks of lines, and bytes that are no block.
Stored mixed() {
  Stored out;
  std::vector<std::string> blocks;
  for (uint64_t n = 0; n < 6; ++n) blocks.push_back(message(n, "t/shared"));
  blocks.push_back(message(9, "t/own"));
  blocks.push_back(lines(4));
  blocks.emplace_back("no block at all");
  blocks.emplace_back();
  blocks.push_back(message(6, "t/shared"));
  add_batch(out, blocks);
  add_batch(out, {message(20, "t/next"), message(21, "t/next")});
  return out;
}

struct Read {
  std::map<uint64_t, std::string> blocks;  // whole ones, by sequence
  uint64_t lost = 0;                       // sequences
  uint64_t gaps = 0;                       // sequences of gap records
  uint64_t events = 0;                     // in all, as far as totals tell
  size_t damaged_ends = 0;
};

Read read(const std::string& bytes, std::vector<BatchFoot>* mended = nullptr) {
  test::MemoryFiles files;
  files.make_directories("/s").value();
  files.append(kPath, bytes);
  auto file = files.open(kPath, port::OpenMode::read).value();
  SegmentReader reader(*file, kSeed, kRecordsOffset, bytes.size());
  Read out;
  uint64_t at = kRecordsOffset;
  for (;;) {
    auto item = reader.next().value();
    if (item.what == SegmentReader::What::end) return out;
    EXPECT_EQ(item.offset, at) << "items tile the file";
    at = item.offset + item.bytes;
    out.damaged_ends += item.damaged_end.has_value();
    if (item.what == SegmentReader::What::damaged_bytes) continue;
    const RecordHeader& h = item.header;
    out.events = h.events_after();
    if (item.what == SegmentReader::What::damaged_record)
      out.lost += h.sequence + 1 - h.covers_from();
    else if (h.kind == RecordKind::gap)
      out.gaps += h.sequence + 1 - h.covers_from();
    else
      out.blocks[h.sequence] = std::string(item.payload.view());
    if (mended && h.sequence == item.batch_last)
      if (auto batch = reader.mended()) mended->push_back(std::move(*batch));
  }
}

/// What is read is what was written.
void expect_true(const Read& got, const Stored& stored) {
  for (const auto& [sequence, block] : got.blocks) ASSERT_EQ(block, stored.blocks[sequence - kSeed.segment]);
}

}  // namespace

TEST(SegmentBatch, gives_back_every_block_as_it_was) {
  const Stored stored = mixed();
  const Read got = read(stored.bytes);
  EXPECT_EQ(got.blocks.size(), stored.blocks.size());
  expect_true(got, stored);
  uint64_t events = 0;
  for (uint64_t e : stored.events) events += e;
  EXPECT_EQ(got.events, events);
  EXPECT_EQ(got.damaged_ends, 0u);
}

TEST(SegmentBatch, a_message_costs_a_few_bytes_more_than_its_payload) {
  for (size_t topics : {1, 10}) {
    Stored stored;
    std::vector<std::string> blocks;
    for (uint64_t n = 0; n < 100; ++n)
      blocks.push_back(message(n, "plant/line/device/" + std::to_string(n % topics), 98));
    add_batch(stored, blocks);
    EXPECT_LT(stored.bytes.size() - kRecordsOffset, 100 * (100 + 18)) << "so much as its topic alone";
  }
}

TEST(SegmentBatch, S2_any_flipped_bit_costs_at_most_the_record_that_it_is_in) {
  const Stored stored = mixed();
  for (size_t bit = kRecordsOffset * 8; bit < stored.bytes.size() * 8; ++bit) {
    std::string bytes = stored.bytes;
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const Read got = read(bytes);
    ASSERT_EQ(got.blocks.size() + got.lost, stored.blocks.size()) << bit;
    ASSERT_EQ(got.lost + got.damaged_ends, 1u) << bit << ": told, and no more than one record";
    expect_true(got, stored);
  }
}

TEST(SegmentBatch, S3_cut_anywhere_it_gives_every_record_that_is_there) {
  const Stored stored = mixed();
  const Read all = read(stored.bytes);
  size_t before = 0;
  for (size_t cut = kRecordsOffset; cut <= stored.bytes.size(); ++cut) {
    const Read got = read(stored.bytes.substr(0, cut));
    ASSERT_GE(got.blocks.size(), before) << cut;
    before = got.blocks.size();
    expect_true(got, stored);
  }
  EXPECT_EQ(before, all.blocks.size());
}

TEST(SegmentBatch, bytes_that_are_wiped_cost_no_record_beside_them) {
  const Stored stored = mixed();
  const ByteView whole = stored.bytes;
  std::vector<std::pair<size_t, size_t>> places;  // of payloads
  size_t from = kRecordsOffset;
  for (size_t i = 0; i < stored.blocks.size(); ++i) {
    const auto parts = event::split(stored.blocks[i]);
    const ByteView payload = parts ? parts->payload : ByteView(stored.blocks[i]);
    const size_t at = whole.find(payload, from);
    places.emplace_back(at, at + payload.size());
    from = at + payload.size();
  }
  Random dice(3);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = stored.bytes;
    const size_t at = kRecordsOffset + dice.below(bytes.size() - kRecordsOffset);
    const size_t size = std::min<size_t>(1 + dice.below(120), bytes.size() - at);
    bytes.replace(at, size, size, '\0');
    const Read got = read(bytes);
    expect_true(got, stored);
    constexpr size_t kAround = 110;  // what of a record may stand before its payload
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i].first < places[i].second && (at >= places[i].second || at + size + kAround <= places[i].first)) {
        ASSERT_TRUE(got.blocks.contains(kSeed.segment + i)) << round << ": record " << i;
      }
  }
}

TEST(SegmentBatch, what_a_repair_writes_fits_and_reads_as_gaps) {
  Stored tiny;
  add_batch(tiny, {"a", "b"});
  add_batch(tiny, {"c", "d", "e"});
  for (const Stored& stored : {mixed(), tiny}) {
    Random dice(8);
    for (int round = 0; round < 3000; ++round) {
      std::string bytes = stored.bytes;
      for (uint64_t n = 1 + dice.below(4); n > 0; --n)
        bytes[kRecordsOffset + dice.below(bytes.size() - kRecordsOffset)] ^= static_cast<char>(1 << dice.below(8));
      if (dice.chance(0.3)) bytes.resize(kRecordsOffset + 1 + dice.below(bytes.size() - kRecordsOffset));
      std::vector<BatchFoot> mended;
      const Read before = read(bytes, &mended);
      for (const BatchFoot& batch : mended) {
        bytes.resize(std::max<size_t>(bytes.size(), batch.head.end()), '\0');
        bytes.replace(batch.head.offset, batch.head.head_bytes, encode_batch_head(batch.head, kSeed));
        bytes.replace(batch.head.foot_at(), batch.head.foot_bytes, encode_batch_foot(batch.head, batch.index, kSeed));
      }
      const Read after = read(bytes);
      ASSERT_EQ(after.blocks, before.blocks) << round;
      ASSERT_EQ(after.lost + after.damaged_ends, 0u) << round;
      ASSERT_EQ(after.gaps, before.lost + before.gaps) << round;
      ASSERT_EQ(after.events, before.events) << round;
    }
  }
}

TEST(SegmentBatch, nothing_of_it_is_taken_for_whole_anywhere_else) {
  const Stored stored = mixed();
  ByteView batch = ByteView(stored.bytes).substr(kRecordsOffset);
  ASSERT_TRUE(decode_batch_head(batch, kSeed, kRecordsOffset));
  EXPECT_FALSE(decode_batch_head(batch, kSeed, kRecordsOffset + 1));
  EXPECT_FALSE(decode_batch_head(batch, {kSeed.epoch + 1, kSeed.segment}, kRecordsOffset));
  EXPECT_FALSE(decode_batch_head(batch, {kSeed.epoch, kSeed.segment + 1}, kRecordsOffset));
  const auto head = *decode_batch_head(batch, kSeed, kRecordsOffset);
  ByteView record = ByteView(stored.bytes).substr(head.records_at());
  ASSERT_TRUE(decode_batch_record(record, head, kSeed, head.records_at(), 0));
  EXPECT_FALSE(decode_batch_record(record, head, kSeed, head.records_at() + 1, 0));
  for (size_t size = 0; size < head.head_bytes; ++size)
    ASSERT_FALSE(decode_batch_head(batch.substr(0, size), kSeed, kRecordsOffset));
  ByteView foot = ByteView(stored.bytes).substr(head.foot_at());
  ASSERT_TRUE(decode_batch_foot(foot, kSeed, head.foot_at()));
  for (size_t size = 0; size < head.foot_bytes; ++size)
    ASSERT_FALSE(decode_batch_foot(foot.substr(0, size), kSeed, head.foot_at()));
}

}  // namespace ph::spool
