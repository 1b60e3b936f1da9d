#include "service/agent/retirement.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "service/agent/agent_source.h"
#include "service/agent/ledger.h"
#include "service/agent/scan.h"
#include "service/agent/source_reader.h"

namespace ph::agent {
namespace {

constexpr Duration kBackoffMin = std::chrono::seconds(1);
constexpr Duration kBackoffMax = std::chrono::seconds(60);
constexpr Duration kDrainPoll = std::chrono::milliseconds(200);
constexpr Duration kNoProofRetry = std::chrono::minutes(5);
constexpr Duration kNoProofDrain = std::chrono::minutes(1);  // quiet for so long: taken as closed
constexpr int kEmptyAgeFactor = 60;                          // empty files are rotated after so many rotate_ages
constexpr size_t kLaneKeptMax = 64;     // generations of a lane; more: none is kept for its copy's sake
constexpr size_t kLaneWaitingMax = 64;  // rotated files of one lane that are not acknowledged; more: it grows in place

}  // namespace

Retirement::Retirement(Parts& parts) : parts_(parts), timer_(parts.loop.make_timer()) {}

void Retirement::start() {
  if (!parts_.options.tail) make_hidden_directory();  // else when it is needed: the place may not even be writable
  arm();
}

/// Durably, before anything is renamed into it: a power cut that took the directory back would take the files along.
void Retirement::make_hidden_directory() {
  if (std::exchange(making_hidden_, true)) return;
  auto outcome = std::make_shared<Result<>>();
  parts_.disk.run(
      [outcome, &files = parts_.files, root = parts_.options.directory,
       hidden = parts_.path(kHiddenDirectory, "")]() mutable {
        *outcome = files.make_directories(hidden);
        if (*outcome) *outcome = files.sync_directory(root);
      },
      [this, alive = parts_.alive, outcome] {
        if (!*alive) return;
        making_hidden_ = false;
        hidden_durable_ = outcome->has_value();
        no_hidden_directory_ = hidden_durable_ ? std::string() : outcome->error().to_string();
        if (!hidden_durable_) log_error("hidden_directory_not_made", {{"error", no_hidden_directory_}});
      });
}

void Retirement::schedule(Generation& g, Duration after) {
  Instant due = parts_.loop.now() + after;
  if (g.scheduled && g.due <= due) return;
  forget(g);
  g.scheduled = true;
  g.due = due;
  queue_[{due, g.id.value}] = g.id;
  arm();
}

void Retirement::forget(Generation& g) {
  if (g.scheduled) queue_.erase({g.due, g.id.value});
  g.scheduled = false;
}

void Retirement::arm() {
  if (!parts_.running || queue_.empty()) return;
  Instant due = queue_.begin()->first.first;
  if (timer_->pending() && armed_ <= due) return;
  armed_ = due;
  timer_->start(std::max(due - parts_.loop.now(), Duration::zero()), [this] { run_due(); });
}

void Retirement::run_due() {
  Instant now = parts_.loop.now();
  for (int budget = 1000; budget > 0 && !queue_.empty() && queue_.begin()->first.first <= now; --budget) {
    Generation* g = parts_.table->find(queue_.begin()->second);
    if (!g) {
      queue_.erase(queue_.begin());
      continue;
    }
    forget(*g);
    step(*g);
  }
  arm();
}

void Retirement::consider(Generation& g) {
  switch (g.state) {
    case GenerationState::live: {
      if (g.cursors.empty() || !g.verified || parts_.tails(g)) return;
      Instant now = parts_.loop.now();
      Instant due =
          g.first_seen + (g.size > 0 ? parts_.options.rotate_age : parts_.options.rotate_age * kEmptyAgeFactor);
      if (g.size > parts_.options.rotate_bytes) due = now;
      if (g.size > 0 || due <= now) schedule(g, std::max({due, g.not_before, now}) - now);
      return;
    }
    case GenerationState::retiring:
      if (g.verified && all_settled(g)) schedule(g, parts_.options.grace);
      return;
    case GenerationState::draining:
      schedule(g, kDrainPoll);
      return;
    case GenerationState::ended:
      schedule(g, Duration::zero());
      return;
  }
}

void Retirement::step(Generation& g) {
  switch (g.state) {
    case GenerationState::live:
      step_live(g);
      return;
    case GenerationState::retiring:
      step_retiring(g);
      return;
    case GenerationState::draining:
      step_draining(g);
      return;
    case GenerationState::ended:
      step_ended(g);
      return;
  }
}

void Retirement::hold(Generation& g, std::string_view reason, Duration retry) {
  if (g.staying != reason) log_info("source_file_kept", {{"path", parts_.path(g)}, {"reason", reason}});
  g.staying = reason;
  if (g.state == GenerationState::live) g.not_before = parts_.loop.now() + retry;
  schedule(g, retry);
}

void Retirement::hold_and_back_off(Generation& g, std::string_view reason) {
  g.backoff = std::clamp(g.backoff * 2, kBackoffMin, kBackoffMax);
  hold(g, reason, g.backoff);
}

/// Rotated files that some target has not acknowledged, in this lane. Those that a writer holds do not count.
bool Retirement::too_many_waiting(const Generation& g) {
  if (parts_.table->lane_size(g.lane) < kLaneWaitingMax) return false;
  size_t count = 0;
  parts_.table->each_in_lane(g.lane, [&](const Generation& other) {
    count += other.state == GenerationState::retiring && !all_settled(other);
  });
  return count >= kLaneWaitingMax;
}

void Retirement::step_live(Generation& g) {
  if (g.cursors.empty() || g.in_hidden() || parts_.tails(g)) return;
  if (!hidden_durable_) {
    make_hidden_directory();
    return no_hidden_directory_.empty() ? schedule(g, kDrainPoll) : hold(g, no_hidden_directory_, kBackoffMax);
  }
  if (too_many_waiting(g)) return hold(g, "too many rotated files wait for acknowledgement", kBackoffMax);
  g.state = GenerationState::retiring;
  parts_.ledger->touch(g);
  parts_.ledger->when_durable([this, id = g.id] { rename_away(id); });
}

void Retirement::rename_away(StreamId id) {
  Generation* g = parts_.table->find(id);
  if (!g || g->state != GenerationState::retiring || g->in_hidden() || !parts_.running) return;
  std::string from = parts_.path(*g), name = hidden_name(g->id, g->category);
  std::string to = parts_.path(kHiddenDirectory, name);
  auto back = [&](std::string_view reason) {
    g->state = GenerationState::live;
    parts_.ledger->touch(*g);
    hold(*g, reason, kBackoffMax);
  };
  auto there = parts_.files.stat(from);
  if (!there || !*there || (*there)->inode != g->identity.inode || (*there)->device != g->identity.device)
    return back("renamed or deleted by another");  // the scan follows it
  if (auto renamed = parts_.files.rename_new(from, to); !renamed) return back(renamed.error().to_string());
  auto moved = parts_.files.stat(to);
  if (moved && *moved && (*moved)->inode != g->identity.inode) {
    // The producer put another file in its place between the two calls. That one is hidden now, and read on there.
    back("renamed or deleted by another");
    parts_.scanner->found_hidden(name, **moved);
    return;
  }
  ++parts_.stats.rotated;
  g->directory = kHiddenDirectory;
  g->name = std::move(name);
  g->staying.clear();
  parts_.ledger->touch(*g);
  schedule(*g, std::max<Duration>(parts_.options.grace, std::chrono::seconds(1)));
}

bool Retirement::stored_to_end(const Generation& g) {
  return std::all_of(g.cursors.begin(), g.cursors.end(),
                     [this](const auto& c) { return parts_.ledger->released_at(*c, c->read); });
}

/// Whether nobody else has the file open and it is what was acknowledged. The lease is held when this returns true.
bool Retirement::proven_free(Generation& g, port::File& file) {
  switch (file.take_lease()) {
    case port::Lease::unsupported:
      hold(g, "no proof that nobody has it open (other owner without CAP_LEASE, or a file system without leases)",
           kNoProofRetry);
      return false;
    case port::Lease::held:
      hold_and_back_off(g, "another process has it open");
      return false;
    case port::Lease::granted:
      break;
  }
  auto stat = file.stat();
  if (stat && stat->size == g.size && file.lease_intact()) return true;
  file.release_lease();
  if (stat && stat->size > g.size)
    parts_.table->grown(g, stat->size);
  else if (stat && stat->size < g.size)
    parts_.scanner->replaced(g, *stat);
  else
    hold_and_back_off(g, "another process has it open");
  return false;
}

void Retirement::step_retiring(Generation& g) {
  if (!g.in_hidden() || !g.verified || !all_settled(g)) return;  // settling, growing and renaming come back here
  if (!stored_to_end(g)) return schedule(g, std::max<Duration>(parts_.options.flush * 2, kBackoffMin));
  auto opened = parts_.reader->file(g);
  if (!opened) return parts_.scanner->lost(g);
  port::File& file = **opened;
  auto stat = file.stat();
  if (!stat) return hold_and_back_off(g, stat.error().to_string());
  if (stat->size > g.size) return parts_.table->grown(g, stat->size);
  if (stat->links > 1) return hold(g, "it has another name (a hard link)", kNoProofRetry);
  if (!proven_free(g, file)) return;
  if (has_tail(g)) {
    file.release_lease();
    g.final_size = g.size;
    parts_.table->wake(g);
    return;
  }
  unlink(g, file);
}

void Retirement::unlink(Generation& g, port::File& file) {
  std::string path = parts_.path(g);
  auto unlinked = parts_.files.unlink(path);
  bool whole = file.lease_intact();
  file.release_lease();
  if (!unlinked) return hold_and_back_off(g, unlinked.error().to_string());
  auto stat = file.stat();
  if (whole && stat && stat->links == 0 && stat->size == g.size) {
    ++parts_.stats.deleted;
    return removed(g);
  }
  ++parts_.stats.drained_after_unlink;
  log_warn("opener_met_deletion", {{"path", path}});
  drain(g);
}

void Retirement::drain(Generation& g) {
  auto opened = parts_.reader->file(g);
  if (!opened) return parts_.scanner->lost(g);
  if (g.state == GenerationState::draining) return;
  parts_.reader->pin(g);
  g.state = GenerationState::draining;
  g.backoff = {};
  g.drained_since = parts_.loop.now();
  parts_.ledger->touch(g);
  schedule(g, kDrainPoll);
}

void Retirement::step_draining(Generation& g) {
  port::File& file = *g.file;
  auto stat = file.stat();
  if (!stat || stat->size < g.size) return parts_.table->end(g);
  if (stat->size > g.size) {
    g.backoff = {};
    parts_.table->grown(g, stat->size);
    return schedule(g, kDrainPoll);
  }
  auto again = [&] {
    g.backoff = std::clamp(g.backoff * 2, kDrainPoll, std::chrono::duration_cast<Duration>(kBackoffMin * 5));
    schedule(g, g.backoff);
  };
  if (!all_settled(g)) return again();
  port::Lease lease = file.take_lease();
  bool quiet = lease == port::Lease::unsupported && parts_.loop.now() - g.drained_since > kNoProofDrain;
  if (lease == port::Lease::held || (lease == port::Lease::unsupported && !quiet)) return again();
  stat = file.stat();
  bool whole = lease == port::Lease::unsupported || file.lease_intact();
  file.release_lease();
  if (!whole || !stat || stat->size != g.size) return again();
  if (has_tail(g)) {
    g.final_size = g.size;
    parts_.table->wake(g);
    return again();
  }
  removed(g);
}

/// Nothing leads to the file any more and everything of it is acknowledged. The removal must survive a power cut before
/// the records go: a file that came back without them would be sent again from its beginning.
void Retirement::removed(Generation& g) {
  parts_.table->end(g);
  g.removing = true;
  auto synced = std::make_shared<Result<>>();
  parts_.disk.run(
      [synced, &files = parts_.files, path = parts_.path(g.directory, "")] { *synced = files.sync_directory(path); },
      [this, alive = parts_.alive, id = g.id, synced] {
        if (!*alive) return;
        Generation* done = parts_.table->find(id);
        if (!done) return;
        done->removing = false;
        if (*synced || synced->error().code == port::file_errors::not_found) return schedule(*done, Duration::zero());
        log_error("directory_not_synced", {{"error", synced->error().to_string()}});
        schedule(*done, kBackoffMax);  // a power cut before the next sync may bring the file back: sent twice then
      });
}

void Retirement::step_ended(Generation& g) {
  if (g.removing || g.forgetting) return;
  if (parts_.loop.now() < g.kept_until && parts_.table->lane_size(g.lane) <= kLaneKeptMax)
    return schedule(g, g.kept_until - parts_.loop.now());
  for (const auto& c : g.cursors) {
    if (c->settled < *c->end) return;
    if (!parts_.ledger->settled_at(*c, *c->end))
      return schedule(g, std::max<Duration>(parts_.options.flush * 2, kBackoffMin));
  }
  g.forgetting = true;
  parts_.ledger->forget(g, [this, id = g.id] {
    Generation* done = parts_.table->find(id);
    if (!done) return;
    std::vector<std::pair<AgentSource*, StreamId>> closed;
    for (const auto& c : done->cursors) {
      closed.emplace_back(c->source, c->stream);
      for (const Past& p : c->past) closed.emplace_back(c->source, p.record.stream);
    }
    parts_.table->erase(id);
    for (auto& [source, stream] : closed) source->closed(stream);
  });
}

}  // namespace ph::agent
