// What the store knows of a category, under the key `f/c/<category>`. Written by the files sink in the same batch as
// whatever rests on the lines (cursors, ranges), so that data and acknowledgements cannot disagree.
//
// Value, version 2 (fixed integers are little-endian; version 1, which knew no compression, is read as well):
//   u8   version         a newer one: the sink refuses to open, chunk.newer_version
//   u8   kind            1 chunks, 2 plain
//   chunks:
//     u32 u32            name of the newest chunk with committed lines: date yyyymmdd, counter; 0 0: none yet
//     u64 i64            its inode, its birth time in ns (0: the file system has none)
//     u64 u8             its committed size: bytes behind it never happened; its compression (compressor.h)
//     u32 u32, u32 u32   reserved, first and last name (0: none): files of these names, made by the group that was
//     u8                 being written, may hold lines that never happened; their compression
//     u8, then each      abandoned chunks (<= 8), whose cut back to their committed size may not be durable:
//       u32 u32 u64 i64 u64 u8   name, inode, birth, committed size, compression
//   plain:
//     u64 i64            inode and birth of the file that the next bytes go to
//     u64 u8             the offset they go to; its compression
//   u32  CRC-32C of everything before it
//
// A damaged value reads as "nothing known": names in the directory are honoured, nothing is cut, the damage is counted.
// The device is left out on purpose: its number may change with a reboot, inode and birth time do not.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "port/files.h"
#include "store/chunk/chunk_name.h"

namespace ph::chunk {

/// Which file a name stood for.
struct FileId {
  uint64_t inode = 0;
  int64_t birth_ns = 0;
  bool operator==(const FileId&) const = default;
};

inline FileId id_of(const port::FileStat& s) {
  return {s.inode, s.birth_ns};
}

struct ChunkMark {
  ChunkName name;
  FileId file;
  uint64_t size = 0;  // committed
  Compression compression = Compression::none;
  bool operator==(const ChunkMark&) const = default;
};

inline constexpr size_t kAbandonedMax = 8;

struct ChunkEntry {
  ChunkMark last;
  ChunkName reserved_first;
  ChunkName reserved_last;
  Compression reserved_compression = Compression::none;
  std::vector<ChunkMark> abandoned;
  bool operator==(const ChunkEntry&) const = default;
};

struct PlainEntry {
  FileId file;
  uint64_t offset = 0;
  Compression compression = Compression::none;
  bool operator==(const PlainEntry&) const = default;
};

using CategoryEntry = std::variant<ChunkEntry, PlainEntry>;

inline constexpr std::string_view kCategoryKeys = "f/c/";
std::string category_key(std::string_view category);

std::string encode(const CategoryEntry& entry);
/// Errors: chunk.damaged, chunk.newer_version.
Result<CategoryEntry> decode_entry(ByteView bytes);

namespace errors {
inline constexpr ErrorCode damaged{"chunk.damaged"};
inline constexpr ErrorCode newer_version{"chunk.newer_version"};
inline constexpr ErrorCode names_used_up{"chunk.names_used_up"};
}  // namespace errors

}  // namespace ph::chunk
