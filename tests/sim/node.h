// Node: a host with its disk, and the node's services on it while its process runs. The services are the real ones,
// constructed from a real configuration text in the order of appliance/wire_node.cc; only the ports are simulated.
//
//   kill       kill -9 of the process: files and store keep everything that was written
//   power_cut  the host: unsynced writes are lost or torn, unsynced names too, the store keeps a prefix of its batches
// Either may be armed to strike in the middle of the process's own n-th changing system call from now.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/route/route_table.h"
#include "core/settings/parse.h"
#include "service/agent/agent.h"
#include "service/relay/files_target.h"
#include "service/relay/intake.h"
#include "service/relay/link_server.h"
#include "service/relay/tap.h"
#include "service/relay/upstream.h"
#include "sim/network.h"
#include "sim/world.h"
#include "store/dead_letter/dead_letters.h"
#include "store/spool/log_source.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::sim {

enum class Crash : uint8_t { kill, power_cut };

struct NodeOptions {
  std::string name;    // host and node
  std::string config;  // TOML
  uint64_t segment_bytes = 64 * 1024;
  uint64_t receiver_memory = limits::kReceiverMemory;
  size_t window = 0;         // of upstreams; 0: as configured
  uint64_t staging_max = 0;  // 0: as configured
  /// How long a dead process stays dead; nullopt: until start().
  std::function<std::optional<Duration>()> restart_after;
  std::function<void(Crash)> on_crash;
};

class Node {
 public:
  Node(World& world, Fabric& fabric, NodeOptions options);
  ~Node();

  void start();
  void crash(Crash kind);
  /// Strikes at the n-th changing call to files or store from now, in the middle of it.
  void arm(Crash kind, uint64_t in_calls);
  void disarm();
  /// SIGSTOP for a while.
  void freeze(Duration how_long);
  bool frozen() const;
  /// Strict: an operator forgets this receiver of an upstream. Not called back: if the process dies, it may not be so.
  void give_up(const std::string& address);
  /// An orderly end, then the process is gone.
  void stop();
  bool up() const { return running_ != nullptr; }

  const std::string& name() const { return options_.name; }
  const settings::Settings& settings() const { return settings_; }
  test::MemoryFiles& files() { return files_; }
  test::MemoryStore& store() { return store_; }
  NodeId id() const { return id_; }
  /// Something changed in a watched directory; notifications may be lost.
  void changed(const std::string& directory, const std::string& name);
  /// An MQTT client's QoS 1 publish. Not called back if the process dies first.
  void publish(std::string topic, std::string payload, std::function<void(Result<>)> done);
  void set_wall_offset(Duration offset);

  struct Row {
    std::string route;
    std::string target;
    port::TargetCounters counters;
  };
  /// One per route and target with a cursor. Requires up().
  std::vector<Row> rows() const;
  uint64_t maybe_duplicates() const;  // over all rows
  relay::IntakeCounters intake() const;
  std::map<std::string, relay::IntakeCounters> direct() const;
  agent::AgentStats agent() const;
  bool has_agent() const { return settings_.agent.has_value(); }
  /// Nothing queued, unread or on its way. Requires up().
  bool idle() const;
  /// For messages of failed checks.
  std::string describe() const;

  uint64_t starts = 0;
  uint64_t failed_starts = 0;
  std::string last_failure;

 private:
  struct Running;
  class Watcher;
  Result<> open(Running& r);
  Result<> open_spools(Running& r);
  Result<> open_agent(Running& r);
  Result<> open_targets(Running& r);
  Result<> open_receiver(Running& r);
  bool needs_log(const settings::Route& route) const;
  void died(Crash kind);
  void await_end(const ProcessPtr& process, const std::shared_ptr<size_t>& left, int turns);

  World& world_;
  Fabric& fabric_;
  NodeOptions options_;
  settings::Settings settings_;
  route::RouteTable routes_;
  test::MemoryFiles files_;
  test::MemoryStore store_;
  NodeId id_;
  uint64_t boot_ = 1;
  Duration wall_offset_{};
  Crash armed_ = Crash::kill;
  std::optional<uint64_t> store_calls_left_;
  Watcher* watcher_ = nullptr;
  std::unique_ptr<Running> running_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::sim
