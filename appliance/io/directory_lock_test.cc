#include "io/directory_lock.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace ph::io {

TEST(DirectoryLock, is_one_node_s_at_a_time) {
  TemporaryDirectory directory;
  std::string path = directory.path() + "/in";
  auto first = DirectoryLock::take(path, "agent.dir");
  ASSERT_TRUE(first) << first.error().to_string();
  auto second = DirectoryLock::take(path, "agent.dir");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, lock_errors::locked);
  EXPECT_NE(second.error().detail.find(path), std::string::npos);
  first->reset();
  EXPECT_TRUE(DirectoryLock::take(path, "agent.dir"));
}

}  // namespace ph::io
