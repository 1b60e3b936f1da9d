// What a log source keeps in the store. The input's first byte chooses: even, the rest is a cursor; odd, it is how long
// what waits has waited, and what is read must read back the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "store/spool/log_source.h"
#include "store/spool/waiting_ages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ph::ByteView input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    (void)ph::spool::LogSource::settled_in(input);
    return 0;
  }
  using namespace std::chrono_literals;
  const ph::Instant now{1000h};
  ph::spool::WaitingAges ages(48h), again(48h);
  if (!ages.decode(input, now)) return 0;
  const std::string stored = ages.encode(now);
  if (!again.decode(stored, now) || again.encode(now) != stored) std::abort();
  if (ages.expired(now) != again.expired(now)) std::abort();
  return 0;
}
