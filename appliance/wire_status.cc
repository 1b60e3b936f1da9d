// What the node says of itself: gathers the services' figures into one document.
#include <unistd.h>

#include <map>

#include "core/session/session.h"
#include "wire_node.h"

namespace ph {
namespace {

constexpr Duration kDrainInterval = 2s;

void add(port::TargetCounters& to, const port::TargetCounters& more) {
  to.in += more.in;
  to.delivered += more.delivered;
  to.duplicate += more.duplicate;
  to.maybe_duplicate += more.maybe_duplicate;
  to.dropped += more.dropped;
  to.dropped_expired += more.dropped_expired;
  to.dropped_damaged += more.dropped_damaged;
  to.dropped_full += more.dropped_full;
  to.dropped_keep += more.dropped_keep;
  to.dropped_bytes += more.dropped_bytes;
  to.dead_lettered += more.dead_lettered;
  to.queued += more.queued;
  to.queued_bytes += more.queued_bytes;
  to.unread_bytes += more.unread_bytes;
  if (more.oldest_unacked && (!to.oldest_unacked || *more.oldest_unacked < *to.oldest_unacked))
    to.oldest_unacked = more.oldest_unacked;
}

std::string_view state_name(link::ReceiverState state) {
  switch (state) {
    case link::ReceiverState::idle:
      return "idle";
    case link::ReceiverState::connecting:
      return "connecting";
    case link::ReceiverState::resuming:
      return "resuming";
    case link::ReceiverState::ready:
      return "ready";
  }
  return "?";
}

}  // namespace

admin::Status Node::status() {
  admin::Status s;
  s.node = settings_.node.name;
  s.site = settings_.node.site;
  s.node_id = id_.hex();
  s.version = PH_VERSION;
  s.pid = static_cast<uint64_t>(::getpid());
  s.now = loop_.wall_now();
  s.uptime_seconds =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(loop_.now() - started_).count());
  update_alarms();
  s.alarms = alarms_.list();
  fill_routes(s);
  fill_upstreams(s);
  fill_spools(s);
  fill_services(s);
  return s;
}

void Node::fill_routes(admin::Status& s) const {
  // One row a (route, target), whatever the events came in by.
  std::map<std::pair<std::string, std::string>, port::TargetCounters> rows;
  auto direct = intake_ ? intake_->direct_counters() : std::map<std::string, relay::IntakeCounters>();
  if (agent_)
    for (const port::EventSource* source : agent_->sources())
      add(rows[{source->route(), source->target()}], source->counters());
  for (const RouteSpool& spool : spools_)
    for (const auto& source : spool.sources) add(rows[{source->route(), source->target()}], source->counters());
  for (const RetryQueue& q : retry_queues_) add(rows[{q.route, q.target}], q.source->counters());
  if (lsd_server_)
    for (const auto& [route, c] : lsd_server_->direct_counters()) direct[route].events += c.events;
  for (const auto& [route, c] : direct) {
    port::TargetCounters more;
    more.in = more.delivered = c.events;
    add(rows[{route, "files"}], more);
  }
  for (const settings::Route& r : settings_.routes)
    for (const auto& t : r.to)
      if (auto it = rows.find({r.name, t.name()}); it != rows.end()) {
        auto drain = drains_.find(it->first);
        s.routes.push_back(
            {r.name, t.name(), it->second, drain == drains_.end() ? std::nullopt : drain->second.seconds()});
      }
}

/// So that an estimate is there when somebody asks for one.
void Node::watch_drains() {
  admin::Status s;
  fill_routes(s);
  for (const admin::RouteRow& row : s.routes)
    drains_[{row.route, row.target}].note(row.counters.queued_bytes + row.counters.unread_bytes, loop_.now());
  drain_timer_->start(kDrainInterval, [this] { watch_drains(); });
}

void Node::fill_upstreams(admin::Status& s) const {
  std::vector<relay::UpstreamStatus> all;
  for (const auto& u : upstreams_) all.push_back(u->status());
  for (const auto& u : lsd_upstreams_) all.push_back(u->status());
  for (const relay::UpstreamStatus& from : all) {
    admin::UpstreamRow row{from.name,   from.unacked_events,           from.unacked_bytes, from.stranded_batches, {},
                           from.looped, demand_->filters_of(from.name)};
    for (size_t i = 0; i < from.receivers.size(); ++i) {
      const link::ReceiverStatus& r = from.receivers[i];
      row.receivers.push_back({r.address, from.peers[i], std::string(state_name(r.state)), r.in_flight_batches,
                               r.in_flight_bytes, r.uncertain_batches, r.owned_batches, r.connects, r.failures,
                               r.last_error});
    }
    row.given_up_batches = from.given_up_batches;
    for (const link::AwayOwner& owner : from.away_owners) {
      row.waits_for.push_back({owner.address, owner.configured, owner.batches, {}});
      for (const StreamId id : owner.streams) row.waits_for.back().streams.push_back(id.value);
    }
    s.upstreams.push_back(std::move(row));
  }
}

