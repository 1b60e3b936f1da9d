#include "service/agent/generation_table.h"

#include <algorithm>

#include "base/log.h"
#include "base/mask.h"
#include "service/agent/agent_source.h"
#include "service/agent/ledger.h"
#include "service/agent/retirement.h"

namespace ph::agent {

namespace {

constexpr Duration kCopyAwaited = std::chrono::minutes(1);  // of a truncated file of somebody else's

}  // namespace

std::string Parts::path(std::string_view directory, std::string_view name) const {
  std::string out = options.directory;
  for (std::string_view part : {directory, name})
    if (!part.empty()) out.append("/").append(part);
  return out;
}

void Parts::post(port::Task task) {
  loop.post([guard = alive, work = std::move(task)]() mutable {
    if (*guard) work();
  });
}

const CategoryOptions* Parts::options_of(std::string_view category) const {
  for (const CategoryOptions& o : options.categories)
    if (std::ranges::any_of(o.masks, [&](const std::string& mask) { return mask_matches(mask, category); })) return &o;
  return nullptr;
}

Generation& GenerationTable::add(std::unique_ptr<Generation> g) {
  Generation& ref = *g;
  ref.first_seen = parts_.loop.now();
  ref.options = parts_.options_of(ref.category);
  ref.big = is_big(ref.name);
  lanes_[ref.lane].push_back(&ref);
  generations_[ref.id] = std::move(g);
  if (ref.readable()) attach(ref);
  if (auto route = parts_.options.route_of(ref.category); route && *route < parts_.sources_of_route.size()) {
    for (AgentSource* source : parts_.sources_of_route[*route]) {
      auto cursor = std::make_unique<Cursor>();
      cursor->generation = &ref;
      cursor->source = source;
      cursor->stream = ref.id;
      ref.cursors.push_back(std::move(cursor));
    }
  }
  return ref;
}

Generation& GenerationTable::load(GenerationRecord record, std::map<std::string, CursorRecord> cursors) {
  auto g = std::make_unique<Generation>();
  g->id = record.id;
  g->identity = record.identity;
  g->boot = record.boot;
  g->order = record.order;
  g->prefix = record.prefix;
  g->lane = std::move(record.lane);
  g->category = std::move(record.category);
  g->directory = std::move(record.directory);
  g->name = std::move(record.name);
  g->size = g->proven = record.size;
  g->truncated = record.truncated;
  g->copy = record.copy;
  g->stored = true;
  // Only where it lies counts. It may not have been renamed yet, or a power cut may have taken that or its removal
  // back.
  g->state = record.state == GenerationState::ended ? GenerationState::ended
             : g->in_hidden()                       ? GenerationState::retiring
                                                    : GenerationState::live;
  next_order_ = std::max(next_order_, record.order + 1);
  Generation& ref = add(std::move(g));
  for (auto& c : ref.cursors) {
    if (auto it = cursors.find(c->source->target()); it != cursors.end()) {
      CursorRecord& r = it->second;
      c->stream = r.stream;
      c->settled = c->stored_settled = r.settled;
      c->far = c->stored_far = r.far;
      c->read = r.read;  // until verified: tells whether something was in flight
      c->end = r.end;
      c->window = c->stored_window = r.window;
      c->receivers = std::move(r.receivers);
      c->reserved = c->asked = r.reserved;
      c->read_when_asked = r.settled;
      uint64_t far = c->far;
      for (PastStream& p : r.past) {
        uint64_t until = p.until;
        c->past.push_back({std::move(p), far});
        far = until;
      }
      c->far_own = far;
    }
    if (!ref.readable()) {
      if (ref.truncated && parts_.tails(ref)) ref.kept_until = parts_.loop.now() + kCopyAwaited;
      const uint64_t end = c->end.value_or(c->read);
      c->dropped = std::max(ref.size, end) - end;
      abandon(*c, end);
    }
    c->source->add_stream(*c);
  }
  return ref;
}

Generation& GenerationTable::create(Place place, const port::FileStat& stat) {
  const std::string path = parts_.options.begins_at ? parts_.path(place.directory, place.name) : std::string();
  Generation& g = add_new(std::move(place), stat);
  if (parts_.options.begins_at) begin_at(g, std::min(parts_.options.begins_at(path, stat), stat.size));
  grown(g, stat.size);
  parts_.retirement->consider(g);
  return g;
}

void GenerationTable::begin_at(Generation& g, uint64_t position) {
  for (auto& c : g.cursors) {
    c->settled = c->read = c->far = c->far_own = position;
    c->in_oversize.reset();
    parts_.ledger->touch(*c);
  }
}

/// What was counted as dropped of the cursor and a copy of so many bytes has is not dropped.
void GenerationTable::recover(Cursor& c, uint64_t copy_size) {
  const uint64_t missing = std::max(c.generation->proven, copy_size) - copy_size;
  if (c.dropped <= missing) return;
  const uint64_t recovered = c.dropped - missing;
  c.dropped = missing;
  c.source->recovered(recovered);
  parts_.stats.dropped_bytes -= std::min(recovered, parts_.stats.dropped_bytes);
}

Generation& GenerationTable::create_copy(Place place, const port::FileStat& stat, Generation& original) {
  Generation& g = add_new(std::move(place), stat);
  g.copy = true;
  std::vector<uint64_t> again(g.cursors.size());  // what was in flight when the process ended
  for (size_t i = 0; i < g.cursors.size(); ++i) {
    Cursor& c = *g.cursors[i];
    for (const auto& from : original.cursors) {
      if (from->source != c.source) continue;
      const uint64_t begin = std::min(from->abandoned.value_or(from->read), stat.size);
      recover(*from, stat.size);
      c.settled = c.read = c.far = c.far_own = begin;
      again[i] = from->abandoned ? std::min(std::max(begin, *from->end), stat.size) : begin;
    }
    c.in_oversize.reset();
    parts_.ledger->touch(c);
  }
  if (auto learned = parts_.reader->learn(g); !learned)
    log_warn("copy_not_read", {{"path", parts_.path(g)}, {"error", learned.error().to_string()}});
  for (size_t i = 0; i < g.cursors.size(); ++i)
    if (auto lines = parts_.reader->lines(g, g.cursors[i]->read, again[i]); lines && *lines > 0)
      g.cursors[i]->source->count_maybe(*lines);
  g.size = g.proven = stat.size;
  wake(g);
  parts_.retirement->consider(g);
  return g;
}

bool GenerationTable::can_move(const Generation& g, const port::FileStat& copy) const {
  const bool same_boot = g.boot == parts_.boot || g.boot == 0 || parts_.boot == 0;
  if (g.readable() || !g.truncated || g.removing || g.forgetting || !same_boot) return false;
  return std::ranges::all_of(g.cursors, [&](const auto& c) {
    // Once it runs, receivers may have been told that nothing below the end comes again.
    return c->end && *c->end <= copy.size && (!c->abandoned || !parts_.running);
  });
}

void GenerationTable::move_to_copy(Generation& g, Place place, const port::FileStat& stat) {
  g.state = GenerationState::live;
  g.identity = identity_of(stat);
  g.boot = parts_.boot;
  g.directory = std::move(place.directory);
  g.name = std::move(place.name);
  g.big = is_big(g.name);
  g.modified_ns = stat.modified_ns;
  g.first_seen = parts_.loop.now();
  g.verified = g.copy = true;
  g.truncated = g.unreadable = false;
  g.final_size.reset();
  g.locked_since.reset();
  for (auto& c : g.cursors) {
    recover(*c, stat.size);
    c->dropped = 0;
    c->end.reset();
    c->stalled = 0;
    if (c->abandoned) {  // as after any restart: from the stored cursor, under the same id
      c->settled = c->read = *c->abandoned;
      c->abandoned.reset();
      c->read_window = c->window.end == c->read ? c->window : Window{};
      c->in_oversize.reset();
    }
    parts_.ledger->touch(*c);
  }
  g.size = g.proven = stat.size;
  attach(g);
  parts_.ledger->touch(g);
  // Held open while there is something to read: such files are often compressed and deleted next.
  if (has_tail(g)) (void)parts_.reader->file(g);
  wake(g);
  parts_.retirement->consider(g);
}

Generation& GenerationTable::add_new(Place place, const port::FileStat& stat) {
  auto g = std::make_unique<Generation>();
  do g->id = parts_.loop.random().stream_id();
  while (generations_.contains(g->id));
  g->identity = identity_of(stat);
  g->boot = parts_.boot;
  g->order = next_order_++;
  g->lane = std::move(place.lane);
  g->category = std::move(place.category);
  g->directory = std::move(place.directory);
  g->name = std::move(place.name);
  g->modified_ns = stat.modified_ns;
  g->verified = true;
  if (g->in_hidden()) g->state = GenerationState::retiring;
  Generation& ref = add(std::move(g));
  for (auto& c : ref.cursors) c->source->add_stream(*c);
  if (!ref.cursors.empty()) parts_.ledger->touch(ref);
  return ref;
}

Generation& GenerationTable::replace(Generation& old, const port::FileStat& stat) {
  Place place{old.directory, old.name, old.lane, old.category};
  uint64_t scan = old.seen_in_scan;
  old.truncated = true;
  end(old);
  Generation& fresh = create(std::move(place), stat);
  fresh.seen_in_scan = scan;
  return fresh;
}

void GenerationTable::end(Generation& g) {
  if (g.state == GenerationState::ended) return;
  detach(g);
  parts_.reader->close(g);
  g.state = GenerationState::ended;
  if (g.truncated && parts_.tails(g)) g.kept_until = parts_.loop.now() + kCopyAwaited;
  for (auto& c : g.cursors) {
    if (!g.verified) abandon(*c, c->read);
    // Of a file that holds something else now, the size seen last may be the other content's.
    const uint64_t own = g.truncated ? g.proven : g.size;
    const uint64_t unread = std::max(own, c->read) - c->read;
    c->end = c->read;
    c->dropped += unread;
    parts_.stats.dropped_bytes += unread;
    c->source->ended(*c, unread);
    parts_.ledger->touch(*c);
  }
  if (!g.cursors.empty() || g.stored) parts_.ledger->touch(g);
  parts_.retirement->consider(g);
}

void GenerationTable::abandon(Cursor& c, uint64_t end) {
  parts_.stats.dropped_bytes += end - c.settled;
  c.source->count_dropped(end - c.settled);
  c.dropped += end - c.settled;
  c.abandoned = c.settled;
  c.settled = c.read = end;
  c.end = end;
  parts_.ledger->touch(c);
}

Result<> GenerationTable::renew_all(Generation& g, uint64_t size) {
  std::vector<uint64_t> again;
  for (const auto& c : g.cursors) {
    uint64_t from = std::min(c->settled, size), until = c->receivers.empty() ? from : std::min(c->reserved, size);
    PH_ASSIGN(uint64_t lines, parts_.reader->lines(g, from, std::max(from, until)));
    again.push_back(lines);
  }
  g.boot = parts_.boot;
  g.size = g.proven = size;
  for (size_t i = 0; i < g.cursors.size(); ++i) {
    Cursor& c = *g.cursors[i];
    c.settled = c.read = std::min(c.settled, size);
    c.source->count_maybe(again[i]);
    c.source->renew_cursor(c);
  }
  parts_.ledger->touch(g);
  return {};
}

void GenerationTable::erase(StreamId id) {
  auto it = generations_.find(id);
  if (it == generations_.end()) return;
  Generation& g = *it->second;
  detach(g);
  parts_.reader->close(g);
  parts_.retirement->forget(g);
  parts_.ledger->drop(g);
  for (auto& c : g.cursors) c->source->remove_stream(*c);
  auto lane = lanes_.find(g.lane);
  std::erase(lane->second, &g);
  if (lane->second.empty()) lanes_.erase(lane);
  generations_.erase(it);
}

Generation* GenerationTable::find(StreamId id) {
  auto it = generations_.find(id);
  return it == generations_.end() ? nullptr : it->second.get();
}

Generation* GenerationTable::by_inode(uint64_t device, uint64_t inode) {
  auto it = by_inode_.find({device, inode});
  return it == by_inode_.end() ? nullptr : it->second;
}

void GenerationTable::detach(Generation& g) {
  auto it = by_inode_.find({g.identity.device, g.identity.inode});
  if (it != by_inode_.end() && it->second == &g) by_inode_.erase(it);
}

void GenerationTable::grown(Generation& g, uint64_t size) {
  if (size <= g.size) return;
  g.size = size;
  if (g.prefix.length() == 0) g.proven = size;  // whatever it holds is its own
  wake(g);
  parts_.retirement->consider(g);
}

void GenerationTable::wake(Generation& g) {
  for (auto& c : g.cursors)
    if (has_data(*c)) c->source->ready(*c);
}

}  // namespace ph::agent
