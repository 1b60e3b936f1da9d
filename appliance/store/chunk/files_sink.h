// FilesSink: the "files" target: chunks as LSD's consumers know them, or one plain log per category. Owned by the event
// plane's loop; the writers behind it run on the disk thread, inside flush().
//   chunks  <dir>/<category>/<category>-YYYY-MM-DD_NNNNNN[.gz|.zst], and a symlink <category>_current to the open
//   chunk;
//           consumers take every chunk whose name sorts below the link's target (chunk_writer.h)
//   plain   <dir>/<category>[.gz|.zst], appended. Goes through a journal first, so that a consumer who tails it never
//   sees bytes
//           that a crash takes back (amendment 13; plain_writer.h, journal.h)
// Commit order (amendment 12): write, fdatasync (a new file: also its directory and that one's parent), then the store
// batch {file -> committed size, what the caller commits with it}, then the acknowledgement. After the start the open
// chunk is cut to its committed size, the cut bytes saved aside; it is never extended. After a failed write or sync the
// file is abandoned: it keeps its committed size, the next group goes into a new chunk. Compressed files get a member
// or frame of their own from each group, so a committed size always ends one (compressor.h).
//
// Retention and quotas (retention.h) rest on looks at the directories, a few categories a group. A quota is checked
// against the last look and what was written since: it may be exceeded by what is on its way.
//
// Store keys: f/c/<category> (category_entry.h), f/journal (journal.h), f/totals: u8 version (2), u64 each of events,
// bytes, chunks, rejected, cut bytes, expired chunks and bytes, chunks and bytes over max, over quota; u32 CRC-32C.
// Version 1 ends behind cut bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "base/time.h"
#include "codec/event/block.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "store/chunk/retention.h"
#include "store/commit/committer.h"

namespace ph::chunk {

enum class FileMode { chunks, plain };
enum class MessageFormat { raw, json };
/// What becomes of lines over a quota: their senders wait, or they are refused, which makes them dead letters.
enum class OverQuota { block, refuse };

/// Settings of the categories that match; the first matching mask wins.
struct CategoryOptions {
  std::vector<std::string> masks;  // '*' anywhere, whole name; empty: all
  FileMode mode = FileMode::chunks;
  uint64_t chunk_max = 5'000'000;  // bytes of lines, before compression
  Duration chunk_interval = std::chrono::seconds(5);
  Compression compression = Compression::none;
  MessageFormat format = MessageFormat::raw;  // how MQTT messages become lines
  KeepRule retention;                         // chunks only: plain logs are rotated by others
  std::optional<uint64_t> quota;              // bytes of the category's files
};

struct FilesSinkOptions {
  std::string directory;
  std::string state_directory;  // <data_dir>/files: journal of plain logs, bytes cut in recovery
  std::vector<CategoryOptions> categories;
  size_t categories_max = limits::kCategoriesMax;
  bool utc = false;               // dates in chunk names: UTC instead of the process's zone (TZ)
  size_t sync_each_max = 32;      // files of a group that are synced one by one; more: their file system as a whole
  std::optional<uint64_t> max;    // bytes of all closed chunks: the oldest go
  std::optional<uint64_t> quota;  // bytes of all files
  OverQuota over_quota = OverQuota::block;
  commit::DiskFloor* floor = nullptr;  // of the directory's file system: its reserve is not written to
};

struct FilesSinkStats {
  // Since the sink was made; kept in the store, in the batch of what they count.
  uint64_t events = 0;
  uint64_t bytes = 0;
  uint64_t chunks = 0;
  uint64_t rejected = 0;  // answers of refuses(); the last second's may be missing after a crash
  uint64_t recovered_cut_bytes = 0;
  Removed expired;  // by retention; the last ones before a crash may be missing, as above
  Removed over_max;
  uint64_t over_quota = 0;  // part of rejected
  // Since the start.
  uint64_t open_categories = 0;
  uint64_t stored_bytes = 0;      // of all files, as of the last looks; 0 without retention and quotas
  uint64_t pending_bytes = 0;     // appended, not yet in a group that is on its way; bounded by the callers' windows
  uint64_t vanished_chunks = 0;   // open chunks that somebody removed or changed: lines went to a new one
  uint64_t shortened_chunks = 0;  // found shorter than their committed size: somebody cut acknowledged lines
  uint64_t abandoned_chunks = 0;  // closed early because a write or sync failed
  uint64_t damaged_entries = 0;   // of the store or the journal
  uint64_t late_commits = 0;      // groups that the store called failed and yet kept: their lines may come again
  uint64_t maybe_duplicate = 0;   // copies to a plain log whose first attempt can't be found any more
  std::string alarm;              // why nothing can be written now; empty: all is well
};

/// Why a category's events cannot be written now: something foreign where its file or directory belongs, or a quota.
struct Obstacle {
  std::string_view code;  // of an alarm
  std::string path;
  std::string text;
};

class FilesSink : public commit::Participant {
 public:
  /// Reads the store, makes the directories, replays nothing but finds the journal's rest; categories are recovered one
  /// after the other behind it. Errors: file.*, chunk.newer_version.
  static Result<std::unique_ptr<FilesSink>> open(FilesSinkOptions options, port::Loop& loop, port::Files& files,
                                                 port::KeyedStore& store, commit::Committer& committer);
  ~FilesSink() override = default;

  /// Static text why this category is not written here, and its events are to be dead letters (bad name, too many
  /// categories, over a quota that says so); empty: it is, and it now counts as one of the categories. Not asked again
  /// between the answer and append(): it may change.
  virtual std::string_view refuses(std::string_view category) = 0;
  /// What stands where the category's file or directory belongs, or which quota is used up, as static text; empty:
  /// nothing known to. Not for ever: whoever has lines for it waits and asks again. It is an alarm until it is gone.
  /// Empty also for a category that refuses() refuses.
  virtual std::string_view obstacle(std::string_view category) = 0;
  /// Whether the disk takes more lines: false while only its reserve is left. Whoever has lines waits and asks again.
  virtual bool room() = 0;
  /// Looks again at what was in the way, and lists what still is; also the quotas that are used up.
  virtual std::vector<Obstacle> obstacles() = 0;
  /// Adds the block's lines to the pending group. The caller then makes a Committer::request that needs this sink and
  /// carries its own entries, so that data and cursor or ranges are one commit. When that request fails, nothing of it
  /// is kept: append again. A gap block writes nothing. Requires an empty answer of refuses(block.category).
  virtual void append(const event::Block& block) = 0;
  virtual FilesSinkStats stats() const = 0;
};

}  // namespace ph::chunk
