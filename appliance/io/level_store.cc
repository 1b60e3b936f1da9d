#include "io/level_store.h"

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/options.h>
#include <leveldb/write_batch.h>

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "base/log.h"
#include "io/posix_files.h"

namespace ph::io {
namespace {

constexpr size_t kWriteBufferBytes = 1024 * 1024;
// What is not yet in a synced table stands in at most two memtables, each of which is full but for its last batch. The
// journal keeps as much again, so that it also covers a table whose entry in the manifest is lost.
constexpr uint64_t kTabledAfter = 8 * kWriteBufferBytes;
constexpr size_t kFindingsMax = 8;
constexpr std::string_view kCommitKey = "!/commit";
constexpr size_t kCacheBytes = 1024 * 1024;
constexpr int kOpenFilesMax = 74;  // LevelDB keeps ten for itself
constexpr uint64_t kRoomToReopen =
    6ULL * 1024 * 1024;  // recovery writes a manifest and what is in the log anew: some write buffers

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

std::unexpected<Error> journal_error(const std::string& directory, const Error& error) {
  ErrorCode code = error.code == port::file_errors::no_space ? store_errors::no_space : store_errors::failed;
  return fail(code, directory + ".journal: " + error.detail, error.os_error);
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
    : directory_(std::move(directory)),
      cache_(leveldb::NewLRUCache(kCacheBytes)),
      journal_(directory_ + ".journal", kTabledAfter, kWriteBufferBytes) {}

LevelStore::~LevelStore() {
  database_.reset();
}  // before its cache

Result<std::unique_ptr<LevelStore>> LevelStore::open(const std::string& directory) {
  PH_TRY(check_not_beheaded(directory));
  std::unique_ptr<LevelStore> store(new LevelStore(directory));
  PH_TRY(store->open_whole());
  return store;
}

std::vector<StoreFinding> LevelStore::findings() const {
  std::lock_guard lock(findings_mutex_);
  return findings_;
}

std::optional<Error> LevelStore::trouble() const {
  std::lock_guard lock(findings_mutex_);
  return trouble_;
}

std::unexpected<Error> LevelStore::read_failed(const leveldb::Status& status) {
  Error error = store_error(directory_, status);
  if (error.code == store_errors::damaged) found("store_damaged", error.detail);
  return std::unexpected(std::move(error));
}

void LevelStore::found(std::string_view code, std::string detail) {
  log_error(code, {{"detail", detail}});
  std::lock_guard lock(findings_mutex_);
  if (std::ranges::any_of(findings_, [&](const auto& f) { return f.code == code && f.detail == detail; })) return;
  findings_.push_back({code, std::move(detail)});
  if (findings_.size() > kFindingsMax) findings_.erase(findings_.begin());
}

/// LevelDB first: its lock says whether the journal is ours to read.
Result<> LevelStore::open_whole() {
  Result<> opened = open_database();
  if (!opened && opened.error().code != store_errors::damaged) return opened;
  PH_ASSIGN(JournalContent journal, journal_.read());
  if (!opened) {
    if (journal.run.empty()) return opened;
    PH_TRY(open_without_log(opened.error()));
  }
  if (journal.damaged)
    found("store_journal_damaged", std::to_string(journal.damaged) + " places, the last: " + journal.damaged_at);
  Result<> current = bring_up_to_date(journal);
  if (!current) database_.reset();
  return current;
}

/// What only LevelDB's logs hold, the journal holds, too.
Result<> LevelStore::open_without_log(const Error& why) {
  PosixFiles files;
  std::string aside = directory_ + ".damaged";
  PH_TRY(files.make_directories(aside));
  PH_ASSIGN(auto entries, files.list(directory_));
  std::vector<std::string> moved;
  Result<> opened;
  for (const auto& entry : entries) {
    if (!entry.name.ends_with(".log")) continue;
    opened = files.rename(directory_ + "/" + entry.name, aside + "/" + entry.name);
    if (!opened) break;
    moved.push_back(entry.name);
  }
  if (opened) opened = open_database();
  if (!opened) {  // it was not the log: everything back to where it was
    for (const auto& name : moved) (void)files.rename(aside + "/" + name, directory_ + "/" + name);
    return opened.error().code == store_errors::damaged ? std::unexpected(why) : opened;
  }
  (void)files.sync_directory(directory_);
  found("store_log_damaged", why.detail + "; the journal has what it held, the log was set aside in " + aside);
  return {};
}

Result<> LevelStore::bring_up_to_date(const JournalContent& journal) {
  PH_ASSIGN(uint64_t have, committed());
  bool covered = !journal.run.empty() && journal.first <= have + 1 && journal.last == journal.highest;
  if (have < journal.highest && !covered)
    return fail(store_errors::damaged, directory_ + ": the store is at batch " + std::to_string(have) +
                                           ", its journal says that there were " + std::to_string(journal.highest) +
                                           " and does not hold those between");
  if (covered && have <= journal.last) {  // else the store has what the journal knows nothing of
    PH_ASSIGN(size_t restored, restore(journal, have));
    if (restored)
      found("store_keys_restored", directory_ + ": " + std::to_string(restored) + " keys were missing or old");
  }
  if (have < journal.highest) {
    log_warn("store_replayed", {{"path", directory_}, {"batches", journal.highest - have}});
    port::WriteBatch rest;
    for (uint64_t number = have + 1; number <= journal.last; ++number)
      for (const auto& entry : journal.run[number - journal.first].entries()) {
        if (entry.value)
          rest.put(entry.key, *entry.value);
        else
          rest.remove(entry.key);
      }
    number_ = journal.last;
    PH_TRY(apply(rest, true));
  }
  number_ = std::max(have, journal.highest);
  PH_TRY(journal_.begin(number_ + 1));
  if (have > journal.highest && journal.highest > 0) {
    // Its end is torn: the store has more. It was opened, so all of that is in tables.
    log_info("store_journal_shorter", {{"path", directory_}, {"batches", have - journal.highest}});
    journal_.drop_older();
  }
  return {};
}

/// Compares what the journal's batches up to `committed` left behind with the store, and puts right what differs:
/// LevelDB passes over a zeroed page of its log without a word. How many keys differed.
Result<size_t> LevelStore::restore(const JournalContent& journal, uint64_t committed) {
  std::map<std::string_view, const std::optional<std::string>*> latest;
  for (uint64_t number = journal.first; number <= std::min(journal.last, committed); ++number)
    for (const auto& entry : journal.run[number - journal.first].entries()) latest[entry.key] = &entry.value;
  port::WriteBatch differing;
  for (const auto& [key, value] : latest) {
    PH_ASSIGN(auto stored, read(key));
    if (stored == *value) continue;
    if (*value)
      differing.put(std::string(key), **value);
    else
      differing.remove(std::string(key));
  }
  if (differing.empty()) return 0;
  number_ = committed;
  PH_TRY(apply(differing, true));
  return differing.entries().size();
}

Result<uint64_t> LevelStore::committed() {
  PH_ASSIGN(auto value, read(kCommitKey));
  if (!value) return 0;
  if (value->size() != 8)
    return fail(store_errors::damaged, directory_ + ": the number of the last batch is no number");
  return load_fixed<uint64_t>(value->data());
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
  auto opened = open_whole();
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
  return read(key);
}

Result<std::optional<std::string>> LevelStore::read(ByteView key) {
  if (!database_) return fail(store_errors::failed, directory_ + ": closed by a failed write");
  std::string value;
  auto status = database_->Get(verified(true), slice(key), &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return read_failed(status);
  return value;
}

Result<> LevelStore::scan_from(ByteView prefix, ByteView from, const std::function<bool(ByteView, ByteView)>& visit) {
  std::shared_lock lock(mutex_);
  if (!database_) return fail(store_errors::failed, directory_ + ": closed by a failed write");
  std::unique_ptr<leveldb::Iterator> at(database_->NewIterator(verified(false)));
  for (at->Seek(slice(from)); at->Valid() && view(at->key()).starts_with(prefix); at->Next())
    if (view(at->key()) != kCommitKey && !visit(view(at->key()), view(at->value()))) return {};
  if (!at->status().ok()) return read_failed(at->status());
  return {};
}

Result<> LevelStore::write(const port::WriteBatch& batch, bool synced) {
  std::lock_guard writer(writing_);
  Result<> written = write_failed_ ? reopen() : Result<>();
  if (written) written = write_numbered(batch, synced);
  std::lock_guard lock(findings_mutex_);
  trouble_ = written ? std::nullopt : std::optional(written.error());
  return written;
}

Result<> LevelStore::write_numbered(const port::WriteBatch& batch, bool synced) {
  write_failed_ = true;  // until it is done: a failure may leave half of it anywhere
  if (auto kept = journal_.append(number_ + 1, batch); !kept) return journal_error(directory_, kept.error());
  if (synced)
    if (auto kept = journal_.sync(); !kept) return journal_error(directory_, kept.error());
  ++number_;
  std::shared_lock lock(mutex_);
  PH_TRY(apply(batch, false));
  write_failed_ = false;
  return {};
}

Result<> LevelStore::apply(const port::WriteBatch& batch, bool synced) {
  leveldb::WriteBatch updates;
  for (const auto& entry : batch.entries()) {
    if (entry.value)
      updates.Put(slice(entry.key), slice(*entry.value));
    else
      updates.Delete(slice(entry.key));
  }
  std::string number;
  put_fixed(number, number_);
  updates.Put(slice(kCommitKey), slice(number));
  leveldb::WriteOptions options;
  options.sync = synced;
  auto status = database_->Write(options, &updates);
  if (!status.ok()) return std::unexpected(store_error(directory_, status));
  return {};
}

}  // namespace ph::io
