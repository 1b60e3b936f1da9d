#include "service/relay/intake.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/limits.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "service/relay/loop_stop.h"
#include "service/relay/packed.h"

namespace ph::relay {
namespace {

constexpr std::string_view kFarPrefix = "r/far/";  // + route, '/', sequence: StreamKey and range to tell
constexpr std::string_view kCountersKey = "c/receiver";
constexpr std::string_view kDirectPrefix = "c/receiver/";  // + route
constexpr size_t kDecodedKept = 16;                        // blocks
constexpr Duration kSweepInterval = std::chrono::hours(1);

// r/far/<route>/<sequence>: 16 sender, u64 target, u64 stream, varint first, varint length
std::string far_key(const std::string& route, uint64_t sequence) {
  std::string key = std::string(kFarPrefix) + route + "/";
  put_key(key, sequence);
  return key;
}

std::string encode_far(const link::StreamKey& key, link::Range range) {
  std::string value;
  value.append(key.sender.bytes());
  put_fixed(value, key.target);
  put_fixed(value, key.stream.value);
  put_varint(value, range.first);
  put_varint(value, range.last - range.first);
  return value;
}

bool decode_far(ByteView value, link::StreamKey& key, link::Range& range) {
  Reader in(value);
  auto sender = NodeId::from_bytes(in.take(16));
  key.target = in.fixed<uint64_t>();
  key.stream.value = in.fixed<uint64_t>();
  range.first = in.varint();
  range.last = range.first + in.varint();
  if (!in.ok() || !sender) return false;
  key.sender = *sender;
  return true;
}

void add(IntakeCounters& to, const IntakeCounters& more) {
  to.events += more.events;
  to.bytes += more.bytes;
  to.duplicates += more.duplicates;
  to.rejected += more.rejected;
  to.looped += more.looped;
  to.gaps += more.gaps;
  to.gap_events += more.gap_events;
  to.recut += more.recut;
}

// c/receiver, c/receiver/<route>: u8 version 1, then varints in the order of the struct; the last two may be missing
IntakeCounters decode_counters(ByteView value) {
  Reader in(value);
  in.fixed<uint8_t>();
  IntakeCounters c;
  for (uint64_t* n : {&c.events, &c.bytes, &c.duplicates, &c.rejected, &c.looped, &c.gaps}) *n = in.varint();
  if (!in.at_end()) c.gap_events = in.varint();
  if (!in.at_end()) c.recut = in.varint();
  return c;
}

/// The parts of a run of lines that lie in `ranges`; empty if one of these is cut within a line: then two nodes do not
/// agree on what the stream's lines are, and the whole block is taken.
std::vector<event::Block> cut_at(const event::Block& block, const std::vector<link::Range>& ranges) {
  const ByteView lines = block.payload.view();
  std::vector<event::Block> parts;
  for (const link::Range& r : ranges) {
    const uint64_t begin = r.first - block.id.first, end = r.last - block.id.first;
    if ((begin > 0 && lines[begin - 1] != '\n') || lines[end - 1] != '\n') return {};
    parts.push_back(event::cut(block, r.first, r.last));
  }
  return parts;
}

/// Whether each part of the block at `position` that lies in `fresh` ends where a line does. One that begins within a
/// line is what is left of it after pieces that came before.
bool ends_whole(const event::Block& block, link::Range position, const std::vector<link::Range>& fresh) {
  if (block.atomic() || block.id.last - block.id.first != position.last - position.first) return false;
  const ByteView lines = block.payload.view();
  return std::ranges::all_of(fresh, [&](const link::Range& r) {
    const bool within = r.last > position.first && r.last < position.last;
    return !within || lines[r.last - position.first - 1] == '\n';
  });
}

}  // namespace

std::string encode_counters(const IntakeCounters& c) {
  std::string value(1, '\x01');
  for (uint64_t n : {c.events, c.bytes, c.duplicates, c.rejected, c.looped, c.gaps, c.gap_events, c.recut})
    put_varint(value, n);
  return value;
}

Result<> load_counters(port::KeyedStore& store, const std::string& key, const std::vector<IntakeRoute>& routes,
                       IntakeCounters& total, std::vector<IntakeCounters>& by_route) {
  PH_ASSIGN(auto sum, store.get(key));
  if (sum) total = decode_counters(*sum);
  for (size_t i = 0; i < routes.size(); ++i) {
    PH_ASSIGN(auto value, store.get(key + "/" + routes[i].name));
    if (value) by_route[i] = decode_counters(*value);
  }
  return {};
}

/// One EVENTS frame on its way through a commit.
struct Intake::Arrival {
  link::StreamKey key;
  std::shared_ptr<IntakeClient> client;  // alive until it heard what was consumed
  std::string peer_site;
  bool wants_far = false;
  uint64_t frame_bytes = 0;
  link::Range whole;
  std::vector<link::Range> fresh;
  std::vector<link::Reject> rejects;
  std::vector<commit::Participant*> needs;
  port::WriteBatch entries;
  IntakeCounters counted;
  std::map<size_t, IntakeCounters> direct;  // by route
  std::vector<GapSeen> gaps;
  std::set<uint64_t> recut;  // positions of blocks that are counted
  SeenEvents::Marks marks;
  std::vector<link::Range> durable_end_here;  // placed in files, looped or refused: far with the commit
  std::move_only_function<void(bool)> done;   // of publish()

