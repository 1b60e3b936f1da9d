#include "sim/node.h"

#include <algorithm>

namespace ph::sim {
namespace {

settings::Settings parsed(const std::string& text, const std::string& name) {
  auto outcome = settings::parse(text, name);
  PH_ASSERT(outcome.settings, outcome.to_string(name).c_str());
  return std::move(*outcome.settings);
}

std::vector<route::Rule> rules(const settings::Settings& settings) {
  std::vector<route::Rule> out;
  for (const auto& r : settings.routes) out.push_back({r.categories, r.topics});
  return out;
}

struct RouteSpool {
  std::unique_ptr<spool::SegmentLog> log;
  std::unique_ptr<spool::LogRetention> retention;
  std::vector<std::unique_ptr<spool::LogSource>> sources;
  uint64_t bytes_max = 0;
  bool full() const {
    return bytes_max && std::any_of(sources.begin(), sources.end(),
                                    [this](const auto& s) { return s->counters().queued_bytes >= bytes_max; });
  }
};

}  // namespace

/// What exists while the process runs, in the order of construction.
struct Node::Running {
  ProcessPtr process = std::make_shared<Process>();
  std::unique_ptr<Loop> loop;
  std::unique_ptr<Disk> disk;
  std::unique_ptr<Network> network;
  uint64_t incarnation = 0;
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<dead_letter::DeadLetterFiles> dead_letters;
  std::unique_ptr<chunk::FilesSink> sink;
  std::vector<RouteSpool> spools;
  std::unique_ptr<agent::Agent> agent;
  std::unique_ptr<relay::Tap> tap;
  std::vector<std::unique_ptr<relay::FilesTarget>> files_targets;
  std::vector<std::unique_ptr<relay::Upstream>> upstreams;
  std::unique_ptr<relay::Intake> intake;
  std::unique_ptr<relay::Staging> staging;
  std::unique_ptr<relay::LinkServer> server;

  std::vector<port::EventSource*> sources_of(const std::string& target) const {
    std::vector<port::EventSource*> out;
    for (port::EventSource* s : all_sources())
      if (s->target() == target) out.push_back(s);
    return out;
  }
  std::vector<port::EventSource*> all_sources() const {
    std::vector<port::EventSource*> out;
    if (agent) out = agent->sources();
    for (const RouteSpool& spool : spools)
      for (const auto& s : spool.sources) out.push_back(s.get());
    return out;
  }
};

class Node::Watcher final : public port::Watcher {
 public:
  Watcher(Node& node, Loop& loop, port::WatchFn watch)
      : node_(node), loop_(loop), watch_(std::make_shared<port::WatchFn>(std::move(watch))) {
    node_.watcher_ = this;
  }
  ~Watcher() override {
    if (node_.watcher_ == this) node_.watcher_ = nullptr;
  }
  Result<> add(const std::string& directory) override {
    directories_.insert(directory);
    return {};
  }
  void remove(const std::string& directory) override { directories_.erase(directory); }
  void changed(const std::string& directory, const std::string& name) {
    if (!directories_.contains(directory)) return;
    World& world = loop_.world();
    if (world.random().chance(0.02)) return;  // lost without a word: a rescan has to find it
    Event event{directory, name, world.random().chance(0.02)};
    loop_.post([watch = std::weak_ptr(watch_), event] {
      if (auto w = watch.lock()) (*w)({event});
    });
  }

