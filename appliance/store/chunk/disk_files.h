// What the sink's writers share on the disk thread: a bounded set of open files, gathered writes, and the place where
// bytes go that recovery cuts off.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/bytes.h"
#include "base/result.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "store/chunk/category_entry.h"

namespace ph::chunk {

/// Open files by path, the least recently used closed first. Pointers given out are valid until the next call.
class OpenFiles {
 public:
  static constexpr size_t kMax = 512;  // of the process's 20,000 descriptors

  explicit OpenFiles(port::Files& files, size_t max = kMax) : files_(files), max_(max) {}

  /// The file of that identity at `path`; nullptr when the path names another file or none.
  Result<port::File*> existing(const std::string& path, FileId id);
  port::File* adopt(const std::string& path, std::unique_ptr<port::File> file);
  void close(const std::string& path);
  size_t size() const { return by_path_.size(); }

 private:
  struct Entry {
    std::string path;
    std::unique_ptr<port::File> file;
  };
  port::Files& files_;
  size_t max_;
  std::list<Entry> recent_;  // most recent first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_path_;
};

/// The syncs of one step of a group: each by itself, or, where there are many, one of the whole file system at the end.
/// A sync of a new file costs a commit of the file system's journal: 3,000 of them would keep everybody's
/// acknowledgements waiting for many seconds.
class GroupSync {
 public:
  GroupSync(port::Files& files, std::string directory, size_t each_max)
      : files_(files), directory_(std::move(directory)), each_max_(each_max) {}
  /// Before the first write of a step with `expected` files to sync.
  Result<> begin(size_t expected);
  Result<> file(port::File& f) { return whole_ ? Result<>() : f.sync(); }
  Result<> directory(const std::string& path) { return whole_ ? Result<>() : files_.sync_directory(path); }
  /// What was given since begin() is durable, or all of it has failed.
  Result<> end();
  /// The step failed otherwise: what follows is synced by itself.
  void abandon() { whole_.reset(); }

 private:
  port::Files& files_;
  std::string directory_;
  size_t each_max_;
  std::unique_ptr<port::FileSystem> whole_;
};

/// Consecutive bytes from many slices, written in few calls. Small slices are gathered in `buffer`, which the owner
/// keeps between groups; big ones are written as they are.
class GatheredWrite {
 public:
  static constexpr size_t kBuffer = 1024 * 1024;
  static constexpr size_t kDirect = 64 * 1024;

  GatheredWrite(port::File& file, uint64_t offset, std::string& buffer) : file_(file), at_(offset), buffer_(buffer) {
    buffer_.clear();
  }
  Result<> add(ByteView bytes);
  Result<> finish();

 private:
  port::File& file_;
  uint64_t at_;
  std::string& buffer_;
};

/// Bytes that a crash left behind a committed size: unacknowledged, so their sender sends them again; kept for those
/// who want to look. Bounds: kFilesMax files, the oldest go first. A full disk does not stop a recovery: then they are
/// lost, which is logged.
class CutBytes {
 public:
  static constexpr size_t kFilesMax = 256;

  CutBytes(port::Files& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  /// Copies [begin, end) of `from` into a new file whose name begins with `name`.
  void save(port::File& from, uint64_t begin, uint64_t end, const std::string& name);
  /// Bytes cut so far, saved or not.
  uint64_t bytes() const { return bytes_; }

 private:
  Result<> copy(port::File& from, uint64_t begin, uint64_t end, const std::string& name);
  Result<> make_room();
  port::Files& files_;
  std::string directory_;
  uint64_t bytes_ = 0;
};

/// A synced write that changes nothing. Once it succeeds, a get() tells for sure whether an earlier batch that was
/// called failed is durable: a store that failed reads its log again before it takes this one.
Result<> settle_store(port::KeyedStore& store);

/// Makes a directory and whatever it lies in, durably. Loop or disk thread, at start only.
Result<> make_durable_directory(port::Files& files, const std::string& path);

}  // namespace ph::chunk