/// What the broker's loops saw below MQTT.
void Node::fill_transport(admin::Numbers& to) const {
  using Counters = io::LoopCounters;
  static constexpr std::pair<std::string_view, io::Counter Counters::*> kShown[] = {
      {"refused_full", &Counters::refused_full},         {"accept_pauses", &Counters::accept_pauses},
      {"ended_unread", &Counters::ended_unread},         {"refused_descriptors", &Counters::refused_descriptors},
      {"tls_handshakes", &Counters::handshakes},         {"tls_failures", &Counters::handshake_failures},
      {"websocket_upgrades", &Counters::upgrades},       {"websocket_refused", &Counters::upgrade_failures},
      {"websocket_faults", &Counters::websocket_faults}, {"proxy_refused", &Counters::proxy_failures},
  };
  for (const auto& [name, counter] : kShown) {
    uint64_t sum = 0;
    for (const auto& loop : worker_loops_) sum += (loop->counters().*counter).value();
    to.emplace_back(name, sum);
  }
}

/// What waits on disk, what was given up of it, and what peers gave up.
void Node::fill_spools(admin::Status& s) const {
  for (size_t i = 0; i < spools_.size(); ++i) {
    if (!spools_[i].log) continue;
    const std::string& route = settings_.routes[i].name;
    spool::SpoolStats x = spools_[i].log->stats();
    s.spool.push_back({route, x.bytes, x.segments, x.first_sequence, x.next_sequence, x.quarantined});
  }
  for (const RetryQueue& q : retry_queues_) {
    spool::SpoolStats x = q.log->stats();
    if (x.segments > 0)
      s.spool.push_back({q.log->name(), x.bytes, x.segments, x.first_sequence, x.next_sequence, x.quarantined});
  }
  for (const auto& [route, c] : desk_->counters())
    s.dead_letters.push_back({route, c.retried, c.retried_events, c.dropped, c.dropped_events});
  if (intake_)
    for (const relay::GapSeen& g : intake_->gaps())
      s.gaps.push_back({g.sender.hex(), g.stream.value, g.range.first, g.range.last, g.events, g.reason, g.at});
}

