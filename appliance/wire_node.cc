#include "wire_node.h"

#include <unistd.h>

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "base/mask.h"
#include "host/notify.h"
#include "io/clock.h"
#include "io/descriptor_limit.h"
#include "io/random_seed.h"

namespace ph {
namespace {

constexpr std::string_view kNodeIdKey = "n/id";
constexpr Duration kFiltersAfter = 100ms;  // many SUBSCRIBEs, one look at the broker's filters
constexpr Duration kLastAnswers = 1s;
constexpr Duration kShutdownBound =
    7s;  // with kLastAnswers, an orderly end takes no longer; systemd and people wait 10 s

static_assert(static_cast<int>(settings::Compress::gzip) == static_cast<int>(chunk::Compression::gzip));
static_assert(static_cast<int>(settings::Compress::zstd) == static_cast<int>(chunk::Compression::zstd));

chunk::CategoryOptions category_options(const settings::Receiver& receiver, const settings::Category& from) {
  chunk::CategoryOptions out;
  out.masks = from.match;
  out.mode = from.mode == settings::FileMode::plain ? chunk::FileMode::plain : chunk::FileMode::chunks;
  out.chunk_max = from.chunk_max.value;
  out.chunk_interval = from.chunk_interval;
  out.compression = static_cast<chunk::Compression>(from.compress);
  out.retention = {.keep = from.keep ? from.keep : receiver.keep, .max = {}};
  if (from.max) out.retention.max = from.max->value;
  if (from.quota) out.quota = from.quota->value;
  out.format = from.format == settings::MessageFormat::json ? chunk::MessageFormat::json : chunk::MessageFormat::raw;
  return out;
}

/// route.format, as entries of the route's category before those of the receiver, which say the rest.
std::vector<settings::Category> formats_of_routes(const settings::Settings& settings) {
  std::vector<settings::Category> out;
  for (const settings::Route& r : settings.routes) {
    if (!r.format || r.topics.empty()) continue;
    const auto& all = settings.receiver->categories;
    auto rest = std::find_if(all.begin(), all.end(), [&](const settings::Category& c) {
      return std::any_of(c.match.begin(), c.match.end(),
                         [&](const std::string& mask) { return mask_matches(mask, r.category); });
    });
    settings::Category& c = out.emplace_back(rest == all.end() ? settings::Category{} : *rest);
    c.match = {r.category};
    c.format = *r.format;
  }
  return out;
}

agent::Oversize oversize(settings::Oversize from) {
  switch (from) {
    case settings::Oversize::split:
      return agent::Oversize::split;
    case settings::Oversize::truncate:
      return agent::Oversize::truncate;
    case settings::Oversize::dead_letter:
      return agent::Oversize::dead_letter;
  }
  return agent::Oversize::split;
}

spool::Overflow overflow(settings::Full from) {
  switch (from) {
    case settings::Full::block:
      return spool::Overflow::keep_all;
    case settings::Full::drop_oldest:
      return spool::Overflow::drop_oldest;
    case settings::Full::drop_newest:
      return spool::Overflow::drop_newest;
  }
  return spool::Overflow::keep_all;
}

// One list, of which a room of the same floor cannot include the other's.
static_assert(static_cast<int>(settings::SharedStrategy::local) == static_cast<int>(routing::SharedStrategy::local));
static_assert(static_cast<int>(settings::Rewrite::On::both) == static_cast<int>(routing::RewriteRule::On::both));

broker::BrokerOptions broker_options(const settings::Broker& from) {
  broker::BrokerOptions out;
  out.channel.packet_max = from.packet_max.value;
  out.channel.topic_levels_max = from.topic_levels_max;
  out.channel.topic_alias_max = static_cast<uint16_t>(std::min<uint32_t>(from.topic_alias_max, UINT16_MAX));
  out.channel.client_id_max = from.client_id_max;
  out.channel.receive_max = static_cast<uint16_t>(std::min<uint32_t>(from.awaiting_rel_max, UINT16_MAX));
  out.channel.connect_timeout = from.connect_timeout;
  out.channel.keep_alive_max = static_cast<uint16_t>(from.keep_alive_max / 1s);
  out.session.inflight_max = from.inflight_max;
  out.session.mqueue_messages_max = from.mqueue_messages_max;
  out.session.mqueue_bytes_max = from.mqueue_bytes_max.value;
  out.session.receive_max = from.awaiting_rel_max;
  out.v3_session_expiry = from.session_expiry;
  out.retained_messages_max = from.retained_max;
  out.subscriptions_max = from.subscriptions_max;
  out.sessions_max = from.sessions_max;
  out.channel.qos_max = static_cast<uint8_t>(from.qos_max);
  out.channel.retain_available = from.retain_available;
  out.channel.payload_format_check = from.payload_format_check;
  out.response_information = from.response_information;
  out.overlapping_each = from.overlapping == settings::Overlapping::each;
  out.delayed_messages_max = from.delayed_max;
  out.sys_interval = from.sys_interval;
  for (const auto& r : from.rewrites)
    out.rewrite.push_back({static_cast<routing::RewriteRule::On>(r.on), r.from, r.to});
  for (const auto& a : from.auto_subscriptions)
    out.auto_subscribe.push_back({a.filter, static_cast<uint8_t>(a.qos), a.no_local, a.retain_as_published,
                                  static_cast<uint8_t>(a.retain_handling)});
  out.shared_strategy = static_cast<routing::SharedStrategy>(from.shared_strategy);
  return out;
}

/// Tells this boot from the one before: a file that shrank over a reboot lost its tail to a power cut.
std::string boot_id(port::Files& files) {
  std::string id(36, '\0');
  auto file = files.open("/proc/sys/kernel/random/boot_id", port::OpenMode::read);
  if (!file) return {};
  auto size = (*file)->read_at(0, id.data(), id.size());
  id.resize(size.value_or(0));
  return id;
}

}  // namespace

std::vector<route::Rule> route_rules(const std::vector<settings::Route>& routes) {
  std::vector<route::Rule> out;
  for (const auto& r : routes) out.push_back({r.categories, r.topics});
  return out;
}

agent::AgentOptions agent_options(const settings::Settings& settings, port::Files& files) {
  const settings::Agent& from = *settings.agent;
  agent::AgentOptions options;
  options.directory = from.dir;
  options.line_max = from.line_max.value;
  options.oversize = oversize(from.line_oversize);
  options.rotate_bytes = from.rotate_size.value;
  options.rotate_age = from.rotate_age;
  options.grace = from.delete_grace;
  options.rescan = from.rescan_interval;
  options.boot_id = boot_id(files);
  for (const auto& r : settings.routes) {
    agent::RouteOptions& route = options.routes.emplace_back();
    route.name = r.name;
    for (const auto& t : r.to) {
      auto& target = route.targets.emplace_back();
      target.name = t.name();
      target.wants_far = r.ack == settings::Ack::far;
      for (const auto& u : settings.upstreams)
        if (u.name == target.name) target.live_share = u.live_share;
    }
  }
  return options;
}

/// Errors: agent.bad_pattern.
Result<> set_agent_categories(const settings::Agent& from, agent::AgentOptions& options) {
  options.include = from.include;
  options.exclude = from.exclude;
  options.tail = from.mode == settings::AgentMode::tail;
  for (const auto& c : from.categories) {
    agent::CategoryOptions& category = options.categories.emplace_back();
    category.masks = c.match;
    category.tail = c.mode.value_or(from.mode) == settings::AgentMode::tail;
    if (c.multiline_start.empty()) continue;
    PH_ASSIGN(category.multiline,
              agent::Multiline::make({c.multiline_start, c.multiline_lines,
                                      static_cast<size_t>(c.multiline_bytes.value), c.multiline_timeout}));
  }
  return {};
}

Node::Node(settings::Settings settings) : settings_(std::move(settings)), routes_(route_rules(settings_.routes)) {}

Node::~Node() {
  // Whatever remains after a failed open(): the loops of the broker stop before what they call goes.
  for (auto& l : worker_loops_) l->stop();
  for (auto& t : worker_threads_)
    if (t.joinable()) t.join();
  // What the disk thread still writes refers to stores that go before it does.
  if (disk_) disk_->finish();
}

bool Node::RouteSpool::full() const {
  if (bytes_max == 0) return false;
  return std::any_of(blocking.begin(), blocking.end(),
                     [this](const auto& s) { return s->counters().queued_bytes >= bytes_max; });
}

Result<> Node::open() {
  started_ = loop_.now();
  PH_TRY(open_identity());
  PH_TRY(open_tls());
  seen_ = std::make_unique<relay::SeenEvents>(loop_, *store_, *committer_);
  PH_TRY(seen_->load());
  PH_TRY(open_files_sink());
  PH_TRY(open_spools());
  PH_TRY(open_agent());
  PH_TRY(open_access());
  PH_TRY(open_demand());
  PH_TRY(open_broker());
  PH_TRY(open_targets());
  PH_TRY(open_receiver());
  PH_TRY(open_lsd_receiver());
  watch_far();
  warn_of_limits();
  return {};
}

uint64_t connections_max(const settings::Settings& settings) {
  uint64_t most = settings.receiver && !settings.receiver->link.empty() ? settings.receiver->connections_max : 0;
  for (const auto& l : settings.listeners) most += l.connections_max;
  return most;
}

/// What the configuration promises and the system will not keep.
void Node::warn_of_limits() const {
  const uint64_t wanted = connections_max(settings_);
  const size_t limit = io::descriptor_limit();
  if (limit == 0 || wanted < io::descriptor_ceiling()) return;
  log_warn("descriptor_limit_low", {{"descriptors_max", limit},
                                    {"connections_max", wanted},
                                    {"effect", "fewer connections than configured; raise LimitNOFILE"}});
}

Result<> Node::open_identity() {
  const std::string& dir = settings_.node.data_dir;
  PH_TRY(files_.make_directories(dir));
  PH_ASSIGN(store_, io::LevelStore::open(dir + "/store"));
  disk_ = std::make_unique<io::IoDiskQueue>(loop_);
  PH_ASSIGN(commit::DiskFloor * floor, floor_of(dir));
  data_floor_ = floor;
  committer_ = std::make_unique<commit::Committer>(loop_, *disk_, *store_, data_floor_);
  dead_letters_ = std::make_unique<dead_letter::DeadLetterFiles>(dir + "/dead-letters", files_);
  PH_ASSIGN(auto stored, store_->get(kNodeIdKey));
  if (auto id = stored ? NodeId::from_bytes(*stored) : std::nullopt) {
    id_ = *id;
  } else {
    // Random and made with the data_dir: a wiped or newly installed node is another node to everybody (amendment 3).
    id_ = *NodeId::from_bytes(io::random_bytes(16));
    port::WriteBatch batch;
    batch.put(std::string(kNodeIdKey), std::string(id_.bytes()));
    PH_TRY(store_->write(batch, true));
    PH_TRY(files_.sync_directory(dir));
    log_info("node_id_made", {{"node_id", id_.hex()}, {"data_dir", dir}});
  }
  incarnation_ = loop_.random().next();
  return {};
}

/// One for each file system: those who write to the same one share its reserve.
Result<commit::DiskFloor*> Node::floor_of(const std::string& directory) {
  PH_ASSIGN(auto there, files_.stat(directory));
  if (!there) return fail(port::file_errors::not_found, directory);
  auto& floor = floors_[there->device];
  if (!floor) floor = std::make_unique<commit::DiskFloor>(loop_, files_, directory, settings_.node.disk_reserve.value);
  return floor.get();
}

Result<> Node::lock(const std::string& directory, const std::string& use) {
  PH_ASSIGN(auto taken, io::DirectoryLock::take(directory, use));
  locks_.push_back(std::move(taken));
  return {};
}

Result<> Node::open_tls() {
  if (settings_.tls) {
    PH_ASSIGN(tls_, port::TlsContext::load(tls_options(*settings_.tls)));
  }
  PH_ASSIGN(const auto keys, read_psk(settings_));
  for (const auto& l : settings_.listeners) {
    const ListenerTls of(l);
    if (of.plain() || tls_mqtt_.contains(of)) continue;
    PH_ASSIGN(tls_mqtt_[of], io::make_tls_server(tls_options(settings_, of, keys)));
  }
  return {};
}

std::shared_ptr<port::TlsContext> Node::tls_of(const settings::Listener& listener) const {
  const auto it = tls_mqtt_.find(ListenerTls(listener));
  return it == tls_mqtt_.end() ? nullptr : it->second;
}

Result<> Node::open_files_sink() {
  if (!settings_.receiver || settings_.receiver->dir.empty()) return {};
  PH_TRY(files_.make_directories(settings_.receiver->dir));  // told now, not when the first event comes
  PH_TRY(lock(settings_.receiver->dir, "receiver.dir"));
  chunk::FilesSinkOptions options;
  options.directory = settings_.receiver->dir;
  options.state_directory = settings_.node.data_dir + "/files";
  options.categories_max = settings_.receiver->categories_max;
  const settings::Receiver& from = *settings_.receiver;
  if (from.max) options.max = from.max->value;
  if (from.quota) options.quota = from.quota->value;
  options.over_quota =
      from.over_quota == settings::OverQuota::block ? chunk::OverQuota::block : chunk::OverQuota::refuse;
  for (const auto& c : formats_of_routes(settings_)) options.categories.push_back(category_options(from, c));
  for (const auto& c : from.categories) options.categories.push_back(category_options(from, c));
  options.categories.push_back(category_options(from, {}));  // the rest
  PH_ASSIGN(options.floor, floor_of(options.directory));
  PH_ASSIGN(files_sink_, chunk::FilesSink::open(std::move(options), loop_, files_, *store_, *committer_));
  return {};
}

/// A route whose events all go from a peer straight into chunks needs no log in between; an agent's files are their
/// own.
bool Node::needs_log(const settings::Route& route) const {
  if (!route.topics.empty()) return true;
  bool from_peers = settings_.receiver && (!settings_.receiver->link.empty() || !settings_.receiver->lsd.empty());
  bool files_only = route.to.size() == 1 && route.to[0].kind == settings::Target::Kind::files;
  return from_peers && !files_only;
}

Result<> Node::open_spools() {
  bool passes_far_on = settings_.receiver && !settings_.receiver->link.empty();
  std::map<std::string, std::vector<std::string>> with_log;
  for (const settings::Route& r : settings_.routes) {
    RouteSpool& s = spools_.emplace_back();
    for (const auto& t : r.to) {
      PH_TRY(open_retry_queue(r.name, t.name(), passes_far_on || r.ack == settings::Ack::far));
      with_log[admin::retry_log_name(r.name, t.name())] = {t.name()};
    }
    if (!needs_log(r)) continue;
    spool::SegmentLogOptions options{
        .name = r.name, .directory = settings_.node.data_dir + "/spool/" + r.name, .floor = data_floor_};
    // Whole segments are what is deleted: a small bound needs small ones.
    if (r.spool.max)
      options.segment_bytes = std::clamp<uint64_t>(r.spool.max->value / 8, 64 * 1024, limits::kSegmentBytes);
    PH_ASSIGN(s.log, spool::SegmentLog::open(std::move(options), files_, *store_, loop_.random()));
    std::vector<std::string> targets;
    for (const auto& t : r.to) targets.push_back(t.name());
    s.retention = std::make_unique<spool::LogRetention>(*s.log, targets);
    if (r.spool.max) s.bytes_max = r.spool.max->value;
    for (const auto& t : r.to) {
      spool::LogSourceOptions source{
          .route = r.name, .target = t.name(), .wants_far = passes_far_on || r.ack == settings::Ack::far};
      // A target of this node is never away; while its disk is full, it holds intake back.
      const bool can_be_away = t.kind == settings::Target::Kind::upstream;
      if (can_be_away) {
        source.overflow = overflow(r.spool.full);
        source.bytes_max = s.bytes_max;
        source.keep = r.spool.keep;
      }
      const bool blocks = source.overflow == spool::Overflow::keep_all;
      PH_ASSIGN(auto made, spool::LogSource::open(std::move(source), *s.log, *s.retention, loop_, *disk_, *store_,
                                                  *dead_letters_));
      if (blocks) s.blocking.push_back(made.get());
      s.sources.push_back(std::move(made));
    }
    with_log[r.name] = std::move(targets);
  }
  desk_ = std::make_unique<admin::DeadLetterDesk>(admin::DeadLetterDesk::Parts{
      loop_, *disk_, files_, *store_, *committer_, *dead_letters_, settings_.node.data_dir + "/dead-letters",
      [this](const std::string& route, const std::string& target) -> spool::SegmentLog* {
        for (const RetryQueue& q : retry_queues_)
          if (q.route == route && q.target == target) return q.log.get();
        return nullptr;
      }});
  PH_ASSIGN(orphans_, spool::find_orphans(files_, *store_, settings_.node.data_dir + "/spool", with_log));
  return {};
}

Result<> Node::open_retry_queue(const std::string& route, const std::string& target, bool wants_far) {
  RetryQueue q{route, target, {}, {}, {}};
  const std::string name = admin::retry_log_name(route, target);
  PH_ASSIGN(q.log, spool::SegmentLog::open({.name = name, .directory = settings_.node.data_dir + "/spool/" + name},
                                           files_, *store_, loop_.random()));
  q.retention = std::make_unique<spool::LogRetention>(*q.log, std::vector{target});
  spool::LogSourceOptions source{.route = route, .target = target, .wants_far = wants_far};
  PH_ASSIGN(q.source,
            spool::LogSource::open(std::move(source), *q.log, *q.retention, loop_, *disk_, *store_, *dead_letters_));
  retry_queues_.push_back(std::move(q));
  return {};
}

Result<> Node::open_agent() {
  if (!settings_.agent) return {};
  PH_TRY(lock(settings_.agent->dir, "agent.dir"));
  agent::AgentOptions options = agent_options(settings_, files_);
  PH_TRY(set_agent_categories(*settings_.agent, options));
  options.route_of = [this](std::string_view category) -> std::optional<size_t> {
    return routes_.of_category(category);
  };
  PH_ASSIGN(agent_, agent::Agent::open(
                        std::move(options), loop_, *disk_, files_,
                        [this](port::WatchFn watch) -> Result<std::unique_ptr<port::Watcher>> {
                          PH_ASSIGN(auto watcher, io::IoWatcher::make(loop_, std::move(watch)));
                          return std::unique_ptr<port::Watcher>(std::move(watcher));
                        },
                        *store_, *dead_letters_, id_));
  return {};
}

Result<> Node::open_broker() {
  bool taps =
      std::any_of(settings_.routes.begin(), settings_.routes.end(), [](const auto& r) { return !r.topics.empty(); });
  bool publishes = std::any_of(settings_.routes.begin(), settings_.routes.end(), [](const auto& r) {
    return std::any_of(r.to.begin(), r.to.end(), [](const auto& t) { return t.kind == settings::Target::Kind::mqtt; });
  });
  if (taps) {
    std::vector<relay::TapRoute> to;
    for (size_t i = 0; i < settings_.routes.size(); ++i) {
      const auto& r = settings_.routes[i];
      to.push_back({r.name, r.category, spools_[i].log.get(), [this, i] { return spools_[i].full(); },
                    [this] { return data_floor_->room(); }, r.ack == settings::Ack::far});
    }
    tap_ = std::make_unique<relay::Tap>(
        id_, std::move(to), [this](std::string_view topic) { return takers_of(topic); }, loop_, *committer_,
        seen_.get());
  }
  if (settings_.listeners.empty() && !publishes) return {};
  broker::BrokerOptions options = broker_options(settings_.broker);
  for (const auto& l : settings_.listeners) {
    PH_ASSIGN(port::Endpoint at, port::parse_endpoint(l.bind));
    auto anonymous = l.allow_anonymous.value_or(false) ? broker::Anonymous::always : broker::Anonymous::never;
    options.listeners.push_back({at, tls_of(l), l.connections_max, anonymous,
                                 l.protocol == settings::ListenerProtocol::ws ? l.path : "", l.proxy_protocol});
    set_listener_access(l, options.listeners.back());
    options.listeners.back().mountpoint = l.mountpoint;
  }
  options.node_name = settings_.node.name;
  options.version = PH_VERSION;
  set_broker_access(options);
  options.on_filters = [this] {
    loop_.post([this] {
      if (wishes_ && wishes_->in_use() && !filters_timer_->pending())
        filters_timer_->start(kFiltersAfter, [this] { collect_filters(); });
    });
  };
  unsigned workers =
      settings_.broker.workers ? settings_.broker.workers : std::max(1u, std::thread::hardware_concurrency());
  std::vector<broker::WorkerPlace> places;
  for (unsigned i = 0; i < std::min(workers, 64u); ++i) {
    auto& loop = worker_loops_.emplace_back(std::make_unique<io::IoLoop>());
    places.push_back({loop.get(), loop.get()});
  }
  const auto durability =
      settings_.broker.durability == settings::Durability::fsync ? broker::Durability::fsync : broker::Durability::lazy;
  PH_ASSIGN(journal_, broker::Journal::open(durability, loop_, *store_, *committer_));
  broker_ = std::make_unique<broker::Broker>(std::move(options), places, tap_.get(), &loop_, journal_.get());
  return {};
}

std::vector<port::EventSource*> Node::sources_of(const std::string& target) const {
  std::vector<port::EventSource*> out;
  if (agent_)
    for (port::EventSource* s : agent_->sources())
      if (s->target() == target) out.push_back(s);
  for (const RouteSpool& spool : spools_)
    for (const auto& s : spool.sources)
      if (s->target() == target) out.push_back(s.get());
  for (const RetryQueue& q : retry_queues_)
    if (q.target == target) out.push_back(q.source.get());
  return out;
}

Result<> Node::open_targets() {
  if (files_sink_)
    for (port::EventSource* s : sources_of("files"))
      files_targets_.push_back(std::make_unique<relay::FilesTarget>(*s, *files_sink_, *committer_, loop_));
  for (const auto& r : settings_.routes)
    for (const auto& t : r.to) {
      if (t.kind != settings::Target::Kind::mqtt) continue;
      for (port::EventSource* s : sources_of(t.name()))
        if (s->route() == r.name)
          mqtt_targets_.push_back(
              std::make_unique<relay::MqttTarget>(relay::fill_node(t.text, settings_.node.site, settings_.node.name),
                                                  *s, *broker_, loop_, tap_.get(), settings_.node.site));
    }
  for (const auto& u : settings_.upstreams) PH_TRY(open_upstream(u));
  return {};
}

/// Once those exist who are to be told: a route says at once how far it is, and before a restart they may not have
/// heard.
void Node::watch_far() {
  size_t route = 0;
  for (auto& spool : spools_) {
    const std::string& name = settings_.routes[route++].name;
    if (!spool.retention) continue;
    spool.retention->on_far([this, name](uint64_t sequence) {
      if (intake_) intake_->far_reached(name, sequence);
      if (tap_) tap_->far_reached(name, sequence);
    });
  }
}

Result<> Node::open_api() {
  PH_ASSIGN(api_, io::HttpUnixServer::listen_late(loop_, settings_.api.socket,
                                                  [this](const io::HttpRequest& request, const io::HttpAnswer& answer) {
                                                    on_api(request, answer);
                                                  }));
  return {};
}

void Node::on_api(const io::HttpRequest& request, const io::HttpAnswer& answer) {
  if (request.method == "GET" && admin::is_status_path(request.target))
    return answer({200, "application/json", admin::to_json(status())});
  const auto late = [answer](int code, std::string body) { answer({code, "application/json", std::move(body)}); };
  if (!on_upstream_api(request, late) && !desk_->handle(request.method, request.target, request.body, late) &&
      !access_api_->handle(request.method, request.target, request.body, late))
    answer({404, "application/json", R"({"code":"NOT_FOUND","message":"no such path"})"});
}

void Node::run() {
  for (auto& t : files_targets_) t->start();
  if (broker_) {
    if (auto ok = broker_->start(); !ok) {
      log_error("broker_start_failed", {{"error", ok.error().to_string()}});
      failed_ = ok.error();
      return;
    }
  }
  for (auto& l : worker_loops_) worker_threads_.emplace_back([loop = l.get()] { loop->run(); });
  for (auto& t : mqtt_targets_) t->start();
  for (auto& u : upstreams_) u->start();
  for (auto& u : lsd_upstreams_) u->start();
  if (agent_) agent_->start();
  if (link_server_)
    if (auto ok = link_server_->start(); !ok) failed_ = ok.error();
  if (lsd_server_ && !failed_)
    if (auto ok = lsd_server_->start(); !ok) failed_ = ok.error();
  alarm_timer_ = loop_.make_timer();
  watch_alarms();
  drain_timer_ = loop_.make_timer();
  watch_drains();
  if (!failed_)
    log_info("posthouse_ready", {{"node", settings_.node.name}, {"site", settings_.node.site}, {"node_id", id_.hex()}});
  if (!failed_) {
    host::notify_ready("node " + settings_.node.name + " at site " + settings_.node.site);
    std::vector<port::Loop*> workers;
    for (auto& l : worker_loops_) workers.push_back(l.get());
    watchdog_ = std::make_unique<host::Watchdog>(loop_, std::move(workers));
  }
  if (!failed_) loop_.run_until([this] { return stopping_; }, std::chrono::hours(24 * 36500));
  shut_down();
}

void Node::stop() {
  loop_.post([this] { stopping_ = true; });
}

void Node::shut_down() {
  log_info("posthouse_stopping", {});
  host::notify_stopping();
  for (auto& u : upstreams_) u->finish();
  if (link_server_) link_server_->stop();
  if (lsd_server_) lsd_server_->stop();
  for (auto& u : lsd_upstreams_) u->stop();
  // LSD's protocol can't be asked what arrived: what is answered now is not sent again after the next start. Ours can be
  // asked, but by then the lines may be gone, and would be counted as dropped.
  auto answered = [this] {
    const auto drained = [](const auto& u) { return u->drained(); };
    return std::ranges::all_of(lsd_upstreams_, drained) && std::ranges::all_of(upstreams_, drained);
  };
  if (!answered()) loop_.run_until(answered, kLastAnswers);
  for (auto& u : upstreams_) u->stop();
  if (broker_) broker_->stop();
  // Shared, since what does not finish within the bound may still answer later.
  auto writing = std::make_shared<size_t>(agent_ ? 1 : 0);
  if (agent_) agent_->stop([writing] { --*writing; });
  std::vector<spool::LogSource*> sources;
  for (RouteSpool& spool : spools_)
    for (auto& s : spool.sources) sources.push_back(s.get());
  for (RetryQueue& q : retry_queues_)
    if (q.log->stats().segments > 0) sources.push_back(q.source.get());  // each costs a sync
  for (spool::LogSource* s : sources) {
    ++*writing;
    s->persist_now([writing] { --*writing; });
  }
  auto done = [&] {
    return *writing == 0 && (!broker_ || broker_->drained()) && !committer_->busy() && disk_->waiting() == 0;
  };
  bool clean = loop_.run_until(done, kShutdownBound);
  watchdog_.reset();
  alarm_timer_.reset();
  drain_timer_.reset();
  for (auto& l : worker_loops_) l->stop();
  for (auto& t : worker_threads_) t.join();
  worker_threads_.clear();
  log_info("posthouse_stopped", {{"clean", clean}});
}

}  // namespace ph
