// SegmentLog: the spool of one route: append-only segments of records, group commit, any number of cursors.
// The format stands, byte by byte, at the heads of segment_format.h and segment_batch.h. Owned by the event plane's
// loop; flush() runs on the disk thread. Guarantees (amendments 3, 12, 19):
//   - a reader never sees past the durable end; a sequence is never used twice, also across an empty log and restarts;
//   - what a crash left behind the durable end is cut; below it nothing is ever cut: a damaged record is quarantined
//     with its bytes, counted, alarmed, and read as a gap;
//   - a failed write or sync abandons the segment file: the committed prefix stays, the group is reported as failed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "store/commit/committer.h"

namespace ph::spool {

struct SegmentLogOptions {
  std::string name;       // route name; key prefix and folder name
  std::string directory;  // <data_dir>/spool/<name>
  uint64_t segment_bytes = 64ull << 20;
  commit::DiskFloor* floor = nullptr;  // whose reserve an append may not take; null: none
};

/// What a cursor reads: an encoded block and how many events it holds. It stands for the positions [first, sequence]:
/// more than one where sequences went to a group that failed and will never be used, or where several records are lost.
struct Record {
  uint64_t first = 0;
  uint64_t sequence = 0;  // the last position that it stands for
  uint64_t events = 0;
  uint64_t events_before = 0;  // events in everything before it, since the log was made
  WallTime accepted_at{};
  Slice block;            // encoded block; a gap block (topic "damaged") where the record was damaged
  uint64_t bytes = 0;     // that it takes on disk; 0 of what is damaged
  uint64_t end_byte = 0;  // SegmentLog::end_byte() as it was when this record was the last one
  bool damaged = false;
};

struct SpoolStats {
  uint64_t first_sequence = 0;  // oldest kept
  uint64_t next_sequence = 0;   // behind the durable end
  uint64_t bytes = 0;           // of segment files on disk
  uint64_t segments = 0;
  uint64_t quarantined = 0;  // records, since the log was made
  uint64_t unrepaired = 0;   // of those, found since the latest repair
};

class SegmentLog : public commit::Participant {
 public:
  /// Recovers: cuts behind the durable end (kept in the store as s/<name>/end), never below it. Errors: file.*,
  /// spool.newer_version.
  /// May sync: call it before the loop runs, or on the disk thread. Segments without an entry in the store (a wiped
  /// store) are scanned, whole records kept, and a new epoch begins. `random` is used in here only.
  static Result<std::unique_ptr<SegmentLog>> open(SegmentLogOptions options, port::Files& files,
                                                  port::KeyedStore& store, Random& random);
  ~SegmentLog() override = default;

  /// Appends to the pending group and gives the record's sequence. Not readable before the group is durable.
  /// Requires block.size() <= limits::kRecordMax. The caller then touches its Committer, or makes a request of it.
  virtual uint64_t append(Slice block, uint64_t events, WallTime accepted_at) = 0;
  /// Sequence behind the last durable record.
  virtual uint64_t durable_end() const = 0;
  /// The oldest sequence that is kept for anyone: sequences below were released.
  virtual uint64_t first_sequence() const = 0;
  /// Events in all durable records since the log was made.
  virtual uint64_t durable_events() const = 0;
  /// Random, and another one whenever what the log knows of itself was lost.
  virtual uint64_t epoch() const = 0;
  virtual const std::string& name() const = 0;
  /// Runs `grown` on the loop after each group that became durable, until the returned handle is gone.
  [[nodiscard]] virtual std::shared_ptr<void> watch(std::function<void()> grown) = 0;

  /// Reads forward from a sequence; keeps its place, so reading on is sequential. Several may exist.
  class Cursor {
   public:
    virtual ~Cursor() = default;
    /// The record at the cursor, which then moves behind it; nullopt at the durable end. A failure to read leaves the
    /// cursor where it was: ask again later; what still cannot be read the third time is damage.
    virtual Result<std::optional<Record>> next() = 0;
    virtual uint64_t position() const = 0;
  };
  /// `events_before`: how many events precede `sequence`, if the caller knows; else the segment tells.
  virtual std::unique_ptr<Cursor> read_from(uint64_t sequence, std::optional<uint64_t> events_before = {}) = 0;

  /// Everything below `sequence` is no longer needed by anyone, and whoever said so has that durable: whole segments
  /// below it are deleted, those with damage set aside as <segment>.damaged (the latest kDamagedKept of them).
  virtual void release_below(uint64_t sequence) = 0;
  /// Nobody needs [first, last) either, durably, although older records are needed: whole segments in it are deleted.
  virtual void release_range(uint64_t first, uint64_t last) = 0;
  virtual SpoolStats stats() const = 0;
  /// Bytes from `sequence` to the durable end, by segment sizes: for queued_bytes and quotas.
  virtual uint64_t bytes_from(uint64_t sequence) const = 0;
  /// Counts bytes of segment files, durable, since the log was opened: with Record::end_byte an exact queue size.
  virtual uint64_t end_byte() const = 0;

  static constexpr size_t kDamagedKept = 16;
};

namespace errors {
inline constexpr ErrorCode newer_version{"spool.newer_version"};
inline constexpr ErrorCode damaged{"spool.damaged"};
inline constexpr ErrorCode full{"spool.full"};
}  // namespace errors

}  // namespace ph::spool
