// Compression of what EVENTS carry (codec 1): one zstd frame that tells the size of what is in it. Pure; bounded: what
// does not tell its size, or a size above the bound, is refused before anything is allocated. A frame counts against
// CREDIT by its size uncompressed, so that no ratio makes a receiver hold more than it offered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::link {

/// One thread's working memory, made when it is first used.
class Compressor {
 public:
  Compressor();
  ~Compressor();
  Compressor(Compressor&&) noexcept;
  Compressor& operator=(Compressor&&) noexcept;
  Slice compress(ByteView bytes);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

class Decompressor {
 public:
  Decompressor();
  ~Decompressor();
  /// Errors: link.malformed: not one whole zstd frame that tells its content's size, or that is over `size_max`.
  Result<Slice> decompress(ByteView bytes, size_t size_max);
  /// What `bytes` say that they become; 0: they do not, and decompress() refuses them.
  static uint64_t told_size(ByteView bytes);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace ph::link
