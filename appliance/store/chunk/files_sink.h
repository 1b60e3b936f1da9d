// FilesSink: the "files" target: chunks as LSD's consumers know them, or one plain log per category.
//   chunks  <dir>/<category>/<category>-YYYY-MM-DD_NNNNNN, and a symlink <category>_current to the open chunk;
//   consumers
//           take every chunk whose name sorts below the link's target.
//   plain   <dir>/<category>, appended. Goes through a journal first, so that a consumer who tails it never sees bytes
//           that a crash takes back (amendment 13).
// Commit order (amendment 12): write, fdatasync (a new file: also its directory and that one's parent), then the store
// batch {file -> committed size, what the caller commits with it}, then the acknowledgement. On start the open chunk is
// cut to its committed size, the cut bytes saved aside; it is never extended. After a failed write or sync the file is
// abandoned: closed ones keep their committed size, the batch goes into a new chunk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "codec/event/block.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "store/commit/committer.h"

namespace ph::chunk {

enum class FileMode { chunks, plain };
enum class MessageFormat { raw, json };

/// Settings of the categories that match; the first matching mask wins.
struct CategoryOptions {
  std::vector<std::string> masks;  // '*' anywhere, whole name; empty: all
  FileMode mode = FileMode::chunks;
  uint64_t chunk_max = 5'000'000;
  Duration chunk_interval = std::chrono::seconds(5);
  MessageFormat format = MessageFormat::raw;  // how MQTT messages become lines
};

struct FilesSinkOptions {
  std::string directory;
  std::string state_directory;  // <data_dir>/files: journal of plain logs, bytes cut in recovery
  std::vector<CategoryOptions> categories;
  size_t categories_max = 10'000;
};

struct FilesSinkStats {
  uint64_t events = 0;
  uint64_t bytes = 0;
  uint64_t chunks = 0;
  uint64_t open_categories = 0;
  uint64_t rejected = 0;
  uint64_t recovered_cut_bytes = 0;
  std::string alarm;  // why nothing can be written now; empty: all is well
};

class FilesSink : public commit::Participant {
 public:
  static Result<std::unique_ptr<FilesSink>> open(FilesSinkOptions options, port::Loop& loop, port::Files& files,
                                                 port::KeyedStore& store, commit::Committer& committer);
  ~FilesSink() override = default;

  /// Static text why this category can never be written here (bad name, too many categories); empty: it can.
  virtual std::string_view refuses(std::string_view category) = 0;
  /// Adds the block's lines to the pending group. The caller then makes a Committer::request that needs this sink and
  /// carries its own entries, so that data and cursor or ranges are one commit. Requires !refuses(category).
  virtual void append(const event::Block& block) = 0;
  virtual FilesSinkStats stats() const = 0;
};

}  // namespace ph::chunk
