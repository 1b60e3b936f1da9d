// The loop and its sockets: 64-byte messages echoed over loopback, with a window of messages in flight on each of some
// pairs. Both ends run on the one loop, so a message costs two reads and two writes less what a turn gathers.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "io/loop.h"
#include "port/network.h"

namespace ph {
namespace {

constexpr size_t kMessage = 64;

/// Sends back what came; whole messages only.
class Echo final : public port::ConnectionHandler {
 public:
  explicit Echo(uint64_t* counted) : counted_(counted) {}
  void on_open(port::Connection&) override {}
  port::Consumed on_data(port::Connection& from, ByteView bytes) override {
    size_t whole = bytes.size() / kMessage * kMessage;
    for (size_t at = 0; at < whole; at += kMessage) from.send_copy(bytes.substr(at, kMessage));
    if (counted_) *counted_ += whole / kMessage;
    return {whole, kMessage};
  }
  void on_close(port::Connection&, const Error&) override {}
  std::unique_ptr<port::Connection> connection;

 private:
  uint64_t* counted_;
};

void messages_echoed(benchmark::State& state) {
  io::IoLoop loop;
  uint64_t echoed = 0;
  std::vector<std::unique_ptr<Echo>> servers;
  auto listener = loop.listen({"127.0.0.1", 0}, {}, [&](std::unique_ptr<port::Connection>&& connection) {
    servers.push_back(std::make_unique<Echo>(nullptr));
    servers.back()->connection = std::move(connection);
    return servers.back().get();
  });
  if (!listener) return state.SkipWithError(listener.error().to_string().c_str());
  auto pairs = static_cast<size_t>(state.range(0));
  std::string window(kMessage * static_cast<size_t>(state.range(1)), 'm');
  std::vector<std::unique_ptr<Echo>> clients;
  for (size_t i = 0; i < pairs; ++i) {
    clients.push_back(std::make_unique<Echo>(&echoed));
    clients.back()->connection = loop.connect((*listener)->local(), {}, *clients.back());
    clients.back()->connection->send_copy(window);
  }
  loop.run_until([&] { return servers.size() == pairs && echoed > pairs; }, 10s);
  uint64_t before = echoed;
  uint64_t turns = loop.counters().turns.value();
  for (auto _ : state) {
    uint64_t goal = echoed + 10'000;
    loop.run_until([&] { return echoed >= goal; }, 10s);
  }
  state.SetItemsProcessed(static_cast<int64_t>(echoed - before));
  state.counters["messages_per_turn"] =
      static_cast<double>(echoed - before) / static_cast<double>(loop.counters().turns.value() - turns);
}
BENCHMARK(messages_echoed)
    ->ArgNames({"pairs", "window"})
    ->Args({1, 1})
    ->Args({400, 1})
    ->Args({100, 8})
    ->Args({20, 128});

void tasks_posted(benchmark::State& state) {
  io::IoLoop loop;
  uint64_t ran = 0;
  for (auto _ : state) {
    uint64_t goal = ran + 1000;
    for (int i = 0; i < 1000; ++i) loop.post([&ran] { ++ran; });
    loop.run_until([&] { return ran == goal; }, 10s);
  }
  state.SetItemsProcessed(static_cast<int64_t>(ran));
}
BENCHMARK(tasks_posted);

}  // namespace
}  // namespace ph