void Node::fill_services(admin::Status& s) const {
  if (agent_) {
    agent::AgentStats a = agent_->stats();
    s.agent = admin::Numbers{{"files", a.generations},
                             {"descriptors", a.descriptors},
                             {"directories_watched", a.directories_watched},
                             {"directories_polled", a.directories_polled},
                             {"rotated_waiting", a.rotated_waiting},
                             {"held_lanes", a.held_lanes},
                             {"taken_back_bytes", a.taken_back_bytes},
                             {"rotated", a.rotated},
                             {"deleted", a.deleted},
                             {"drained_after_unlink", a.drained_after_unlink},
                             {"renamed", a.renamed},
                             {"truncated", a.truncated},
                             {"replaced", a.replaced},
                             {"power_cuts", a.power_cuts},
                             {"vanished", a.vanished},
                             {"newline_added", a.newline_added},
                             {"joined_events", a.joined_events},
                             {"locked_waits", a.locked_waits},
                             {"locked_too_long", a.locked_too_long},
                             {"oversize_lines", a.oversize_lines},
                             {"oversize_bytes", a.oversize_bytes},
                             {"dropped_bytes", a.dropped_bytes},
                             {"read_failures", a.read_failures},
                             {"store_failures", a.store_failures},
                             {"scans", a.scans},
                             {"overflows", a.overflows},
                             {"kept_files", a.staying_total}};
    for (const auto& f : a.staying) s.kept_files.push_back({f.path, f.reason});
  }
  if (intake_) {
    const relay::IntakeCounters& c = intake_->counters();
    relay::LinkServerStats l = link_server_->stats();
    s.receiver = admin::Numbers{{"events", c.events},
                                {"bytes", c.bytes},
                                {"duplicates", c.duplicates},
                                {"rejected", c.rejected},
                                {"looped", c.looped},
                                {"gaps", c.gaps},
                                {"gap_events", c.gap_events},
                                {"recut", c.recut},
                                {"connections", l.connections},
                                {"accepted", l.accepted},
                                {"refused", l.refused},
                                {"protocol_errors", l.protocol_errors},
                                {"handshake_timeouts", l.handshake_timeouts},
                                {"stalled", l.stalled},
                                {"memory_bytes", l.memory},
                                {"memory_peak_bytes", l.memory_peak},
                                {"memory_waits", l.memory_waits},
                                {"over_credit", l.over_credit},
                                {"tls_failures", loop_.counters().clients_refused_by_tls.value()},
                                {"seen_pages", seen_->pages()},
                                {"seen_forgotten_early", seen_->ended_early()},
                                {"streams", intake_->streams()},
                                {"held_streams", intake_->held_streams()}};
  }
  if (staging_) {
    const relay::StagingStats staged = staging_->stats();
    for (const auto& [name, n] : {std::pair<std::string_view, uint64_t>{"staged_batches", staged.batches},
                                  {"staged_bytes", staged.bytes},
                                  {"staged_total", staged.staged},
                                  {"staged_published", staged.published},
                                  {"staged_discarded", staged.discarded},
                                  {"staged_swept", staged.swept},
                                  {"staged_lost", staged.lost}})
      s.receiver->emplace_back(name, n);
  }
  if (lsd_server_) {
    relay::LsdServerStats l = lsd_server_->stats();
    if (!s.receiver) s.receiver.emplace();
    for (const auto& [name, n] : {std::pair<std::string_view, uint64_t>{"lsd_events", l.events},
                                  {"lsd_bytes", l.bytes},
                                  {"lsd_requests", l.requests},
                                  {"lsd_refused", l.refused},
                                  {"lsd_held", l.held},
                                  {"lsd_abandoned", l.abandoned},
                                  {"lsd_connections", l.connections},
                                  {"lsd_accepted", l.accepted},
                                  {"lsd_protocol_errors", l.protocol_errors}})
      s.receiver->emplace_back(name, n);
  }
  if (files_sink_) {
    chunk::FilesSinkStats f = files_sink_->stats();
    s.files = admin::Numbers{{"events", f.events},     {"bytes", f.bytes},
                             {"chunks", f.chunks},     {"open_categories", f.open_categories},
                             {"rejected", f.rejected}, {"recovered_cut_bytes", f.recovered_cut_bytes}};
    for (const auto& [name, n] : {std::pair<std::string_view, uint64_t>{"stored_bytes", f.stored_bytes},
                                  {"expired_chunks", f.expired.chunks},
                                  {"expired_bytes", f.expired.bytes},
                                  {"over_max_chunks", f.over_max.chunks},
                                  {"over_max_bytes", f.over_max.bytes},
                                  {"over_quota", f.over_quota}})
      s.files->emplace_back(name, n);
  }
  if (broker_) {
    broker::BrokerStats b = broker_->stats();
    s.mqtt = admin::Numbers{{"connections", b.connections},
                            {"sessions", b.sessions},
                            {"subscriptions", b.subscriptions},
                            {"retained", b.retained},
                            {"messages_in", b.messages_in},
                            {"messages_out", b.messages_out},
                            {"bytes_in", b.bytes_in},
                            {"bytes_out", b.bytes_out},
                            {"malformed", b.malformed},
                            {"refused", b.refused},
                            {"takeovers", b.takeovers},
                            {"keep_alive_timeouts", b.keep_alive_timeouts},
                            {"slow_consumers", b.slow_consumers},
                            {"logins_failed", b.logins_failed},
                            {"connects_shed", b.connects_shed},
                            {"banned", b.banned},
                            {"publish_denied", b.publish_denied},
                            {"subscribe_denied", b.subscribe_denied},
                            {"logins_expired", b.logins_expired},
                            {"http_unreachable", b.http_unreachable},
                            {"abandoned", b.abandoned},
                            {"flapping", b.flapping},
                            {"connections_over_rate", b.connections_over_rate},
                            {"throttled", b.throttled},
                            {"overloads", b.overloads}};
    s.mqtt->emplace_back("delayed", b.delayed);
    for (size_t i = 0; i < b.limits.size(); ++i)
      s.mqtt->emplace_back("limit_" + std::string(session::kLimitNames[i]), b.limits[i]);
    fill_transport(*s.mqtt);
    for (size_t i = 0; i < b.drops.size(); ++i)
      s.mqtt->emplace_back("dropped_" + std::string(session::kDropNames[i]), b.drops[i]);
    const broker::JournalStats j = journal_->stats();
    s.mqtt->emplace_back("journal_batches", j.batches);
    s.mqtt->emplace_back("journal_waiting", j.waiting);
    s.mqtt->emplace_back("journal_waiting_bytes", j.waiting_bytes);
    s.mqtt->emplace_back("sessions_recovered", j.recovered_sessions);
    s.mqtt->emplace_back("retained_recovered", j.recovered_retained);
    s.mqtt->emplace_back("damaged_records", j.damaged_records);
    if (wishes_) s.mqtt->emplace_back("interest_overflows", wishes_->overflows());
    if (tap_) {
      s.mqtt->emplace_back("tapped", tap_->counters().events);
      s.mqtt->emplace_back("tap_refused", tap_->counters().refused);
      s.mqtt->emplace_back("tap_shed", tap_->counters().shed);
      s.mqtt->emplace_back("passed_on", tap_->counters().passed_on);
    }
  }
}

}  // namespace ph
