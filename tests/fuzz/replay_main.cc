// Runs a fuzz target over its kept corpus without libFuzzer, in every build: each file whole, each truncation of it,
// and with each byte flipped in turn (files up to 4 KiB). Arguments: folders or files; a folder that does not exist is
// empty.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kVariedMax = 4096;

void run(const std::vector<uint8_t>& bytes) {
  // An exact heap block, so that the address sanitizer sees a read one past the end.
  std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  exact.shrink_to_fit();
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

size_t replay(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  run(bytes);
  if (bytes.size() > kVariedMax) return 1;
  for (size_t n = 0; n < bytes.size(); ++n) {
    run({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)});
    bytes[n] ^= 0xFF;
    run(bytes);
    bytes[n] ^= 0xFF;
  }
  return 1 + 2 * bytes.size();
}

}  // namespace

int main(int argc, char** argv) {
  size_t inputs = 0;
  run({});
  for (int i = 1; i < argc; ++i) {
    std::filesystem::path path = argv[i];
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::directory_iterator(path))
        if (entry.is_regular_file()) inputs += replay(entry.path());
    } else if (std::filesystem::exists(path)) {
      inputs += replay(path);
    }
  }
  std::printf("%zu inputs replayed, no fault\n", inputs);
}
