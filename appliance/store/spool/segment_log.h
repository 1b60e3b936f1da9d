// SegmentLog: the spool of one route: append-only segments of records, group commit, any number of cursors.
// The format stands, byte by byte, at the head of segment_format.h. Owned by the event plane's loop; flush() runs on
// the disk thread. Guarantees (amendments 3, 12, 19):
//   - a reader never sees past the durable end; a sequence is never used twice, also across an empty log and restarts;
//   - what a crash left behind the durable end is cut; below it nothing is ever cut: a damaged record is quarantined
//     with its bytes, counted, alarmed, and read as a gap;
//   - a failed write or sync abandons the segment file: the committed prefix stays, the group is reported as failed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "store/commit/committer.h"

namespace ph::spool {

struct SegmentLogOptions {
  std::string name;       // route name; key prefix and folder name
  std::string directory;  // <data_dir>/spool/<name>
  uint64_t segment_bytes = 64ull << 20;
};

/// What one append carries: an encoded block and how many events it holds.
struct Record {
  uint64_t sequence = 0;
  uint64_t events = 0;
  WallTime accepted_at{};
  Slice block;  // encoded block; a gap block where the record was damaged
  bool damaged = false;
};

struct SpoolStats {
  uint64_t first_sequence = 0;  // oldest kept
  uint64_t next_sequence = 0;   // behind the durable end
  uint64_t bytes = 0;           // of segment files on disk
  uint64_t segments = 0;
  uint64_t quarantined = 0;  // records, since the log was made
};

class SegmentLog : public commit::Participant {
 public:
  /// Recovers: cuts behind the durable end (kept in the store as s/<name>/end), never below it. Errors: file.*,
  /// spool.newer_version.
  static Result<std::unique_ptr<SegmentLog>> open(SegmentLogOptions options, port::Files& files,
                                                  port::KeyedStore& store);
  ~SegmentLog() override = default;

  /// Appends to the pending group and gives the record's sequence. Not readable before the group is durable.
  virtual uint64_t append(Slice block, uint64_t events, WallTime accepted_at) = 0;
  /// Sequence behind the last durable record.
  virtual uint64_t durable_end() const = 0;
  virtual uint64_t first_sequence() const = 0;

  /// Reads forward from a sequence; keeps its place, so reading on is sequential. Several may exist.
  class Cursor {
   public:
    virtual ~Cursor() = default;
    /// The record at the cursor, which then moves behind it; nullopt at the durable end.
    virtual Result<std::optional<Record>> next() = 0;
    virtual uint64_t position() const = 0;
  };
  virtual std::unique_ptr<Cursor> read_from(uint64_t sequence) = 0;

  /// Everything below `sequence` is no longer needed by anyone: whole segments below it are deleted (the store first).
  virtual void release_below(uint64_t sequence) = 0;
  virtual SpoolStats stats() const = 0;
  /// Bytes from `sequence` to the durable end, by segment sizes: for queued_bytes and quotas.
  virtual uint64_t bytes_from(uint64_t sequence) const = 0;
};

namespace errors {
inline constexpr ErrorCode newer_version{"spool.newer_version"};
inline constexpr ErrorCode damaged{"spool.damaged"};
inline constexpr ErrorCode full{"spool.full"};
}  // namespace errors

}  // namespace ph::spool
