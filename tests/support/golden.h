// Golden files: what a test produced before, kept in the tree under tests/. A test says what it has produced now; with
// PH_UPDATE_GOLDEN=1 in the environment that becomes the file, and the change is read in the diff.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ph::test {

/// tests/ of the source tree.
inline std::filesystem::path tests_folder() {
  return std::filesystem::path(__FILE__).parent_path().parent_path();
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void expect_golden(const std::filesystem::path& path, const std::string& now) {
  if (std::getenv("PH_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << now;
    return;
  }
  EXPECT_TRUE(std::filesystem::exists(path)) << path << " is missing: make it with PH_UPDATE_GOLDEN=1";
  EXPECT_EQ(read_file(path), now) << path;
}

}  // namespace ph::test
