#include "store/chunk/category_entry.h"

#include "base/coding.h"

namespace ph::chunk {
namespace {

constexpr uint8_t kVersion = 1;
enum Kind : uint8_t { kChunks = 1, kPlain = 2 };

void put(std::string& out, ChunkName name) {
  put_fixed<uint32_t>(out, name.date);
  put_fixed<uint32_t>(out, name.counter);
}

void put(std::string& out, const ChunkMark& mark) {
  put(out, mark.name);
  put_fixed<uint64_t>(out, mark.file.inode);
  put_fixed<int64_t>(out, mark.file.birth_ns);
  put_fixed<uint64_t>(out, mark.size);
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

ChunkMark take_mark(Reader& r) {
  ChunkMark mark;
  mark.name = take_name(r);
  mark.file = take_file(r);
  mark.size = r.fixed<uint64_t>();
  return mark;
}

ChunkEntry take_chunks(Reader& r) {
  ChunkEntry entry;
  entry.last = take_mark(r);
  entry.reserved_first = take_name(r);
  entry.reserved_last = take_name(r);
  for (uint8_t left = r.fixed<uint8_t>(); left > 0 && r.ok(); --left) entry.abandoned.push_back(take_mark(r));
  return entry;
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
    PH_ASSERT(chunks->abandoned.size() <= kAbandonedMax, "the list is bounded where it grows");
    out.push_back(static_cast<char>(chunks->abandoned.size()));
    for (const ChunkMark& mark : chunks->abandoned) put(out, mark);
  } else {
    const auto& plain = std::get<PlainEntry>(entry);
    out.push_back(static_cast<char>(kPlain));
    put_fixed<uint64_t>(out, plain.file.inode);
    put_fixed<int64_t>(out, plain.file.birth_ns);
    put_fixed<uint64_t>(out, plain.offset);
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
  if (auto version = r.fixed<uint8_t>(); version != kVersion)
    return fail(version > kVersion ? errors::newer_version : errors::damaged,
                "store entry of a category, version " + std::to_string(version));
  CategoryEntry entry;
  switch (r.fixed<uint8_t>()) {
    case kChunks:
      entry = take_chunks(r);
      break;
    case kPlain: {
      PlainEntry plain;
      plain.file = take_file(r);
      plain.offset = r.fixed<uint64_t>();
      entry = plain;
      break;
    }
    default:
      return fail(errors::damaged, "store entry of a category, unknown kind");
  }
  if (!r.ok() || !r.at_end()) return fail(errors::damaged, "store entry of a category has a wrong length");
  return entry;
}

}  // namespace ph::chunk
