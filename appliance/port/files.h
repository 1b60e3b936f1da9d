// Files: what services need of a file system, synchronous, one call one system call. Bulk writes and every sync are
// made on the disk thread; a service's loop only stats, lists and reads pages that are most likely cached.
//
// The simulator's implementation keeps written and synced bytes apart and loses or tears the former in a crash.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"

namespace ph::port {

enum class FileKind : uint8_t { regular, directory, symlink, other };

struct FileStat {
  FileKind kind = FileKind::other;
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t birth_ns = 0;     // statx btime; 0 where the file system has none
  int64_t modified_ns = 0;  // wall clock: for age policies only
  uint64_t size = 0;
  uint32_t links = 0;  // 0: unlinked, alive only through descriptors
  uint32_t owner = 0;  // uid
};

enum class OpenMode {
  read,          // existing file, read only, O_NOFOLLOW | O_NONBLOCK: never blocks on a FIFO
  write_create,  // read/write, created if missing (mode 0640)
  write_new,     // read/write, must not exist: "file.exists"
};

enum class Lease {
  granted,      // nobody else has the file open
  held,         // somebody has
  unsupported,  // not our file and no CAP_LEASE, or a file system without leases: no proof can be had
};

/// An open file. Closed by its destructor, which never fails.
class File {
 public:
  virtual ~File() = default;
  /// Reads up to size bytes at offset; shorter only at the end of the file.
  virtual Result<size_t> read_at(uint64_t offset, char* into, size_t size) = 0;
  /// Writes all bytes or fails; after a failure the file's content beyond offset is unknown. "file.no_space" for ENOSPC
  /// and EDQUOT.
  virtual Result<> write_at(uint64_t offset, ByteView bytes) = 0;
  /// fdatasync. After a failure the pages' state is unknown: the caller abandons this file (amendment 12).
  virtual Result<> sync() = 0;
  virtual Result<> truncate(uint64_t size) = 0;
  virtual Result<FileStat> stat() = 0;
  /// Takes a write lease on this descriptor, which must be the only one of ours, and releases it with release_lease().
  virtual Lease take_lease() = 0;
  /// Whether the lease taken is still whole: false once an opener is waiting for it to break.
  virtual bool lease_intact() = 0;
  virtual void release_lease() = 0;
  /// flock(LOCK_SH) without waiting: false while another has it locked. Also true where there are no locks.
  virtual bool try_lock_shared() { return true; }
  virtual void unlock() {}
};

/// A file system, to make much durable at once: a sync of each of thousands of new files takes a journal commit each.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// syncfs: everything in it, also what other processes wrote, is durable. A failure to write back anything since this
  /// object was made is reported: make it before the writes that it is to cover. After a failure the state of them all
  /// is unknown, as with File::sync().
  virtual Result<> sync() = 0;
};

struct DirectoryEntry {
  std::string name;
  FileKind kind;
  uint64_t inode;
};

struct DiskSpace {
  uint64_t total = 0;
  uint64_t available = 0;  // to an unprivileged writer
};

class Files {
 public:
  virtual ~Files() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) = 0;
  /// lstat: a symbolic link is not followed. nullopt if nothing has that name.
  virtual Result<std::optional<FileStat>> stat(const std::string& path) = 0;
  /// Unsorted, without "." and "..". A missing directory is "file.not_found".
  virtual Result<std::vector<DirectoryEntry>> list(const std::string& path) = 0;
  virtual Result<> make_directories(const std::string& path) = 0;
  virtual Result<> rename(const std::string& from, const std::string& to) = 0;
  /// RENAME_NOREPLACE: "file.exists" if `to` has that name.
  virtual Result<> rename_new(const std::string& from, const std::string& to) = 0;
  virtual Result<> unlink(const std::string& path) = 0;
  virtual Result<> remove_directory(const std::string& path) = 0;
  /// Makes `link` point at `target` in one step (new name, then rename).
  virtual Result<> replace_symlink(const std::string& target, const std::string& link) = 0;
  virtual Result<std::string> read_symlink(const std::string& path) = 0;
  /// fsync of a directory: makes creations, renames and removals in it durable.
  virtual Result<> sync_directory(const std::string& path) = 0;
  virtual Result<DiskSpace> space(const std::string& path) = 0;
  /// The one that the directory `path` lies in.
  virtual Result<std::unique_ptr<FileSystem>> file_system(const std::string& path) = 0;
};

/// Change notification (inotify). Events only say where to look; a periodic rescan finds what was missed.
class Watcher {
 public:
  virtual ~Watcher() = default;
  struct Event {
    std::string directory;  // as given to add()
    std::string name;       // entry in it; empty when the directory itself changed or vanished
    bool overflow = false;  // events were lost: rescan everything
  };
  virtual Result<> add(const std::string& directory) = 0;
  virtual void remove(const std::string& directory) = 0;
};
using WatchFn = std::move_only_function<void(const std::vector<Watcher::Event>&)>;

namespace file_errors {
inline constexpr ErrorCode not_found{"file.not_found"};
inline constexpr ErrorCode exists{"file.exists"};
inline constexpr ErrorCode no_space{"file.no_space"};
inline constexpr ErrorCode denied{"file.denied"};
inline constexpr ErrorCode failed{"file.failed"};
}  // namespace file_errors

}  // namespace ph::port
