// A file of the store's journal, with what a disk may have made of it: reading ends, and what it gives is one unbroken
// run of numbers.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/store_journal.h"

namespace {

struct Folder {
  std::string path = std::filesystem::temp_directory_path() / ("posthouse-fuzz-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  std::ofstream(folder.path + "/0000000000000001-00000000.jnl", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  auto content = ph::io::StoreJournal(folder.path, 1, 1).read();
  if (!content) return 0;
  require(content->run.size() == content->last + 1 - content->first);
  require(content->highest >= content->last);
  require(content->damaged == 0 || !content->damaged_at.empty());
  return 0;
}
