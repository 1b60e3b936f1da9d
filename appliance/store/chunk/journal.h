// Journal of plain logs: lines are durable here before they are copied to a file that consumers tail, so that nothing a
// consumer has read is ever taken back (amendment 13). Owned by the plain writer, disk thread only.
//
// Positions are bytes since the journal began and never restart. Segment files in <state_directory>/journal are named
// by the position of their first record, 16 hex digits; a segment ends where the next one begins. What lies behind the
// committed end, which the store keeps, never happened.
//
// Segment file, version 2 (fixed integers are little-endian; version 1, which knew no compression, is read as well):
//   8 bytes  "PHJRNL", version (2), 0        a newer version: the sink refuses to open, chunk.newer_version
//   u64      position of the first record
//   records, each:
//     u32    CRC-32C of the rest of the record
//     u32    number of bytes that follow
//     sized  category
//     u8     compression of its file (compressor.h)
//     rest   bytes as they go to the file: whole lines, or one member or frame that holds them
// A damaged record below the committed end is skipped when its length leads to the next one, counted and logged; the
// segment is kept aside as it is. With a damaged length the rest of the range is lost to the copy, not to the disk.
//
// Store key `f/journal`, version 1: u8 version, u64 copied, u64 end, u32 CRC-32C. Records below `copied` are in their
// files, durably.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "port/files.h"
#include "store/chunk/category_entry.h"

namespace ph::chunk {

inline constexpr std::string_view kJournalKey = "f/journal";

struct JournalMark {
  uint64_t copied = 0;
  uint64_t end = 0;
  bool operator==(const JournalMark&) const = default;
};
std::string encode(const JournalMark& mark);
/// Errors: chunk.damaged, chunk.newer_version.
Result<JournalMark> decode_journal_mark(ByteView bytes);

class Journal {
 public:
  static constexpr uint64_t kSegmentBytes = 32ull * 1024 * 1024;
  static constexpr size_t kHeader = 16;

  Journal(port::Files& files, std::string directory, uint64_t segment_bytes = kSegmentBytes)
      : files_(files), directory_(std::move(directory)), segment_bytes_(segment_bytes) {}

  /// Finds the segments. `end` is the committed end; appending begins there, in a new segment. Unknown (the store's
  /// entry is damaged): nothing is deleted.
  Result<> open(std::optional<uint64_t> end);
  /// A position behind everything that any segment holds.
  Result<uint64_t> furthest() const;
  using Visit = std::function<void(std::string_view category, Compression how, Slice bytes)>;
  /// Visits the records in [from, committed end), in order. Segments with damage are given to `keep`, once each.
  Result<> read(uint64_t from, uint64_t end, const Visit& visit,
                const std::function<void(port::File&, const std::string& name)>& keep);

  /// Begins a group at the committed end; what an earlier group left behind it is written over.
  Result<> begin(uint64_t end);
  Result<> append(std::string_view category, Compression how, const std::vector<Slice>& bytes, std::string& buffer);
  /// Makes the group durable and gives its end.
  Result<uint64_t> sync();
  /// The bytes behind the committed end can't be trusted any more: the next group begins a new segment.
  void abandon() { file_.reset(); }
  /// Deletes segments that lie wholly below `position`.
  void release_below(uint64_t position);
  uint64_t damaged() const { return damaged_; }

 private:
  Result<> begin_segment(uint64_t position);
  std::string path_of(uint64_t position) const;

  port::Files& files_;
  std::string directory_;
  uint64_t segment_bytes_;
  std::map<uint64_t, std::string> segments_;  // first position -> file name
  std::unique_ptr<port::File> file_;          // the newest segment
  uint64_t first_ = 0;                        // its first position
  uint64_t at_ = 0;                           // where the next record goes
  bool fresh_ = false;                        // the directory is to be synced with the next group
  uint64_t damaged_ = 0;
};

}  // namespace ph::chunk
