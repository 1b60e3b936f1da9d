// Compressor: whole gzip members and zstd frames out of lines. A file of many members one behind the other is what
// gunzip and zstd read as one stream, so each group commit ends its own: what is committed is always readable, and a
// file is cut at the end of a member without a look inside. Disk thread only; one serves all categories of a sink, so
// thousands of them cost one context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::chunk {

/// How a file's lines lie in it. The numbers are those on disk.
enum class Compression : uint8_t { none = 0, gzip = 1, zstd = 2 };
inline constexpr Compression kCompressions[] = {Compression::none, Compression::gzip, Compression::zstd};

/// What a file's name ends with: "", ".gz", ".zst".
std::string_view suffix_of(Compression how);
/// By the end of a file's name.
Compression compression_of(std::string_view file);

class Compressor {
 public:
  using Out = std::function<Result<>(ByteView)>;
  // The disk thread is everybody's: speed before size.
  static constexpr int kGzipLevel = 4;
  static constexpr int kZstdLevel = 3;
  static constexpr size_t kPiece = 64 * 1024;

  Compressor();
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  /// One member or frame that holds `lines`, given to `out` in pieces of at most kPiece; the sum of their bytes. The
  /// same lines give the same bytes. `how` is not none. Errors: chunk.compressor (memory), those of `out`.
  Result<uint64_t> member(Compression how, std::span<const Slice> lines, const Out& out);

 private:
  struct Gzip;
  struct Zstd;
  Result<uint64_t> gzip_member(std::span<const Slice> lines, const Out& out);
  Result<uint64_t> zstd_frame(std::span<const Slice> lines, const Out& out);

  std::unique_ptr<Gzip> gzip_;  // each made when it is first needed
  std::unique_ptr<Zstd> zstd_;
  std::string piece_;
};

namespace errors {
inline constexpr ErrorCode compressor{"chunk.compressor"};
}  // namespace errors

}  // namespace ph::chunk
