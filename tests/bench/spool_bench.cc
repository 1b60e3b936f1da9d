// The segment log on a real file system with LevelDB: append and group commit, reading in order, opening. Directory:
// $PH_BENCH_DIR, else the temporary one.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/log.h"
#include "io/level_store.h"
#include "io/posix_files.h"
#include "store/spool/segment_log.h"

namespace {

using namespace ph;  // NOLINT

struct World {
  std::filesystem::path root;
  io::PosixFiles files;
  std::unique_ptr<io::LevelStore> store;
  Random random{1};
  std::unique_ptr<spool::SegmentLog> log;

  World() {
    log_configure(LogLevel::off, false);
    const char* base = std::getenv("PH_BENCH_DIR");
    root = (base ? std::filesystem::path(base) : std::filesystem::temp_directory_path()) / "spool_bench";
    std::filesystem::remove_all(root);
    std::filesystem::create_directories(root);
    store = std::move(*io::LevelStore::open((root / "db").string()));
    open();
  }
  ~World() {
    log.reset();
    store.reset();
    std::filesystem::remove_all(root);
  }
  void open() {
    log.reset();
    log = std::move(*spool::SegmentLog::open({"r", (root / "spool").string()}, files, *store, random));
  }
  /// One group, as the committer does it, without the hand-over between threads.
  void commit(const Slice& block, size_t records) {
    for (size_t i = 0; i < records; ++i) log->append(block, 1, from_unix_ms(1));
    port::WriteBatch batch;
    log->begin(batch);
    Result<> done = log->flush();
    if (done) log->add_flushed(batch);
    if (done) done = store->write(batch, true);
    log->finished(done);
    if (!done) std::abort();
  }
};

void append_and_commit(benchmark::State& state) {
  World world;
  auto records = static_cast<size_t>(state.range(0));
  Slice block(std::string(static_cast<size_t>(state.range(1)), 'x'));
  for (auto _ : state) {
    world.commit(block, records);
    world.log->release_below(world.log->durable_end());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1));
}
BENCHMARK(append_and_commit)
    ->ArgNames({"records", "bytes"})
    ->Args({1, 300})
    ->Args({32, 300})
    ->Args({1000, 300})
    ->Args({16, 65536})
    ->UseRealTime();

void read_in_order(benchmark::State& state) {
  World world;
  Slice block(std::string(static_cast<size_t>(state.range(0)), 'x'));
  size_t records = (256u << 20) / block.size();
  for (size_t done = 0; done < records; done += 1000) world.commit(block, 1000);
  uint64_t read = 0;
  for (auto _ : state) {
    auto cursor = world.log->read_from(1);
    for (;;) {
      auto record = cursor->next();
      if (!record || !*record) break;
      ++read;
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(read));
  state.SetBytesProcessed(static_cast<int64_t>(read * block.size()));
}
BENCHMARK(read_in_order)->ArgName("bytes")->Arg(300)->Arg(10'000)->Unit(benchmark::kMillisecond)->UseRealTime();

void open_20000_segments(benchmark::State& state) {
  World world;
  world.commit(Slice(std::string("x")), 1);
  auto spool = world.root / "spool";
  auto first = *std::filesystem::directory_iterator(spool);
  for (uint64_t i = 2; i <= 20'000; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "%016llx.seg", static_cast<unsigned long long>(i));
    std::filesystem::copy_file(first, spool / name);
  }
  port::WriteBatch end;  // as if all of them were acknowledged
  std::string value(1, '\x01');
  uint64_t size = std::filesystem::file_size(first);
  for (uint64_t word : {uint64_t{7}, uint64_t{20'000}, size, uint64_t{20'001}, uint64_t{20'001}, uint64_t{20'000}})
    value.append(reinterpret_cast<const char*>(&word), sizeof word);
  end.put("s/r/end", value);
  world.store->write(end, true).value();
  for (auto _ : state) world.open();
  if (world.log->stats().segments != 20'000) state.SkipWithError("not all segments were opened");
}
BENCHMARK(open_20000_segments)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
