#include "core/security/psk.h"

#include <gtest/gtest.h>

namespace ph::security {
namespace {

TEST(Psk, AFileHasAnIdentityAndAKeyALine) {
  auto keys = parse_psk_file("# meters\nmeter-1:00ff\r\n\nmeter 2:DEADbeef\n");
  ASSERT_TRUE(keys) << keys.error().to_string();
  EXPECT_EQ(keys->size(), 2U);
  EXPECT_EQ(keys->at("meter-1"), std::string("\x00\xff", 2));
  EXPECT_EQ(keys->at("meter 2"), "\xde\xad\xbe\xef");
  EXPECT_TRUE(parse_psk_file("")->empty());
}

TEST(Psk, WhatIsWrongIsToldWithItsLineAndWithoutTheKey) {
  const std::pair<std::string, std::string> wrong[] = {
      {"a:00\nb", "line 2: no ':'"},
      {":00", "line 1: no valid identity"},
      {"a\x01:00", "line 1: no valid identity"},
      {std::string(kPskIdentityMax + 1, 'i') + ":00", "line 1: no valid identity"},
      {"a:", "line 1: the key is empty"},
      {"a:123", "line 1: the key has an odd"},
      {"a:12x4", "line 1: the key is not hexadecimal"},
      {"a:" + std::string(2 * kPskBytesMax + 2, '0'), "line 1: the key is longer"},
      {"a:00\na:11", "line 2: the identity is there already"},
  };
  for (const auto& [text, why] : wrong) {
    auto keys = parse_psk_file(text);
    ASSERT_FALSE(keys) << text;
    EXPECT_TRUE(keys.error().detail.starts_with(why)) << keys.error().detail;
    EXPECT_EQ(keys.error().detail.find("12x4"), std::string::npos);
  }
}

TEST(Psk, EveryTruncationOfAFileIsReadOrRefused) {
  const std::string text = "one:0011\ntwo:aabbcc\n";
  for (size_t n = 0; n <= text.size(); ++n) {
    auto keys = parse_psk_file(ByteView(text).substr(0, n));
    EXPECT_TRUE(!keys || keys->size() <= 2U);
  }
}

}  // namespace
}  // namespace ph::security
