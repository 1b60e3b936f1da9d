#include "store/commit/disk_floor.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"

namespace ph::commit {
namespace {

constexpr uint64_t kMiB = 1ull << 20;

class Floor : public testing::Test {
 protected:
  Floor() {
    log_configure(LogLevel::off, false);
    files.capacity = 400 * kMiB;
    files.append("/ballast", "");
    left(100 * kMiB);
  }
  void left(uint64_t bytes) { files.inode("/ballast")->bytes.resize(files.capacity - bytes); }
  bool room() {
    loop.advance(DiskFloor::kLookEvery);
    return floor.room();
  }
  test::ManualLoop loop;
  test::MemoryFiles files;
  DiskFloor floor{loop, files, "/", 64 * kMiB};
};

TEST_F(Floor, admits_what_leaves_the_reserve) {
  EXPECT_TRUE(floor.admit(36 * kMiB));
  auto refused = floor.admit(36 * kMiB + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, port::file_errors::no_space);
  EXPECT_EQ(floor.refusals(), 1u);
}

TEST_F(Floor, says_there_is_no_room_until_what_was_refused_fits) {
  EXPECT_TRUE(room());
  EXPECT_FALSE(floor.admit(40 * kMiB));
  EXPECT_FALSE(room());
  EXPECT_TRUE(floor.shortage().has_value());
  left(103 * kMiB);
  EXPECT_FALSE(room());
  left(104 * kMiB);
  EXPECT_TRUE(room());
  EXPECT_FALSE(floor.shortage().has_value());
}

TEST_F(Floor, goes_on_a_little_above_where_it_stopped) {
  left(64 * kMiB - 1);
  EXPECT_FALSE(room());
  left(65 * kMiB);
  EXPECT_FALSE(room()) << "a stop and a start for each record would be no better";
  left(68 * kMiB);
  EXPECT_TRUE(room());
  left(65 * kMiB);
  EXPECT_TRUE(room());
}

TEST_F(Floor, sees_a_refusal_at_once_and_room_within_a_look) {
  EXPECT_TRUE(room());
  EXPECT_FALSE(floor.admit(90 * kMiB));
  EXPECT_FALSE(floor.room());
  left(300 * kMiB);
  loop.advance(DiskFloor::kLookEvery);
  EXPECT_TRUE(floor.room());
}

TEST_F(Floor, waits_for_no_more_than_the_disk_can_have) {
  EXPECT_FALSE(floor.admit(1000 * kMiB));
  EXPECT_FALSE(room());
  left(64 * kMiB + files.capacity / 8);
  EXPECT_TRUE(room()) << "what never fits comes again in parts";
}

TEST_F(Floor, is_a_quarter_of_a_small_disk) {
  DiskFloor big(loop, files, "/", 1000 * kMiB);
  EXPECT_FALSE(big.admit(1));
  left(101 * kMiB);
  EXPECT_TRUE(big.admit(kMiB));
}

TEST_F(Floor, of_a_disk_that_cannot_be_asked_stops_nothing) {
  struct Mute : test::MemoryFiles {
    Result<port::DiskSpace> space(const std::string& path) override { return fail(port::file_errors::failed, path); }
  } mute;
  DiskFloor unknown(loop, mute, "/", kMiB);
  EXPECT_TRUE(unknown.room());
  EXPECT_TRUE(unknown.admit(1ull << 40));
}

}  // namespace
}  // namespace ph::commit
