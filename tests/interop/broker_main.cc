// A broker alone on real loops and sockets, for tests with other people's clients and for load generators.
// Arguments: workers (default 2), port (default 0: the kernel chooses). Prints "listening HOST:PORT", then for each
// line on standard input one line of figures; ends at the end of standard input.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "io/loop.h"
#include "service/broker/broker.h"

namespace {

void print(const ph::broker::BrokerStats& s) {
  std::printf(
      "connections=%llu sessions=%llu subscriptions=%llu retained=%llu messages_in=%llu messages_out=%llu "
      "malformed=%llu "
      "takeovers=%llu moves=%llu",
      static_cast<unsigned long long>(s.connections), static_cast<unsigned long long>(s.sessions),
      static_cast<unsigned long long>(s.subscriptions), static_cast<unsigned long long>(s.retained),
      static_cast<unsigned long long>(s.messages_in), static_cast<unsigned long long>(s.messages_out),
      static_cast<unsigned long long>(s.malformed), static_cast<unsigned long long>(s.takeovers),
      static_cast<unsigned long long>(s.moves));
  for (size_t i = 0; i < s.drops.size(); ++i)
    std::printf(" dropped_%s=%llu", std::string(ph::session::kDropNames[i]).c_str(),
                static_cast<unsigned long long>(s.drops[i]));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int workers = argc > 1 ? std::atoi(argv[1]) : 2;
  ph::log_configure(ph::LogLevel::info, true);
  ph::broker::BrokerOptions options;
  options.listeners.push_back({{"127.0.0.1", static_cast<uint16_t>(argc > 2 ? std::atoi(argv[2]) : 0)}, nullptr});
  // The tests publish as fast as they can and count what arrives: queues have to hold it.
  options.channel.packet_max = 16 * 1024 * 1024;
  options.session.mqueue_messages_max = 100'000;
  options.session.mqueue_bytes_max = 64 * 1024 * 1024;

  std::vector<std::unique_ptr<ph::io::IoLoop>> loops;
  std::vector<ph::broker::WorkerPlace> places;
  for (int i = 0; i < workers; ++i) {
    loops.push_back(std::make_unique<ph::io::IoLoop>());
    places.push_back({loops.back().get(), loops.back().get()});
  }
  {
    ph::broker::Broker broker(options, places, nullptr, loops.front().get());
    if (auto started = broker.start(); !started) {
      std::fprintf(stderr, "%s\n", started.error().to_string().c_str());
      return 1;
    }
    std::vector<std::thread> threads;
    for (auto& loop : loops) threads.emplace_back([&loop] { loop->run(); });
    std::printf("listening %s\n", broker.endpoints().front().to_string().c_str());
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) print(broker.stats());
    broker.stop();
    while (broker.stats().connections > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (auto& loop : loops) loop->stop();
    for (auto& thread : threads) thread.join();
    print(broker.stats());
  }
  return 0;
}
