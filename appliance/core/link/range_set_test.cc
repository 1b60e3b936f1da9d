#include "core/link/range_set.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace ph::link {
namespace {

std::vector<Range> naive_ranges(const std::vector<bool>& set, bool value, uint64_t first, uint64_t last) {
  std::vector<Range> out;
  for (uint64_t i = first; i < last; ++i) {
    if (set[i] != value) continue;
    if (!out.empty() && out.back().last == i)
      ++out.back().last;
    else
      out.push_back({i, i + 1});
  }
  return out;
}

}  // namespace

TEST(RangeSet, agrees_with_a_naive_model) {
  constexpr uint64_t kSize = 64;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    RangeSet set;
    std::vector<bool> model(kSize);
    for (int step = 0; step < 60; ++step) {
      uint64_t a = random.below(kSize), b = a + random.below(12);
      b = std::min(b, kSize);
      bool add = random.below(3) > 0;
      if (add)
        set.add(a, b);
      else
        set.remove(a, b);
      for (uint64_t i = a; i < b; ++i) model[i] = add;
      ASSERT_EQ(set.list(), naive_ranges(model, true, 0, kSize));
      uint64_t x = random.below(kSize), y = x + random.below(kSize - x + 1);
      ASSERT_EQ(set.missing(x, y), naive_ranges(model, false, x, y));
      auto inside = naive_ranges(model, true, x, y);
      ASSERT_EQ(set.intersects(x, y), !inside.empty());
      ASSERT_EQ(set.contains(x, y), x == y || (inside.size() == 1 && inside[0] == Range{x, y}));
      uint64_t reach = x;
      while (reach < kSize && model[reach]) ++reach;
      ASSERT_EQ(set.contiguous_from(x), reach);
      ASSERT_EQ(set.highest(), set.empty() ? 0 : set.list().back().last);
      std::string bytes;
      set.encode(bytes);
      Reader in(bytes);
      RangeSet back;
      ASSERT_TRUE(back.decode(in) && in.at_end());
      ASSERT_EQ(back, set);
    }
  }
}

TEST(RangeSet, refuses_malformed_bytes) {
  RangeSet set;
  set.add(5, 9);
  set.add(20, UINT64_MAX);
  std::string bytes;
  set.encode(bytes);
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    Reader in(ByteView(bytes).substr(0, cut));
    EXPECT_FALSE(RangeSet().decode(in)) << cut;
  }
  std::string empty_range("\x01\x05\x00", 3), touching("\x02\x01\x01\x00\x01", 5), overflow;
  put_varint(overflow, 1);
  put_varint(overflow, UINT64_MAX);
  put_varint(overflow, 2);
  for (const std::string& bad : {empty_range, touching, overflow}) {
    Reader in(bad);
    EXPECT_FALSE(RangeSet().decode(in));
  }
  Reader many(bytes);
  EXPECT_FALSE(RangeSet().decode(many, 1));
}

}  // namespace ph::link
