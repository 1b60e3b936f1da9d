// What gunzip and zstd make of a compressed file. For tests of this room only.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <memory>
#include <optional>
#include <string>

#include "store/chunk/compressor.h"

namespace ph::chunk {

/// nullopt: not a row of whole members.
inline std::optional<std::string> gunzipped(ByteView bytes) {
  std::string out, piece(4096, '\0');
  z_stream z{};
  if (inflateInit2(&z, 15 + 16) != Z_OK) return std::nullopt;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  int did = Z_STREAM_END;
  while (z.avail_in > 0 || did == Z_OK) {
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = static_cast<uInt>(piece.size());
    did = inflate(&z, Z_NO_FLUSH);
    if (did != Z_OK && did != Z_STREAM_END) break;
    out.append(piece, 0, piece.size() - z.avail_out);
    if (did == Z_STREAM_END) inflateReset(&z);
  }
  inflateEnd(&z);
  return did == Z_STREAM_END ? std::optional(out) : std::nullopt;
}

/// nullopt: not a row of whole frames.
inline std::optional<std::string> unzstd(ByteView bytes) {
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  std::string out, piece(4096, '\0');
  ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
  size_t left = 0;
  bool full = false;
  while (from.pos < from.size || full) {
    ZSTD_outBuffer to{piece.data(), piece.size(), 0};
    left = ZSTD_decompressStream(context.get(), &to, &from);
    if (ZSTD_isError(left) != 0u) return std::nullopt;
    out.append(piece, 0, to.pos);
    full = to.pos == to.size;
  }
  return left == 0 ? std::optional(out) : std::nullopt;
}

inline std::optional<std::string> unpacked(Compression how, ByteView bytes) {
  if (how == Compression::none) return std::string(bytes);
  return how == Compression::gzip ? gunzipped(bytes) : unzstd(bytes);
}

}  // namespace ph::chunk
