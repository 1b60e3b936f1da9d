// Segment format: the bytes of a spool segment and of the log's entries in the keyed store, encoded and decoded. Pure:
// no file is touched here.
//
// A segment is <directory>/<first sequence, 16 hex digits>.seg. All integers little-endian.
//
//   segment header, 64 bytes, at 0 and once more at 64 (a damaged copy is replaced by the other one)
//      0  8  magic "PHSEGMT\n"
//      8  4  CRC-32C of bytes 12..64
//     12  4  version, 2. A newer one is refused with spool.newer_version: nothing of the log is touched
//     16  8  epoch of the log that wrote it, random
//     24  8  first: sequence of its first record, as in the file's name
//     32  8  begins: sequence behind the last committed record of the segment before; below first when sequences
//            between the two were given to a group that failed
//     40  8  events in all records before this segment, since the log was made
//     48  8  made at, milliseconds since the epoch
//     56  8  zero
//   then from offset 128 batches (segment_batch.h), and single records, each a header of 56 bytes and `size` bytes.
//   Single records are what version 1 had instead of batches, and is read for ever; now only repair writes one, a gap.
//      0  4  magic "PHR1"
//      4  4  CRC-32C of bytes 8..56, seeded (below)
//      8  4  size of what follows the header
//     12  4  CRC-32C of what follows the header
//     16  8  sequence
//     24  8  events in all records before this one, since the log was made
//     32  8  events in this record
//     40  8  accepted at, milliseconds since the epoch
//     48  4  skipped: how many sequences directly before this one no record will ever have
//     52  1  kind: 1 an encoded block; 2 a gap: what repair put in the place of damaged bytes; its bytes mean nothing
//            and are not checked
//     53  3  zero
//   In which version a segment is says who may read it, not how: every unit tells itself what it is.
//
// Why a record header has its own CRC: a flipped bit in the payload then still tells sequence, events and where the
// next record begins. Its CRC is seeded with the CRC of {epoch, first, offset}, so a header that a payload happens to
// hold (a segment file sent as an event) is never taken for one when the reader looks for the next record.
//
// Store entries, prefix s/<log name>/:
//   end            DurableEnd, in the batch of every group: u8 version, 2; varints in the order of its members.
//                  Version 1 had them as u64
//   r/<first>      two u64 keys, one in the value: [first, last) was released although older records are kept
//   floor          u64 key: everything below was released
//   q/<segment><offset>  two u64 keys in one: a damaged place that was seen (value: Damage), until its segment goes
//   x/<segment>    u64 key: a failed group left bytes in this file behind that offset (0: all of it); they never count
//   quarantined    u64: records found damaged since the log was made
//   looked_after   u64: how many of those somebody has seen: as of the latest repair
//   t/...          targets (log_source.h)
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/result.h"
#include "base/time.h"

namespace ph::spool {

inline constexpr size_t kSegmentHeaderSize = 64;
inline constexpr uint64_t kRecordsOffset = 2 * kSegmentHeaderSize;
inline constexpr size_t kRecordHeaderSize = 56;
inline constexpr char kRecordMagic[] = "PHR1";
inline constexpr uint64_t kFirstSequence = 1;
inline constexpr uint32_t kSegmentVersion = 2;

struct SegmentHeader {
  uint64_t epoch = 0;
  uint64_t first = 0;
  uint64_t begins = 0;
  uint64_t events_before = 0;
  WallTime made_at{};
  uint32_t version = kSegmentVersion;
  bool operator==(const SegmentHeader&) const = default;
};

/// Both copies: kRecordsOffset bytes.
std::string encode(const SegmentHeader& header);

struct DecodedSegmentHeader {
  std::optional<SegmentHeader> header;  // nullopt: neither copy is whole
  bool damaged = false;                 // at least one copy is not whole
  bool all_zero = false;                // preallocated and never written
};
/// `bytes`: the first kRecordsOffset bytes of the file or what there is of them. Error: spool.newer_version.
Result<DecodedSegmentHeader> decode_segment_header(ByteView bytes);

enum class RecordKind : uint8_t { block = 1, gap = 2 };

struct RecordHeader {
  uint32_t size = 0;
  uint32_t payload_crc = 0;
  uint64_t sequence = 0;
  uint64_t events_before = 0;
  uint64_t events = 0;
  WallTime accepted_at{};
  uint32_t skipped = 0;
  RecordKind kind = RecordKind::block;
  /// First sequence that the record stands for.
  uint64_t covers_from() const { return sequence - skipped; }
  uint64_t events_after() const { return events_before + events; }
  bool operator==(const RecordHeader&) const = default;
};

/// What a CRC of anything in a segment depends on beside its bytes, so that it counts where it was written and nowhere
/// else.
struct RecordSeed {
  uint64_t epoch = 0;
  uint64_t segment = 0;  // the segment's first sequence
};
uint32_t seed_crc(RecordSeed seed, uint64_t offset);

void encode(const RecordHeader& header, RecordSeed seed, uint64_t offset, std::string& out);
/// nullopt unless `bytes` begins with a whole header that was written for exactly this place.
std::optional<RecordHeader> decode_record_header(ByteView bytes, RecordSeed seed, uint64_t offset);

/// Where acknowledged data ends, and what the log goes on with.
struct DurableEnd {
  uint64_t epoch = 0;
  uint64_t segment = 0;            // first sequence of the segment that holds the end; 0: no record was ever written
  uint64_t offset = 0;             // in that segment, behind the last acknowledged record
  uint64_t end = kFirstSequence;   // sequence behind the last acknowledged record
  uint64_t next = kFirstSequence;  // next sequence to give; above end when a group failed
  uint64_t events = 0;             // in all acknowledged records since the log was made
  bool operator==(const DurableEnd&) const = default;
};
std::string encode(const DurableEnd& end);
/// Errors: spool.newer_version, spool.damaged.
Result<DurableEnd> decode_durable_end(ByteView bytes);

/// A place whose bytes are not what was written, or are not there.
struct Damage {
  uint64_t segment = 0;  // first sequence of the segment; its file's name
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t first = 0;  // sequences [first, last) are lost by it
  uint64_t last = 0;
  uint64_t events = 0;
  uint64_t events_before = 0;  // before what is lost, since the log was made
  std::string reason;
};
std::string encode(const Damage& damage);
/// Error: spool.damaged.
Result<Damage> decode_damage(ByteView bytes);

std::string segment_name(uint64_t first);
/// The first sequence that a segment file's name tells; nullopt for any other file.
std::optional<uint64_t> parse_segment_name(std::string_view name);

std::string store_prefix(std::string_view log_name);  // "s/<name>/"

}  // namespace ph::spool
