// Preloaded into a process: ends it by SIGKILL right behind its Nth system call that changes what is on disk. Calls are
// counted over all threads, from the moment at which the file $PH_KILL_ARMED exists; N is $PH_KILL_AFTER. With
// $PH_KILL_TRACE each counted call is a line of that file, so that a test sees what the Nth was.
//
// Counted: write, pwrite, writev to regular files, ftruncate, fsync, fdatasync, syncfs, unlink, rename, renameat2,
// mkdir, rmdir, symlink, and open when it makes a file.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::atomic<long> counted{0};

void count(const char* call, const char* what) {
  static const char* const armed = std::getenv("PH_KILL_ARMED");
  static const char* const after = std::getenv("PH_KILL_AFTER");
  static const char* const trace = std::getenv("PH_KILL_TRACE");
  static std::atomic<bool> on{false};
  int saved = errno;
  if (armed && after && (on.load() || ::access(armed, F_OK) == 0)) {
    on = true;
    long number = ++counted;
    if (trace) {
      static const int out =
          next<int (*)(const char*, int, ...)>("open")(trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      char line[600];
      int size = std::snprintf(line, sizeof line, "%ld %s %s\n", number, call, what);
      static auto* const put = next<ssize_t (*)(int, const void*, size_t)>("write");
      if (size > 0) (void)put(out, line, std::strlen(line));
    }
    if (number == std::atol(after)) ::kill(::getpid(), SIGKILL);
  }
  errno = saved;
}

bool regular(int fd) {
  struct stat s{};
  return ::fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
}

void count_file(const char* call, int fd) {
  char link[40], path[512];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = ::readlink(link, path, sizeof path - 1);
  path[size > 0 ? size : 0] = '\0';
  count(call, path);
}

}  // namespace

#define PH_NEXT(function) static auto* const real = next<decltype(&::function)>(#function)

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  PH_NEXT(write);
  ssize_t done = real(fd, data, size);
  if (regular(fd)) count_file("write", fd);
  return done;
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  PH_NEXT(pwrite);
  ssize_t done = real(fd, data, size, at);
  count_file("pwrite", fd);
  return done;
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  PH_NEXT(pwrite64);
  ssize_t done = real(fd, data, size, at);
  count_file("pwrite", fd);
  return done;
}
ssize_t writev(int fd, const struct iovec* parts, int number) {
  PH_NEXT(writev);
  ssize_t done = real(fd, parts, number);
  if (regular(fd)) count_file("writev", fd);
  return done;
}
int ftruncate(int fd, off_t size) noexcept {
  PH_NEXT(ftruncate);
  int done = real(fd, size);
  count_file("ftruncate", fd);
  return done;
}
int ftruncate64(int fd, off64_t size) noexcept {
  PH_NEXT(ftruncate64);
  int done = real(fd, size);
  count_file("ftruncate", fd);
  return done;
}
int fsync(int fd) {
  PH_NEXT(fsync);
  int done = real(fd);
  count_file("fsync", fd);
  return done;
}
int fdatasync(int fd) {
  PH_NEXT(fdatasync);
  int done = real(fd);
  count_file("fdatasync", fd);
  return done;
}
int syncfs(int fd) noexcept {
  PH_NEXT(syncfs);
  int done = real(fd);
  count_file("syncfs", fd);
  return done;
}
int unlink(const char* path) noexcept {
  PH_NEXT(unlink);
  int done = real(path);
  count("unlink", path);
  return done;
}
int rename(const char* from, const char* to) noexcept {
  PH_NEXT(rename);
  int done = real(from, to);
  count("rename", from);
  return done;
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  PH_NEXT(renameat2);
  int done = real(from_dir, from, to_dir, to, flags);
  count("renameat2", from);
  return done;
}
int mkdir(const char* path, mode_t mode) noexcept {
  PH_NEXT(mkdir);
  int done = real(path, mode);
  count("mkdir", path);
  return done;
}
int rmdir(const char* path) noexcept {
  PH_NEXT(rmdir);
  int done = real(path);
  count("rmdir", path);
  return done;
}
int symlink(const char* target, const char* path) noexcept {
  PH_NEXT(symlink);
  int done = real(target, path);
  count("symlink", path);
  return done;
}
int open(const char* path, int flags, ...) {
  PH_NEXT(open);
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  int fd = real(path, flags, mode);
  if (flags & O_CREAT) count("open", path);
  return fd;
}
int open64(const char* path, int flags, ...) {
  PH_NEXT(open64);
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  int fd = real(path, flags, mode);
  if (flags & O_CREAT) count("open", path);
  return fd;
}

}  // extern "C"
