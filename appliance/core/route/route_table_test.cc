#include "core/route/route_table.h"

#include <gtest/gtest.h>

#include "base/mask.h"
#include "base/random.h"

namespace ph::route {
namespace {

TEST(RouteTable, exact_masks_precede_longest_prefix_precedes_default) {
  const RouteTable table(
      {{{}, {}}, {{"*"}, {}}, {{"pay_*"}, {}}, {{"pay_eu*", "clicks"}, {}}, {{"pay_eu_x", "*_log"}, {}}});
  EXPECT_EQ(table.of_category("pay_eu_x"), 4u);
  EXPECT_EQ(table.of_category("pay_eu_y"), 3u);
  EXPECT_EQ(table.of_category("pay_us"), 2u);
  EXPECT_EQ(table.of_category("clicks"), 3u);
  EXPECT_EQ(table.of_category("other"), 1u);
  EXPECT_EQ(table.explain("pay_us")->mask, "pay_*");
  EXPECT_EQ(RouteTable({{{}, {}}, {{"a*"}, {}}}).explain("b")->mask, "");
  EXPECT_EQ(RouteTable({{{}, {}}, {{"a*"}, {}}}).of_category("b"), 0u);
  EXPECT_EQ(RouteTable({{{"a*"}, {}}}).of_category("b"), std::nullopt);
}

TEST(RouteTable, a_route_with_topics_only_is_no_default) {
  const RouteTable table({{{}, {"a/#"}}, {{"x"}, {"a/+", "a/b"}}});
  EXPECT_EQ(table.of_category("y"), std::nullopt);
  EXPECT_EQ(table.of_topic("a/b"), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(table.of_topic("a"), (std::vector<size_t>{0}));
  EXPECT_TRUE(table.of_topic("b").empty());
  EXPECT_TRUE(table.wants("a/b/c"));
  EXPECT_FALSE(table.wants("$SYS/a"));
}

// The definition, read slowly.
std::optional<size_t> naive(const std::vector<Rule>& rules, std::string_view category) {
  for (size_t r = 0; r < rules.size(); ++r)
    for (const auto& m : rules[r].categories)
      if (m == category) return r;
  std::optional<size_t> best;
  size_t length = 0;
  for (size_t r = 0; r < rules.size(); ++r)
    for (const auto& m : rules[r].categories)
      if (m.find('*') != m.npos && mask_matches(m, category) && (!best || m.find('*') > length)) {
        best = r;
        length = m.find('*');
      }
  for (size_t r = 0; r < rules.size() && !best; ++r)
    if (rules[r].categories.empty() && rules[r].topics.empty()) return r;
  return best;
}

TEST(RouteTable, agrees_with_the_definition) {
  const uint64_t seed = 99;
  SCOPED_TRACE(seed);
  Random random(seed);
  auto word = [&](std::string_view alphabet, size_t max) {
    std::string out;
    for (size_t n = 1 + random.below(max); out.size() < n;) out += alphabet[random.below(alphabet.size())];
    return out;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Rule> rules(1 + random.below(5));
    for (Rule& r : rules)
      for (uint64_t n = random.below(4); n > 0; --n) r.categories.push_back(word("ab*", 4));
    const RouteTable table(rules);
    for (int i = 0; i < 20; ++i) {
      const std::string category = word("ab", 4);
      ASSERT_EQ(table.of_category(category), naive(rules, category)) << category;
    }
  }
}

}  // namespace
}  // namespace ph::route
