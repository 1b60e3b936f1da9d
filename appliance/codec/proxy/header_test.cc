#include "codec/proxy/header.h"

#include <gtest/gtest.h>

#include <vector>

namespace ph::proxy {
namespace {

std::string v2(uint8_t command, uint8_t family, std::string_view rest) {
  std::string out("\r\n\r\n\0\r\nQUIT\n", 12);
  out += static_cast<char>(0x20 | command);
  out += static_cast<char>(family);
  out += static_cast<char>(rest.size() >> 8);
  out += static_cast<char>(rest.size());
  return out.append(rest);
}
const std::string kFour("\xCB\x00\x71\x07\xC0\x00\x02\x01\xC7\x38\x07\x5B", 12);
const std::string kSix = std::string("\x20\x01\x0D\xB8", 4) + std::string(11, '\0') + "\x07" + std::string(15, '\0') +
                         "\x01" + "\xC7\x38\x07\x5B";

/// With a checksum TLV in front of `more`, wrong by `wrong`.
std::string with_crc(std::string addresses, std::string_view more, uint32_t wrong = 0) {
  addresses += std::string("\x03\x00\x04\0\0\0\0", 7);
  const size_t at = 16 + addresses.size() - 4;
  std::string header = v2(1, 0x11, addresses.append(more));
  const uint32_t crc = crc32c(header) ^ wrong;
  for (size_t i = 0; i < 4; ++i) header[at + i] = static_cast<char>(crc >> (24 - 8 * i));
  return header;
}

std::string source(const std::string& bytes) {
  auto decoded = decode(bytes + "following");
  if (!decoded) return "error: " + std::string(decoded.error());
  if (!*decoded) return "more";
  EXPECT_EQ((*decoded)->size, bytes.size());
  return (*decoded)->source.value_or("none");
}

TEST(ProxyHeader, text_gives_the_source) {
  EXPECT_EQ(source("PROXY TCP4 203.0.113.7 192.0.2.1 51000 1883\r\n"), "203.0.113.7:51000");
  EXPECT_EQ(source("PROXY TCP6 2001:DB8::7 ::1 51000 1883\r\n"), "[2001:db8::7]:51000");
  EXPECT_EQ(source("PROXY TCP6 2001:db8:0:0:1:0:0:7 1:2:3:4:5:6:7:8 0 65535\r\n"), "[2001:db8::1:0:0:7]:0");
  EXPECT_EQ(source("PROXY TCP6 ::ffff:203.0.113.7 :: 51000 1883\r\n"), "203.0.113.7:51000");
  EXPECT_EQ(source("PROXY TCP6 1:: ::1:2 51000 1883\r\n"), "[1::]:51000");
  EXPECT_EQ(source("PROXY UNKNOWN\r\n"), "none");
  EXPECT_EQ(source("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"), "none");
}

TEST(ProxyHeader, binary_gives_the_source) {
  EXPECT_EQ(source(v2(1, 0x11, kFour)), "203.0.113.7:51000");
  EXPECT_EQ(source(v2(1, 0x21, kSix)), "[2001:db8::7]:51000");
  EXPECT_EQ(source(v2(0, 0x00, "")), "none");
  EXPECT_EQ(source(v2(0, 0x11, "whatever")), "none") << "LOCAL: the rest is skipped";
  EXPECT_EQ(source(v2(1, 0x00, "of an unknown family")), "none");
  EXPECT_EQ(source(v2(1, 0x31, std::string(216, 'u'))), "none") << "a Unix socket";
  EXPECT_EQ(source(v2(1, 0x11, kFour + std::string("\x01\x00\x04mqtt\x04\x00\x00", 10))), "203.0.113.7:51000");
  EXPECT_EQ(source(with_crc(kFour, std::string("\x04\x00\x02xx", 5))), "203.0.113.7:51000");
}

TEST(ProxyHeader, every_truncation_asks_for_more) {
  for (const std::string& whole :
       {std::string("PROXY TCP4 203.0.113.7 192.0.2.1 51000 1883\r\n"), std::string("PROXY UNKNOWN\r\n"),
        v2(1, 0x11, kFour), v2(1, 0x21, kSix), v2(0, 0, ""), with_crc(kFour, std::string("\x04\x00\x02xx", 5))})
    for (size_t n = 0; n < whole.size(); ++n) {
      auto decoded = decode(ByteView(whole).substr(0, n));
      ASSERT_TRUE(decoded.has_value()) << n << " of " << whole.size() << ": " << decoded.error();
      ASSERT_FALSE(decoded->has_value()) << n;
    }
}

TEST(ProxyHeader, what_is_none_is_refused_at_the_first_byte_that_shows_it) {
  const std::vector<std::string> bad = {
      std::string("\x10\x10", 2),
      "G",
      "PRO ",
      "PROXY TCP4 203.0.113.7 192.0.2.1 51000\r\n",
      "PROXY TCP4 203.0.113.7 192.0.2.1 51000 1883 \r\n",
      "PROXY TCP4 203.0.113.256 192.0.2.1 51000 1883\r\n",
      "PROXY TCP4 203.0.113 192.0.2.1 51000 1883\r\n",
      "PROXY TCP4 203.0.113.7.8 192.0.2.1 51000 1883\r\n",
      "PROXY TCP4 203.0.113.07 192.0.2.1 51000 1883\r\n",
      "PROXY TCP4 ::1 ::1 51000 1883\r\n",
      "PROXY TCP6 203.0.113.7 ::1 51000 1883\r\n",
      "PROXY TCP6 1:2:3:4:5:6:7 ::1 51000 1883\r\n",
      "PROXY TCP6 1:2:3:4:5:6:7:8:9 ::1 51000 1883\r\n",
      "PROXY TCP6 1::2::3 ::1 51000 1883\r\n",
      "PROXY TCP6 1:2:3:4:5:6:7: ::1 51000 1883\r\n",
      "PROXY TCP6 :::1 ::1 51000 1883\r\n",
      "PROXY TCP6 12345:: ::1 51000 1883\r\n",
      "PROXY TCP4 203.0.113.7 192.0.2.1 65536 1883\r\n",
      "PROXY TCP4 203.0.113.7 192.0.2.1 -1 1883\r\n",
      "PROXY TCP4 203.0.113.7 192.0.2.1 51000 x\r\n",
      "PROXY UDP4 203.0.113.7 192.0.2.1 51000 1883\r\n",
      "PROXY UNKNOWN " + std::string(93, 'x'),
      std::string("\r\n\r\n\0\r\nQUIT\n\x11", 13),
      std::string("\r\n\r\n\0\r\nQUIT\n\x22", 13),
      v2(1, 0x11, kFour.substr(1)),
      v2(1, 0x21, kFour),
      v2(1, 0x11, kFour + std::string(4097, 'x')).substr(0, 16),
      v2(1, 0x11, kFour + "xx"),
      v2(1, 0x11, kFour + std::string("\x01\x00\x05mqtt", 7)),
      v2(1, 0x11, kFour + std::string("\x03\x00\x03xxx", 6)),
      with_crc(kFour, "", 1),
  };
  for (const std::string& bytes : bad) EXPECT_FALSE(decode(bytes).has_value()) << bytes;
}

}  // namespace
}  // namespace ph::proxy
