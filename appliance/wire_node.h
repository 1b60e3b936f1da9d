// The node: constructs every service from the settings and connects them; nothing else is decided here.
//
// Threads: the caller's thread runs the event plane's loop (agent, links, spools, sinks, status); one thread is the
// disk; the broker has its own loops, one a worker. Order of construction: store and identity, sinks, spools, agent,
// targets and upstreams, intake, tap and broker, then listeners; destruction is the reverse.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/route/route_table.h"
#include "core/settings/settings.h"
#include "host/notify.h"
#include "io/crypto.h"
#include "io/directory_lock.h"
#include "io/disk_queue.h"
#include "io/http_unix.h"
#include "io/inotify.h"
#include "io/job_pool.h"
#include "io/level_store.h"
#include "io/loop.h"
#include "io/posix_files.h"
#include "io/tls.h"
#include "service/admin/access_api.h"
#include "service/admin/dead_letter_desk.h"
#include "service/admin/drain.h"
#include "service/admin/status.h"
#include "service/agent/agent.h"
#include "service/broker/broker.h"
#include "service/broker/journal.h"
#include "service/relay/demand.h"
#include "service/relay/files_target.h"
#include "service/relay/intake.h"
#include "service/relay/link_server.h"
#include "service/relay/lsd_server.h"
#include "service/relay/lsd_upstream.h"
#include "service/relay/mqtt_target.h"
#include "service/relay/seen_events.h"
#include "service/relay/tap.h"
#include "service/relay/upstream.h"
#include "service/relay/wishes.h"
#include "store/access/access_store.h"
#include "store/dead_letter/dead_letters.h"
#include "store/spool/log_source.h"
#include "store/spool/orphans.h"

namespace ph {

std::vector<route::Rule> route_rules(const std::vector<settings::Route>& routes);
/// What [agent] and the routes say. `route_of` is the caller's. Requires settings.agent.
agent::AgentOptions agent_options(const settings::Settings& settings, port::Files& files);

/// What [tls] says, for a link.
io::TlsOptions tls_options(const settings::Tls& from);

/// What listeners that share a TLS context have in common.
struct ListenerTls {
  settings::ClientCertificate clients = settings::ClientCertificate::none;
  bool certificate = false;  // of [tls]
  bool psk = false;
  explicit ListenerTls(const settings::Listener& from)
      : clients(from.tls ? from.client_certificate : settings::ClientCertificate::none),
        certificate(from.tls),
        psk(from.psk) {}
  bool plain() const { return !certificate && !psk; }
  auto operator<=>(const ListenerTls&) const = default;
};
io::TlsOptions tls_options(const settings::Settings& from, const ListenerTls& of,
                           const std::shared_ptr<const security::PskKeys>& keys);

/// What [broker.*] says of users, rules and keys, the files it names included.
struct AccessMaterial {
  security::PolicyData policy;
  broker::TokenOptionsPtr tokens;
};
Result<AccessMaterial> read_access(const settings::Access& from);
/// Null: no listener wants them.
Result<std::shared_ptr<const security::PskKeys>> read_psk(const settings::Settings& from);

/// Connections that all listeners and the receiver may have at once.
uint64_t connections_max(const settings::Settings& settings);

class Node {
 public:
  explicit Node(settings::Settings settings);
  ~Node();

  /// Opens stores, recovers and constructs. Errors name the place; nothing is left running after one.
  Result<> open();
  /// Answers at the API's socket. After open().
  Result<> open_api();
  /// Runs until stop(), then ends in order.
  void run();
  /// From any thread.
  void stop();
  /// On the loop: puts to use what can change while it runs: the log's level, certificates, keys and revocation lists,
  /// users, rules, tokens' keys and pre-shared keys, whose files are read again. All of it or nothing. Connections
  /// stay, but for those of users who are not welcome any more. Errors: tls.*, security.*, file.*
  Result<> reload(const settings::Settings& fresh);
  io::IoLoop& loop() { return loop_; }
  /// Why run() ended at once: a port that is taken, say.
  const std::optional<Error>& failure() const { return failed_; }

 private:
  /// A route's queue at this node and who reads it.
  struct RouteSpool {
    std::unique_ptr<spool::SegmentLog> log;
    std::unique_ptr<spool::LogRetention> retention;
    std::vector<std::unique_ptr<spool::LogSource>> sources;
    uint64_t bytes_max = 0;                   // 0: no bound of its own
    std::vector<spool::LogSource*> blocking;  // those whose queue stops the route's intake when it is that long
    bool full() const;
  };

  /// What of a target's dead letters is sent again: a log of its own, since no other target of the route gets it.
  struct RetryQueue {
    std::string route;
    std::string target;
    std::unique_ptr<spool::SegmentLog> log;
    std::unique_ptr<spool::LogRetention> retention;
    std::unique_ptr<spool::LogSource> source;
  };

