// Any bytes as the agent's stored records: decoded within their bounds or refused, and what was decoded encodes back to
// the same record.

#include "base/result.h"
#include "core/agent/records.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph::agent;
  ph::ByteView bytes(reinterpret_cast<const char*>(data), size);
  if (auto r = decode_generation(generation_key(ph::StreamId{7}), bytes)) {
    auto again = decode_generation(generation_key(r->id), encode(*r));
    PH_ASSERT(again && encode(*again) == encode(*r), "a generation record survives a round trip");
  }
  if (auto r = decode_cursor(bytes)) {
    PH_ASSERT(r->read >= r->settled && r->window.length <= r->window.end, "a cursor record keeps its bounds");
    auto again = decode_cursor(encode(*r));
    PH_ASSERT(again && encode(*again) == encode(*r), "a cursor record survives a round trip");
  }
  if (auto r = decode_counters(bytes)) {
    auto again = decode_counters(encode(*r));
    PH_ASSERT(again && encode(*again) == encode(*r), "a counter record survives a round trip");
  }
  (void)decode_cursor_key(bytes);
  return 0;
}
