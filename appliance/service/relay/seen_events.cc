#include "service/relay/seen_events.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/log.h"
#include "core/link/receiver_streams.h"

namespace ph::relay {
namespace {

constexpr std::string_view kStateKey = "d/state";
constexpr std::string_view kPagePrefix = "d/p/";
constexpr uint8_t kVersion = 1;
constexpr Duration kSweepInterval = std::chrono::milliseconds(200);

int page_bits(event::BlockKind kind) {
  return kind == event::BlockKind::message ? 12 : 24;
}

}  // namespace

SeenEvents::SeenEvents(port::Loop& loop, port::KeyedStore& store, commit::Committer& committer, size_t pages_max)
    : loop_(loop), store_(store), committer_(committer), pages_max_(pages_max), sweep_timer_(loop.make_timer()) {}

SeenEvents::~SeenEvents() {
  *alive_ = false;
}

Result<> SeenEvents::load() {
  began_ = loop_.wall_now();
  PH_ASSIGN(auto state, store_.get(kStateKey));
  if (state) {
    Reader in(*state);
    const auto version = in.fixed<uint8_t>();
    if (in.ok() && version > kVersion) return fail("relay.seen_newer", "d/state version " + std::to_string(version));
    const uint64_t generation = in.varint(), began = in.varint();
    if (in.ok() && generation > 0) {
      generation_ = generation;
      began_ = from_unix_ms(static_cast<int64_t>(began) * 1000);
      state_due_ = false;
    }
    if (in.ok() && !in.at_end()) {
      ended_early_ = in.varint();
      last_early_ = from_unix_ms(static_cast<int64_t>(in.varint()) * 1000);
      before_began_ = from_unix_ms(static_cast<int64_t>(in.varint()) * 1000);
    }
  }
  PH_TRY(store_.scan(key(generation_, {}), [this](ByteView, ByteView) {
    ++pages_;
    return true;
  }));
  sweep_timer_->start(kSweepInterval, [this] { sweep(); });
  return {};
}

std::string SeenEvents::key(uint64_t generation, std::string_view name) const {
  std::string out(kPagePrefix);
  put_key(out, generation);
  out.append(name);
  return out;
}

template <class Visit>
void SeenEvents::for_each_page(std::string_view scope, event::BlockKind kind, const event::EventId& id, Visit visit) {
  const int bits = page_bits(kind);
  std::string name;
  name.reserve(40);
  put_key(name, link::target_hash(scope));
  name.append(id.origin.bytes());
  put_key(name, id.stream.value);
  const size_t stem = name.size();
  for (uint64_t at = id.first; at < id.last;) {
    const uint64_t number = at >> bits;
    const uint64_t end = std::min(id.last, number == UINT64_MAX >> bits ? UINT64_MAX : (number + 1) << bits);
    name.resize(stem);
    put_key(name, number);
    visit(page(name), link::Range{at, end});
    at = end;
  }
}

SeenEvents::Pages::iterator SeenEvents::page(const std::string& name) {
  auto [it, fresh] = cache_.try_emplace(name);
  Page& p = it->second;
  if (!fresh) {
    usage_.splice(usage_.end(), usage_, p.used);
    return it;
  }
  p.used = usage_.insert(usage_.end(), &it->first);
  ++p.pending;  // not to be evicted before it is used
  for (uint64_t generation : {generation_, generation_ - 1}) {
    auto value = store_.get(key(generation, name));
    if (!value) log_error("seen_events_unreadable", {{"error", value.error().to_string()}});
    if (!value || !*value) continue;
    Reader in(**value);
    if (in.fixed<uint8_t>() == kVersion && p.ranges.decode(in)) {
      p.stored = generation == generation_;
      break;
    }
    log_error("seen_events_damaged", {{"generation", generation}});
    p.ranges.clear();
  }
  evict();
  --p.pending;
  return it;
}

void SeenEvents::evict() {
  for (auto at = usage_.begin(); cache_.size() > kCachedMax && at != usage_.end();) {
    auto it = cache_.find(**at);
    if (it->second.pending > 0) {
      ++at;
      continue;
    }
    at = usage_.erase(at);
    cache_.erase(it);
  }
}

std::vector<link::Range> SeenEvents::unseen(std::string_view scope, event::BlockKind kind, const event::EventId& id) {
  std::vector<link::Range> out;
  for_each_page(scope, kind, id, [&](Pages::iterator it, link::Range range) {
    for (const link::Range& r : it->second.ranges.missing(range.first, range.last))
      if (!out.empty() && out.back().last == r.first)
        out.back().last = r.last;
      else
        out.push_back(r);
  });
  return out;
}

void SeenEvents::mark(std::string_view scope, event::BlockKind kind, const event::EventId& id, Marks& marks) {
  for_each_page(scope, kind, id, [&](Pages::iterator it, link::Range range) {
    // Only what is new: undo() takes back no more than this.
    for (const link::Range& r : it->second.ranges.missing(range.first, range.last)) {
      ++it->second.pending;
      it->second.ranges.add(r.first, r.last);
      marks.list_.push_back({it->first, r});
    }
  });
}

void SeenEvents::put(const Marks& marks, port::WriteBatch& to) {
  if (marks.empty()) return;
  const WallTime now = loop_.wall_now();
  const bool old = now - began_ > std::chrono::duration_cast<std::chrono::milliseconds>(kKeepFor);
  if (old || pages_ >= pages_max_) next_generation(!old);
  if (state_due_) {
    std::string state(1, static_cast<char>(kVersion));
    put_varint(state, generation_);
    put_varint(state, static_cast<uint64_t>(to_unix_ms(began_)) / 1000);
    put_varint(state, ended_early_);
    put_varint(state, static_cast<uint64_t>(to_unix_ms(last_early_)) / 1000);
    put_varint(state, static_cast<uint64_t>(to_unix_ms(before_began_)) / 1000);
    to.put(std::string(kStateKey), std::move(state));
  }
  const std::string* last = nullptr;
  for (const Marks::Mark& m : marks.list_) {
    if (last && *last == m.page) continue;
    last = &m.page;
    Page& p = cache_.at(m.page);
    if (!std::exchange(p.stored, true)) ++pages_;
    std::string value(1, static_cast<char>(kVersion));
    p.ranges.encode(value);
    to.put(key(generation_, m.page), std::move(value));
  }
}

void SeenEvents::durable(const Marks& marks) {
  if (!marks.empty()) state_due_ = false;
  for (const Marks::Mark& m : marks.list_) --cache_.at(m.page).pending;
}

void SeenEvents::undo(const Marks& marks) {
  for (const Marks::Mark& m : marks.list_) {
    Page& p = cache_.at(m.page);
    --p.pending;
    p.ranges.remove(m.range.first, m.range.last);
  }
}

void SeenEvents::next_generation(bool early) {
  if (early) {
    ++ended_early_;
    last_early_ = loop_.wall_now();
    log_warn("seen_events_forgotten_early", {{"generation", generation_}, {"pages", pages_}});
  }
  ++generation_;
  before_began_ = began_;
  began_ = loop_.wall_now();
  state_due_ = true;
  pages_ = 0;
  for (auto& [name, p] : cache_) p.stored = false;
  sweep_timer_->start(kSweepInterval, [this] { sweep(); });
}

std::optional<Duration> SeenEvents::short_memory() const {
  const WallTime now = loop_.wall_now();
  const auto keep = std::chrono::duration_cast<std::chrono::milliseconds>(kKeepFor);
  if (ended_early_ == 0 || now - last_early_ > keep || now - before_began_ > keep) return std::nullopt;
  return std::max<Duration>(now - before_began_, Duration::zero());
}

/// Removes pages of generations that are looked at no more, some at a time.
void SeenEvents::sweep() {
  port::WriteBatch entries;
  size_t count = 0;
  const std::string end = key(generation_ - 1, {});
  auto scanned = store_.scan(kPagePrefix, [&](ByteView found, ByteView) {
    if (found >= end || count == kSweepBatch) return false;
    entries.remove(std::string(found));
    ++count;
    return true;
  });
  if (!scanned) log_error("seen_events_unreadable", {{"error", scanned.error().to_string()}});
  if (count == 0) return;
  committer_.request_alone(std::move(entries), [this, alive = alive_] {
    if (*alive) sweep_timer_->start(kSweepInterval, [this] { sweep(); });
  });
}

}  // namespace ph::relay
