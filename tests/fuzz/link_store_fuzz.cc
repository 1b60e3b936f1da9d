// What a receiver finds in its store about a stream, and the blocks of a batch as a peer packs them: whatever is there,
// nothing is read out of bounds, what loads is stored again to the same effect, and a cut part walks like a whole.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/link/packed.h"
#include "core/link/receiver_streams.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 20) return 0;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  ph::link::StreamKey key{{}, 1, ph::StreamId{2}};
  auto streams = ph::link::ReceiverStreams::make();
  if (streams->load(ph::link::store_key(key), bytes)) {
    std::string again = streams->value(key, ph::WallTime{});
    auto copy = ph::link::ReceiverStreams::make();
    if (!copy->load(ph::link::store_key(key), again)) std::abort();
    if (copy->resume(key, 0) != streams->resume(key, 0)) std::abort();
  }
  constexpr uint64_t kFirst = 0, kLast = 50;
  ph::Slice packed(std::move(bytes));
  bool whole = ph::link::for_each_block(packed, kFirst, kLast, [](uint64_t, uint64_t, const ph::Slice&) {});
  for (uint64_t at = kFirst; at < kLast; at += 10) {
    auto part = ph::link::cut_packed(packed, kFirst, kLast, at, at + 10);
    if (!part || !whole) continue;
    if (!ph::link::for_each_block(part->packed, at, at + 10, [](uint64_t, uint64_t, const ph::Slice&) {})) std::abort();
  }
  return 0;
}
