#include "core/agent/fingerprint.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace ph::agent {
namespace {

std::string noise(size_t size, uint64_t seed = 1) {
  Random random(seed);
  std::string out;
  while (out.size() < size) out.push_back(static_cast<char>(random.next()));
  return out;
}

TEST(Fingerprint, hash_is_stable_because_it_is_stored) {
  EXPECT_EQ(content_hash(""), 823972990785552589u);
  EXPECT_EQ(content_hash("a line\n"), 10316005249869221076u);
}

TEST(Fingerprint, hash_tells_length_tail_and_zeros_apart) {
  EXPECT_NE(content_hash(std::string(8, '\0')), content_hash(std::string(16, '\0')));
  EXPECT_NE(content_hash("abc"), content_hash(std::string("abc\0", 4)));
  EXPECT_NE(content_hash("abcdefgh1"), content_hash("abcdefgh2"));
}

TEST(Fingerprint, prefix_matches_every_longer_file_and_no_changed_one) {
  std::string file = noise(6000);
  for (size_t known : {1u, 7u, 8u, 63u, 64u, 65u, 128u, 1000u, 2048u, 4095u, 4096u}) {
    Prefix p = Prefix::of(ByteView(file).substr(0, known));
    for (size_t now : {known, known + 1, size_t{4096}, size_t{6000}})
      EXPECT_EQ(p.match(ByteView(file).substr(0, std::min<size_t>(now, 4096))), Match::same) << known;
    for (size_t at : {size_t{0}, known / 2, known - 1}) {
      std::string changed = file;
      changed[at] ^= 1;
      EXPECT_EQ(p.match(ByteView(changed).substr(0, 4096)), Match::different) << known << " " << at;
    }
  }
}

TEST(Fingerprint, a_shorter_file_is_recognised_by_the_steps_it_still_has) {
  std::string file = noise(4096);
  Prefix p = Prefix::of(file);
  EXPECT_EQ(p.match(ByteView(file).substr(0, 4095)), Match::shorter);
  EXPECT_EQ(p.match(ByteView(file).substr(0, 64)), Match::shorter);
  EXPECT_EQ(p.match(ByteView(file).substr(0, 63)), Match::unknowable);
  EXPECT_EQ(p.match(""), Match::unknowable);
  std::string other = noise(4096, 2);
  EXPECT_EQ(p.match(ByteView(other).substr(0, 100)), Match::different);
  EXPECT_EQ(Prefix::of(ByteView(file).substr(0, 40)).match(ByteView(file).substr(0, 30)), Match::unknowable);
  EXPECT_EQ(Prefix().match(""), Match::same);
  EXPECT_EQ(Prefix().match("anything"), Match::same);
}

TEST(Fingerprint, prefix_round_trips) {
  std::string file = noise(4096);
  for (size_t known : {0u, 1u, 64u, 65u, 2048u, 2049u, 4096u}) {
    Prefix p = Prefix::of(ByteView(file).substr(0, known));
    std::string encoded;
    p.encode(encoded);
    Reader in(encoded);
    EXPECT_EQ(Prefix::decode(in), p);
    EXPECT_TRUE(in.ok() && in.at_end());
  }
}

TEST(Fingerprint, verdicts) {
  struct Row {
    Known known;
    Found found;
    Verdict verdict;
  };
  const Row rows[] = {
      // same boot: whatever is shorter or other is a truncation
      {{100, true, true}, {100, Match::same, true}, Verdict::same},
      {{100, true, true}, {500, Match::same, true}, Verdict::same},
      {{100, false, true}, {99, Match::same, true}, Verdict::replaced},
      {{100, false, true}, {500, Match::different, true}, Verdict::replaced},
      {{100, false, true}, {500, Match::same, false}, Verdict::replaced},
      {{0, false, true}, {10, Match::shorter, true}, Verdict::replaced},
      // the host was down: shorter with the same beginning is what a power cut leaves
      {{100, false, false}, {99, Match::same, true}, Verdict::power_cut},
      {{100, false, false}, {80, Match::shorter, true}, Verdict::power_cut},
      {{100, false, false}, {20, Match::unknowable, true}, Verdict::replaced},
      {{100, false, false}, {99, Match::different, true}, Verdict::replaced},
      {{100, false, false}, {200, Match::same, false}, Verdict::replaced},
      // as long as before, but a receiver may hold what the file may have lost and got anew
      {{100, true, false}, {200, Match::same, true}, Verdict::power_cut},
      {{100, false, false}, {200, Match::same, true}, Verdict::same},
  };
  for (const Row& r : rows) EXPECT_EQ(judge(r.known, r.found), r.verdict) << &r - rows;
}

}  // namespace
}  // namespace ph::agent
