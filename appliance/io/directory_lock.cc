#include "io/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "io/posix_files.h"

namespace ph::io {

Result<std::unique_ptr<DirectoryLock>> DirectoryLock::take(const std::string& directory, const std::string& use) {
  PosixFiles files;
  PH_TRY(files.make_directories(directory));
  int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return fail_errno(lock_errors::failed, use + " " + directory, errno);
  std::unique_ptr<DirectoryLock> lock(new DirectoryLock(descriptor));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return fail(lock_errors::locked, use + " " + directory + ": another node uses it");
  return fail_errno(lock_errors::failed, use + " " + directory, errno);
}

DirectoryLock::~DirectoryLock() {
  ::close(descriptor_);
}

}  // namespace ph::io
