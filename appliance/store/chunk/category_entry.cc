#include "store/chunk/category_entry.h"

#include <optional>

#include "base/coding.h"

namespace ph::chunk {
namespace {

constexpr uint8_t kVersion = 2;
constexpr uint8_t kUncompressed = 1;  // version that knew no compression
enum Kind : uint8_t { kChunks = 1, kPlain = 2 };

void put(std::string& out, ChunkName name) {
  put_fixed<uint32_t>(out, name.date);
  put_fixed<uint32_t>(out, name.counter);
}

void put(std::string& out, Compression how) {
  out.push_back(static_cast<char>(how));
}

void put(std::string& out, const ChunkMark& mark) {
  put(out, mark.name);
  put_fixed<uint64_t>(out, mark.file.inode);
  put_fixed<int64_t>(out, mark.file.birth_ns);
  put_fixed<uint64_t>(out, mark.size);
  put(out, mark.compression);
}

ChunkName take_name(Reader& r) {
  ChunkName name;
  name.date = r.fixed<uint32_t>();
  name.counter = r.fixed<uint32_t>();
  return name;
}

FileId take_file(Reader& r) {
  FileId id;
  id.inode = r.fixed<uint64_t>();
  id.birth_ns = r.fixed<int64_t>();
  return id;
}

/// nullopt: no such compression.
std::optional<Compression> take_compression(Reader& r, uint8_t version) {
  if (version == kUncompressed) return Compression::none;
  auto number = r.fixed<uint8_t>();
  for (Compression how : kCompressions)
    if (static_cast<uint8_t>(how) == number) return how;
  return std::nullopt;
}

/// False: a value that nothing has.
bool take(Reader& r, uint8_t version, Compression& into) {
  auto how = take_compression(r, version);
  if (how) into = *how;
  return how.has_value();
}

bool take(Reader& r, uint8_t version, ChunkMark& mark) {
  mark.name = take_name(r);
  mark.file = take_file(r);
  mark.size = r.fixed<uint64_t>();
  return take(r, version, mark.compression);
}

bool take(Reader& r, uint8_t version, ChunkEntry& entry) {
  bool known = take(r, version, entry.last);
  entry.reserved_first = take_name(r);
  entry.reserved_last = take_name(r);
  known = take(r, version, entry.reserved_compression) && known;
  auto left = r.fixed<uint8_t>();
  if (left > kAbandonedMax) return false;
  for (; left > 0 && r.ok(); --left)
    known = take(r, version, entry.abandoned.emplace_back()) && known;
  return known;
}

bool take(Reader& r, uint8_t version, PlainEntry& entry) {
  entry.file = take_file(r);
  entry.offset = r.fixed<uint64_t>();
  return take(r, version, entry.compression);
}

}  // namespace

std::string category_key(std::string_view category) {
  return std::string(kCategoryKeys).append(category);
}

std::string encode(const CategoryEntry& entry) {
  std::string out;
  out.push_back(static_cast<char>(kVersion));
  if (const auto* chunks = std::get_if<ChunkEntry>(&entry)) {
    out.push_back(static_cast<char>(kChunks));
    put(out, chunks->last);
    put(out, chunks->reserved_first);
    put(out, chunks->reserved_last);
    put(out, chunks->reserved_compression);
    PH_ASSERT(chunks->abandoned.size() <= kAbandonedMax, "the list is bounded where it grows");
    out.push_back(static_cast<char>(chunks->abandoned.size()));
    for (const ChunkMark& mark : chunks->abandoned) put(out, mark);
  } else {
    const auto& plain = std::get<PlainEntry>(entry);
    out.push_back(static_cast<char>(kPlain));
    put_fixed<uint64_t>(out, plain.file.inode);
    put_fixed<int64_t>(out, plain.file.birth_ns);
    put_fixed<uint64_t>(out, plain.offset);
    put(out, plain.compression);
  }
  put_fixed<uint32_t>(out, crc32c(out));
  return out;
}

Result<CategoryEntry> decode_entry(ByteView bytes) {
  if (bytes.size() < 6) return fail(errors::damaged, "store entry of a category is cut short");
  ByteView body = bytes.substr(0, bytes.size() - 4);
  if (crc32c(body) != load_fixed<uint32_t>(bytes.data() + body.size()))
    return fail(errors::damaged, "store entry of a category has a wrong checksum");
  Reader r(body);
  auto version = r.fixed<uint8_t>();
  if (version != kVersion && version != kUncompressed)
    return fail(version > kVersion ? errors::newer_version : errors::damaged,
                "store entry of a category, version " + std::to_string(version));
  CategoryEntry entry;
  bool known = false;
  switch (r.fixed<uint8_t>()) {
    case kChunks:
      known = take(r, version, entry.emplace<ChunkEntry>());
      break;
    case kPlain:
      known = take(r, version, entry.emplace<PlainEntry>());
      break;
    default:
      return fail(errors::damaged, "store entry of a category, unknown kind");
  }
  if (!known) return fail(errors::damaged, "store entry of a category, a value that nothing has");
  if (!r.ok() || !r.at_end()) return fail(errors::damaged, "store entry of a category has a wrong length");
  return entry;
}

}  // namespace ph::chunk
