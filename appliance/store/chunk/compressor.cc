#include "store/chunk/compressor.h"

#include <zlib.h>
#include <zstd.h>

namespace ph::chunk {

std::string_view suffix_of(Compression how) {
  switch (how) {
    case Compression::gzip:
      return ".gz";
    case Compression::zstd:
      return ".zst";
    case Compression::none:
      break;
  }
  return "";
}

Compression compression_of(std::string_view file) {
  for (Compression how : {Compression::gzip, Compression::zstd})
    if (file.ends_with(suffix_of(how))) return how;
  return Compression::none;
}

struct Compressor::Gzip {
  z_stream stream{};
  bool usable = false;
  Gzip() {
    constexpr int kGzipWindow = 15 + 16;  // the largest window, in gzip's frame
    usable = deflateInit2(&stream, kGzipLevel, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~Gzip() {
    if (usable) deflateEnd(&stream);
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
};

struct Compressor::Zstd {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  Zstd() {
    if (!context) return;
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kZstdLevel);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  }
  ~Zstd() { ZSTD_freeCCtx(context); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;
};

Compressor::Compressor() = default;
Compressor::~Compressor() = default;

Result<uint64_t> Compressor::member(Compression how, std::span<const Slice> lines, const Out& out) {
  PH_ASSERT(how != Compression::none, "lines as they are need no compressor");
  piece_.resize(kPiece);
  return how == Compression::gzip ? gzip_member(lines, out) : zstd_frame(lines, out);
}

Result<uint64_t> Compressor::gzip_member(std::span<const Slice> lines, const Out& out) {
  if (!gzip_) gzip_ = std::make_unique<Gzip>();
  z_stream& z = gzip_->stream;
  if (!gzip_->usable || deflateReset(&z) != Z_OK) {
    gzip_.reset();
    return fail(errors::compressor, "gzip: no memory");
  }
  uint64_t made = 0;
  auto run = [&](ByteView in, int flush) -> Result<> {
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib reads it only
    z.avail_in = static_cast<uInt>(in.size());
    do {
      z.next_out = reinterpret_cast<Bytef*>(piece_.data());
      z.avail_out = static_cast<uInt>(piece_.size());
      int did = deflate(&z, flush);
      if (did == Z_STREAM_ERROR) return fail(errors::compressor, "gzip");
      size_t got = piece_.size() - z.avail_out;
      if (got > 0) PH_TRY(out(ByteView(piece_).substr(0, got)));
      made += got;
    } while (z.avail_out == 0);
    return {};
  };
  for (const Slice& line : lines) PH_TRY(run(line.view(), Z_NO_FLUSH));
  PH_TRY(run({}, Z_FINISH));
  return made;
}

Result<uint64_t> Compressor::zstd_frame(std::span<const Slice> lines, const Out& out) {
  if (!zstd_) zstd_ = std::make_unique<Zstd>();
  if (!zstd_->context) {
    zstd_.reset();
    return fail(errors::compressor, "zstd: no memory");
  }
  ZSTD_CCtx_reset(zstd_->context, ZSTD_reset_session_only);
  uint64_t made = 0;
  auto run = [&](ByteView in, ZSTD_EndDirective end) -> Result<> {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    for (bool done = false; !done;) {
      ZSTD_outBuffer to{piece_.data(), piece_.size(), 0};
      size_t left = ZSTD_compressStream2(zstd_->context, &to, &from, end);
      if (ZSTD_isError(left) != 0u) return fail(errors::compressor, std::string("zstd: ") + ZSTD_getErrorName(left));
      if (to.pos > 0) PH_TRY(out(ByteView(piece_).substr(0, to.pos)));
      made += to.pos;
      done = end == ZSTD_e_end ? left == 0 : from.pos == from.size;
    }
    return {};
  };
  for (const Slice& line : lines) PH_TRY(run(line.view(), ZSTD_e_continue));
  PH_TRY(run({}, ZSTD_e_end));
  return made;
}

}  // namespace ph::chunk
