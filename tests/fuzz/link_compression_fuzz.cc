// Compressed EVENTS as a hostile peer would send them: refused, or within the bound; and what we compress comes back.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/link/compression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kBound = 1024 * 1024;
  static ph::link::Compressor compressor;
  static ph::link::Decompressor decompressor;
  const ph::ByteView bytes(reinterpret_cast<const char*>(data), size);
  auto opened = decompressor.decompress(bytes, kBound);
  if (opened && (opened->empty() || opened->size() > kBound)) std::abort();
  if (size == 0 || size > kBound) return 0;
  auto back = decompressor.decompress(compressor.compress(bytes).view(), size);
  if (!back || back->view() != bytes) std::abort();
  return 0;
}
