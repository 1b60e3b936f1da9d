#include "core/agent/multiline.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace ph::agent {
namespace {

std::shared_ptr<const Multiline> dated(size_t lines_max = 1000, size_t bytes_max = 64 * 1024) {
  return Multiline::make({"\\d{4}-\\d\\d-\\d\\d ", lines_max, bytes_max}).value();
}

void expect_cut(const Multiline& m, std::string_view lines, bool last, size_t plain, size_t whole) {
  const Multiline::Cut cut = m.cut(lines, last);
  EXPECT_EQ(cut.plain, plain) << lines;
  EXPECT_EQ(cut.joined, whole) << lines;
}

}  // namespace

TEST(Multiline, single_lines_leave_as_they_are_up_to_the_last_which_may_go_on) {
  expect_cut(*dated(), "2024-01-01 a\n2024-01-01 b\n2024-01-01 c\n", false, 26, 0);
  expect_cut(*dated(), "2024-01-01 a\n2024-01-01 b\n2024-01-01 c\n", true, 39, 0);
  expect_cut(*dated(), "2024-01-01 a\n", false, 0, 0);
}

TEST(Multiline, lines_that_do_not_match_belong_to_the_one_before) {
  const std::string trace = "2024-01-01 a\n  at x\n  at y\n";
  expect_cut(*dated(), trace, false, 0, 0);
  expect_cut(*dated(), trace, true, 0, trace.size());
  expect_cut(*dated(), trace + "2024-01-02 b\n", false, 0, trace.size());
  expect_cut(*dated(), "2024-01-01 z\n" + trace + "2024-01-02 b\n", false, 13, 0);
  EXPECT_EQ(joined(trace), "2024-01-01 a\\n  at x\\n  at y\n");
}

TEST(Multiline, a_file_that_begins_within_an_event_loses_nothing) {
  expect_cut(*dated(), "  at y\n2024-01-01 a\n2024-01-02 b\n", false, 20, 0);
}

TEST(Multiline, the_pattern_holds_for_the_beginning_of_a_line_alone) {
  expect_cut(*dated(), "2024-01-01 a\nsee 2024-01-01 b\n2024-01-01 c\n", false, 0, 30);
}

TEST(Multiline, a_backslash_is_escaped_also_in_an_event_of_one_line) {
  expect_cut(*dated(), "2024-01-01 a\\n\n2024-01-01 b\n", false, 0, 15);
  EXPECT_EQ(joined("a\\n\n"), "a\\\\n\n");
}

TEST(Multiline, bounds_end_an_event) {
  std::string lines = "2024-01-01 a\n";
  for (int i = 0; i < 20; ++i) lines += "  more\n";
  expect_cut(*dated(5), lines, false, 0, 13 + 4 * 7);
  expect_cut(*dated(1000, 40), lines, false, 0, 13 + 3 * 7);
  expect_cut(*dated(1), lines, true, lines.size(), 0);
  expect_cut(*dated(1000, 5), "2024-01-01 a\n", false, 13, 0);
}

TEST(Multiline, whatever_is_cut_ends_at_a_line_and_everything_leaves) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    std::string lines;
    for (uint64_t n = 1 + random.below(30); n-- > 0;)
      lines +=
          (random.below(2) ? "2024-01-01 " : "  ") + std::string(random.below(20), random.below(9) ? 'x' : '\\') + "\n";
    const auto m = dated(1 + random.below(10), 1 + random.below(100));
    std::string_view rest = lines;
    while (!rest.empty()) {
      const Multiline::Cut cut = m->cut(rest, true);
      const size_t size = cut.plain ? cut.plain : cut.joined;
      ASSERT_GT(size, 0u);
      ASSERT_LE(size, rest.size());
      ASSERT_EQ(rest[size - 1], '\n');
      ASSERT_EQ(count_newlines(joined(rest.substr(0, size))), 1u);
      rest.remove_prefix(size);
    }
  }
}

TEST(Multiline, a_bad_pattern_is_an_error) {
  EXPECT_EQ(Multiline::make({"(", 1, 1}).error().code.name(), "agent.bad_pattern");
  EXPECT_EQ(Multiline::make({"(a)\\1", 1, 1}).error().code.name(), "agent.bad_pattern");
}

TEST(Multiline, lines_are_bytes_and_need_not_be_utf_8) {
  const auto m = Multiline::make({".\xE9 ", 10, 1000}).value();
  expect_cut(*m, "\xFF\xE9 a\n more\n\xE4\xE9 b\n", false, 0, 11);
}

TEST(Multiline, no_pattern_takes_for_ever_over_a_line_that_almost_matches) {
  const auto m = Multiline::make({"(a+)+:", 10, 64 * 1024}).value();
  const std::string lines = "a:\n" + std::string(Multiline::kLookMax, 'a') + "\naa: b\n";
  expect_cut(*m, lines, false, 0, lines.size() - 6);
}

}  // namespace ph::agent
