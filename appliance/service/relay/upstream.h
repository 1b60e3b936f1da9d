// Upstream: drives one core/link Sender over real connections: pulls batches from its sources while the window has
// room, carries the core's effects out in order, reports progress back to the sources. Owned by the event plane's loop.
//
// One connection an address or several, each a Link here. The sources are those of every route that leads to this
// upstream; they are pulled in turn, so one with a long backlog does not keep a quiet one waiting for more than a
// batch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/link/sender.h"
#include "port/event_source.h"
#include "port/loop.h"
#include "port/network.h"
#include "service/relay/demand.h"
#include "service/relay/publishers.h"

namespace ph::relay {

struct UpstreamOptions {
  std::string name;
  struct Address {
    port::Endpoint endpoint;
    uint32_t weight = 1;
  };
  std::vector<Address> addresses;
  std::shared_ptr<port::TlsContext> tls;
  std::string server_name;  // of the peers' certificates; empty: each address's host
  size_t connections = 1;   // to each address
  link::Compress compress = link::Compress::none;
  std::optional<link::HashRule> hash;  // none: in turns
  size_t window_bytes = limits::kWindowDefault;
  /// Bytes per second over all receivers at this moment; null or nullopt: no bound. Asked every second.
  std::function<std::optional<uint64_t>(WallTime)> rate;
  Duration request_timeout = limits::kRequestTimeout;
  Duration resume_timeout = limits::kResumeTimeout;
  Duration connect_timeout = 1s;
  std::unique_ptr<Publishers> publishers;  // dedup = "strict"; loaded
  Duration strict_give_up = Duration::max();
  NodeId self;
  std::string node_name;
  std::string site;
  uint64_t incarnation = 0;
  Demand* demand = nullptr;    // is told what the far end says that it wants
  std::set<std::string> asks;  // of which categories
};

struct UpstreamStatus {
  std::string name;
  std::vector<link::ReceiverStatus> receivers;
  std::vector<std::string> peers;  // name of the node behind each receiver, as last heard
  uint64_t unacked_events = 0;
  uint64_t unacked_bytes = 0;
  uint64_t stranded_batches = 0;  // strict: of receivers that are configured no more
  std::vector<link::AwayOwner> away_owners;
  uint64_t given_up_batches = 0;  // strict: whose owner was not waited for any more, since the start
  uint64_t renewed = 0;           // streams, since the start: a receiver knew more of them than this node
  uint64_t looped = 0;            // events since the start that were not sent, since they had been where they would go
};

class Upstream {
 public:
  Upstream(UpstreamOptions options, port::Loop& loop, port::Network& network, std::vector<port::EventSource*> sources);
  ~Upstream();
  void start();
  /// Takes nothing more from its sources. What is in flight may still be acknowledged: wait for drained() if there is
  /// time, so that nothing is uncertain after the next start.
  void finish() { finishing_ = true; }
  bool drained() const;
  /// Closes the connections; what is not acknowledged is asked for again after the next start.
  void stop();
  const std::string& name() const { return options_.name; }
  UpstreamStatus status() const;
  /// Strict: receivers at this address are not waited for any more, unless they are connected. `done` gets how many
  /// batches go elsewhere now, once that is on disk.
  void give_up(const std::string& receiver, std::move_only_function<void(uint64_t batches)> done);
  /// Asks the far end what it wants of these categories as well.
  void ask(const std::set<std::string>& categories);

 private:
  class Link;
  void pump();
  void pull();
  void apply_effects();
  void apply(link::SenderEffect& effect);
  void rearm();
  void watch_progress();
  const UpstreamOptions::Address& address(size_t receiver) const;
  void soon();
  std::vector<std::string> sites() const;
  void choose_asker(size_t place);

  UpstreamOptions options_;
  port::Loop& loop_;
  port::Network& network_;
  std::vector<port::EventSource*> sources_;
  std::unique_ptr<link::Sender> sender_;
  std::vector<std::unique_ptr<Link>> links_;
  /// By address: the connection that asks there what is wanted, SIZE_MAX: none. What several say of it would come in no
  /// order.
  std::vector<size_t> askers_;
  std::unique_ptr<port::Timer> timer_;
  std::unique_ptr<port::Timer> progress_timer_;
  size_t next_source_ = 0;
  uint64_t renewed_ = 0;
  uint64_t looped_ = 0;
  std::vector<bool> ready_;  // sources that may have something
  bool pump_posted_ = false;
  bool finishing_ = false;
  bool stopped_ = true;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
