#include "io/random_seed.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/result.h"

namespace ph::io {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t have = 0;
  while (have < count) {
    ssize_t got = ::getrandom(bytes.data() + have, count - have, 0);
    if (got < 0 && errno == EINTR) continue;
    PH_ASSERT(got > 0, "the kernel has no random numbers: ids and keys would repeat");
    have += static_cast<size_t>(got);
  }
  return bytes;
}

uint64_t random_seed() {
  uint64_t seed = 0;
  std::memcpy(&seed, random_bytes(sizeof seed).data(), sizeof seed);
  return seed;
}

}  // namespace ph::io
