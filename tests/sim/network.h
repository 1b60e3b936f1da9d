// Network: port::Network between simulated hosts: TCP as programs see it. Bytes arrive in order and late, in pieces;
// buffers on both sides are bounded; the wire between two hosts may be cut one way or both and loses nothing but time
// by that (TCP repeats), connections may be reset, a host may be off (no answer) or up without a listener (refused).
//
// A process that is killed leaves its connections to its kernel, which ends them: what was sent goes out, then FIN, or
// RST if something was left unread. A host that loses power says nothing; its peers hear RST once it is up again.
//
// Connections between the same two hosts may differ: each has a delay of its own, one alone may be reset, and one alone
// may be stalled: its packets are lost for a while, and what it carries comes late, even if its sender closed it since.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "port/network.h"
#include "sim/world.h"

namespace ph::sim {

/// Properties of the way from one host to another.
struct Way {
  Duration latency = 1ms;
  Duration jitter = 1ms;
  double bytes_per_second = 50e6;
  bool cut = false;
};

struct End;
class Fabric;

struct Accepting {
  Loop* loop;
  ProcessPtr process;
  port::AcceptFn accept;
};

class Fabric {
 public:
  explicit Fabric(World& world) : world_(world) {}

  Way& way(const std::string& from, const std::string& to) { return ways_[{from, to}]; }
  void cut(const std::string& from, const std::string& to);
  void heal(const std::string& from, const std::string& to);
  void heal_all();
  /// Resets every connection between two hosts, as a middlebox does.
  void reset_between(const std::string& a, const std::string& b);
  /// The same for one of them.
  void reset_one(const std::string& a, const std::string& b);
  /// Nothing comes through from `from` to `to` on one of their connections for a while.
  void stall_one(const std::string& from, const std::string& to, Duration how_long);
  /// No new connection from `from` comes through for a while; those that stand do.
  void lose_connects(const std::string& from, const std::string& to, Duration how_long) {
    connects_from_[{from, to}] = world_.now() + how_long;
  }
  bool loses_connects(const std::string& from, const std::string& to) const {
    auto it = connects_from_.find({from, to});
    return it != connects_from_.end() && it->second > world_.now();
  }
  /// Connections made from now on have a delay of up to this besides that of their way.
  Duration own_delay_max{};
  /// Another name of a host.
  void alias(const std::string& name, const std::string& host) { aliases_[name] = host; }
  std::string host_of(const std::string& name) const {
    auto it = aliases_.find(name);
    return it == aliases_.end() ? name : it->second;
  }
  void power(const std::string& host, bool on) { on ? (void)off_.erase(host) : (void)off_.insert(host); }
  bool is_on(const std::string& host) const { return !off_.contains(host); }
  /// The kernel ends what a dead process left, also what it had not accepted yet.
  void bury(const ProcessPtr& process);
  size_t open_connections() const;
  World& world() { return world_; }

  // --- between the ends
  static constexpr size_t kSendBuffer = 128 * 1024;     // taken by the kernel and not acknowledged
  static constexpr size_t kReceiveBuffer = 128 * 1024;  // arrived and not read
  Duration travel(const std::string& from, const std::string& to, size_t bytes);
  uint16_t next_port() { return next_port_++; }
  std::map<port::Endpoint, std::shared_ptr<Accepting>>& listeners() { return listeners_; }
  void keep(const std::shared_ptr<End>& end);

 private:
  void sweep();
  std::shared_ptr<End> any_end(const std::string& at, const std::string& peer);
  World& world_;
  std::map<std::pair<std::string, std::string>, Way> ways_;
  std::set<std::string> off_;
  std::map<port::Endpoint, std::shared_ptr<Accepting>> listeners_;
  std::vector<std::shared_ptr<End>> ends_;
  std::map<std::string, std::string> aliases_;
  std::map<std::pair<std::string, std::string>, Instant> connects_from_;
  uint16_t next_port_ = 20'000;
};

/// A host's network as one process sees it.
class Network final : public port::Network {
 public:
  Network(Fabric& fabric, std::string host, Loop& loop) : fabric_(fabric), host_(std::move(host)), loop_(loop) {}
  std::unique_ptr<port::Connection> connect(const port::Endpoint& to, port::ConnectOptions options,
                                            port::ConnectionHandler& handler) override;
  Result<std::unique_ptr<port::Listener>> listen(const port::Endpoint& at, port::ListenOptions options,
                                                 port::AcceptFn accept) override;

 private:
  Fabric& fabric_;
  std::string host_;
  Loop& loop_;
};

}  // namespace ph::sim
