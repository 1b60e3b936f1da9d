#include "store/chunk/category_entry.h"

#include <gtest/gtest.h>

#include "base/coding.h"

namespace ph::chunk {
namespace {

ChunkEntry chunks() {
  return {{{20260713, 42}, {1234567, 99}, 4096},
          {20260713, 43},
          {20260713, 44},
          {{{20260713, 40}, {7, 8}, 17}, {{20260712, 3}, {9, -1}, 0}}};
}

TEST(CategoryEntry, round_trips) {
  CategoryEntry c = chunks(), p = PlainEntry{{55, -7}, 1ull << 40};
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
  std::string bytes = "\x02 whatever comes later";
  put_fixed<uint32_t>(bytes, crc32c(bytes));
  auto r = decode_entry(bytes);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, errors::newer_version);
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
