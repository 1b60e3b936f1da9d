#include "core/settings/document.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace ph::settings {
namespace {

Value read(std::string_view text, size_t errors = 0) {
  Diagnostics out;
  Value root = read_document(text, out);
  EXPECT_EQ(out.errors(), errors) << text;
  return root;
}

TEST(Document, keeps_places_of_keys_and_values) {
  const Value root = read("# c\r\n[a]\r\n  b = 'x'\r\nlist = [\r\n  1,\r\n  { c = 2 },\r\n]\r\n");
  const Entry* a = root.find("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->place, (Place{2, 2}));
  EXPECT_EQ(a->value.find("b")->place, (Place{3, 3}));
  EXPECT_EQ(a->value.find("b")->value.place, (Place{3, 7}));
  const Value& list = a->value.find("list")->value;
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_EQ(list.items[0].place, (Place{5, 3}));
  EXPECT_EQ(list.items[1].find("c")->place, (Place{6, 5}));
}

TEST(Document, joins_dotted_keys_and_arrays_of_tables) {
  const Value root =
      read("[[r]]\nx.a = 1\nx.b = 2\n[[r]]\n[r.x]\na = 3\n[t.u]\nv = \"\"\"a\n[b]\n\"\"\"\n[t]\nw = 1\n");
  const Value& rows = root.find("r")->value;
  ASSERT_EQ(rows.items.size(), 2u);
  EXPECT_EQ(rows.items[0].find("x")->value.find("b")->value.integer, 2);
  EXPECT_EQ(rows.items[1].find("x")->value.find("a")->value.integer, 3);
  EXPECT_EQ(root.find("t")->value.find("u")->value.find("v")->value.text, "a\n[b]\n");
  EXPECT_EQ(root.find("t")->value.find("w")->value.integer, 1);
}

TEST(Document, duplicates_are_told_and_the_first_stays) {
  Value root = read("a = 1\na = 2\nb = { c = 1 }\nb.d = 2\n", 2);
  EXPECT_EQ(root.find("a")->value.integer, 1);
  root = read("[a]\nx = 1\n[a]\ny = 1\nx = 2\n", 2);
  EXPECT_EQ(root.find("a")->value.find("y")->value.integer, 1);
  read("[a]\n[[a]]\nx = 1\n", 1);
  read("a = 1\n[a]\nx = 1\n", 1);
  read("a = 1\n[a.b]\nx = 1\n", 1);
  read("a = [1]\n[[a]]\nx = 1\n", 1);
}

TEST(Document, every_prefix_and_every_damaged_byte_ends_well) {
  const std::string text =
      "\xEF\xBB\xBF[node]\nname = \"a\\\"b\" # c\n[[upstream]]\nx = [ { a = 'q', b = [1, 2] },\n \"z\" ]\n"
      "s = '''m\n[x]'''\n[route.spool]\nmax = 1e9\nd = 1979-05-27T07:32:00Z\n";
  for (size_t n = 0; n <= text.size(); ++n) {
    Diagnostics out;
    read_document(std::string_view(text).substr(0, n), out);
  }
  Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = text;
    for (uint64_t k = 0; k <= random.below(3); ++k)
      damaged[random.below(damaged.size())] = "[]{}\"'=.#,\n \\a1\x80"[random.below(17)];
    Diagnostics out;
    read_document(damaged, out);
  }
}

TEST(Document, complaints_are_bounded) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "= 1\n";
  Diagnostics out;
  read_document(text, out);
  EXPECT_EQ(out.take().size(), Diagnostics::kMax);
}

TEST(Document, invalid_utf8_is_an_error_with_a_place) {
  Diagnostics out;
  read_document("a = 1\nb = \"\xFF\"\n", out);
  const auto list = out.take();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].place.line, 2u);
}

}  // namespace
}  // namespace ph::settings