  Result<> open_identity();
  Result<> lock(const std::string& directory, const std::string& use);
  Result<commit::DiskFloor*> floor_of(const std::string& directory);
  Result<> open_files_sink();
  Result<> open_tls();
  /// Who decides over HTTP, both kinds of it.
  static io::TlsOptions tls_options_of(const settings::HttpServer& server);
  static broker::HttpCheckOptions http_options(const settings::HttpServer& from, std::shared_ptr<port::TlsContext> tls);
  std::shared_ptr<port::TlsContext> tls_of(const settings::Listener& listener) const;
  Result<> open_spools();
  Result<> open_retry_queue(const std::string& route, const std::string& target, bool wants_far);
  Result<> open_agent();
  Result<> open_access();
  Result<> open_broker();
  static void set_listener_access(const settings::Listener& from, broker::ListenerOptions& to);
  void set_broker_access(broker::BrokerOptions& options);
  void watch_memory(uint64_t bytes_max);
  Result<> open_targets();
  Result<> open_upstream(const settings::Upstream& from);
  void open_lsd_upstream(const settings::Upstream& from, std::vector<relay::UpstreamOptions::Address> addresses);
  std::vector<relay::IntakeRoute> intake_routes();
  Result<> open_receiver();
  Result<> open_demand();
  void open_wishes();
  void collect_filters();
  std::vector<size_t> takers_of(std::string_view topic) const;
  std::set<std::string> asks_of(const std::string& upstream) const;
  std::optional<size_t> upstream_index(const settings::Target& target) const;
  Result<> open_lsd_receiver();
  void on_api(const io::HttpRequest& request, const io::HttpAnswer& answer);
  bool on_upstream_api(const io::HttpRequest& request, const admin::AccessApi::Answer& answer);
  void watch_far();
  bool needs_log(const settings::Route& route) const;
  std::vector<port::EventSource*> sources_of(const std::string& target) const;
  void shut_down();
  void update_alarms();
  void watch_alarms();
  void watch_drains();
  void add_store_alarms(std::vector<admin::Alarm>& to) const;
  void add_spool_alarms(std::vector<admin::Alarm>& to) const;
  void add_link_alarms(std::vector<admin::Alarm>& to) const;
  void add_broker_alarms(std::vector<admin::Alarm>& to) const;
  void add_descriptor_alarm(std::vector<admin::Alarm>& to);
  void warn_of_limits() const;
  admin::Status status();
  void fill_routes(admin::Status& s) const;
  void fill_upstreams(admin::Status& s) const;
  void fill_spools(admin::Status& s) const;
  void fill_services(admin::Status& s) const;
  void fill_transport(admin::Numbers& to) const;

  settings::Settings settings_;
  route::RouteTable routes_;
  io::IoLoop loop_;
  std::unique_ptr<io::IoDiskQueue> disk_;
  io::PosixFiles files_;
  std::unique_ptr<io::LevelStore> store_;
  std::vector<std::unique_ptr<io::DirectoryLock>> locks_;
  NodeId id_;
  uint64_t incarnation_ = 0;
  Instant started_{};
  std::optional<Error> failed_;
  bool stopping_ = false;
  admin::Alarms alarms_;
  std::unique_ptr<port::Timer> alarm_timer_;
  std::unique_ptr<port::Timer> drain_timer_;
  std::map<std::pair<std::string, std::string>, admin::Drain> drains_;  // by route and target
  uint64_t accept_pauses_seen_ = 0;
  Instant accept_paused_at_{};
  std::shared_ptr<port::TlsContext> tls_;                              // links, both ways
  std::map<ListenerTls, std::shared_ptr<port::TlsContext>> tls_mqtt_;  // listeners

  std::shared_ptr<port::TlsContext> tls_http_, tls_http_authz_;  // to who decides; null: plain, or nobody does
  std::unique_ptr<access::AccessStore> access_;
  std::unique_ptr<admin::AccessApi> access_api_;
  std::map<uint64_t, std::unique_ptr<commit::DiskFloor>> floors_;  // by device
  commit::DiskFloor* data_floor_ = nullptr;
  std::unique_ptr<commit::Committer> committer_;
  std::unique_ptr<dead_letter::DeadLetterFiles> dead_letters_;
  std::unique_ptr<chunk::FilesSink> files_sink_;
  std::vector<RouteSpool> spools_;  // by route
  std::vector<RetryQueue> retry_queues_;
  std::unique_ptr<admin::DeadLetterDesk> desk_;
  std::vector<spool::Orphan> orphans_;  // as of the start
  std::unique_ptr<agent::Agent> agent_;
  io::MbedCrypto crypto_;
  security::PolicyPtr policy_;
  broker::TokenOptionsPtr tokens_;
  std::vector<std::unique_ptr<io::IoLoop>> worker_loops_;
  std::unique_ptr<port::Timer> memory_timer_;
  std::shared_ptr<std::atomic<bool>> memory_short_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<io::IoJobPool> jobs_;  // answers to the loops: it ends before they do
  std::unique_ptr<relay::SeenEvents> seen_;
  std::unique_ptr<relay::Demand> demand_;
  std::unique_ptr<relay::Tap> tap_;
  std::unique_ptr<broker::Journal> journal_;
  std::unique_ptr<broker::Broker> broker_;
  std::vector<std::thread> worker_threads_;
  std::vector<std::unique_ptr<relay::FilesTarget>> files_targets_;
  std::vector<std::unique_ptr<relay::MqttTarget>> mqtt_targets_;
  std::vector<std::unique_ptr<relay::Upstream>> upstreams_;
  std::unique_ptr<relay::Wishes> wishes_;  // null: no peer can ask
  std::unique_ptr<port::Timer> filters_timer_;
  std::vector<std::unique_ptr<relay::LsdUpstream>> lsd_upstreams_;
  std::unique_ptr<relay::Intake> intake_;
  std::unique_ptr<relay::Staging> staging_;
  std::unique_ptr<relay::LinkServer> link_server_;
  std::unique_ptr<relay::LsdServer> lsd_server_;
  std::unique_ptr<io::HttpUnixServer> api_;
  std::unique_ptr<host::Watchdog> watchdog_;
};

}  // namespace ph
