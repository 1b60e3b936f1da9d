#include "store/dead_letter/dead_letters.h"

#include <gtest/gtest.h>

#include <set>

#include "base/log.h"
#include "base/random.h"
#include "support/memory_files.h"

namespace ph::dead_letter {
namespace {

const std::string kDir = "/data/dead-letters";

struct DeadLetterTest : testing::Test {
  test::MemoryFiles files;
  std::unique_ptr<DeadLetterFiles> letters;
  void SetUp() override {
    log_configure(LogLevel::off, false);
    files.make_directories("/data").value();
    files.sync_directory("/").value();
    open();
  }
  void open(uint64_t bytes = kFileBytes) { letters = std::make_unique<DeadLetterFiles>(kDir, files, bytes); }
  static port::DeadLetter letter(uint64_t n, const std::string& route = "r") {
    return {from_unix_ms(1000), route, "fra", "cat", "bad", StreamId{5}, n, n + 1, Slice("block " + std::to_string(n))};
  }
  std::vector<uint64_t> firsts(const std::string& route = "r", uint64_t* stray = nullptr) {
    std::vector<uint64_t> out;
    auto done = for_each_letter(files, kDir, route, [&](const Found& f) {
      EXPECT_EQ(f.letter.block.view(), "block " + std::to_string(f.letter.first));
      EXPECT_EQ(f.letter.reason, "bad");
      EXPECT_EQ(f.letter.category, "cat");
      EXPECT_EQ(f.letter.target, "fra");
      out.push_back(f.letter.first);
      return true;
    });
    EXPECT_TRUE(done);
    if (stray) *stray = done.value_or(0);
    return out;
  }
};

}  // namespace

TEST_F(DeadLetterTest, are_durable_when_append_returns_and_listed_per_route) {
  ASSERT_TRUE(letters->append({letter(1), letter(2), letter(9, "other")}));
  files.cut_power();
  open();
  EXPECT_EQ(firsts(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(firsts("other"), (std::vector<uint64_t>{9}));
  EXPECT_EQ(firsts("none"), (std::vector<uint64_t>{}));
  EXPECT_EQ(*routes_with_letters(files, kDir), (std::vector<std::string>{"other", "r"}));
}

TEST_F(DeadLetterTest, forgotten_letters_are_gone_durably_and_the_others_stay_as_they_are) {
  ASSERT_TRUE(letters->append({letter(1), letter(2), letter(3), letter(9, "other")}));
  ASSERT_TRUE(letters->forget("r", {letter_id(letter(2)), "0123456789abcdef"}));
  files.cut_power();
  EXPECT_EQ(firsts(), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(firsts("other"), (std::vector<uint64_t>{9}));
  ASSERT_TRUE(letters->append({letter(4)}));
  EXPECT_EQ(firsts(), (std::vector<uint64_t>{1, 3, 4})) << "into the file as it is now";
  ASSERT_TRUE(letters->append({letter(2)}));
  EXPECT_EQ(firsts(), (std::vector<uint64_t>{1, 3, 4})) << "a repeated one is not back";
  ASSERT_TRUE(letters->forget("r", {letter_id(letter(1)), letter_id(letter(3)), letter_id(letter(4))}));
  EXPECT_EQ(*routes_with_letters(files, kDir), (std::vector<std::string>{"other"}));
}

TEST_F(DeadLetterTest, letters_are_forgotten_in_old_files_and_damaged_bytes_are_kept) {
  open(100);
  for (uint64_t n = 1; n <= 6; ++n) ASSERT_TRUE(letters->append({letter(n)}));
  auto inode = files.inode(kDir + "/r.log.2");
  ASSERT_TRUE(inode);
  inode->bytes += "stray";
  uint64_t stray = 0;
  const auto before = firsts("r", &stray);
  EXPECT_EQ(stray, 5u);
  ASSERT_TRUE(letters->forget("r", {letter_id(letter(1)), letter_id(letter(2))}));
  EXPECT_EQ(firsts("r", &stray), (std::vector<uint64_t>{3, 4, 5, 6}));
  EXPECT_EQ(stray, 5u);
}

TEST_F(DeadLetterTest, an_id_is_of_route_target_stream_and_positions) {
  std::set<std::string> ids;
  for (uint64_t n = 1; n <= 3; ++n)
    for (const char* route : {"r", "s"}) ids.insert(letter_id(letter(n, route)));
  EXPECT_EQ(ids.size(), 6u);
  auto moved = letter(1);
  moved.target = "other";
  EXPECT_TRUE(ids.insert(letter_id(moved)).second);
  moved.at = from_unix_ms(5);
  EXPECT_FALSE(ids.insert(letter_id(moved)).second);
}

TEST_F(DeadLetterTest, a_repeated_letter_is_written_once_also_after_a_restart) {
  ASSERT_TRUE(letters->append({letter(1), letter(1)}));
  ASSERT_TRUE(letters->append({letter(1)}));
  open();
  ASSERT_TRUE(letters->append({letter(1), letter(2)}));
  EXPECT_EQ(firsts(), (std::vector<uint64_t>{1, 2}));
}

TEST_F(DeadLetterTest, a_failed_write_or_sync_moves_on_to_a_new_file_and_loses_nothing) {
  ASSERT_TRUE(letters->append({letter(1)}));
  for (auto op : {test::FileOp::write, test::FileOp::sync}) {
    uint64_t n = op == test::FileOp::write ? 2 : 3;
    files.fault = [op](test::FileOp o, const std::string&) -> std::optional<Error> {
      return o == op ? std::optional(Error{port::file_errors::failed, "EIO"}) : std::nullopt;
    };
    EXPECT_FALSE(letters->append({letter(n)}));
    EXPECT_FALSE(letters->append({letter(n)}));
    files.fault = nullptr;
    ASSERT_TRUE(letters->append({letter(n)}));
  }
  EXPECT_EQ(firsts(), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(DeadLetterTest, old_files_are_bounded) {
  open(200);
  for (uint64_t n = 1; n <= 800; ++n) ASSERT_TRUE(letters->append({letter(n)}));
  auto kept = firsts();
  EXPECT_EQ(kept.back(), 800u);
  EXPECT_LT(kept.size(), 400u);
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_EQ(kept[i], kept[i - 1] + 1);
  EXPECT_LE(files.list(kDir)->size(), kFilesKept + 1);
}

TEST_F(DeadLetterTest, every_cut_and_every_flipped_bit_costs_at_most_the_letters_it_touches) {
  ASSERT_TRUE(letters->append({letter(1), letter(2), letter(3)}));
  auto inode = files.inode(kDir + "/r.log");
  const std::string whole = inode->bytes;
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    inode->bytes = whole.substr(0, cut);
    EXPECT_EQ(firsts().size(), cut * 3 / whole.size());
    open();  // what comes next is found behind a torn tail
    ASSERT_TRUE(letters->append({letter(7)}));
    EXPECT_EQ(firsts().back(), 7u);
  }
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    inode->bytes = whole;
    inode->bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_EQ(firsts().size(), 2u) << bit;
  }
}

TEST_F(DeadLetterTest, a_payload_full_of_frame_headers_does_not_stall_the_reader) {
  std::string evil;
  while (evil.size() < (4u << 20)) evil += std::string("DLT1\0\0\0\0\0\0\x01\0", 12);
  uint64_t stray = scan_frames(Slice(evil), [](uint64_t, const Slice&) { return true; });
  EXPECT_EQ(stray, evil.size());
}

TEST_F(DeadLetterTest, refuses_a_route_that_is_no_file_name) {
  auto bad = letters->append({letter(1, "../x")});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, errors::bad_route);
}

TEST_F(DeadLetterTest, property_crashes_lose_no_letter_that_was_reported_written) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::MemoryFiles fs(seed);
    Random dice(seed);
    fs.make_directories("/data").value();
    fs.sync_directory("/").value();
    std::vector<uint64_t> written;
    uint64_t n = 0;
    for (int life = 0; life < 10; ++life) {
      try {
        fs.crash_at(1 + dice.below(25));
        DeadLetterFiles to(kDir, fs, 400);
        for (int i = 0; i < 10; ++i) {
          ++n;
          if (to.append({letter(n)})) written.push_back(n);
        }
      } catch (const test::SimulatedCrash&) {
      }
      fs.no_crash();
      if (dice.chance(0.6)) fs.cut_power();
      std::set<uint64_t> here;
      auto done = for_each_letter(fs, kDir, "r", [&](const Found& f) { return here.insert(f.letter.first), true; });
      ASSERT_TRUE(done);
      for (uint64_t w : written) ASSERT_TRUE(here.contains(w) || here.empty() || w < *here.begin()) << w;
      ASSERT_TRUE(written.empty() || !here.empty());
    }
  }
}

TEST(DeadLetterFormat, round_trip_truncations_and_a_newer_version) {
  auto l = DeadLetterTest::letter(4);
  std::string bytes = port::encode(l);
  auto back = port::decode_dead_letter(Slice(bytes));
  ASSERT_TRUE(back);
  EXPECT_EQ(port::encode(*back), bytes);
  for (size_t cut = 0; cut + l.block.size() < bytes.size(); ++cut)
    EXPECT_FALSE(port::decode_dead_letter(Slice(bytes.substr(0, cut)))) << cut;
  bytes[0] = 2;
  auto newer = port::decode_dead_letter(Slice(bytes));
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, port::dead_letter_errors::newer_version);
}

}  // namespace ph::dead_letter
