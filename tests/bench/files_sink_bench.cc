// The files sink over a real disk and a real store: what a group costs, what a restart costs. Files go to a directory
// under TMPDIR; set it to the disk that is to be measured (a tmpfs has no fdatasync worth the name).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/log.h"
#include "io/level_store.h"
#include "io/posix_files.h"
#include "store/chunk/category_entry.h"
#include "store/chunk/files_sink.h"
#include "support/manual_loop.h"

namespace {

using namespace ph;
namespace fs = std::filesystem;

class Bench {
 public:
  explicit Bench(chunk::FileMode mode) : mode_(mode) {
    log_configure(LogLevel::error, false);
    std::string pattern = fs::temp_directory_path() / "files_sink_bench_XXXXXX";
    root_ = mkdtemp(pattern.data());
    store = io::LevelStore::open(root_ + "/store").value();
    open();
  }
  ~Bench() {
    sink.reset();
    committer.reset();
    store.reset();
    fs::remove_all(root_);
  }
  void open() {
    sink.reset();
    committer.reset();
    loop = std::make_unique<test::ManualLoop>();
    disk = std::make_unique<test::ManualDisk>(*loop);
    committer = std::make_unique<commit::Committer>(*loop, *disk, *store);
    chunk::FilesSinkOptions options;
    options.directory = root_ + "/events";
    options.state_directory = root_ + "/files";
    options.categories_max = 20'000;
    options.categories = {{.masks = {}, .mode = mode_}};
    sink = chunk::FilesSink::open(options, *loop, files, *store, *committer).value();
  }
  void group(int categories, size_t bytes_each, size_t block_bytes) {
    bool done = false;
    for (int c = 0; c < categories; ++c)
      for (size_t at = 0; at < bytes_each; at += block_bytes) sink->append(block(c, std::min(block_bytes, bytes_each)));
    port::WriteBatch entries;
    entries.put("r/cursor", std::to_string(++serial_));
    committer->request({sink.get()}, std::move(entries), [&](const Result<>& r) { done = r.has_value(); });
    loop->run_posted();
    if (!done) std::abort();
  }
  /// What consumers do, so that the disk does not fill.
  void consume() {
    for (const auto& e : fs::recursive_directory_iterator(root_ + "/events"))
      if (e.is_regular_file() && e.file_size() > 0) fs::remove(e.path());
  }

  io::PosixFiles files;
  std::unique_ptr<io::LevelStore> store;
  std::unique_ptr<test::ManualLoop> loop;
  std::unique_ptr<test::ManualDisk> disk;
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<chunk::FilesSink> sink;

 private:
  event::Block block(int category, size_t bytes) {
    Slice& lines = lines_[bytes];
    if (lines.empty()) {
      std::string text;
      while (text.size() + 300 <= bytes) text += std::string(299, 'x') + "\n";
      if (text.size() < bytes) text += std::string(bytes - text.size() - 1, 'y') + "\n";
      lines = Slice(std::move(text));
    }
    event::Block b;
    b.category = "category_" + std::to_string(category);
    b.events = count_newlines(lines.view());
    b.id.last = bytes;
    b.payload = lines;
    return b;
  }
  chunk::FileMode mode_;
  std::string root_;
  std::map<size_t, Slice> lines_;
  uint64_t serial_ = 0;
};

/// Groups of `range(0)` categories with `range(1)` bytes each.
void groups(benchmark::State& state, chunk::FileMode mode) {
  Bench bench(mode);
  auto categories = static_cast<int>(state.range(0));
  auto bytes = static_cast<size_t>(state.range(1));
  int64_t written = 0;
  for (auto _ : state) {
    bench.group(categories, bytes, std::min<size_t>(bytes, 256 * 1024));
    written += static_cast<int64_t>(categories * bytes);
    if (written % (256 << 20) < static_cast<int64_t>(categories * bytes)) {
      state.PauseTiming();
      if (mode == chunk::FileMode::chunks) bench.consume();
      state.ResumeTiming();
    }
  }
  state.SetBytesProcessed(written);
}
void chunks(benchmark::State& state) {
  groups(state, chunk::FileMode::chunks);
}
void plain(benchmark::State& state) {
  groups(state, chunk::FileMode::plain);
}
BENCHMARK(chunks)->Args({1, 300})->Args({1, 4 << 20})->Args({8, 512 << 10})->Args({100, 3000})->UseRealTime();
BENCHMARK(plain)->Args({1, 300})->Args({1, 4 << 20})->Args({100, 3000})->UseRealTime();

/// From open() to the first acknowledged line, with that many categories that were being written when the process died;
/// `recovered_ms`: until each has its newest chunk closed and the link moved on.
void restart(benchmark::State& state) {
  Bench bench(chunk::FileMode::chunks);
  auto categories = static_cast<int>(state.range(0));
  double recovered = 0;
  for (auto _ : state) {
    state.PauseTiming();
    bench.group(categories, 300, 300);
    state.ResumeTiming();
    bench.open();
    auto start = std::chrono::steady_clock::now();
    bench.loop->run_posted();
    recovered += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    state.PauseTiming();
    bench.consume();
    state.ResumeTiming();
  }
  state.counters["recovered_ms"] = benchmark::Counter(recovered, benchmark::Counter::kAvgIterations);
}
BENCHMARK(restart)->Arg(100)->Arg(10'000)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(2);

}  // namespace
