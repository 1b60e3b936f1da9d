#include "store/chunk/category_entry.h"

#include <gtest/gtest.h>

#include "base/coding.h"

namespace ph::chunk {
namespace {

ChunkEntry chunks() {
  return {{{20260713, 42}, {1234567, 99}, 4096, Compression::gzip},
          {20260713, 43},
          {20260713, 44},
          Compression::zstd,
          {{{20260713, 40}, {7, 8}, 17}, {{20260712, 3}, {9, -1}, 0, Compression::gzip}}};
}

TEST(CategoryEntry, round_trips) {
  CategoryEntry c = chunks(), p = PlainEntry{{55, -7}, 1ull << 40, Compression::zstd};
  EXPECT_EQ(*decode_entry(encode(c)), c);
  EXPECT_EQ(*decode_entry(encode(p)), p);
  EXPECT_EQ(*decode_entry(encode(CategoryEntry(ChunkEntry{}))), CategoryEntry(ChunkEntry{}));
}

TEST(CategoryEntry, cut_short_anywhere_is_damage) {
  for (const CategoryEntry& e : {CategoryEntry(chunks()), CategoryEntry(PlainEntry{{1, 2}, 3})}) {
    std::string bytes = encode(e);
    for (size_t n = 0; n < bytes.size(); ++n) {
      auto r = decode_entry(ByteView(bytes).substr(0, n));
      ASSERT_FALSE(r);
      EXPECT_EQ(r.error().code, errors::damaged);
    }
  }
}

TEST(CategoryEntry, any_flipped_bit_is_damage) {
  std::string bytes = encode(CategoryEntry(chunks()));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    auto r = decode_entry(flipped);
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, errors::damaged);
  }
}

TEST(CategoryEntry, of_a_newer_version_is_refused_as_such) {
  std::string bytes = "\x03 whatever comes later";
  put_fixed<uint32_t>(bytes, crc32c(bytes));
  auto r = decode_entry(bytes);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, errors::newer_version);
}

/// As the version before compression wrote it.
std::string version_1(const ChunkMark& last, ChunkName reserved_first, ChunkName reserved_last) {
  std::string out = "\x01\x01";
  auto put = [&](ChunkName name) {
    put_fixed<uint32_t>(out, name.date);
    put_fixed<uint32_t>(out, name.counter);
  };
  put(last.name);
  put_fixed<uint64_t>(out, last.file.inode);
  put_fixed<int64_t>(out, last.file.birth_ns);
  put_fixed<uint64_t>(out, last.size);
  put(reserved_first);
  put(reserved_last);
  out.push_back('\0');
  put_fixed<uint32_t>(out, crc32c(out));
  return out;
}

TEST(CategoryEntry, of_the_version_before_compression_is_read) {
  ChunkEntry expected = {{{20260713, 42}, {12, 99}, 4096}, {20260713, 43}, {20260713, 44}};
  EXPECT_EQ(*decode_entry(version_1(expected.last, {20260713, 43}, {20260713, 44})), CategoryEntry(expected));
  std::string plain = "\x01\x02";
  put_fixed<uint64_t>(plain, 55);
  put_fixed<int64_t>(plain, -7);
  put_fixed<uint64_t>(plain, 1ull << 40);
  put_fixed<uint32_t>(plain, crc32c(plain));
  EXPECT_EQ(*decode_entry(plain), CategoryEntry(PlainEntry{{55, -7}, 1ull << 40}));
}

TEST(CategoryEntry, of_an_unknown_compression_is_damage) {
  std::string bytes = encode(CategoryEntry(PlainEntry{{1, 2}, 3, Compression::zstd}));
  bytes.resize(bytes.size() - 4);
  bytes.back() = 3;
  put_fixed<uint32_t>(bytes, crc32c(bytes));
  EXPECT_EQ(decode_entry(bytes).error().code, errors::damaged);
}

TEST(CategoryEntry, of_more_abandoned_chunks_than_are_kept_is_damage) {
  ChunkEntry entry = chunks();
  entry.abandoned.resize(kAbandonedMax);
  std::string bytes = encode(CategoryEntry(entry));
  bytes.resize(bytes.size() - 4);
  const size_t mark = 4 + 4 + 8 + 8 + 8 + 1;
  bytes[bytes.size() - kAbandonedMax * mark - 1] = static_cast<char>(kAbandonedMax + 1);
  bytes.append(mark, '\0');
  put_fixed<uint32_t>(bytes, crc32c(bytes));
  EXPECT_EQ(decode_entry(bytes).error().code, errors::damaged);
}

TEST(CategoryEntry, with_a_list_longer_than_its_bytes_is_damage) {
  std::string bytes = encode(CategoryEntry(ChunkEntry{}));
  bytes.resize(bytes.size() - 4);
  bytes.back() = 5;
  put_fixed<uint32_t>(bytes, crc32c(bytes));
  EXPECT_FALSE(decode_entry(bytes));
}

}  // namespace
}  // namespace ph::chunk
