// gzip of an event's lines: one element of `lines` holds them all (frames.h).
#include <zlib.h>

#include <algorithm>

#include "codec/lsd/frames.h"

namespace ph::lsd {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib's way to say: 32 KiB and gzip's header
constexpr size_t kStep = 64 * 1024;

/// zlib's interface is not const, its use of the input is.
Bytef* input(ByteView bytes) {
  return const_cast<Bytef*>(
      reinterpret_cast<const Bytef*>(bytes.data()));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

struct Inflate {
  z_stream z{};
  bool ready = inflateInit2(&z, kGzipWindow) == Z_OK;
  ~Inflate() {
    if (ready) inflateEnd(&z);
  }
};

struct Deflate {
  z_stream z{};
  bool ready = deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK;
  ~Deflate() {
    if (ready) deflateEnd(&z);
  }
};

}  // namespace

Result<std::string> gunzip(ByteView bytes, size_t bytes_max) {
  Inflate inflate_state;
  if (!inflate_state.ready) return fail(errors::bad_gzip, "no memory");
  z_stream& z = inflate_state.z;
  z.next_in = input(bytes);
  z.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  for (;;) {
    size_t have = out.size();
    // One byte beyond the bound proves that there is more than it allows.
    size_t room = std::min(std::max(kStep, have), bytes_max + 1 - have);
    out.resize(have + room);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + have);
    z.avail_out = static_cast<uInt>(room);
    int result = inflate(&z, Z_NO_FLUSH);
    out.resize(out.size() - z.avail_out);
    if (out.size() > bytes_max) return fail(errors::too_large, "more than " + std::to_string(bytes_max) + " bytes");
    if (result == Z_STREAM_END) {
      if (z.avail_in == 0) return out;
      if (inflateReset(&z) != Z_OK) return fail(errors::bad_gzip);  // a further member
      continue;
    }
    if (result != Z_OK) return fail(errors::bad_gzip, z.msg ? z.msg : "cut short");
  }
}

std::string gzip(ByteView bytes) {
  Deflate deflate_state;
  PH_ASSERT(deflate_state.ready, "zlib has its memory");
  z_stream& z = deflate_state.z;
  std::string out(deflateBound(&z, bytes.size()), '\0');
  z.next_in = input(bytes);
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  int result = deflate(&z, Z_FINISH);
  PH_ASSERT(result == Z_STREAM_END, "the bound holds");
  out.resize(out.size() - z.avail_out);
  return out;
}

}  // namespace ph::lsd
