// SegmentReader: walks the records of one segment file in order, through one bounded buffer. What is not whole is given
// back as damage with its place; the reader then goes on at the next record header that stands where it was written.
// Used by the log's cursors, by recovery and by the offline tools; the only thing that parses records.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "port/files.h"
#include "store/spool/segment_format.h"

namespace ph::spool {

/// Opens a segment's file and reads its header. Errors: file.*, spool.newer_version.
struct OpenSegment {
  std::unique_ptr<port::File> file;
  uint64_t size = 0;
  DecodedSegmentHeader header;
};
Result<OpenSegment> open_segment(port::Files& files, const std::string& path);

class SegmentReader {
 public:
  enum class What : uint8_t {
    record,          // whole
    damaged_record,  // its header is whole, what follows is not: sequence, events and length are known
    damaged_bytes,   // no record header stands here; up to the next one, or the limit
    end,             // the limit, or the end of the file
  };
  struct Item {
    What what = What::end;
    RecordHeader header;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    Slice payload;      // of a whole record of kind block; shares the read buffer
    bool zeros = true;  // damaged_bytes: only zeros, as preallocation or a lost write leaves them
  };

  /// Reads [offset, limit) of `file`, which must outlive the reader. `offset` must be a record's, or the caller gets
  /// damage up to the next record.
  SegmentReader(port::File& file, RecordSeed seed, uint64_t offset, uint64_t limit);

  /// The next item. Payloads of records below sequence `check_from` are neither checked nor returned.
  /// Error: what reading the file gave; the reader stands where it was and may be asked again.
  Result<Item> next(uint64_t check_from = 0);

  uint64_t offset() const { return offset_; }
  void seek(uint64_t offset) { offset_ = offset; }
  void set_limit(uint64_t limit) { limit_ = limit; }
  /// From now on a page that cannot be read counts as zeros, that is as damage, instead of an error.
  void tolerate_read_errors() { tolerant_ = true; }

  static constexpr size_t kReadSize = 1 << 20;

 private:
  /// Up to `size` bytes at `offset`; fewer only at the limit or the end of the file.
  Result<ByteView> fill(uint64_t offset, size_t size);
  Result<size_t> read(uint64_t offset, char* into, size_t size);
  Result<Item> resync();

  port::File& file_;
  RecordSeed seed_;
  uint64_t offset_;
  uint64_t limit_;
  bool tolerant_ = false;
  std::shared_ptr<std::string> buffer_;
  uint64_t buffer_at_ = 0;
};

}  // namespace ph::spool
