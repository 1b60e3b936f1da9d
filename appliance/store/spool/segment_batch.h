// Batch: the records that one group commit appends to a segment, side by side, so that what they share stands once.
// Encoded and decoded here; pure. Since segment version 2; the segment around it: segment_format.h. Why it is as it is:
// docs/spool_bytes.md of this floor.
//
//   head      an end (below) with magic "PHBH"
//   records   one behind the other
//   foot      an end with magic "PHBF", then an index
//
// Head and foot say the same of the batch, so that it can be read from either side: what is damaged between them, or of
// them, costs the records whose bytes it is and no other.
//
//   end: integers little-endian
//      0  4  magic
//      4  4  CRC-32C of the magic and of bytes 8..24, seeded with {epoch, segment, offset of this end}
//      8  4  size of this end
//     12  4  size of the other one
//     16  4  size of the batch, both ends included
//     20  4  CRC-32C of what follows
//     24     varints: sequence of the first record, how many sequences directly before it no record will ever have,
//            number of records, events in all records before, events in the batch, accepted at (zigzag, ms since the
//            epoch), position to count from, number of strings; then each string sized. String n is the n-th, from 1
//   index, behind the strings of the foot:
//      varint  number of entries: one a record; fewer only after a repair, whose last gap stands for several records
//      each:   varint size of the record * 4 + (2: a gap, put by repair) + (1: its events follow, else there is one),
//              [varint events]
//      zeros up to the foot's size: at least two, since the index of a repaired batch may be so much longer
//   record:
//      0  4    CRC-32C of what follows, seeded with {epoch, segment, offset of the batch, sequence of its first record,
//              offset of this record}
//      4       varint  size of what follows it
//              u8      1 taken apart, 2 position follows, 4 counts follow, 8 time follows, 16 events follow,
//                      32 accepted at follows; else 0
//      32:     varint  accepted at: zigzag difference to the batch's
//      16:     varint  events of the record; else 1
//      1:      the block (codec/event/block.h), taken apart:
//              varint  number of the string that is its head, 0: sized, here
//              varint  number of the string that is its tail, likewise
//        2:    varint  zigzag difference of its first position to the batch's plus the record's number in it; else none
//        4:    varint  last - first, varint its number of events; else both are 1
//        8:    varint  its accepted at, ms since the epoch; else the record's
//              the payload
//      else:   the block as it is
//
// A string stands in both ends, so no record depends on bytes that one flip can harm.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "codec/event/block.h"
#include "store/spool/segment_format.h"

namespace ph::spool {

inline constexpr size_t kBatchEndSize = 24;  // of an end, at least
inline constexpr char kBatchHeadMagic[] = "PHBH";
inline constexpr char kBatchFootMagic[] = "PHBF";
inline constexpr size_t kBatchTarget = 256 << 10;  // a batch that is longer takes no further record
inline constexpr uint32_t kBatchMax = limits::kRecordMax + kBatchTarget;

struct BatchInput {
  uint64_t events = 0;
  WallTime accepted_at{};
  ByteView block;
};
struct BatchStart {
  uint64_t offset = 0;  // in the segment
  uint64_t first = 0;   // sequence of the first record
  uint32_t skipped = 0;
  uint64_t events_before = 0;
};

/// About what a record of a block of `block_bytes` takes at most, alone in a batch or not.
constexpr uint64_t batch_room(uint64_t block_bytes) {
  return block_bytes + 32;
}
inline constexpr uint64_t kBatchRoom = 128;  // and what the batch itself takes

/// Appends a batch. Requires at least one record, and no more than kBatchTarget bytes of blocks if there are several.
void encode_batch(std::span<const BatchInput> records, const BatchStart& start, RecordSeed seed, std::string& out);

/// What either end tells of a batch.
struct BatchHead {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t head_bytes = 0;
  uint32_t foot_bytes = 0;
  uint64_t first = 0;
  uint32_t skipped = 0;
  uint32_t records = 0;
  uint64_t events_before = 0;
  uint64_t events = 0;
  WallTime accepted_at{};
  uint64_t position = 0;
  std::vector<std::string> strings;
  uint64_t records_at() const { return offset + head_bytes; }
  uint64_t foot_at() const { return offset + bytes - foot_bytes; }
  uint64_t end() const { return offset + bytes; }
};

struct IndexEntry {
  uint32_t bytes = 0;
  bool gap = false;
  uint64_t events = 1;
};
struct BatchFoot {
  BatchHead head;
  std::vector<IndexEntry> index;
};

/// The first kBatchEndSize bytes of an end.
struct BatchEnd {
  bool is_foot = false;
  uint32_t own = 0;
  uint32_t other = 0;
  uint32_t batch = 0;
  /// Where the batch begins, for an end that stands at `offset`.
  uint64_t batch_at(uint64_t offset) const { return is_foot ? offset + own - batch : offset; }
};
/// nullopt unless `bytes` begins with an end that was written for exactly this place.
std::optional<BatchEnd> decode_batch_end(ByteView bytes, RecordSeed seed, uint64_t offset);
/// nullopt unless a whole head, or foot, stands there. `bytes` may be longer.
std::optional<BatchHead> decode_batch_head(ByteView bytes, RecordSeed seed, uint64_t offset);
std::optional<BatchFoot> decode_batch_foot(ByteView bytes, RecordSeed seed, uint64_t offset);

/// Whether all of an end stands there.
bool batch_end_whole(ByteView bytes, RecordSeed seed, uint64_t offset);

/// What repair puts in the place of the ends: as long as they were. Requires an index that fits.
std::string encode_batch_head(const BatchHead& head, RecordSeed seed);
std::string encode_batch_foot(const BatchHead& head, std::span<const IndexEntry> index, RecordSeed seed);

struct BatchRecord {
  uint32_t bytes = 0;
  uint64_t events = 0;
  WallTime accepted_at{};
  ByteView block;                     // if it was not taken apart
  std::optional<event::Parts> parts;  // views of the record and of the batch's strings
};
/// Record `number`, from 0, of a batch, which stands at `offset`; nullopt unless it is whole.
std::optional<BatchRecord> decode_batch_record(ByteView bytes, const BatchHead& head, RecordSeed seed, uint64_t offset,
                                               uint32_t number);

}  // namespace ph::spool
