// LevelStore: port::KeyedStore on LevelDB. Small state only (cursors, ranges, sizes, counters), so its caches are
// small.
//
// A batch is durable by our own journal (store_journal.h), synced; LevelDB has it unsynced and is brought up to date
// from there when it is opened. So what LevelDB's log loses, to a power cut or to damage that LevelDB takes for one, is
// put back; docs/store_journal.md says what is covered. What is not is never skipped: paranoid checks on, every read
// verifies its checksum, and a store that is not whole, or older than its journal says, does not open ("store.damaged"
// with the path).
//
// After a failed write the log may end in half a record, and what LevelDB appended behind it could not be read back. So
// the first failed write closes this store for writing; the next write reopens it, once the disk has room again. Reads
// go on meanwhile.
//
// Key "!/commit": u64 LE, the number of the last batch. Hidden from scan().
//
// Threads: any, at once. Only write() waits for the disk (synced, or while LevelDB compacts).
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "io/store_journal.h"
#include "port/keyed_store.h"

namespace leveldb {
class Cache;
class DB;
class Status;
}  // namespace leveldb

namespace ph::io {

namespace store_errors {
inline constexpr ErrorCode damaged{"store.damaged"};    // do not truncate, do not start empty: repair or restore
inline constexpr ErrorCode locked{"store.locked"};      // another process has it
inline constexpr ErrorCode no_space{"store.no_space"};  // nothing of the batch counts; try again
inline constexpr ErrorCode newer_version{"store.newer_version"};
inline constexpr ErrorCode failed{"store.failed"};
}  // namespace store_errors

/// Damage that was met since the store was opened, mended but for "store_damaged": someone should look at the disk.
struct StoreFinding {
  std::string_view code;  // "store_damaged", "store_log_damaged", "store_keys_restored", "store_journal_damaged"
  std::string detail;
};

class LevelStore final : public port::KeyedStore {
 public:
  /// Opens the store in `directory`, made (with its parent existing) when missing, and its journal in
  /// `directory`.journal. Logs of LevelDB that are set aside go to `directory`.damaged.
  static Result<std::unique_ptr<LevelStore>> open(const std::string& directory);
  ~LevelStore() override;

  Result<std::optional<std::string>> get(ByteView key) override;
  Result<> scan_from(ByteView prefix, ByteView from,
                     const std::function<bool(ByteView key, ByteView value)>& visit) override;
  Result<> write(const port::WriteBatch& batch, bool synced) override;

  std::vector<StoreFinding> findings() const;
  /// Why the last write failed; nothing once one succeeded.
  std::optional<Error> trouble() const;

 private:
  explicit LevelStore(std::string directory);
  Result<> open_whole();
  Result<> open_database();
  Result<> open_without_log(const Error& why);
  Result<> bring_up_to_date(const JournalContent& journal);
  Result<size_t> restore(const JournalContent& journal, uint64_t committed);
  Result<uint64_t> committed();
  Result<std::optional<std::string>> read(ByteView key);
  Result<> write_numbered(const port::WriteBatch& batch, bool synced);
  std::unexpected<Error> read_failed(const leveldb::Status& status);
  Result<> apply(const port::WriteBatch& batch, bool synced);
  void found(std::string_view code, std::string detail);
  Result<> reopen();

  const std::string directory_;
  std::unique_ptr<leveldb::Cache> cache_;
  std::mutex writing_;         // one writer at a time: nothing may follow a write that failed
  bool write_failed_ = false;  // under writing_
  StoreJournal journal_;       // under writing_
  uint64_t number_ = 0;        // of the last batch; under writing_
  std::shared_mutex mutex_;    // shared: use of database_; exclusive: its replacement
  std::unique_ptr<leveldb::DB> database_;
  mutable std::mutex findings_mutex_;
  std::vector<StoreFinding> findings_;  // as trouble_ under findings_mutex_
  std::optional<Error> trouble_;
};

}  // namespace ph::io
