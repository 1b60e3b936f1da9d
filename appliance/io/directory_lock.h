// DirectoryLock: one node a directory. Two agents on one source directory would deliver every line twice, two receivers
// on one events directory would write into each other's chunks; both look well configured. Held until destroyed or the
// process ends, however it ends.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace ph::io {

namespace lock_errors {
inline constexpr ErrorCode locked{"directory.locked"};  // another process holds it
inline constexpr ErrorCode failed{"directory.failed"};
}  // namespace lock_errors

class DirectoryLock {
 public:
  /// Makes the directory when it is missing. `use` says in the error what for: "agent.dir".
  static Result<std::unique_ptr<DirectoryLock>> take(const std::string& directory, const std::string& use);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace ph::io
