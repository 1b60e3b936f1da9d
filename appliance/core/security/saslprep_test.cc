#include "core/security/saslprep.h"

#include <gtest/gtest.h>

namespace ph::security {
namespace {

std::string good(ByteView text) {
  auto prepared = saslprep(text);
  return prepared ? *prepared : "refused: " + prepared.error().detail;
}

TEST(Saslprep, text_in_its_normal_form_stays) {
  for (const char* text :
       {"user", "USER", "a b~!{}", "J\u00fcrgen", "\u043c\u0438\u0440", "\u65e5\u672c\u8a9e", "\uac00"})
    EXPECT_EQ(good(text), text);
}

TEST(Saslprep, maps_as_the_rfc_says) {
  EXPECT_EQ(good("I\u00adX"), "IX");              // RFC 4013 3, example 1
  EXPECT_EQ(good("a\u00a0b\u3000c"), "a b c");    // other spaces
  EXPECT_EQ(good("\ufeffx\u200dy\ufe0f"), "xy");  // mapped to nothing
}

TEST(Saslprep, what_would_have_to_be_normalised_is_refused_with_the_character) {
  EXPECT_EQ(good("\u00aa"), "refused: a character that is not in normal form KC, U+00AA");  // example 4: "a"
  EXPECT_EQ(good("\u2168"), "refused: a character that is not in normal form KC, U+2168");  // example 5: "IX"
  EXPECT_EQ(good("e\u0301"), "refused: a character that is not in normal form KC, U+0301");
  EXPECT_EQ(good("\uff21"), "refused: a character that is not in normal form KC, U+FF21");
  EXPECT_EQ(good("\u1100\u1161"), "refused: a character that is not in normal form KC, U+1161");
}

TEST(Saslprep, forbidden_and_unknown_characters_are_refused) {
  EXPECT_EQ(good("a\x07"), "refused: a control character, U+0007");  // example 6
  EXPECT_EQ(good("a\x7f"), "refused: a control character, U+007F");
  EXPECT_EQ(good("\u0080"), "refused: a forbidden character, U+0080");
  EXPECT_EQ(good("\u200e"), "refused: a forbidden character, U+200E");
  EXPECT_EQ(good("\ue000"), "refused: a forbidden character, U+E000");
  EXPECT_EQ(good("\ufffd"), "refused: a forbidden character, U+FFFD");
  EXPECT_EQ(good("\U0001f600"), "refused: an unknown character, U+01F600");
  EXPECT_EQ(good("\xff"), "refused: no UTF-8");
  EXPECT_EQ(good("\u00ad"), "refused: nothing is left of it");
  EXPECT_EQ(good(""), "refused: nothing is left of it");
}

TEST(Saslprep, directions_do_not_mix) {
  EXPECT_EQ(good("\u0627\u0031"), "refused: right-to-left characters mixed with others");  // example 7
  EXPECT_EQ(good("\u0627a\u0628"), "refused: right-to-left characters mixed with others");
  EXPECT_EQ(good("\u0627\u0031\u0628"), "\u0627\u0031\u0628");
}

}  // namespace
}  // namespace ph::security
