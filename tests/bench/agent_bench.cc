// How fast the agent turns source files into batches: 300-byte lines from the page cache, everything acknowledged at
// once. Items are lines. The target is 400,000 a second well below half a core.

#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "io/posix_files.h"
#include "service/agent/agent.h"
#include "support/manual_loop.h"
#include "support/memory_store.h"

namespace ph::agent {
namespace {

struct NoDeadLetters : port::DeadLetters {
  Result<> append(const std::vector<port::DeadLetter>&) override { return fail("bench.unexpected", ""); }
};

/// Files of `lines` 300-byte lines each.
class Spool {
 public:
  Spool(int files, int lines) {
    std::string pattern = (std::filesystem::temp_directory_path() / "posthouse-bench-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
    std::string line(299, 'x');
    line += '\n';
    for (int f = 0; f < files; ++f) {
      std::ofstream out(path + "/c" + std::to_string(f) + ".log", std::ios::binary);
      for (int i = 0; i < lines; ++i) out << line;
    }
  }
  ~Spool() { std::filesystem::remove_all(path); }
  std::string path;
};

void drain_backlog(benchmark::State& state) {
  const int files = static_cast<int>(state.range(0)), lines = 900'000 / files;
  const auto bytes_max = static_cast<size_t>(state.range(1));
  Spool spool(files, lines);
  uint64_t delivered = 0;
  for (auto _ : state) {
    test::ManualLoop loop;
    test::ManualDisk disk(loop);
    test::MemoryStore store;
    io::PosixFiles posix;
    NoDeadLetters letters;
    AgentOptions o;
    o.directory = spool.path;
    o.routes = {{"all", {{"fra", false}}}};
    o.route_of = [](std::string_view) { return std::optional<size_t>(0); };
    o.rotate_bytes = UINT64_MAX;
    auto agent = Agent::open(std::move(o), loop, disk, posix, {}, store, letters, NodeId{{1}}).value();
    auto* source = agent->sources()[0];
    agent->start();
    loop.run_posted();
    while (auto batch = source->next(bytes_max)) {
      delivered += batch->events;
      benchmark::DoNotOptimize(batch->packed.data());
      source->advanced(batch->stream, batch->last, batch->events, 0);
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(delivered));
  state.SetBytesProcessed(static_cast<int64_t>(delivered) * 300);
}
BENCHMARK(drain_backlog)
    ->Args({1, 256 * 1024})
    ->Args({8, 256 * 1024})
    ->Args({1, 32 * 1024})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ph::agent
