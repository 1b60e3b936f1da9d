#include "base/mask_overlap.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace ph {
namespace {

TEST(MaskOverlap, names_a_common_category) {
  EXPECT_EQ(mask_overlap("pay_*", "pay_*_eu"), "pay__eu");
  EXPECT_EQ(mask_overlap("a", "a"), "a");
  EXPECT_EQ(mask_overlap("a*", "ab"), "ab");
  EXPECT_FALSE(mask_overlap("*_ams", "*_fra"));
  EXPECT_FALSE(mask_overlap("x*", "y*"));
  EXPECT_FALSE(mask_overlap("a", "b"));
  EXPECT_TRUE(mask_overlap("*", "*_x"));
}

TEST(MaskOverlap, agrees_with_trying_all_short_names) {
  const uint64_t seed = 20260101;
  SCOPED_TRACE(seed);
  Random random(seed);
  auto word = [&](std::string_view alphabet, size_t max) {
    std::string out;
    for (size_t n = random.below(max + 1); out.size() < n;) out += alphabet[random.below(alphabet.size())];
    return out;
  };
  std::vector<std::string> names = {""};
  for (size_t i = 0; names.size() < 4000; ++i)
    for (char c : {'a', 'b'}) names.push_back(names[i] + c);
  for (int round = 0; round < 2000; ++round) {
    const std::string a = word("ab*", 4), b = word("ab*", 4);
    bool common = false;
    for (const auto& n : names) common |= mask_matches(a, n) && mask_matches(b, n);
    const auto found = mask_overlap(a, b);
    ASSERT_EQ(found.has_value(), common) << a << " and " << b;
    ASSERT_TRUE(!found || (mask_matches(a, *found) && mask_matches(b, *found))) << a << " and " << b;
  }
}

}  // namespace
}  // namespace ph
