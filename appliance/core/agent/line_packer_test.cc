#include "core/agent/line_packer.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/limits.h"
#include "base/random.h"

namespace ph::agent {
namespace {

/// The plain way: line by line.
LineCut naive(ByteView bytes, size_t line_max) {
  LineCut cut;
  while (true) {
    size_t nl = bytes.find('\n', cut.size);
    size_t length = (nl == ByteView::npos ? bytes.size() : nl) - cut.size;
    if (length > line_max) {
      cut.oversize = true;
      return cut;
    }
    if (nl == ByteView::npos) return cut;
    cut.size = nl + 1;
  }
}

TEST(LinePacker, cuts_at_the_last_newline) {
  EXPECT_EQ(cut_lines("a\nbb\nccc", 100).size, 5u);
  EXPECT_EQ(cut_lines("abc", 100).size, 0u);
  EXPECT_FALSE(cut_lines("abc", 3).oversize);
  EXPECT_TRUE(cut_lines("abcd", 3).oversize);
  EXPECT_EQ(cut_lines("abc\n", 3).size, 4u);
  EXPECT_EQ(cut_lines("", 3).size, 0u);
}

TEST(LinePacker, agrees_with_the_line_by_line_way) {
  constexpr uint64_t kSeed = 20240131;
  Random random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    size_t line_max = 1 + random.below(20);
    for (size_t i = random.below(12); i > 0; --i)
      text +=
          std::string(random.below(line_max + (random.chance(0.2) ? 8 : 1)), 'x') + (random.chance(0.9) ? "\n" : "");
    LineCut got = cut_lines(text, line_max), want = naive(text, line_max);
    ASSERT_EQ(got.size, want.size) << "seed " << kSeed << " round " << round << " max " << line_max << "\n" << text;
    ASSERT_EQ(got.oversize, want.oversize) << "seed " << kSeed << " round " << round << " max " << line_max << "\n"
                                           << text;
  }
}

TEST(LinePacker, packs_a_block_around_the_payload) {
  for (size_t size : {size_t{4}, size_t{200'000}, limits::kBlockBytesMax}) {
    BlockBuffer buffer(limits::kBlockBytesMax + 1);
    std::string payload(size - 1, 'p');
    payload += '\n';
    payload.copy(buffer.payload(), payload.size());
    event::Block head;
    head.category = std::string(200, 'c');
    head.id = {NodeId{{7}}, StreamId{9}, 1'000'000'000, 1'000'000'000 + size};
    head.events = 1;
    Slice packed = std::move(buffer).pack(head, size);
    Reader in(packed.view());
    EXPECT_EQ(in.varint(), size);
    auto block = event::decode(Slice(std::string(in.sized())));
    ASSERT_TRUE(block.has_value()) << block.error().to_string();
    EXPECT_TRUE(in.at_end());
    EXPECT_EQ(block->payload.view(), payload);
    EXPECT_EQ(block->id, head.id);
    EXPECT_EQ(block->category, head.category);
  }
}

}  // namespace
}  // namespace ph::agent
