#include "codec/link/compression.h"

#include <zstd.h>

#include <string>

#include "codec/link/frames.h"

namespace ph::link {
namespace {

constexpr int kLevel = 1;  // several hundred megabytes a second: the way is slower wherever this is used

template <class T>
struct Free {
  void operator()(T* context) const {
    if constexpr (std::is_same_v<T, ZSTD_CCtx>)
      ZSTD_freeCCtx(context);
    else
      ZSTD_freeDCtx(context);
  }
};

}  // namespace

struct Compressor::Context {
  std::unique_ptr<ZSTD_CCtx, Free<ZSTD_CCtx>> zstd{ZSTD_createCCtx()};
};
struct Decompressor::Context {
  std::unique_ptr<ZSTD_DCtx, Free<ZSTD_DCtx>> zstd{ZSTD_createDCtx()};
};

Compressor::Compressor() = default;
Compressor::~Compressor() = default;
Compressor::Compressor(Compressor&&) noexcept = default;
Compressor& Compressor::operator=(Compressor&&) noexcept = default;
Decompressor::Decompressor() = default;
Decompressor::~Decompressor() = default;

Slice Compressor::compress(ByteView bytes) {
  if (!context_) context_ = std::make_unique<Context>();
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  size_t size = ZSTD_compressCCtx(context_->zstd.get(), out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  PH_ASSERT(!ZSTD_isError(size), "a buffer of the bound is enough");
  return Slice(std::string(out.data(), size));  // what waits in a socket holds no more than it needs
}

Result<Slice> Decompressor::decompress(ByteView bytes, size_t size_max) {
  unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR)
    return fail(errors::malformed, "compressed EVENTS that do not tell their size");
  if (size == 0 || size > size_max)
    return fail(errors::malformed, "compressed EVENTS of " + std::to_string(size) + " bytes");
  if (ZSTD_findFrameCompressedSize(bytes.data(), bytes.size()) != bytes.size())
    return fail(errors::malformed, "compressed EVENTS are not one frame");
  if (!context_) context_ = std::make_unique<Context>();
  std::string out(static_cast<size_t>(size), '\0');
  size_t got = ZSTD_decompressDCtx(context_->zstd.get(), out.data(), out.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(got) || got != size) return fail(errors::malformed, "compressed EVENTS are damaged");
  return Slice(std::move(out));
}

uint64_t Decompressor::told_size(ByteView bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  return size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR ? 0 : size;
}

}  // namespace ph::link
