// Dead letter files: any bytes may stand in one.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "store/dead_letter/dead_letters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ph::Slice bytes(std::string(reinterpret_cast<const char*>(data), size));
  if (auto letter = ph::port::decode_dead_letter(bytes)) {
    auto again = ph::port::decode_dead_letter(ph::Slice(ph::port::encode(*letter)));
    if (!again || again->first != letter->first || again->block.view() != letter->block.view()) std::abort();
  }
  uint64_t whole = 0;
  uint64_t stray = ph::dead_letter::scan_frames(bytes, [&](uint64_t offset, const ph::Slice& body) {
    if (offset + 12 + body.size() > size) std::abort();
    whole += 12 + body.size();
    return true;
  });
  if (whole + stray != size) std::abort();
  return 0;
}
