// What the node knows to be wrong: asked of every part once a second, and whenever someone wants the status.
#include <algorithm>

#include "io/descriptor_limit.h"
#include "wire_node.h"

namespace ph {
namespace {

constexpr Duration kAlarmInterval = 1s;
constexpr Duration kDryFor = 10s;

bool no_space(const Error& e) {
  return e.code == io::store_errors::no_space || e.code == port::file_errors::no_space;
}

std::string_view code_or_full(const Error& e, std::string_view otherwise) {
  return no_space(e) ? "disk_full" : otherwise;
}

void add(std::vector<admin::Alarm>& to, std::string_view code, std::string about, std::string text) {
  to.push_back({std::string(code), std::move(about), std::move(text), {}});
}

/// Of the receivers that were tried, each failed and none is ready: at the start an answer is still awaited.
bool unreachable(const std::vector<link::ReceiverStatus>& receivers) {
  bool failed = false;
  for (const auto& r : receivers) {
    if (r.state == link::ReceiverState::ready || (r.connects > 0 && r.failures == 0)) return false;
    failed |= r.failures > 0;
  }
  return failed;
}

std::string about_orphan(const spool::Orphan& o) {
  return "spool " + o.route + (o.target.empty() ? "" : " for " + o.target);
}

std::string text_of(const spool::Orphan& o) {
  if (!o.fault.empty()) return "no configured route reads it, and it cannot be told what waits there: " + o.fault;
  std::string much = std::to_string(o.bytes) + " bytes";
  if (o.records > 0) much = std::to_string(o.records) + " records (" + much + ")";
  return o.target.empty() ? much + " wait there, acknowledged, and no configured route reads them"
                          : much + " wait there, acknowledged, for a target that the route no longer has";
}

/// Names the way out: this waits for as long as it takes.
std::string text_of(const std::string& upstream, const link::AwayOwner& owner) {
  std::string streams;
  for (const StreamId id : owner.streams) streams += (streams.empty() ? "" : ", ") + std::to_string(id.value);
  return std::to_string(owner.batches) + " batches (streams " + streams +
         (owner.streams.size() == link::kAwayStreamsShown ? " and maybe others" : "") +
         ") may have been published there, " +
         (owner.configured ? "and it does not answer" : "and it is configured no more") +
         ": nobody else gets them before it says so. If it will never come back: posthouse upstream forget " +
         upstream + " " + owner.address;
}

}  // namespace

void Node::update_alarms() {
  std::vector<admin::Alarm> wrong;
  add_store_alarms(wrong);
  add_spool_alarms(wrong);
  add_link_alarms(wrong);
  add_broker_alarms(wrong);
  add_descriptor_alarm(wrong);
  alarms_.update(std::move(wrong), loop_.wall_now());
}

void Node::watch_alarms() {
  update_alarms();
  alarm_timer_->start(kAlarmInterval, [this] { watch_alarms(); });
}

void Node::add_store_alarms(std::vector<admin::Alarm>& to) const {
  for (const io::StoreFinding& f : store_->findings()) add(to, f.code, "store", f.detail);
  auto store = store_->trouble();
  if (store) add(to, code_or_full(*store, "store_write_failed"), "store", store->to_string());
  // A group that waits for its store write says the same once more.
  const bool told = std::ranges::any_of(floors_, [](const auto& f) { return !f.second->room(); });
  if (committer_->trouble() && !store && !(told && no_space(*committer_->trouble())))
    add(to, code_or_full(*committer_->trouble(), "group_commit_failed"), "files", committer_->trouble()->to_string());
  if (uint64_t n = access_->unreadable())
    add(to, "access_records_unreadable", "store", std::to_string(n) + " users, rules or bans do not count");
  for (const auto& [device, floor] : floors_)
    if (!floor->room()) add(to, "disk_full", floor->directory(), *floor->shortage());
  if (!files_sink_) return;
  constexpr size_t kBlockedShown = 20;
  auto blocked = files_sink_->obstacles();
  for (size_t i = 0; i < std::min(blocked.size(), kBlockedShown); ++i)
    add(to, blocked[i].code, blocked[i].path,
        blocked[i].text +
            (i + 1 == kBlockedShown ? "; " + std::to_string(blocked.size() - i - 1) + " more are not listed" : ""));
  if (std::string why = files_sink_->stats().alarm; !why.empty() && !committer_->trouble() && !told)
    add(to, why.find(port::file_errors::no_space.name()) == why.npos ? "files_not_written" : "disk_full",
        "receiver.dir", why);
}

/// Accepting paused within the last kDryFor: who comes now may have to wait, or is turned away.
void Node::add_descriptor_alarm(std::vector<admin::Alarm>& to) {
  uint64_t pauses = loop_.counters().accept_pauses.value();
  for (const auto& loop : worker_loops_) pauses += loop->counters().accept_pauses.value();
  if (pauses != accept_pauses_seen_) accept_paused_at_ = loop_.now();
  accept_pauses_seen_ = pauses;
  if (pauses == 0 || loop_.now() - accept_paused_at_ > kDryFor) return;
  add(to, "descriptors_exhausted", "listeners",
      "accepting pauses: this process may have " + std::to_string(io::descriptor_limit()) +
          " files and sockets open, some of which are kept for its own use; raise its limit (LimitNOFILE)");
}

void Node::add_broker_alarms(std::vector<admin::Alarm>& to) const {
  if (!journal_) return;
  if (const uint64_t records = journal_->stats().damaged_records)
    add(to, "mqtt_records_damaged", "broker", std::to_string(records) + " records of sessions could not be read");
}

void Node::add_spool_alarms(std::vector<admin::Alarm>& to) const {
  for (size_t i = 0; i < spools_.size(); ++i) {
    if (!spools_[i].log) continue;
    std::string about = "spool " + settings_.routes[i].name;
    if (uint64_t n = spools_[i].log->stats().unrepaired)
      add(to, "records_quarantined", about,
          std::to_string(n) +
              " damaged records were found; posthouse spool repair sets them aside and ends this alarm");
    if (spools_[i].full()) add(to, "spool_full", about, "intake of this route is stopped");
  }
  for (const spool::Orphan& o : orphans_) add(to, "spool_orphaned", about_orphan(o), text_of(o));
  std::map<std::string, uint64_t> bounds;
  for (const settings::Route& r : settings_.routes)
    if (r.spool.max) bounds[r.name] = r.spool.max->value;
  if (!agent_ || bounds.empty()) return;
  for (const port::EventSource* s : agent_->sources()) {
    auto bound = bounds.find(s->route());
    if (bound == bounds.end()) continue;
    const port::TargetCounters c = s->counters();
    if (c.queued_bytes + c.unread_bytes >= bound->second)
      add(to, "spool_full", "files of " + s->route() + " for " + s->target(),
          std::to_string(c.queued_bytes + c.unread_bytes) +
              " bytes wait in their files, which stay; other targets go on");
  }
}

void Node::add_link_alarms(std::vector<admin::Alarm>& to) const {
  if (link_server_)
    for (const relay::Twins& t : link_server_->twins())
      add(to, "node_id_twice", "node " + t.node.hex(),
          t.one + " and " + t.other + " have the same node id and take each other's place: was a data_dir copied?");
  for (const auto& u : upstreams_) {
    relay::UpstreamStatus s = u->status();
    for (const link::AwayOwner& owner : s.away_owners)
      add(to, "upstream_strict_waits", "upstream " + s.name + ", receiver " + owner.address, text_of(s.name, owner));
    if (unreachable(s.receivers)) add(to, "upstream_unreachable", "upstream " + s.name, "no receiver answers");
    if (s.renewed)
      add(to, "stream_renewed", "upstream " + s.name,
          std::to_string(s.renewed) + " streams: a receiver knew more of them than this node, which was rolled back");
  }
  for (const auto& u : lsd_upstreams_) {
    relay::UpstreamStatus s = u->status();
    if (unreachable(s.receivers)) add(to, "upstream_unreachable", "upstream " + s.name, "no receiver answers");
  }
  if (const auto kept = seen_ ? seen_->short_memory() : std::nullopt)
    add(to, "seen_forgotten_early", "event identities",
        std::to_string(seen_->ended_early()) +
            " times there were more events than can be told apart for seven days; one "
            "that comes by a second way more than " +
            std::to_string(*kept / 1h) + " hours after the first is delivered twice");
  if (uint64_t held = lsd_server_ ? lsd_server_->stats().held : 0)
    add(to, "requests_held", "receiver.lsd", std::to_string(held) + " requests wait for room");
  if (size_t held = intake_ ? intake_->held_streams() : 0)
    add(to, "streams_held", "receiver", std::to_string(held) + " streams are held back");
}

}  // namespace ph
