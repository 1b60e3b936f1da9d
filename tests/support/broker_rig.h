// BrokerRig: a broker on some ManualLoops with clients on another, for service tests. Connections go to the workers in
// turn: the first to worker 0, the second to worker 1, and so on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "service/broker/broker.h"
#include "support/memory_network.h"
#include "support/mqtt_client.h"

namespace ph::test {

class BrokerRig {
 public:
  explicit BrokerRig(size_t workers = 1, broker::BrokerOptions options = {}, port::MessageTap* tap = nullptr) {
    if (options.listeners.empty()) options.listeners.push_back({{"127.0.0.1", 1883}, nullptr});
    for (size_t i = 0; i < workers; ++i) {
      loops.push_back(std::make_unique<ManualLoop>(i + 1));
      networks.push_back(std::make_unique<MemoryNetwork>(fabric, *loops.back()));
      places_.push_back({loops.back().get(), networks.back().get()});
    }
    broker = std::make_unique<broker::Broker>(options, places_, tap, &client_loop);
    EXPECT_TRUE(broker->start().has_value());
  }

  /// A client that has connected; its CONNACK is the first thing it received.
  MqttClient& connect(const std::string& line) {
    MqttClient& c = open();
    c.send("connect " + line);
    run();
    return c;
  }
  /// A client that has opened a socket and said nothing.
  MqttClient& open() {
    clients.push_back(std::make_unique<MqttClient>(client_network, broker->endpoints().front()));
    return *clients.back();
  }
  std::vector<ManualLoop*> all_loops() {
    std::vector<ManualLoop*> out{&client_loop};
    for (auto& l : loops) out.push_back(l.get());
    return out;
  }
  void run() { run_all(all_loops()); }
  void advance(Duration by) { advance_all(all_loops(), by); }

  MemoryFabric fabric;
  ManualLoop client_loop{99};
  MemoryNetwork client_network{fabric, client_loop};
  std::vector<std::unique_ptr<ManualLoop>> loops;
  std::vector<std::unique_ptr<MemoryNetwork>> networks;
  std::unique_ptr<broker::Broker> broker;
  std::vector<std::unique_ptr<MqttClient>> clients;

 private:
  std::vector<broker::WorkerPlace> places_;
};

}  // namespace ph::test
