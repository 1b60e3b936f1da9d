#include "core/link/range_set.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"

namespace ph::link {
namespace {

constexpr uint64_t kSpace = 64;

/// The naive model: one bool a position.
struct Model {
  std::vector<bool> in = std::vector<bool>(kSpace + 1, false);
  void set(uint64_t first, uint64_t last, bool value) {
    for (uint64_t i = first; i < last; ++i) in[i] = value;
  }
  std::vector<Range> runs(uint64_t first, uint64_t last, bool value) const {
    std::vector<Range> out;
    for (uint64_t i = first; i < last; ++i) {
      if (in[i] != value) continue;
      if (!out.empty() && out.back().last == i)
        ++out.back().last;
      else
        out.push_back({i, i + 1});
    }
    return out;
  }
};

}  // namespace

TEST(RangeSet, merges_neighbours_and_keeps_holes) {
  RangeSet set;
  set.add(10, 20);
  set.add(30, 40);
  EXPECT_EQ(set.size(), 2u);
  set.add(20, 30);
  EXPECT_EQ(set.list(), (std::vector<Range>{{10, 40}}));
  set.remove(15, 16);
  EXPECT_EQ(set.list(), (std::vector<Range>{{10, 15}, {16, 40}}));
  EXPECT_EQ(set.contiguous_from(10), 15u);
  EXPECT_EQ(set.contiguous_from(15), 15u);
  EXPECT_EQ(set.highest(), 40u);
  set.add(5, 5);
  EXPECT_EQ(set.size(), 2u);
}

TEST(RangeSet, agrees_with_one_bool_a_position) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    RangeSet set;
    Model model;
    for (int step = 0; step < 200; ++step) {
      uint64_t first = random.below(kSpace), last = first + random.below(kSpace - first + 1);
      switch (random.below(5)) {
        case 0:
          set.remove(first, last);
          model.set(first, last, false);
          break;
        case 1: {
          uint64_t below = random.below(8);
          set.forget_below(below);
          model.set(0, below, false);
          break;
        }
        default:
          last = first + random.below(std::min<uint64_t>(6, kSpace - first + 1));
          set.add(first, last);
          model.set(first, last, true);
      }
      ASSERT_EQ(set.list(), model.runs(0, kSpace, true));
      first = random.below(kSpace);
      last = first + random.below(kSpace - first + 1);
      ASSERT_EQ(set.missing(first, last), model.runs(first, last, false));
      ASSERT_EQ(set.within(first, last), model.runs(first, last, true));
      ASSERT_EQ(set.contains(first, last), model.runs(first, last, false).empty());
      ASSERT_EQ(set.intersects(first, last), !model.runs(first, last, true).empty());
      uint64_t end = first;
      while (end < kSpace && model.in[end]) ++end;
      ASSERT_EQ(set.contiguous_from(first), end);
    }
    std::string bytes;
    set.encode(bytes);
    RangeSet back;
    Reader in(bytes);
    ASSERT_TRUE(back.decode(in));
    ASSERT_TRUE(in.at_end());
    ASSERT_EQ(back, set);
    for (size_t n = 0; n < bytes.size(); ++n) {
      Reader cut(ByteView(bytes).substr(0, n));
      ASSERT_FALSE(back.decode(cut));
    }
  }
}

TEST(RangeSet, refuses_malformed_bytes) {
  for (std::string bytes : {std::string("\1\5\0", 3),         // empty
                            std::string("\2\5\1\0\1", 5),     // touching
                            std::string("\xff\xff\x7f\1\1"),  // more than there is
                            std::string("\1\2\xff\xff\xff\xff\xff\xff\xff\xff\xff\1")}) {
    RangeSet set;
    Reader in(bytes);
    EXPECT_FALSE(set.decode(in));
  }
  RangeSet set;
  Reader in("\2\1\1\1\1");
  EXPECT_FALSE(set.decode(in, 1)) << "more than the caller allows";
}

TEST(RangeSet, holds_the_ends_of_the_number_space) {
  RangeSet set;
  set.add(0, 1);
  set.add(UINT64_MAX - 1, UINT64_MAX);
  EXPECT_EQ(set.missing(0, UINT64_MAX), (std::vector<Range>{{1, UINT64_MAX - 1}}));
  EXPECT_TRUE(set.contains(UINT64_MAX - 1, UINT64_MAX));
}

}  // namespace ph::link
