// StoreJournal: the last megabytes of a store's batches a second time, in a form of our own, beside LevelDB (why:
// docs/store_journal.md). It is what makes a batch durable: the one sync of a group commit is the journal's. Owned by
// LevelStore, under whose lock every call is made.
//
// Files: <store>.journal/<number of its first batch, 16 hex digits>-<salt, 8 hex digits>.jnl; the salt is random.
// Integers are little-endian.
//   head    8  "PHJRNL\r\n"
//           u32 version, 1; a newer one: store.newer_version
//           u64 number of the first batch
//           u32 salt
//           u32 CRC-32C of the 24 bytes before
//   record  u32 0x31425350 "PSB1"
//           u32 length of the body
//           u64 number of the batch: one more than the one before it
//           u32 CRC-32C of the salt and the 16 bytes before
//           u32 CRC-32C of the salt and the body
//           body: entries, each u8 1 put, sized key, sized value, or u8 2 delete, sized key (sized: varint, bytes)
//
// A length has a checksum of its own, so that a flipped one can't pass for a torn tail while anything whole follows:
// what cannot be read is looked over for the next whole record. Only if there is none is it a torn tail. The salt is
// why no value, which may be a client's message, can pass for a record.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/posix_files.h"
#include "port/keyed_store.h"

namespace ph::io {

/// What a journal holds when it is opened.
struct JournalContent {
  /// The batches of the longest unbroken run of numbers at its end: `first` .. `last`, none if last < first.
  uint64_t first = 1;
  uint64_t last = 0;
  std::vector<port::WriteBatch> run;
  /// The greatest number that any batch is known to have had, whether it can be read or not.
  uint64_t highest = 0;
  uint64_t damaged = 0;    // places that can't be read, or are missing, and are no torn tail
  std::string damaged_at;  // the last of them: file and offset
};

class StoreJournal {
 public:
  static constexpr uint64_t kSegmentBytes = 2ULL << 20;
  static constexpr size_t kFilesMax = 16;  // each start begins one; then the oldest goes
  static constexpr uint64_t kZeroedBytes = 256 * 1024;

  /// `tabled_after`: when so many bytes came behind a batch (each batch counted with at most `batch_counts`), the store
  /// has it in its synced tables, and it is dropped here.
  StoreJournal(std::string directory, uint64_t tabled_after, uint64_t batch_counts)
      : directory_(std::move(directory)), tabled_after_(tabled_after), batch_counts_(batch_counts) {}

  /// Reads everything; changes nothing. A missing directory is an empty journal.
  Result<JournalContent> read();
  /// Starts to append batches from `number` on, in a new file.
  Result<> begin(uint64_t number);
  /// Writes the batch `number`. After a failure of this or of sync() only begin() may follow.
  Result<> append(uint64_t number, const port::WriteBatch& batch);
  /// Drops every file but the one that is written to: a gap before it makes them useless.
  void drop_older();
  /// Everything appended is durable.
  Result<> sync();

 private:
  struct Segment {
    uint64_t first = 0;
    uint32_t salt = 0;
    uint64_t counted_at = 0;  // counted_ when the last batch of it was written
  };
  std::string path_of(const Segment& segment) const;
  Result<> list();
  Result<std::unique_ptr<port::File>> make_file(const std::string& path, std::string head);
  void drop_tabled();
  bool drop_oldest();

  const std::string directory_;
  const uint64_t tabled_after_;
  const uint64_t batch_counts_;
  PosixFiles files_;
  std::deque<Segment> segments_;  // oldest first; the last one is written to once file_ is there
  std::unique_ptr<port::File> file_;
  uint64_t size_ = 0;
  uint64_t zeroed_ = 0;  // the file is zeros from size_ to here: a sync that changes no file size is the cheaper one
  uint64_t counted_ = 0;
  std::string buffer_;
};

}  // namespace ph::io
