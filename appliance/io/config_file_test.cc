#include "io/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ph::io {
namespace {

TEST(ConfigFile, check_says_what_is_wrong_and_exits_with_2) {
  const std::string folder = testing::TempDir() + "config_file." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/a.toml";
  std::ofstream(path) << "[node]\nname = 1\n[broker]\nworkers = \"1\"\n";
  const settings::Checked bad = config_check(path);
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.text, testing::HasSubstr(path + ":2:8: error: "));
  EXPECT_THAT(bad.text, testing::HasSubstr(path + ": 2 errors\n"));

  std::ofstream(path) << "[node]\n";
  EXPECT_EQ(config_check(path).exit_code, 0);
  const auto loaded = load_config(path);
  ASSERT_TRUE(loaded && loaded->settings);
  EXPECT_EQ(loaded->settings->node.name, host_name());

  EXPECT_EQ(config_check(folder).exit_code, 2);
  EXPECT_EQ(config_check(folder + "/none.toml").exit_code, 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ph::io
