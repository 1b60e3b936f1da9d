// SegmentReader: walks the records of one segment file in order, through one bounded buffer. What is not whole is given
// back as damage with its place; the reader then goes on at the next record, head or foot of a batch that stands where
// it was written. Used by the log's cursors, by recovery and by the offline tools; the only thing that parses records.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "port/files.h"
#include "store/spool/segment_batch.h"
#include "store/spool/segment_format.h"

namespace ph::spool {

/// Opens a segment's file and reads its header. Errors: file.*, spool.newer_version.
struct OpenSegment {
  std::unique_ptr<port::File> file;
  uint64_t size = 0;
  DecodedSegmentHeader header;
};
Result<OpenSegment> open_segment(port::Files& files, const std::string& path);

/// A batch that SegmentReader is in. Not for others.
struct BatchReading {
  BatchHead head;
  bool head_whole = true;
  bool foot_whole = true;
  Slice bytes;                    // from the batch's offset on; shorter where the file is
  uint32_t number = 0;            // of the next record
  uint64_t at = 0;                // where it begins
  uint64_t events = 0;            // in the records before it
  std::optional<BatchFoot> foot;  // read once it is needed
  bool foot_asked = false;
  size_t entry = 0;  // of its index, for the next record
  uint64_t entry_at = 0;
};

/// One record of a batch, or several that are lost together.
struct BatchStep {
  enum class State : uint8_t { whole, damaged, gap } state = State::whole;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t number = 0;  // of the first one
  uint32_t count = 1;
  uint64_t events_before = 0;
  uint64_t events = 0;
  std::optional<BatchRecord> record;  // a whole one
};

class SegmentReader {
 public:
  enum class What : uint8_t {
    record,          // whole
    damaged_record,  // what stands around it tells sequence, events and length; what is in it is not whole
    damaged_bytes,   // nothing that was written stands here; up to what is next, or the limit
    end,             // the limit, or the end of the file
  };
  /// Where one may begin to read in order to come to an item.
  struct Entry {
    uint64_t offset = 0;
    uint64_t sequence = 0;  // of the first record there
    uint64_t events_before = 0;
  };
  /// Items tile the file: a batch's first record has the head, its last one the foot.
  struct Item {
    What what = What::end;
    RecordHeader header;  // size and payload_crc mean nothing here. `skipped` > 0 of a damaged_record: those, too
    uint64_t offset = 0;
    uint64_t bytes = 0;
    Slice payload;      // of a whole record of kind block
    bool zeros = true;  // damaged_bytes: only zeros, as preallocation or a lost write leaves them
    bool torn = false;  // damaged_record: it runs over the limit, or over the end of the file
    Entry entry;
    uint64_t batch_last = 0;  // sequence of the last record of its batch; 0: it is in none
    struct Place {
      uint64_t offset = 0;
      uint64_t bytes = 0;
    };
    std::optional<Place> damaged_end;  // first item of a batch: its head or foot is not whole. It costs no record
  };

  /// Reads [offset, limit) of `file`, which must outlive the reader. `offset` must be an item's entry, or the caller
  /// gets damage up to the next one.
  SegmentReader(port::File& file, RecordSeed seed, uint64_t offset, uint64_t limit);

  /// The next item. Payloads of records below sequence `from` are not returned.
  /// Error: what reading the file gave; the reader stands where it was and may be asked again.
  Result<Item> next(uint64_t from = 0);

  uint64_t offset() const { return offset_; }
  /// The item that next() gave last comes once more.
  void put_back(Item item) { put_back_ = std::move(item); }
  void set_limit(uint64_t limit) { limit_ = limit; }
  /// From now on a page that cannot be read counts as zeros, that is as damage, instead of an error.
  void tolerate_read_errors() { tolerant_ = true; }

  /// The batch that the last item came from, as it would have to be for its damage to be gaps; nullopt if it came from
  /// none, or nothing is wrong with it.
  std::optional<BatchFoot> mended() const;

  static constexpr size_t kReadSize = 1 << 20;

 private:
  using Batch = BatchReading;
  using Step = BatchStep;
  /// Up to `size` bytes at `offset`; fewer only at the limit or the end of the file.
  Result<ByteView> fill(uint64_t offset, size_t size);
  Result<size_t> read(uint64_t offset, char* into, size_t size);
  Result<Item> resync();
  Result<Item> next_record(const RecordHeader& header, uint64_t from);
  /// Whether a unit stands at `at`, which is `window`'s front. A foot leads to its batch. Sets `begins`.
  Result<bool> unit_at(ByteView window, uint64_t at, uint64_t& begins);
  /// `size` bytes at `at`, where `window` begins, also if they go beyond it.
  Result<ByteView> reach(ByteView window, uint64_t at, size_t size, std::string& own);
  Result<> load(BatchHead head, bool head_whole);
  void begin_batch(Batch& batch) const;
  Step step(Batch& batch) const;
  Item next_in_batch(uint64_t from);

  port::File& file_;
  RecordSeed seed_;
  uint64_t offset_;
  uint64_t limit_;
  bool tolerant_ = false;
  std::shared_ptr<std::string> buffer_;
  uint64_t buffer_at_ = 0;
  std::optional<Batch> batch_;
  std::optional<Item> put_back_;
  std::optional<BatchFoot> foot_found_;  // by resync(), of a batch whose head is not whole
};

}  // namespace ph::spool
