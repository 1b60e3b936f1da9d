#include "io/level_store.h"

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/options.h>
#include <leveldb/write_batch.h>

#include "base/log.h"
#include "io/posix_files.h"

namespace ph::io {
namespace {

constexpr size_t kWriteBufferBytes = 2 * 1024 * 1024;
constexpr size_t kCacheBytes = 1024 * 1024;
constexpr int kOpenFilesMax = 74;  // LevelDB keeps ten for itself
constexpr uint64_t kRoomToReopen =
    6ULL * 1024 * 1024;  // recovery writes a manifest and what is in the log anew: three write buffers

leveldb::Slice slice(ByteView bytes) {
  return {bytes.data(), bytes.size()};
}
ByteView view(const leveldb::Slice& bytes) {
  return {bytes.data(), bytes.size()};
}

Error store_error(const std::string& directory, const leveldb::Status& status) {
  std::string text = status.ToString();
  if (status.IsCorruption() || status.IsInvalidArgument())
    return Error{store_errors::damaged, directory + ": " + text, 0};
  // LevelDB tells the kernel's reasons as text only.
  if (text.find("/LOCK: ") != text.npos)
    return Error{store_errors::locked, directory + ": another posthouse uses this data_dir", 0};
  if (text.find("No space left") != text.npos || text.find("quota exceeded") != text.npos)
    return Error{store_errors::no_space, directory + ": " + text, 0};
  return Error{store_errors::failed, directory + ": " + text, 0};
}

leveldb::ReadOptions verified(bool keep_blocks) {
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = keep_blocks;
  return options;
}

/// Files of a store without the file CURRENT that names its state: LevelDB would begin anew over them.
Result<> check_not_beheaded(const std::string& directory) {
  PosixFiles files;
  auto entries = files.list(directory);
  if (!entries) {
    if (entries.error().code == port::file_errors::not_found) return {};
    return fail(store_errors::failed, entries.error().detail, entries.error().os_error);
  }
  bool data = false;
  for (const auto& entry : *entries) {
    if (entry.name == "CURRENT") return {};
    data |= entry.name.starts_with("MANIFEST-") || entry.name.ends_with(".ldb") || entry.name.ends_with(".sst") ||
            entry.name.ends_with(".log");
  }
  if (data) return fail(store_errors::damaged, directory + ": the file CURRENT is missing among its data");
  return {};
}

}  // namespace

LevelStore::LevelStore(std::string directory)
    : directory_(std::move(directory)), cache_(leveldb::NewLRUCache(kCacheBytes)) {}

LevelStore::~LevelStore() {
  database_.reset();
}  // before its cache

Result<std::unique_ptr<LevelStore>> LevelStore::open(const std::string& directory) {
  PH_TRY(check_not_beheaded(directory));
  std::unique_ptr<LevelStore> store(new LevelStore(directory));
  PH_TRY(store->open_database());
  return store;
}

Result<> LevelStore::open_database() {
  leveldb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.write_buffer_size = kWriteBufferBytes;
  options.block_cache = cache_.get();
  options.max_open_files = kOpenFilesMax;
  leveldb::DB* database = nullptr;
  auto status = leveldb::DB::Open(options, directory_, &database);
  if (!status.ok()) return std::unexpected(store_error(directory_, status));
  database_.reset(database);
  return {};
}

Result<> LevelStore::reopen() {
  PosixFiles files;
  auto space = files.space(directory_);
  if (!space || space->available < kRoomToReopen)
    return fail(store_errors::no_space, directory_ + ": waits for " + std::to_string(kRoomToReopen >> 20) +
                                            " MiB of free space to reopen after a failed write");
  std::unique_lock lock(mutex_);
  database_.reset();
  auto opened = open_database();
  if (!opened) {
    log_error("store_reopen_failed", {{"error", opened.error().to_string()}});
    return opened;
  }
  write_failed_ = false;
  log_warn("store_reopened", {{"path", directory_}});
  return {};
}

Result<std::optional<std::string>> LevelStore::get(ByteView key) {
  std::shared_lock lock(mutex_);
  if (!database_) return fail(store_errors::failed, directory_ + ": closed by a failed write");
  std::string value;
  auto status = database_->Get(verified(true), slice(key), &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return std::unexpected(store_error(directory_, status));
  return value;
}

Result<> LevelStore::scan_from(ByteView prefix, ByteView from, const std::function<bool(ByteView, ByteView)>& visit) {
  std::shared_lock lock(mutex_);
  if (!database_) return fail(store_errors::failed, directory_ + ": closed by a failed write");
  std::unique_ptr<leveldb::Iterator> at(database_->NewIterator(verified(false)));
  for (at->Seek(slice(from)); at->Valid() && view(at->key()).starts_with(prefix); at->Next())
    if (!visit(view(at->key()), view(at->value()))) return {};
  if (!at->status().ok()) return std::unexpected(store_error(directory_, at->status()));
  return {};
}

Result<> LevelStore::write(const port::WriteBatch& batch, bool synced) {
  leveldb::WriteBatch updates;
  for (const auto& entry : batch.entries()) {
    if (entry.value)
      updates.Put(slice(entry.key), slice(*entry.value));
    else
      updates.Delete(slice(entry.key));
  }
  leveldb::WriteOptions options;
  options.sync = synced;
  std::lock_guard writer(writing_);
  if (write_failed_) PH_TRY(reopen());
  std::shared_lock lock(mutex_);
  auto status = database_->Write(options, &updates);
  if (status.ok()) return {};
  write_failed_ = true;
  return std::unexpected(store_error(directory_, status));
}

}  // namespace ph::io
