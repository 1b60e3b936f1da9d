#include "codec/link/compression.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "codec/link/frames.h"

namespace ph::link {
namespace {

std::string text(size_t lines) {
  std::string out;
  for (size_t i = 0; i < lines; ++i) out += "line " + std::to_string(i) + " of some text that repeats itself\n";
  return out;
}

}  // namespace

TEST(Compression, comes_back_as_it_was) {
  Compressor compressor;
  Decompressor decompressor;
  for (size_t lines : {1u, 10u, 5000u}) {
    std::string plain = text(lines);
    Slice compact = compressor.compress(plain);
    auto back = decompressor.decompress(compact.view(), plain.size());
    ASSERT_TRUE(back);
    EXPECT_EQ(back->view(), plain);
    if (lines > 100) {
      EXPECT_LT(compact.size(), plain.size() / 4);
    }
  }
}

TEST(Compression, refuses_every_truncation_and_what_follows) {
  Compressor compressor;
  Decompressor decompressor;
  std::string plain = text(40);
  std::string compact(compressor.compress(plain).view());
  for (size_t size = 0; size < compact.size(); ++size)
    EXPECT_FALSE(decompressor.decompress(ByteView(compact).substr(0, size), 1 << 20)) << size;
  EXPECT_FALSE(decompressor.decompress(compact + "x", 1 << 20));
  EXPECT_FALSE(decompressor.decompress(compact + compact, 1 << 20));
}

TEST(Compression, refuses_what_is_over_the_bound_before_making_room_for_it) {
  Compressor compressor;
  Decompressor decompressor;
  std::string plain(8 << 20, '\0');  // a thousandfold
  Slice compact = compressor.compress(plain);
  EXPECT_LT(compact.size(), 10'000u);
  auto refused = decompressor.decompress(compact.view(), plain.size() - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errors::malformed);
  EXPECT_TRUE(decompressor.decompress(compact.view(), plain.size()));
}

TEST(Compression, damage_is_an_error_or_other_bytes_of_the_same_size) {
  Compressor compressor;
  Decompressor decompressor;
  std::string plain = text(200);
  std::string compact(compressor.compress(plain).view());
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bad = compact;
    bad[random.below(bad.size())] ^= static_cast<char>(1 << random.below(8));
    auto got = decompressor.decompress(bad, plain.size());  // the frame's own CRC is what tells damage
    if (got) {
      EXPECT_LE(got->size(), plain.size());
    }
  }
}

TEST(LinkCompression, tells_what_it_becomes_before_it_does) {
  Compressor compressor;
  const Slice compact = compressor.compress(std::string(100'000, 'x'));
  EXPECT_LT(compact.size(), 1000u);
  EXPECT_EQ(Decompressor::told_size(compact.view()), 100'000u);
  for (size_t n = 0; n < 5; ++n) EXPECT_EQ(Decompressor::told_size(compact.view().substr(0, n)), 0u);
  EXPECT_EQ(Decompressor::told_size("no frame at all"), 0u);
}

}  // namespace ph::link
