#include "store/chunk/compressor.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "port/files.h"
#include "store/chunk/unpacked.h"

namespace ph::chunk {
namespace {

class CompressorOf : public testing::TestWithParam<Compression> {
 protected:
  std::string member(const std::vector<Slice>& lines) {
    std::string out;
    uint64_t said = compressor_
                        .member(GetParam(), lines,
                                [&](ByteView piece) {
                                  EXPECT_LE(piece.size(), Compressor::kPiece);
                                  out.append(piece);
                                  return Result<>();
                                })
                        .value();
    EXPECT_EQ(said, out.size());
    return out;
  }
  Compressor compressor_;
};

std::string noise(size_t size) {
  Random random(size);
  std::string out;
  while (out.size() < size) out.push_back(static_cast<char>(random.next()));
  return out;
}

TEST_P(CompressorOf, members_one_behind_the_other_read_as_one_stream) {
  std::string first = noise(300'000), second(200'000, 'x');
  std::string bytes = member({Slice("one\n"), Slice(first)}) + member({Slice(second)}) + member({Slice("end\n")});
  EXPECT_EQ(unpacked(GetParam(), bytes), "one\n" + first + second + "end\n");
}

TEST_P(CompressorOf, a_member_cut_anywhere_is_seen_to_be_cut) {
  std::string whole = member({Slice("one\n")}), cut = member({Slice("two, of which something is missing\n")});
  for (size_t n = 1; n < cut.size(); ++n) EXPECT_EQ(unpacked(GetParam(), whole + cut.substr(0, n)), std::nullopt) << n;
}

TEST_P(CompressorOf, the_same_lines_give_the_same_bytes) {
  std::string once = member({Slice("one\n"), Slice("two\n")});
  member({Slice(noise(10'000))});
  EXPECT_EQ(member({Slice("one\n"), Slice("two\n")}), once);
}

TEST_P(CompressorOf, goes_on_after_a_write_that_failed) {
  std::string big = noise(500'000);
  auto failed = compressor_.member(GetParam(), std::vector<Slice>{Slice(big)},
                                   [](ByteView) { return Result<>(fail(port::file_errors::no_space, "")); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, port::file_errors::no_space);
  EXPECT_EQ(unpacked(GetParam(), member({Slice("one\n")})), "one\n");
}

INSTANTIATE_TEST_SUITE_P(Kinds, CompressorOf, testing::Values(Compression::gzip, Compression::zstd));

}  // namespace
}  // namespace ph::chunk
