// LevelStore: port::KeyedStore on LevelDB. Small state only (cursors, ranges, sizes, counters), so its caches are
// small.
//
// Damage is never skipped: paranoid checks on, every read verifies its checksum, and a store that cannot be read whole
// does not open ("store.damaged" with the path). An unfinished record at the very end of the log is not damage: it is
// what a crash leaves of a batch that was never reported as written.
//
// After a failed write the log may end in half a record, and what LevelDB appended behind it could not be read back. So
// the first failed write closes this store for writing; the next write reopens it, once the disk has room again. Reads
// go on meanwhile.
//
// Threads: any, at once. Only write() waits for the disk (synced, or while LevelDB compacts).
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "port/keyed_store.h"

namespace leveldb {
class Cache;
class DB;
}  // namespace leveldb

namespace ph::io {

namespace store_errors {
inline constexpr ErrorCode damaged{"store.damaged"};    // do not truncate, do not start empty: repair or restore
inline constexpr ErrorCode locked{"store.locked"};      // another process has it
inline constexpr ErrorCode no_space{"store.no_space"};  // nothing of the batch counts; try again
inline constexpr ErrorCode failed{"store.failed"};
}  // namespace store_errors

class LevelStore final : public port::KeyedStore {
 public:
  /// Opens the store in `directory`, made (with its parent existing) when missing.
  static Result<std::unique_ptr<LevelStore>> open(const std::string& directory);
  ~LevelStore() override;

  Result<std::optional<std::string>> get(ByteView key) override;
  Result<> scan_from(ByteView prefix, ByteView from,
                     const std::function<bool(ByteView key, ByteView value)>& visit) override;
  Result<> write(const port::WriteBatch& batch, bool synced) override;

 private:
  explicit LevelStore(std::string directory);
  Result<> open_database();
  Result<> reopen();

  const std::string directory_;
  std::unique_ptr<leveldb::Cache> cache_;
  std::mutex writing_;         // one writer at a time: nothing may follow a write that failed
  bool write_failed_ = false;  // under writing_
  std::shared_mutex mutex_;    // shared: use of database_; exclusive: its replacement
  std::unique_ptr<leveldb::DB> database_;
};

}  // namespace ph::io
