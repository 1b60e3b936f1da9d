#include "base/bytes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/coding.h"
#include "base/random.h"

namespace ph {

TEST(Hex, digits_are_read_and_written) {
  EXPECT_EQ(to_hex(std::string("\x00\x9f\xff", 3)), "009fff");
  for (int n = 0; n < 256; ++n) {
    const char c = static_cast<char>(n);
    const size_t at = std::string("0123456789abcdefABCDEF").find(c);
    EXPECT_EQ(hex_digit(c), at == std::string::npos ? -1 : static_cast<int>(at < 16 ? at : at - 6)) << n;
  }
}

TEST(Newlines, are_counted_at_any_length_and_place) {
  Random random(3);
  for (size_t size = 0; size < 12'000; size += size < 100 ? 1 : 997) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = random.chance(0.5) ? '\n' : static_cast<char>(random.below(256));
    for (size_t from = 0; from < std::min<size_t>(size, 17); ++from) {
      const ByteView part = ByteView(bytes).substr(from);
      ASSERT_EQ(count_newlines(part), static_cast<size_t>(std::count(part.begin(), part.end(), '\n')))
          << size << " " << from;
    }
  }
  EXPECT_EQ(count_newlines(std::string(100'000, '\n')), 100'000u);
}

TEST(Crc32c, matches_the_published_check_value) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720 B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST(Crc32c, chains_over_parts) {
  EXPECT_EQ(crc32c("56789", crc32c("1234")), crc32c("123456789"));
}

TEST(Coding, round_trips_and_rejects_every_truncation) {
  std::string out;
  put_fixed<uint32_t>(out, 0xDEADBEEF);
  put_varint(out, 0);
  put_varint(out, UINT64_MAX);
  put_sized(out, "payload");
  for (size_t cut = 0; cut <= out.size(); ++cut) {
    Reader r(ByteView(out).substr(0, cut));
    auto a = r.fixed<uint32_t>();
    auto b = r.varint();
    auto c = r.varint();
    auto d = r.sized();
    EXPECT_EQ(r.ok(), cut == out.size());
    if (r.ok()) {
      EXPECT_EQ(a, 0xDEADBEEFu);
      EXPECT_EQ(b, 0u);
      EXPECT_EQ(c, UINT64_MAX);
      EXPECT_EQ(d, "payload");
      EXPECT_TRUE(r.at_end());
    }
  }
}

TEST(Coding, rejects_varints_over_64_bits) {
  std::string eleven(10, '\x80');
  eleven += '\x01';
  Reader r(eleven);
  r.varint();
  EXPECT_FALSE(r.ok());
  std::string big(9, '\xFF');
  big += '\x02';
  Reader s(big);
  s.varint();
  EXPECT_FALSE(s.ok());
}

TEST(Coding, keys_sort_as_numbers) {
  std::string a, b;
  put_key(a, 255);
  put_key(b, 256);
  EXPECT_LT(a, b);
  EXPECT_EQ(load_key(b.data()), 256u);
}

TEST(Slice, sub_shares_memory) {
  Slice whole(std::string("hello world"));
  Slice part = whole.sub(6);
  whole = Slice();
  EXPECT_EQ(part.view(), "world");
}

}  // namespace ph