 private:
  Node& node_;
  Loop& loop_;
  std::shared_ptr<port::WatchFn> watch_;
  std::set<std::string> directories_;
};

Node::Node(World& world, Fabric& fabric, NodeOptions options)
    : world_(world),
      fabric_(fabric),
      options_(std::move(options)),
      settings_(parsed(options_.config, options_.name)),
      routes_(rules(settings_)),
      files_(world.random().next()) {
  // What the package and the operator made.
  files_.make_directories(settings_.node.data_dir).value();
  files_.make_durable(settings_.node.data_dir + "/.");
  if (settings_.agent) {
    files_.make_directories(settings_.agent->dir).value();
    files_.make_durable(settings_.agent->dir + "/.");
  }
  store_.before_write = [this] {
    if (store_calls_left_ && (*store_calls_left_)-- == 0) throw test::SimulatedCrash{};
  };
}

Node::~Node() {
  *alive_ = false;
  if (running_) running_->process->alive = false;
  running_.reset();
}

void Node::start() {
  if (running_) return;
  ++starts;
  fabric_.power(name(), true);
  running_ = std::make_unique<Running>();
  Running& r = *running_;
  r.process->died = [this] { died(armed_); };
  r.loop = std::make_unique<Loop>(world_, r.process, world_.random().next(), wall_offset_);
  r.disk = std::make_unique<Disk>(*r.loop);
  r.network = std::make_unique<Network>(fabric_, name(), *r.loop);
  r.incarnation = r.loop->random().next();
  Result<> opened;
  try {
    opened = open(r);
  } catch (const test::SimulatedCrash&) {
    return died(armed_);
  }
  if (opened) return;
  ++failed_starts;
  last_failure = opened.error().to_string();
  died(Crash::kill);
}

void Node::died(Crash kind) {
  crash(kind);
  const auto after = options_.restart_after ? options_.restart_after() : std::nullopt;
  if (!after) return;
  world_.after(*after, nullptr, [this, alive = alive_] {
    if (*alive) start();
  });
}

void Node::crash(Crash kind) {
  if (!running_) return;
  disarm();
  running_->process->alive = false;
  if (kind == Crash::power_cut) fabric_.power(name(), false);
  // A dead process writes nothing: whatever destructors do must not reach the disk.
  files_.fault = [](test::FileOp, const std::string&) { return Error{port::file_errors::failed, "dead", 0}; };
  store_.fail_writes = true;
  auto process = running_->process;
  running_.reset();
  fabric_.bury(process);
  files_.fault = nullptr;
  store_.fail_writes = false;
  if (options_.on_crash) options_.on_crash(kind);
  if (kind == Crash::kill) return;
  files_.cut_power();
  store_.cut_power(world_.random());
  ++boot_;
}

void Node::arm(Crash kind, uint64_t in_calls) {
  if (!running_) return;
  armed_ = kind;
  if (world_.random().chance(0.3))
    store_calls_left_ = in_calls / 4;
  else
    files_.crash_at(in_calls + 1);
}

void Node::disarm() {
  files_.no_crash();
  store_calls_left_.reset();
}

void Node::freeze(Duration how_long) {
  if (running_) running_->process->frozen_until = world_.now() + how_long;
}

bool Node::frozen() const {
  return running_ && running_->process->frozen_until > world_.now();
}

void Node::give_up(const std::string& address) {
  if (!running_) return;
  for (auto& u : running_->upstreams) u->give_up(address, [](uint64_t) {});
}

void Node::stop() {
  if (!running_) return;
  for (auto& u : running_->upstreams) u->stop();
  if (running_->server) running_->server->stop();
  auto left = std::make_shared<size_t>(running_->agent ? 1 : 0);
  if (running_->agent) running_->agent->stop([left] { --*left; });
  for (RouteSpool& s : running_->spools)
    for (auto& source : s.sources) {
      ++*left;
      source->persist_now([left] { --*left; });
    }
  await_end(running_->process, left, 800);
}

void Node::await_end(const ProcessPtr& process, const std::shared_ptr<size_t>& left, int turns) {
  if (!process->alive) return;
  const bool quiet = *left == 0 && !running_->committer->busy() && running_->disk->waiting() == 0;
  if (quiet || turns == 0) return died(Crash::kill);
  world_.after(10ms, nullptr, [this, alive = alive_, process, left, turns] {
    if (*alive) await_end(process, left, turns - 1);
  });
}

void Node::set_wall_offset(Duration offset) {
  wall_offset_ = offset;
  if (running_) running_->loop->set_wall_offset(offset);
}

void Node::changed(const std::string& directory, const std::string& name) {
  if (watcher_) watcher_->changed(directory, name);
}

void Node::publish(std::string topic, std::string payload, std::function<void(Result<>)> done) {
  if (!running_ || !running_->tap || !running_->tap->wants(topic)) return;
  port::Message message;
  message.topic = std::move(topic);
  message.payload = Slice(std::move(payload));
  message.qos = 1;
  running_->tap->take(std::move(message), {}, std::move(done));
}

// --- construction, as appliance/wire_node.cc does it

Result<> Node::open(Running& r) {
  const std::string& dir = settings_.node.data_dir;
  PH_TRY(files_.make_directories(dir));
  r.committer = std::make_unique<commit::Committer>(*r.loop, *r.disk, store_);
  r.dead_letters = std::make_unique<dead_letter::DeadLetterFiles>(dir + "/dead-letters", files_);
  PH_ASSIGN(auto stored, store_.get("n/id"));
  if (auto id = stored ? NodeId::from_bytes(*stored) : std::nullopt) {
    id_ = *id;
  } else {
    id_ = r.loop->random().node_id();
    port::WriteBatch batch;
    batch.put("n/id", std::string(id_.bytes()));
    PH_TRY(store_.write(batch, true));
    PH_TRY(files_.sync_directory(dir));
  }
  if (settings_.receiver && !settings_.receiver->dir.empty()) {
    chunk::FilesSinkOptions options;
    options.directory = settings_.receiver->dir;
    options.state_directory = dir + "/files";
    options.utc = true;
    for (const auto& c : settings_.receiver->categories)
      options.categories.push_back(
          {.masks = c.match,
           .mode = c.mode == settings::FileMode::plain ? chunk::FileMode::plain : chunk::FileMode::chunks,
           .chunk_max = c.chunk_max.value,
           .chunk_interval = c.chunk_interval});
    PH_ASSIGN(r.sink, chunk::FilesSink::open(std::move(options), *r.loop, files_, store_, *r.committer));
  }
  PH_TRY(open_spools(r));
  PH_TRY(open_agent(r));
  PH_TRY(open_targets(r));
  PH_TRY(open_receiver(r));
  for (size_t i = 0; i < r.spools.size(); ++i) {
    if (!r.spools[i].retention) continue;
    r.spools[i].retention->on_far([&r, route = settings_.routes[i].name](uint64_t sequence) {
      if (r.intake) r.intake->far_reached(route, sequence);
      if (r.tap) r.tap->far_reached(route, sequence);
    });
  }
  for (auto& t : r.files_targets) t->start();
  for (auto& u : r.upstreams) u->start();
  if (r.agent) r.agent->start();
  if (r.server) PH_TRY(r.server->start());
  return {};
}

bool Node::needs_log(const settings::Route& route) const {
  if (!route.topics.empty()) return true;
  const bool from_peers = settings_.receiver && !settings_.receiver->link.empty();
  const bool files_only = route.to.size() == 1 && route.to[0].kind == settings::Target::Kind::files;
  return from_peers && !files_only;
}

Result<> Node::open_spools(Running& r) {
  const bool passes_far_on = settings_.receiver && !settings_.receiver->link.empty();
  r.spools.resize(settings_.routes.size());
  std::vector<relay::TapRoute> taps;
  for (size_t i = 0; i < settings_.routes.size(); ++i) {
    const settings::Route& route = settings_.routes[i];
    RouteSpool& s = r.spools[i];
    if (needs_log(route)) {
      spool::SegmentLogOptions options{.name = route.name,
                                       .directory = settings_.node.data_dir + "/spool/" + route.name,
                                       .segment_bytes = options_.segment_bytes};
      PH_ASSIGN(s.log, spool::SegmentLog::open(std::move(options), files_, store_, r.loop->random()));
      std::vector<std::string> targets;
      for (const auto& t : route.to) targets.push_back(t.name());
      s.retention = std::make_unique<spool::LogRetention>(*s.log, targets);
      if (route.spool.max) s.bytes_max = route.spool.max->value;
      for (const std::string& target : targets) {
        spool::LogSourceOptions source{
            .route = route.name, .target = target, .wants_far = passes_far_on || route.ack == settings::Ack::far};
        PH_ASSIGN(auto made, spool::LogSource::open(std::move(source), *s.log, *s.retention, *r.loop, *r.disk, store_,
                                                    *r.dead_letters));
        s.sources.push_back(std::move(made));
      }
    }
    taps.push_back({.name = route.name,
                    .category = route.category,
                    .log = s.log.get(),
                    .full = [&s] { return s.full(); },
                    .far = route.ack == settings::Ack::far});
  }
  if (std::any_of(settings_.routes.begin(), settings_.routes.end(), [](const auto& x) { return !x.topics.empty(); }))
    r.tap = std::make_unique<relay::Tap>(
        id_, std::move(taps), [this](std::string_view topic) { return routes_.of_topic(topic); }, *r.loop,
        *r.committer);
  return {};
}

Result<> Node::open_agent(Running& r) {
  if (!settings_.agent) return {};
  const settings::Agent& from = *settings_.agent;
  agent::AgentOptions options;
  options.directory = from.dir;
  options.line_max = from.line_max.value;
  options.rotate_bytes = from.rotate_size.value;
  options.rotate_age = from.rotate_age;
  options.grace = from.delete_grace;
  options.rescan = from.rescan_interval;
  options.boot_id = "boot-" + std::to_string(boot_);
  for (const auto& route : settings_.routes) {
    auto& to = options.routes.emplace_back();
    to.name = route.name;
    for (const auto& t : route.to) to.targets.push_back({t.name(), route.ack == settings::Ack::far});
  }
  options.route_of = [this](std::string_view category) { return routes_.of_category(category); };
  PH_ASSIGN(r.agent, agent::Agent::open(
                         std::move(options), *r.loop, *r.disk, files_,
                         [this, &r](port::WatchFn watch) -> Result<std::unique_ptr<port::Watcher>> {
                           return std::make_unique<Watcher>(*this, *r.loop, std::move(watch));
                         },
                         store_, *r.dead_letters, id_));
  return {};
}

Result<> Node::open_targets(Running& r) {
  if (r.sink)
    for (port::EventSource* s : r.sources_of("files"))
      r.files_targets.push_back(std::make_unique<relay::FilesTarget>(*s, *r.sink, *r.committer, *r.loop));
  for (const auto& u : settings_.upstreams) {
    relay::UpstreamOptions options;
    options.name = u.name;
    for (const auto& a : u.addresses) {
      PH_ASSIGN(port::Endpoint endpoint, port::parse_endpoint(a.address));
      options.addresses.push_back({endpoint, a.weight});
    }
    options.connections = u.connections;
    if (u.balance.by == settings::Balance::By::hash_regex)
      options.hash = link::HashRule{link::HashRule::By::regex, u.balance.text, 0};
    options.window_bytes = options_.window ? options_.window : u.window.value;
    options.connect_timeout = u.connect_timeout;
    options.request_timeout = u.request_timeout;
    options.resume_timeout = u.resume_timeout;
    if (u.dedup == settings::Dedup::strict) {
      options.publishers = std::make_unique<relay::Publishers>(u.name, store_, *r.committer);
      PH_TRY(options.publishers->load());
    }
    options.self = id_;
    options.node_name = settings_.node.name;
    options.site = settings_.node.site;
    options.incarnation = r.incarnation;
    r.upstreams.push_back(
        std::make_unique<relay::Upstream>(std::move(options), *r.loop, *r.network, r.sources_of(u.name)));
  }
  return {};
}

Result<> Node::open_receiver(Running& r) {
  if (!settings_.receiver || settings_.receiver->link.empty()) return {};
  relay::IntakeOptions intake{.self = id_, .site = settings_.node.site, .routes = {}, .route_of = {}};
  for (size_t i = 0; i < settings_.routes.size(); ++i) {
    RouteSpool& s = r.spools[i];
    intake.routes.push_back({settings_.routes[i].name, s.log.get(), [&s] { return s.full(); }});
  }
  intake.route_of = [this](std::string_view category) { return routes_.of_category(category).value_or(0); };
  r.intake = std::make_unique<relay::Intake>(std::move(intake), *r.loop, store_, *r.committer, r.sink.get());
  PH_TRY(r.intake->load());
  spool::SegmentLogOptions staged{
      .name = "@staged", .directory = settings_.node.data_dir + "/staged", .segment_bytes = options_.segment_bytes};
  PH_ASSIGN(auto log, spool::SegmentLog::open(std::move(staged), files_, store_, r.loop->random()));
  r.staging = std::make_unique<relay::Staging>(
      std::move(log), options_.staging_max ? options_.staging_max : settings_.receiver->staging_max.value, *r.intake,
      *r.loop, store_, *r.committer);
  PH_TRY(r.staging->load());
  PH_ASSIGN(port::Endpoint at, port::parse_endpoint(settings_.receiver->link));
  relay::LinkServerOptions server{.bind = at,
                                  .tls = nullptr,
                                  .self = id_,
                                  .name = settings_.node.name,
                                  .site = settings_.node.site,
                                  .incarnation = r.incarnation,
                                  .memory = options_.receiver_memory};
  r.server = std::make_unique<relay::LinkServer>(std::move(server), *r.loop, *r.network, *r.intake, r.staging.get());
  return {};
}

// --- what it says of itself

std::vector<Node::Row> Node::rows() const {
  std::vector<Row> out;
  for (port::EventSource* s : running_->all_sources()) out.push_back({s->route(), s->target(), s->counters()});
  return out;
}

uint64_t Node::maybe_duplicates() const {
  uint64_t sum = 0;
  if (running_)
    for (const Row& row : rows()) sum += row.counters.maybe_duplicate;
  return sum;
}

relay::IntakeCounters Node::intake() const {
  return running_ && running_->intake ? running_->intake->counters() : relay::IntakeCounters{};
}

std::map<std::string, relay::IntakeCounters> Node::direct() const {
  return running_ && running_->intake ? running_->intake->direct_counters()
                                      : std::map<std::string, relay::IntakeCounters>{};
}

agent::AgentStats Node::agent() const {
  return running_ && running_->agent ? running_->agent->stats() : agent::AgentStats{};
}

bool Node::idle() const {
  if (running_->committer->busy() || running_->disk->waiting() > 0) return false;
  for (const auto& u : running_->upstreams)
    if (u->status().unacked_events > 0) return false;
  for (const Row& row : rows())
    if (row.counters.queued > 0 || row.counters.unread_bytes > 0) return false;
  return true;
}

std::string Node::describe() const {
  std::string out = name() + (running_ ? "" : " (down)") + ": starts " + std::to_string(starts) + ", failed " +
                    std::to_string(failed_starts) + (last_failure.empty() ? "" : " (" + last_failure + ")");
  if (!running_) return out + "\n";
  for (const Row& row : rows()) {
    const auto& c = row.counters;
    out += "\n  " + row.route + " -> " + row.target + ": in " + std::to_string(c.in) + " delivered " +
           std::to_string(c.delivered) + " duplicate " + std::to_string(c.duplicate) + " maybe_duplicate " +
           std::to_string(c.maybe_duplicate) + " dropped " + std::to_string(c.dropped) + " dropped_bytes " +
           std::to_string(c.dropped_bytes) + " dead " + std::to_string(c.dead_lettered) + " queued " +
           std::to_string(c.queued) + " unread_bytes " + std::to_string(c.unread_bytes);
  }
  if (running_->committer->busy()) out += "\n  a group is being committed";
  if (running_->disk->waiting() > 0) out += "\n  jobs for the disk: " + std::to_string(running_->disk->waiting());
  if (running_->sink && !running_->sink->stats().alarm.empty()) out += "\n  sink: " + running_->sink->stats().alarm;
  if (running_->server) {
    const auto s = running_->server->stats();
    out += "\n  links: " + std::to_string(s.connections) + " open, " + std::to_string(s.protocol_errors) +
           " protocol errors, " + std::to_string(running_->intake->held_streams()) + " streams held";
    const auto g = running_->staging->stats();
    out += "\n  staged: " + std::to_string(g.batches) + " batches, " + std::to_string(g.bytes) + " bytes, " +
           std::to_string(g.lost) + " lost";
  }
  const auto taken = intake();
  out += "\n  intake: events " + std::to_string(taken.events) + " duplicates " + std::to_string(taken.duplicates) +
         " rejected " + std::to_string(taken.rejected) + " looped " + std::to_string(taken.looped);
  for (const auto& u : running_->upstreams) {
    const auto s = u->status();
    out += "\n  upstream " + s.name + ": unacked " + std::to_string(s.unacked_events);
    for (const auto& receiver : s.receivers)
      out += "\n    " + receiver.address + " state " + std::to_string(static_cast<int>(receiver.state)) +
             " in flight " + std::to_string(receiver.in_flight_batches) + " uncertain " +
             std::to_string(receiver.uncertain_batches) + " owned " + std::to_string(receiver.owned_batches) +
             " failures " + std::to_string(receiver.failures) + " (" + receiver.last_error + ")";
  }
  for (const auto& f : agent().staying) out += "\n  stays " + f.path + ": " + f.reason;
  return out + "\n";
}

}  // namespace ph::sim
