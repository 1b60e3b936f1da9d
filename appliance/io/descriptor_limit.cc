#include "io/descriptor_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>

namespace ph::io {
namespace {

std::atomic<size_t>& limit_of_process() {
  static std::atomic<size_t> limit{0};
  return limit;
}

}  // namespace

size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  const rlim_t now = ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
  limit_of_process() = now;
  return now;
}

void reserve_descriptors(size_t count) {
  const size_t most = std::min<size_t>(limit_of_process(), INT_MAX);
  if (most == 0 || count == 0) return;
  const int highest = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, static_cast<int>(std::min(count, most) - 1));
  if (highest >= 0) ::close(highest);  // a table never shrinks; without room for it, it grows as it is used
}

size_t descriptor_limit() {
  return limit_of_process();
}

size_t descriptor_ceiling() {
  const size_t limit = limit_of_process();
  return limit == 0 ? SIZE_MAX : limit - std::min(kDescriptorReserve, limit / 4);
}

}  // namespace ph::io
