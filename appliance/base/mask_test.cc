#include "base/mask.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace ph {
namespace {

/// The definition, recursively.
bool naive(std::string_view mask, std::string_view name) {
  if (mask.empty()) return name.empty();
  if (mask.front() == '*') return naive(mask.substr(1), name) || (!name.empty() && naive(mask, name.substr(1)));
  return !name.empty() && mask.front() == name.front() && naive(mask.substr(1), name.substr(1));
}

TEST(Mask, matches_the_whole_name_only) {
  EXPECT_TRUE(mask_matches("clicks", "clicks"));
  EXPECT_FALSE(mask_matches("clicks", "clicks2"));
  EXPECT_FALSE(mask_matches("clicks", "click"));
  EXPECT_FALSE(mask_matches("Clicks", "clicks"));
  EXPECT_TRUE(mask_matches("", ""));
  EXPECT_FALSE(mask_matches("", "a"));
}

TEST(Mask, star_stands_for_anything_anywhere) {
  EXPECT_TRUE(mask_matches("*", ""));
  EXPECT_TRUE(mask_matches("*", "anything"));
  EXPECT_TRUE(mask_matches("pay*", "pay"));
  EXPECT_TRUE(mask_matches("*_log", "error_log"));
  EXPECT_TRUE(mask_matches("a*b*c", "a--b--b--c"));
  EXPECT_FALSE(mask_matches("a*b*c", "a--c--b"));
  EXPECT_TRUE(mask_matches("**", "x"));
}

TEST(Mask, has_no_other_wildcard) {
  EXPECT_FALSE(mask_matches("a?c", "abc"));
  EXPECT_FALSE(mask_matches("[a]", "a"));
  EXPECT_TRUE(mask_matches("a.c", "a.c"));
}

TEST(Mask, prefix_measures_how_specific_a_mask_is) {
  EXPECT_EQ(mask_prefix("abc*"), 3u);
  EXPECT_EQ(mask_prefix("*"), 0u);
  EXPECT_EQ(mask_prefix("abc"), 3u);
}

TEST(Mask, agrees_with_the_definition_on_random_input) {
  const uint64_t seed = 20260713;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::string mask, name;
    for (uint64_t n = random.below(7); n > 0; --n) mask += "ab*"[random.below(3)];
    for (uint64_t n = random.below(9); n > 0; --n) name += "ab"[random.below(2)];
    ASSERT_EQ(mask_matches(mask, name), naive(mask, name)) << mask << " " << name;
  }
}

}  // namespace
}  // namespace ph
