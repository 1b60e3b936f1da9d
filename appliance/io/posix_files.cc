#include "io/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ph::io {
namespace {

using port::FileKind;

/// f_type of file systems where a write lease sees every opener: all of them are on this machine. Network and stacked
/// file systems (NFS, SMB, 9p, FUSE, overlayfs) are left out on purpose, and so is what we do not know.
constexpr std::array<unsigned long, 8> kLeaseFileSystems = {
    0xEF53,      // ext2, ext3, ext4
    0x58465342,  // xfs
    0x9123683E,  // btrfs
    0x01021994,  // tmpfs
    0x858458F6,  // ramfs
    0xF2F52010,  // f2fs
    0xCA451A4E,  // bcachefs
    0x24051905,  // ubifs
};

FileKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::regular;
  if (S_ISDIR(mode)) return FileKind::directory;
  if (S_ISLNK(mode)) return FileKind::symlink;
  return FileKind::other;
}

/// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int descriptor = 0;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

/// statx of `path` under `directory`; 0 or errno.
int stat_into(int directory, const char* path, int flags, port::FileStat& out) {
  struct statx raw{};
  if (::statx(directory, path, flags | AT_STATX_SYNC_AS_STAT, STATX_BASIC_STATS | STATX_BTIME, &raw) != 0) return errno;
  auto nanoseconds = [](const statx_timestamp& t) { return t.tv_sec * 1'000'000'000 + t.tv_nsec; };
  out.kind = kind_of(raw.stx_mode);
  out.device = makedev(raw.stx_dev_major, raw.stx_dev_minor);
  out.inode = raw.stx_ino;
  out.birth_ns = (raw.stx_mask & STATX_BTIME) != 0 ? nanoseconds(raw.stx_btime) : 0;
  out.modified_ns = nanoseconds(raw.stx_mtime);
  out.size = raw.stx_size;
  out.links = raw.stx_nlink;
  out.owner = raw.stx_uid;
  return 0;
}

class PosixFile final : public port::File {
 public:
  PosixFile(std::string path, Descriptor descriptor) : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  Result<size_t> read_at(uint64_t offset, char* into, size_t size) override {
    size_t have = 0;
    while (have < size) {
      ssize_t got = ::pread(fd(), into + have, size - have, static_cast<off_t>(offset + have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return file_error(path_, errno);
      if (got == 0) break;
      have += static_cast<size_t>(got);
    }
    return have;
  }

  Result<> write_at(uint64_t offset, ByteView bytes) override {
    size_t done = 0;
    while (done < bytes.size()) {
      ssize_t put = ::pwrite(fd(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return file_error(path_, errno);
      if (put == 0) return file_error(path_, EIO);
      done += static_cast<size_t>(put);
    }
    return {};
  }

  Result<> sync() override {
    // Never again after EINTR or any failure: a second fdatasync would report success for pages that are lost.
    if (::fdatasync(fd()) != 0) return file_error(path_, errno);
    return {};
  }

  Result<> truncate(uint64_t size) override {
    while (::ftruncate(fd(), static_cast<off_t>(size)) != 0)
      if (errno != EINTR) return file_error(path_, errno);
    return {};
  }

  Result<port::FileStat> stat() override {
    port::FileStat out;
    if (int os_error = stat_into(fd(), "", AT_EMPTY_PATH, out)) return file_error(path_, os_error);
    return out;
  }

  bool try_lock_shared() override { return ::flock(fd(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK; }
  void unlock() override { (void)::flock(fd(), LOCK_UN); }
  port::Lease take_lease() override {
    struct statfs system{};
    if (::fstatfs(fd(), &system) != 0) return port::Lease::unsupported;
    auto type = static_cast<unsigned long>(system.f_type) & 0xFFFFFFFFUL;
    if (std::ranges::find(kLeaseFileSystems, type) == kLeaseFileSystems.end()) return port::Lease::unsupported;
    if (::fcntl(fd(), F_SETSIG, SIGURG) != 0) return port::Lease::unsupported;
    if (::fcntl(fd(), F_SETLEASE, F_WRLCK) == 0) return port::Lease::granted;
    return errno == EAGAIN ? port::Lease::held : port::Lease::unsupported;
  }

  bool lease_intact() override { return ::fcntl(fd(), F_GETLEASE) == F_WRLCK; }
  void release_lease() override { (void)::fcntl(fd(), F_SETLEASE, F_UNLCK); }

 private:
  int fd() const { return descriptor_.get(); }
  std::string path_;
  Descriptor descriptor_;
};

class PosixFileSystem final : public port::FileSystem {
 public:
  PosixFileSystem(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  Result<> sync() override {
    if (::syncfs(descriptor_.get()) != 0) return file_error(path_, errno);
    return {};
  }

 private:
  std::string path_;
  Descriptor descriptor_;  // the kernel reports what failed since it was opened
};

Result<> outcome(int returned, std::string_view path) {
  if (returned == 0) return {};
  return file_error(path, errno);
}

}  // namespace

std::unexpected<Error> file_error(std::string_view path, int os_error) {
  switch (os_error) {
    case ENOENT:
    case ENOTDIR:
      return fail_errno(port::file_errors::not_found, path, os_error);
    case EEXIST:
    case ENOTEMPTY:
      return fail_errno(port::file_errors::exists, path, os_error);
    case ENOSPC:
    case EDQUOT:
      return fail_errno(port::file_errors::no_space, path, os_error);
    case EACCES:
    case EPERM:
    case EROFS:
      return fail_errno(port::file_errors::denied, path, os_error);
    default:
      return fail_errno(port::file_errors::failed, path, os_error);
  }
}

Result<std::unique_ptr<port::File>> PosixFiles::open(const std::string& path, port::OpenMode mode) {
  int flags = 0;
  switch (mode) {
    case port::OpenMode::read:
      flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
      break;
    case port::OpenMode::write_create:
      flags = O_RDWR | O_CREAT | O_NOCTTY;
      break;
    case port::OpenMode::write_new:
      flags = O_RDWR | O_CREAT | O_EXCL | O_NOCTTY;
      break;
  }
  Descriptor descriptor(open_retrying(path, flags, 0640));
  if (descriptor.get() < 0) return file_error(path, errno);
  return std::make_unique<PosixFile>(path, std::move(descriptor));
}

Result<std::optional<port::FileStat>> PosixFiles::stat(const std::string& path) {
  port::FileStat out;
  int os_error = stat_into(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, out);
  if (os_error == ENOENT || os_error == ENOTDIR) return std::nullopt;
  if (os_error) return file_error(path, os_error);
  return out;
}

Result<std::vector<port::DirectoryEntry>> PosixFiles::list(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (!directory) return file_error(path, errno);
  std::vector<port::DirectoryEntry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (!entry) break;
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    auto kind = FileKind::other;
    if (entry->d_type == DT_UNKNOWN) {
      port::FileStat found;
      // Gone since: it is listed as `other`, and whoever looks closer sees that it is gone.
      if (stat_into(::dirfd(directory.get()), name.c_str(), AT_SYMLINK_NOFOLLOW, found) == 0) kind = found.kind;
    } else {
      kind = kind_of(DTTOIF(entry->d_type));
    }
    entries.push_back({std::move(name), kind, entry->d_ino});
  }
  if (errno != 0) return file_error(path, errno);
  return entries;
}

Result<> PosixFiles::make_directories(const std::string& path) {
  for (size_t end = 0; end != path.npos;) {
    end = path.find('/', end + 1);
    std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0770) == 0 || errno == EEXIST) continue;
    return file_error(part, errno);
  }
  PH_ASSIGN(auto found, stat(path));
  if (found && found->kind == FileKind::symlink) {  // a link to a directory serves as one
    struct stat target{};
    if (::stat(path.c_str(), &target) != 0) return file_error(path, errno);
    found->kind = kind_of(target.st_mode);
  }
  if (!found || found->kind != FileKind::directory) return file_error(path, EEXIST);
  return {};
}

Result<> PosixFiles::rename(const std::string& from, const std::string& to) {
  return outcome(::rename(from.c_str(), to.c_str()), from + " to " + to);
}

Result<> PosixFiles::rename_new(const std::string& from, const std::string& to) {
  return outcome(::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE), from + " to " + to);
}

Result<> PosixFiles::unlink(const std::string& path) {
  return outcome(::unlink(path.c_str()), path);
}
Result<> PosixFiles::remove_directory(const std::string& path) {
  return outcome(::rmdir(path.c_str()), path);
}

Result<> PosixFiles::replace_symlink(const std::string& target, const std::string& link) {
  std::string fresh = link + ".new";
  if (::symlink(target.c_str(), fresh.c_str()) != 0) {
    if (errno != EEXIST) return file_error(fresh, errno);
    // Left over by a crash between the two steps.
    PH_TRY(unlink(fresh));
    PH_TRY(outcome(::symlink(target.c_str(), fresh.c_str()), fresh));
  }
  auto renamed = rename(fresh, link);
  if (!renamed) (void)::unlink(fresh.c_str());
  return renamed;
}

Result<std::string> PosixFiles::read_symlink(const std::string& path) {
  std::string target(4096, '\0');
  ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  if (size < 0) return file_error(path, errno);
  if (static_cast<size_t>(size) == target.size()) return file_error(path, ENAMETOOLONG);
  target.resize(static_cast<size_t>(size));
  return target;
}

Result<> PosixFiles::sync_directory(const std::string& path) {
  Descriptor directory(open_retrying(path, O_RDONLY | O_DIRECTORY));
  if (directory.get() < 0) return file_error(path, errno);
  return outcome(::fsync(directory.get()), path);
}

Result<std::unique_ptr<port::FileSystem>> PosixFiles::file_system(const std::string& path) {
  Descriptor directory(open_retrying(path, O_RDONLY | O_DIRECTORY));
  if (directory.get() < 0) return file_error(path, errno);
  return std::make_unique<PosixFileSystem>(path, std::move(directory));
}

Result<port::DiskSpace> PosixFiles::space(const std::string& path) {
  struct statvfs system{};
  if (::statvfs(path.c_str(), &system) != 0) return file_error(path, errno);
  return port::DiskSpace{system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize};
}

}  // namespace ph::io
