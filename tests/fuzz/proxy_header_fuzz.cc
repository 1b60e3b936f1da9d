// PROXY headers as anybody could send them: what is decoded lies within the bytes, and more bytes behind a whole header
// change nothing.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/proxy/header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ph::ByteView bytes(reinterpret_cast<const char*>(data), size);
  auto whole = ph::proxy::decode(bytes);
  if (!whole) return 0;
  if (!*whole) {
    if (size >= ph::proxy::kHeaderMax) std::abort();  // nobody waits for more than the bound
    return 0;
  }
  const ph::proxy::Header& header = **whole;
  if (header.size > size || header.size > ph::proxy::kHeaderMax) std::abort();
  if (header.source && header.source->size() > sizeof "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535") std::abort();
  auto cut = ph::proxy::decode(bytes.substr(0, header.size));
  if (!cut || !*cut || (*cut)->size != header.size || (*cut)->source != header.source) std::abort();
  for (size_t n = 0; n < header.size; n += 1 + header.size / 64) {
    auto part = ph::proxy::decode(bytes.substr(0, n));
    if (!part || *part) std::abort();
  }
  return 0;
}
