// BrokerRig: a broker on some ManualLoops with clients on another, for service tests. Connections go to the workers in
// turn: the first to worker 0, the second to worker 1, and so on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "service/broker/broker.h"
#include "service/broker/journal.h"
#include "store/commit/committer.h"
#include "support/memory_network.h"
#include "support/memory_store.h"
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

/// The broker's keys of the store by their letter, without what the store keeps of itself.
inline std::map<char, size_t> broker_records(port::KeyedStore& store) {
  std::map<char, size_t> out;
  auto count = [&](ByteView key, ByteView) {
    if (key.size() > 3) ++out[key[2]];
    return true;
  };
  EXPECT_TRUE(store.scan("m/", count).has_value());
  return out;
}

/// Of the PUBLISHes among these lines.
inline std::vector<std::string> payloads(const std::vector<std::string>& lines) {
  std::vector<std::string> out;
  for (const auto& line : lines) {
    if (!line.starts_with("publish")) continue;
    const size_t at = line.find("payload=") + 8;
    out.push_back(line.substr(at, line.find(' ', at) - at));
  }
  return out;
}

/// A broker with durable sessions whose process can be killed, with or without the power. The client loop is the event
/// plane's, too.
class DurableRig {
 public:
  explicit DurableRig(size_t workers = 1, broker::BrokerOptions options = {},
                      broker::Durability durability = broker::Durability::fsync)
      : workers_(workers), options_(std::move(options)), durability_(durability) {
    if (options_.listeners.empty()) options_.listeners.push_back({{"127.0.0.1", 1883}, nullptr});
    start();
  }
  ~DurableRig() { kill(); }

  void start() {
    life_ = std::make_unique<Life>(store);
    Life& l = *life_;
    std::vector<broker::WorkerPlace> places;
    for (size_t i = 0; i < workers_; ++i) {
      l.loops.push_back(std::make_unique<ManualLoop>(i + 1));
      l.loops.back()->advance(clock_);
      l.networks.push_back(std::make_unique<MemoryNetwork>(l.fabric, *l.loops.back()));
      places.push_back({l.loops.back().get(), l.networks.back().get()});
    }
    l.loop.advance(clock_);
    auto journal = broker::Journal::open(durability_, l.loop, store, l.committer);
    ASSERT_TRUE(journal.has_value()) << journal.error().to_string();
    l.journal = std::move(*journal);
    l.broker = std::make_unique<broker::Broker>(options_, places, tap, &l.loop, l.journal.get());
    ASSERT_TRUE(l.broker->start().has_value());
  }
  /// kill -9: what the store was given stays. `cut`: and so does only what was synced.
  void kill(Random* cut = nullptr) {
    life_.reset();
    if (cut) store.cut_power(*cut);
  }
  void restart() {
    kill();
    start();
  }
  /// An orderly end.
  void stop() {
    life_->broker->stop();
    run();
    EXPECT_TRUE(life_->broker->drained());
    kill();
  }

  MqttClient& open() {
    life_->clients.push_back(std::make_unique<MqttClient>(life_->client_network, life_->broker->endpoints().front()));
    return *life_->clients.back();
  }
  MqttClient& connect(const std::string& line) {
    MqttClient& c = open();
    c.send("connect " + line);
    run();
    return c;
  }
  std::vector<ManualLoop*> all_loops() {
    std::vector<ManualLoop*> out{&life_->loop};
    for (auto& l : life_->loops) out.push_back(l.get());
    return out;
  }
  void run() { run_all(all_loops()); }
  void advance(Duration by) {
    clock_ += by;
    advance_all(all_loops(), by);
  }
  /// Time passes while nothing runs.
  void sleep(Duration by) { clock_ += by; }
  ManualDisk& disk() { return life_->disk; }
  ManualLoop& loop() { return life_->loop; }
  commit::Committer& committer() { return life_->committer; }
  broker::Broker& broker() { return *life_->broker; }
  broker::Journal& journal() { return *life_->journal; }
  broker::BrokerStats stats() const { return life_->broker->stats(); }

  MemoryStore store;
  port::MessageTap* tap = nullptr;

 private:
  struct Life {
    explicit Life(port::KeyedStore& store) : committer(loop, disk, store) {}
    ManualLoop loop{99};
    ManualDisk disk{loop};
    commit::Committer committer;
    MemoryFabric fabric;
    MemoryNetwork client_network{fabric, loop};
    std::vector<std::unique_ptr<ManualLoop>> loops;
    std::vector<std::unique_ptr<MemoryNetwork>> networks;
    std::unique_ptr<broker::Journal> journal;
    std::unique_ptr<broker::Broker> broker;
    std::vector<std::unique_ptr<MqttClient>> clients;
  };
  const size_t workers_;
  broker::BrokerOptions options_;
  const broker::Durability durability_;
  Duration clock_{};
  std::unique_ptr<Life> life_;
};

}  // namespace ph::test