  void need(commit::Participant* p) {
    if (std::find(needs.begin(), needs.end(), p) == needs.end()) needs.push_back(p);
  }
};

Intake::Intake(IntakeOptions options, port::Loop& loop, port::KeyedStore& store, commit::Committer& committer,
               chunk::FilesSink* sink)
    : options_(std::move(options)),
      loop_(loop),
      store_(store),
      committer_(committer),
      sink_(sink),
      streams_(link::ReceiverStreams::make()),
      direct_(options_.routes.size()),
      retry_(loop.make_timer()),
      sweep_(loop.make_timer()) {}

Intake::~Intake() {
  *alive_ = false;
}

Result<> Intake::load() {
  Result<> loaded;
  PH_TRY(store_.scan("r/", [&](ByteView key, ByteView value) {
    if (key.starts_with(kFarPrefix)) return true;
    loaded = streams_->load(key, value);
    return loaded.has_value();
  }));
  PH_TRY(std::move(loaded));
  PH_TRY(load_counters(store_, std::string(kCountersKey), options_.routes, counters_, direct_));
  durable_ = counters_;
  direct_durable_ = direct_;
  sweep_->start(kSweepInterval, [this] { sweep_idle(); });
  return {};
}

link::Resumed::Stream Intake::resume(const link::StreamKey& key, uint64_t settled, std::weak_ptr<IntakeClient> client) {
  if (auto alive = client.lock(); alive && (streams_->known(key) || held_.contains(key))) speaker(key, alive);
  return streams_->resume(key, settled);
}

bool Intake::open_to(const link::StreamKey& key, const link::Events& events,
                     const std::shared_ptr<IntakeClient>& client) {
  Speaker& from = speaker(key, client);
  auto held = held_.find(key);
  if (held == held_.end() && events.hold_epoch == from.epoch) return true;
  // HOLD waits until nothing of the stream is being written; then everybody is told who speaks by then.
  if (held != held_.end() && held->second.said && !from.told) tell_hold(from, key.stream, "held");
  return false;
}

bool Intake::take(const link::StreamKey& key, const std::string& peer_site, const link::Events& events,
                  uint64_t frame_bytes, const std::shared_ptr<IntakeClient>& client) {
  if (!open_to(key, events, client)) {
    client->consumed(frame_bytes);
    return true;
  }
  auto arrival = std::make_shared<Arrival>();
  arrival->key = key;
  arrival->client = client;
  arrival->peer_site = peer_site;
  arrival->frame_bytes = frame_bytes;

  // events.packed is shared by everything below until the commit.
  if (!for_each_block(events.packed, events.first, events.last, [](uint64_t, uint64_t, const Slice&) {})) {
    log_warn("link_events_malformed", {{"sender", key.sender.hex()}, {"first", events.first}, {"last", events.last}});
    return false;
  }
  std::vector<Result<event::Block>> decoded;
  if (held_back(key, events, decoded)) {
    client->consumed(frame_bytes);
    return true;
  }
  return enter(arrival, events, decoded);
}

void Intake::publish(const link::StreamKey& key, const std::string& peer_site, const link::Events& events,
                     port::WriteBatch with, std::move_only_function<void(bool)> done) {
  std::vector<Result<event::Block>> decoded;
  if (held_back(key, events, decoded)) return done(false);
  auto arrival = std::make_shared<Arrival>();
  arrival->key = key;
  arrival->client = anybody(key);
  arrival->peer_site = peer_site;
  arrival->entries = std::move(with);
  arrival->done = std::move(done);
  if (!enter(arrival, events, decoded)) arrival->done(false);
}

/// Holds the stream if nothing of the frame may be taken now.
bool Intake::held_back(const link::StreamKey& key, const link::Events& events,
                       std::vector<Result<event::Block>>& decoded) {
  auto why = hindrance(events, decoded);
  if (!why) return false;
  hold(key, why->reason, std::move(why->held));
  arm_retry();
  return true;
}

/// From here on an arrival is part of the next commit. False: too many holes.
bool Intake::enter(const std::shared_ptr<Arrival>& arrival, const link::Events& events,
                   std::vector<Result<event::Block>>& decoded) {
  const link::StreamKey& key = arrival->key;
  arrival->wants_far = events.wants_far;
  arrival->whole = {events.first, events.last};
  streams_->far(key, 0, events.far);
  auto fresh = streams_->admit(key, events.settled, events.first, events.last);
  if (!fresh) return false;
  arrival->fresh = *fresh;
  if (!fresh->empty()) closing_.erase(key);  // a sender that knows nothing of having closed it
  size_t index = 0;
  for_each_block(events.packed, events.first, events.last, [&](uint64_t first, uint64_t last, const Slice& block) {
    bool known = index < decoded.size();
    place_new({first, last}, block, known ? std::move(decoded[index]) : event::decode(block), *fresh, *arrival);
    ++index;
  });
  for (const link::Reject& r : arrival->rejects) streams_->reject(key, r.first, r.last, r.reason);
  if (arrival->wants_far)
    for (const link::Range& r : arrival->durable_end_here) streams_->far(key, r.first, r.last);
  add(counters_, arrival->counted);
  for (auto& [route, more] : arrival->direct) add(direct_[route], more);
  if (!arrival->fresh.empty()) {
    streams_->stage(key, arrival->fresh);
    dirty(key);
    dirty_counters_ = true;
    for (const auto& [route, more] : arrival->direct) dirty_routes_.insert(route);
  }
  if (options_.seen) options_.seen->put(arrival->marks, arrival->entries);
  committer_.request(arrival->needs, std::move(arrival->entries),
                     [this, alive = alive_, arrival](const Result<>& outcome) {
                       if (*alive) committed(arrival, outcome);
                     });
  return true;
}

bool Intake::has(const link::StreamKey& key, uint64_t first, uint64_t last) const {
  const auto held = streams_->held(key, first, last);
  return held.size() == 1 && held[0].first == first && held[0].last == last;
}

void Intake::hold_for_retry(const link::StreamKey& key, std::string_view reason) {
  hold(key, reason, {.logs = true, .files = true});
  arm_retry();
}

/// Why nothing of the frame may be taken now: a disk without room, or a category in whose place something else stands.
/// The first blocks of the frame are handed back as they were decoded: that looks at each of their bytes, and an
/// agent's frame is one block.
std::optional<Intake::Hindrance> Intake::hindrance(const link::Events& events,
                                                   std::vector<Result<event::Block>>& decoded) const {
  std::optional<Hindrance> found;
  if (!sink_) {  // then every route has a log
    Held held{.logs = true};
    if (hindered(held)) found = Hindrance{"disk_full", std::move(held)};
    return found;
  }
  for_each_block(events.packed, events.first, events.last, [&](uint64_t, uint64_t, const Slice& encoded) {
    if (found) return;
    auto block = event::decode(encoded);
    if (block && !looped(*block)) {
      const bool logged = options_.routes[options_.route_of(block->category)].log;
      Held held{.logs = logged, .files = !logged};
      if (!logged && !block->gap && !sink_->obstacle(block->category).empty()) {
        held.blocked = block->category;
        found = Hindrance{"category_blocked", std::move(held)};
      } else if (hindered(held)) {
        found = Hindrance{"disk_full", std::move(held)};
      }
    }
    if (decoded.size() < kDecodedKept) decoded.push_back(std::move(block));
  });
  return found;
}

/// Whether what a stream is held for is still so.
bool Intake::hindered(const Held& held) const {
  if (held.route != SIZE_MAX && options_.routes[held.route].full()) return true;
  if (held.logs && !options_.room()) return true;
  if (!sink_) return false;
  return (held.files && !sink_->room()) || (!held.blocked.empty() && !sink_->obstacle(held.blocked).empty());
}

void Intake::place_new(link::Range position, const Slice& encoded, const Result<event::Block>& block,
                       const std::vector<link::Range>& fresh, Arrival& arrival) {
  if (!block) {
    for (const link::Range& r : fresh)
      if (r.first < position.last && position.first < r.last) {
        reject(arrival, position, 0, block.error().to_string());
        return;
      }
    return;
  }
  uint64_t taken = 0;
  for (const link::Range& r : fresh) {
    link::Range part{std::max(r.first, position.first), std::min(r.last, position.last)};
    if (part.first >= part.last) continue;
    if (part == position) {
      taken = block->events;
      place(*block, encoded, position, arrival);
      break;
    }
    if (block->gap) {  // a part of it was told before; how many events are in the rest nobody can tell
      taken = block->events;
      event::Block rest = *block;
      rest.events = 0;
      place(rest, Slice(event::encode(rest)), part, arrival);
      continue;
    }
    // Batches were cut elsewhere before a crash of the sender: take the lines that are new.
    if (!ends_whole(*block, position, fresh)) {
      // It was cut another way than what came before (another line_max, an event of several lines that went on): what
      // is new in it cannot be told from the rest, and would be lost.
      taken = block->events;
      const uint64_t before = arrival.counted.events;
      place(*block, encoded, position, arrival);
      if (arrival.counted.events > before) recut(*block, position, arrival);
      break;
    }
    event::Block rest = event::cut(*block, block->id.first + (part.first - position.first),
                                   block->id.first + (part.last - position.first));
    taken += rest.events;
    place(rest, Slice(event::encode(rest)), part, arrival);
  }
  if (!block->gap) arrival.counted.duplicates += block->events - taken;
}

/// Part of the block was taken before, as other events; it was taken whole, so that may be here twice.
void Intake::recut(const event::Block& block, link::Range at, Arrival& arrival) {
  if (!arrival.recut.insert(at.first).second) return;
  arrival.counted.recut += block.events;
  log_info("event_recut", {{"sender", arrival.key.sender.hex()},
                           {"stream", arrival.key.stream.value},
                           {"position", at.first},
                           {"events", block.events}});
}

void Intake::reject(Arrival& arrival, link::Range at, uint64_t events, std::string reason) {
  log_warn("event_rejected", {{"sender", arrival.key.sender.hex()}, {"position", at.first}, {"reason", reason}});
  arrival.counted.rejected += events;
  arrival.rejects.push_back({at.first, at.last, std::move(reason)});
  arrival.durable_end_here.push_back(at);
}

bool Intake::looped(const event::Block& block) const {
  bool back_home = block.id.origin == options_.self;
  return back_home || std::find(block.hops.begin(), block.hops.end(), options_.site) != block.hops.end();
}

void Intake::place(const event::Block& block, const Slice& encoded, link::Range at, Arrival& arrival) {
  if (block.gap && block.topic == kBeenThere) {
    arrival.durable_end_here.push_back(at);
    return;
  }
  if (looped(block)) {
    arrival.counted.looped += block.events;
    arrival.durable_end_here.push_back(at);
    return;
  }
  if (block.gap) {
    arrival.counted.gaps += 1;
    log_warn("gap_received", {{"sender", arrival.key.sender.hex()},
                              {"stream", arrival.key.stream.value},
                              {"first", at.first},
                              {"last", at.last},
                              {"events", block.events},
                              {"reason", block.topic}});
    arrival.counted.gap_events += block.events;
    arrival.gaps.push_back({arrival.key.sender, arrival.key.stream, at, block.events, block.topic, loop_.wall_now()});
    if (block.category.empty()) {
      arrival.durable_end_here.push_back(at);
      return;
    }
  }
  if (auto fault = event::category_fault(block.category); !fault.empty())
    return reject(arrival, at, block.events, std::string(fault));
  if (block.gap || !options_.seen) {
    store(block, encoded, at, arrival, true);
    return;
  }
  place_unseen(block, encoded, at, arrival);
}

/// What of it did not come by another link before. What did is durable here or becomes so no later than this group.
void Intake::place_unseen(const event::Block& block, const Slice& encoded, link::Range at, Arrival& arrival) {
  const IntakeRoute& route = options_.routes[options_.route_of(block.category)];
  const std::string scope = route.by_category ? "r/" + route.name + "/" + block.category : "r/" + route.name;
  const std::vector<link::Range> unseen = options_.seen->unseen(scope, block.kind, block.id);
  if (unseen.empty()) {
    arrival.counted.duplicates += block.events;
    arrival.durable_end_here.push_back(at);
    return;
  }
  // What is refused is not marked: by another way it may come with a shorter hop list.
  const auto keep = [&](const event::Block& part, const Slice& bytes, bool last) {
    if (store(part, bytes, at, arrival, last)) options_.seen->mark(scope, part.kind, part.id, arrival.marks);
  };
  if (unseen.front() == link::Range{block.id.first, block.id.last}) return keep(block, encoded, true);
  std::vector<event::Block> parts;
  if (!block.atomic()) parts = cut_at(block, unseen);
  if (parts.empty()) {
    const uint64_t before = arrival.counted.events;
    keep(block, encoded, true);
    if (arrival.counted.events > before) recut(block, at, arrival);
    return;
  }
  uint64_t taken = 0;
  for (const event::Block& part : parts) {
    taken += part.events;
    keep(part, Slice(event::encode(part)), &part == &parts.back());
  }
  arrival.counted.duplicates += block.events - taken;
}

/// `whole`: nothing of what `at` stands for comes after it.
bool Intake::store(const event::Block& block, const Slice& encoded, link::Range at, Arrival& arrival, bool whole) {
  size_t route = options_.route_of(block.category);
  const IntakeRoute& to = options_.routes[route];
  if (to.log) {
    Slice stored = encoded;
    if (arrival.peer_site != options_.site) {
      auto hopped = event::with_hop(encoded.view(), arrival.peer_site);
      if (!hopped) {
        reject(arrival, at, block.events, hopped.error().to_string());
        return false;
      }
      stored = Slice(std::move(*hopped));
    } else {
      stored = Slice(std::string(encoded.view()));  // a small record must not keep a whole frame alive
    }
    uint64_t sequence = to.log->append(std::move(stored), block.gap ? 0 : block.events, block.accepted_at);
    arrival.need(to.log);
    if (arrival.wants_far && whole) arrival.entries.put(far_key(to.name, sequence), encode_far(arrival.key, at));
  } else {
    PH_ASSERT(sink_, "a route without a log leads to files");
    if (auto fault = sink_->refuses(block.category); !fault.empty()) {
      reject(arrival, at, block.events, std::string(fault));
      return false;
    }
    if (!block.gap) {
      sink_->append(block);
      arrival.need(sink_);
    }
    if (whole) arrival.durable_end_here.push_back(at);
    IntakeCounters& direct = arrival.direct[route];
    direct.events += block.gap ? 0 : block.events;
    direct.bytes += block.payload.size();
  }
  if (!block.gap) {
    arrival.counted.events += block.events;
    arrival.counted.bytes += block.payload.size();
  }
  return true;
}

void Intake::dirty(const link::StreamKey& key) {
  dirty_.insert(key);
  committer_.touch(*this);
}

void Intake::begin(port::WriteBatch& entries) {
  WallTime now = loop_.wall_now();
  for (const link::StreamKey& key : std::exchange(dirty_, {})) {
    if (streams_->known(key))
      entries.put(link::store_key(key), streams_->value(key, now));
    else
      entries.remove(link::store_key(key));
  }
  if (std::exchange(dirty_counters_, false)) entries.put(std::string(kCountersKey), encode_counters(counters_));
  for (size_t route : std::exchange(dirty_routes_, {}))
    entries.put(std::string(kDirectPrefix) + options_.routes[route].name, encode_counters(direct_[route]));
}

void Intake::committed(const std::shared_ptr<Arrival>& arrival, const Result<>& outcome) {
  const link::StreamKey& key = arrival->key;
  const auto& client = arrival->client;
  if (!outcome) {
    streams_->abandon(key, arrival->fresh);
    if (options_.seen) options_.seen->undo(arrival->marks);
    auto take_back = [](IntakeCounters& from, const IntakeCounters& less) {
      from.events -= less.events;
      from.bytes -= less.bytes;
      from.duplicates -= less.duplicates;
      from.rejected -= less.rejected;
      from.looped -= less.looped;
      from.gaps -= less.gaps;
      from.gap_events -= less.gap_events;
      from.recut -= less.recut;
    };
    take_back(counters_, arrival->counted);
    for (auto& [route, more] : arrival->direct) take_back(direct_[route], more);
    log_warn("intake_not_durable", {{"error", outcome.error().to_string()}});
    hold(key, outcome.error().code.name(), {.logs = true, .files = true});
    arm_retry();
    if (client) client->consumed(arrival->frame_bytes);
    if (arrival->done) arrival->done(false);
    return;
  }
  if (arrival->done) arrival->done(true);
  streams_->commit(key, arrival->fresh);
  if (options_.seen) options_.seen->durable(arrival->marks);
  add(durable_, arrival->counted);
  for (GapSeen& gap : arrival->gaps) {
    if (gaps_.size() == kGapsShown) gaps_.pop_front();
    gaps_.push_back(std::move(gap));
  }
  for (const auto& [route, more] : arrival->direct) add(direct_durable_[route], more);
  link::Ack ack;
  ack.stream = key.stream;
  // A part that another group admitted and lost is not ours to acknowledge.
  for (const link::Range& r : streams_->held(key, arrival->whole.first, arrival->whole.last))
    ack.accepted.push_back({r.first, r.last});
  ack.duplicates = arrival->counted.duplicates;
  ack.rejects = arrival->rejects;
  if (arrival->wants_far)
    for (const link::Range& r : streams_->far_held(key, arrival->whole.first, arrival->whole.last))
      ack.far.push_back({r.first, r.last});
  if (client) {
    client->acknowledge(key.stream, ack);
    client->consumed(arrival->frame_bytes);
  }
  // Checked after the commit, so that what was on its way is kept and the bound is overshot by a window at most.
  for (size_t i = 0; i < options_.routes.size(); ++i) {
    const IntakeRoute& r = options_.routes[i];
    if (!r.log || std::find(arrival->needs.begin(), arrival->needs.end(), r.log) == arrival->needs.end() || !r.full())
      continue;
    hold(key, "spool_full", {.route = i});
    arm_retry();
  }
}

void Intake::hold(const link::StreamKey& key, std::string_view reason, Held held) {
  if (held_.contains(key)) return;
  const uint64_t serial = next_hold_++;
  held.serial = serial;
  held_[key] = std::move(held);
  // HOLD promises that what is not acknowledged is not here: batches of the stream that wait for their commit come
  // first.
  if (!streams_->writing(key)) return say_hold(key, serial, std::string(reason));
  after_writes([this, key, serial, why = std::string(reason)] { say_hold(key, serial, why); });
}

void Intake::say_hold(const link::StreamKey& key, uint64_t serial, const std::string& reason) {
  auto held = held_.find(key);
  if (held == held_.end() || held->second.serial != serial || held->second.said) return;
  held->second.said = true;
  auto it = speakers_.find(key);
  if (it == speakers_.end()) return;
  for (Speaker& s : it->second) tell_hold(s, key.stream, reason);
}

void Intake::tell_hold(Speaker& speaker, StreamId stream, std::string_view reason) {
  auto client = speaker.client.lock();
  if (!client) return;
  speaker.told = true;
  ++speaker.epoch;
  client->hold(stream, reason);
}

Intake::Speaker& Intake::speaker(const link::StreamKey& key, const std::shared_ptr<IntakeClient>& client) {
  auto& all = speakers_[key];
  for (Speaker& s : all)
    if (!s.client.owner_before(client) && !client.owner_before(s.client)) return s;
  std::erase_if(all, [](const Speaker& s) { return s.client.expired(); });
  return all.emplace_back(Speaker{client});
}

std::shared_ptr<IntakeClient> Intake::anybody(const link::StreamKey& key) const {
  auto it = speakers_.find(key);
  if (it == speakers_.end()) return nullptr;
  for (auto s = it->second.rbegin(); s != it->second.rend(); ++s)
    if (auto client = s->client.lock()) return client;
  return nullptr;
}

void Intake::after_writes(port::Task task) {
  committer_.request({}, {}, [alive = alive_, task = std::move(task)](const Result<>&) mutable {
    if (*alive) task();
  });
}

void Intake::arm_retry() {
  if (retry_->pending()) return;
  retry_->start(kRetryAfter, [this] {
    release_held();
    for (const auto& [route, sequence] : std::exchange(far_again_, {})) far_reached(route, sequence);
  });
}

void Intake::release_held() {
  for (auto it = held_.begin(); it != held_.end();) {
    const Held& held = it->second;
    if (!held.said || hindered(held)) {
      ++it;
      continue;
    }
    link::StreamKey key = it->first;
    it = held_.erase(it);
    auto speakers = speakers_.find(key);
    if (speakers == speakers_.end()) continue;
    for (Speaker& s : speakers->second) {
      auto session = s.client.lock();
      if (std::exchange(s.told, false) && session) session->release(key.stream);
    }
  }
  if (!held_.empty()) arm_retry();
}

bool Intake::close(const link::StreamKey& key, const std::shared_ptr<IntakeClient>& client) {
  if (auto all = speakers_.find(key); all != speakers_.end()) {
    std::erase_if(all->second, [&](const Speaker& s) { return s.client.expired() || s.client.lock() == client; });
    if (!all->second.empty()) {
      closing_.try_emplace(key, loop_.now());
      return false;
    }
  }
  forget(key);
  return true;
}

void Intake::forget(const link::StreamKey& key) {
  speakers_.erase(key);
  held_.erase(key);
  closing_.erase(key);
  if (streams_->close(key)) dirty(key);
}

void Intake::far_reached(const std::string& route, uint64_t sequence) {
  // The list of what to tell is in the store, in the order of the log: memory stays bounded however long the queue is.
  std::map<link::StreamKey, link::Ack> acks;
  port::WriteBatch entries;
  std::string end = far_key(route, sequence);
  auto scanned = store_.scan(std::string(kFarPrefix) + route + "/", [&](ByteView key, ByteView value) {
    if (key >= end) return false;
    link::StreamKey stream;
    link::Range range;
    if (decode_far(value, stream, range)) {
      streams_->far(stream, range.first, range.last);
      // Also when that is known already: it may be from a commit that failed, and then nobody was told.
      link::Ack& ack = acks[stream];
      ack.stream = stream.stream;
      ack.far.push_back({range.first, range.last});
    }
    entries.remove(std::string(key));
    return true;
  });
  if (!scanned) log_error("far_scan_failed", {{"error", scanned.error().to_string()}});
  if (entries.empty()) return;
  for (auto it = acks.begin(); it != acks.end();) {
    if (!streams_->known(it->first)) {  // closed meanwhile
      it = acks.erase(it);
      continue;
    }
    dirty(it->first);
    ++it;
  }
  committer_.request({}, std::move(entries),
                     [this, alive = alive_, route, sequence, acks = std::move(acks)](const Result<>& outcome) {
                       if (!*alive) return;
                       if (outcome) return tell_far(acks);
                       uint64_t& again = far_again_[route];
                       again = std::max(again, sequence);
                       arm_retry();
                     });
}

void Intake::tell_far(const std::map<link::StreamKey, link::Ack>& acks) {
  for (const auto& [key, ack] : acks)
    if (auto client = anybody(key)) client->acknowledge(key.stream, ack);
}

void Intake::sweep_idle() {
  auto before = loop_.wall_now() - std::chrono::duration_cast<std::chrono::milliseconds>(options_.stream_ttl);
  for (const link::StreamKey& key : streams_->idle_since(before)) {
    if (anybody(key)) continue;
    log_info("stream_forgotten", {{"sender", key.sender.hex()}, {"stream", key.stream.value}});
    forget(key);
  }
  for (const auto& [key, since] : std::map(closing_))
    if ((!anybody(key) || loop_.now() - since >= kClosingFor) && !streams_->writing(key)) forget(key);
  std::erase_if(speakers_, [](const auto& of) {
    return std::ranges::all_of(of.second, [](const Speaker& s) { return s.client.expired(); });
  });
  std::erase_if(held_, [this](const auto& of) { return of.second.said && !speakers_.contains(of.first); });
  sweep_->start(kSweepInterval, [this] { sweep_idle(); });
}

std::map<std::string, IntakeCounters> Intake::direct_counters() const {
  std::map<std::string, IntakeCounters> out;
  for (size_t i = 0; i < options_.routes.size(); ++i)
    if (!options_.routes[i].log) out[options_.routes[i].name] = direct_durable_[i];
  return out;
}

}  // namespace ph::relay
