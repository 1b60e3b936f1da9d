// PosixFiles: port::Files on Linux. Every descriptor is close-on-exec. One call is one or a few system calls; nothing
// is cached. Safe from any thread; one PosixFile from one thread at a time.
//
// Leases (amendment 8): proof that nobody else has a file open exists only where the kernel sees every opener, so only
// on the local file systems named in posix_files.cc; elsewhere take_lease() says unsupported. The signal that announces
// a breaking lease is turned into SIGURG, which is ignored by default: it can never end the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port/files.h"

namespace ph::io {

class PosixFiles final : public port::Files {
 public:
  Result<std::unique_ptr<port::File>> open(const std::string& path, port::OpenMode mode) override;
  Result<std::optional<port::FileStat>> stat(const std::string& path) override;
  Result<std::vector<port::DirectoryEntry>> list(const std::string& path) override;
  /// Mode 0770 for those it makes, less the umask or as a default ACL of the parent says: consumers delete chunks by
  /// the rights of their group.
  Result<> make_directories(const std::string& path) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Result<> rename_new(const std::string& from, const std::string& to) override;
  Result<> unlink(const std::string& path) override;
  Result<> remove_directory(const std::string& path) override;
  Result<> replace_symlink(const std::string& target, const std::string& link) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Result<> sync_directory(const std::string& path) override;
  Result<port::DiskSpace> space(const std::string& path) override;
  Result<std::unique_ptr<port::FileSystem>> file_system(const std::string& path) override;
};

/// An Error with the file_errors code that fits errno; detail "<path>: <strerror>".
std::unexpected<Error> file_error(std::string_view path, int os_error);

}  // namespace ph::io
