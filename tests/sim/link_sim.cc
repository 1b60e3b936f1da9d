// The world of the link simulation: data, network, faults, and what is checked at the end. See link_sim.h.
#include "sim/link_sim.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/coding.h"

namespace ph::link_sim {

bool Clock::run(Instant until, uint64_t steps_max) {
  while (!queue_.empty() && queue_.top().at <= until) {
    if (steps_max-- == 0) return false;
    Due due = queue_.top();
    queue_.pop();
    now_ = due.at;
    due.what();
  }
  now_ = std::max(now_, until);
  return true;
}

size_t SourceStream::unit_at(uint64_t at) const {
  auto it = std::lower_bound(units.begin(), units.end(), at, [](const Unit& u, uint64_t p) { return u.first < p; });
  if (it == units.end() || it->first != at)
    throw Violation("position " + std::to_string(at) + " of stream " + std::to_string(id.value) + " begins no event");
  return static_cast<size_t>(it - units.begin());
}

std::string describe(const link::Frame& frame) {
  std::string out;
  auto spans = [&out](const char* name, const auto& list) {
    if (list.empty()) return;
    out += std::string(" ") + name;
    for (const auto& s : list) out += " [" + std::to_string(s.first) + "," + std::to_string(s.last) + ")";
  };
  auto number = [&out](const char* name, uint64_t n) { out += std::string(" ") + name + " " + std::to_string(n); };
  auto stream = [&](StreamId id) { number("stream", id.value % 1000); };
  if (const auto* e = std::get_if<link::Events>(&frame)) {
    out = "EVENTS";
    stream(e->stream);
    out += " [" + std::to_string(e->first) + "," + std::to_string(e->last) + ")";
    number("settled", e->settled);
    number("epoch", e->hold_epoch);
  } else if (const auto* a = std::get_if<link::Ack>(&frame)) {
    out = "ACK";
    stream(a->stream);
    spans("accepted", a->accepted);
    spans("far", a->far);
    spans("rejects", a->rejects);
    number("duplicates", a->duplicates);
  } else if (const auto* q = std::get_if<link::Resume>(&frame)) {
    out = "RESUME";
    for (const auto& s : q->streams) {
      stream(s.stream);
      number("settled", s.settled);
    }
  } else if (const auto* r = std::get_if<link::Resumed>(&frame)) {
    out = "RESUMED";
    for (const auto& s : r->streams) {
      stream(s.stream);
      number("settled", s.settled);
      spans("accepted", s.accepted);
      spans("far", s.far);
      spans("rejects", s.rejects);
    }
  } else if (const auto* c = std::get_if<link::Credit>(&frame)) {
    out = "CREDIT";
    number("bytes", c->bytes);
  } else if (const auto* h = std::get_if<link::Hold>(&frame)) {
    out = "HOLD";
    stream(h->stream);
  } else if (const auto* l = std::get_if<link::Release>(&frame)) {
    out = "RELEASE";
    stream(l->stream);
  } else if (const auto* x = std::get_if<link::CloseStream>(&frame)) {
    out = "CLOSE";
    stream(x->stream);
  } else {
    out = std::holds_alternative<link::Hello>(frame)  ? "HELLO"
          : std::holds_alternative<link::Ping>(frame) ? "PING"
          : std::holds_alternative<link::Pong>(frame) ? "PONG"
                                                      : "other";
  }
  return out;
}

// --- network

void Connection::push(bool to_receiver, const link::Encoded& frame) {
  Pipe& pipe = to_receiver ? up : down;
  pipe.frames.push_back(frame.head + std::string(frame.body.view()));
  if (std::exchange(pipe.draining, true)) return;
  Duration delay = world->profile.latency + world->some(world->profile.latency);
  world->clock.after(delay, [self = shared_from_this(), to_receiver] { self->drain(to_receiver); });
}

void Connection::drain(bool to_receiver) {
  Pipe& pipe = to_receiver ? up : down;
  auto self = shared_from_this();
  if (world->clock.now() < pipe.stalled_until)
    return world->clock.after(pipe.stalled_until - world->clock.now(),
                              [self, to_receiver] { self->drain(to_receiver); });
  if (!pipe.frames.empty()) {
    std::string frame = std::move(pipe.frames.front());
    pipe.frames.pop_front();
    world->trace([&] {
      return (to_receiver ? "  to r" : "from r") + std::to_string(receiver) + " " +
             describe(std::get<link::Frame>(link::decode(frame)->frame));
    });
    if (to_receiver) {
      Receiver& r = *world->receivers[receiver];
      if (receiver_open && r.up() && r.incarnation() == incarnation) {
        if (!sender_open) ++world->outcome.late_bytes;
        r.deliver(*this, frame);
      }
    } else if (sender_open && world->node->up() && world->node->run() == run) {
      world->node->deliver(*this, frame);
    }
  }
  if (pipe.frames.empty()) {
    pipe.draining = false;
    if (to_receiver && !sender_open && receiver_open) {  // the end of what the closed side had written
      receiver_open = false;
      world->receivers[receiver]->closed(*this);
    }
    if (!to_receiver && !receiver_open && sender_open) world->node->broken(self);
    return;
  }
  world->clock.after(world->some(2ms), [self, to_receiver] { self->drain(to_receiver); });
}

void Connection::stall(Duration time) {
  up.stalled_until = std::max(up.stalled_until, world->clock.now() + time);
  if (world->random.chance(0.5)) down.stalled_until = std::max(down.stalled_until, world->clock.now() + time);
}

// --- world

Profile Profile::of_seed(uint64_t seed) {
  Random random(seed ^ 0x5EED);
  Profile p;
  p.receivers = 1 + random.below(4);
  p.sources = 1 + random.below(3);
  p.streams = 1 + random.below(3);
  p.units = 30 + random.below(150);
  p.window = 4096 << random.below(4);
  p.latency = 1ms + Duration(random.below(80'000'000));
  p.chaos_gap = 50ms + Duration(random.below(2'000'000'000));
  p.chaos_time = 10s + Duration(random.below(20'000'000'000));
  for (double* share :
       {&p.sender_crashes, &p.receiver_crashes, &p.cuts, &p.stalls, &p.starvation, &p.full_disks, &p.holds})
    *share = random.chance(0.25) ? 0 : static_cast<double>(1 + random.below(10));
  p.refuse = random.chance(0.7);
  p.hash = random.chance(0.4);
  if (random.chance(0.5)) p.allowance = 500 + random.below(2500);
  return p;
}

Profile Profile::receivers_stay(uint64_t seed) {
  Profile p = of_seed(seed);
  p.receiver_crashes = p.stalls = 0;
  p.sender_crashes = p.cuts = 5;
  p.sender_notices = true;  // else a receiver is rightly taken for one that cannot be asked in time
  p.chaos_gap = 2s;
  p.key_order = true;
  p.latency = std::min<Duration>(p.latency, 20ms);
  return p;
}

Profile Profile::connections_stay(uint64_t seed) {
  Profile p = of_seed(seed);
  p.receiver_crashes = p.stalls = p.sender_crashes = p.cuts = 0;
  p.holds = p.starvation = p.full_disks = 5;
  p.key_order = true;
  return p;
}

World::World(uint64_t s, Profile p) : seed(s), profile(p), random(s) {
  sender_id = random.node_id();
  rerouted.resize(profile.sources);
  extra.resize(profile.sources);
  for (size_t source = 0; source < profile.sources; ++source) {
    wants_far.push_back(random.chance(0.5));
    for (size_t i = 0; i < profile.streams; ++i) {
      auto& s2 = *streams.emplace_back(std::make_unique<SourceStream>());
      s2.id = random.stream_id();
      s2.source = source;
      s2.log = random.chance(0.4);
      uint64_t at = s2.log ? random.below(3) : 0;
      s2.stored.settled = s2.stored.far = at;
      for (size_t n = 0; n < profile.units; ++n) {
        Unit& u = s2.units.emplace_back();
        bool refused = profile.refuse && random.chance(0.06);
        if (refused) u.fate = !s2.log && random.chance(0.5) ? Unit::Fate::refuse_line : Unit::Fate::refuse_block;
        u.events = s2.log ? 1 + random.below(3) : 1;
        for (uint64_t e = 0; e < u.events; ++e)
          u.bytes += std::string(1, u.fate == Unit::Fate::refuse_line ? 'R' : 'x') + std::to_string(n) +
                     std::string(random.below(40), '.') + "\n";
        u.first = at;
        u.last = at += s2.log ? 1 : u.bytes.size();
      }
      s2.memory = s2.stored;
      s2.copies.resize(s2.units.size());
      outcome.units += s2.units.size();
    }
  }
  for (size_t r = 0; r < profile.receivers; ++r) receivers.push_back(std::make_unique<Receiver>(*this, r));
  node = std::make_unique<SendingNode>(*this);
}

World::~World() = default;

std::string World::time() const {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(clock.now().time_since_epoch()).count()) +
         " ms";
}

void World::trace(const std::function<std::string()>& line) const {
  static const bool on = std::getenv("PH_SIM_TRACE") != nullptr;
  if (on) std::fprintf(stderr, "%s: %s\n", time().c_str(), line().c_str());
}

void World::violated(const std::string& what) const {
  throw Violation("seed " + std::to_string(seed) + " at " + time() + ": " + what);
}

SourceStream* World::find(StreamId id) {
  for (auto& s : streams)
    if (s->id == id) return s.get();
  violated("a stream that nobody has");
  return nullptr;
}

void World::publish(size_t receiver, SourceStream& s, size_t unit) {
  ++outcome.published;
  std::string mark = std::to_string(receiver) + "/" + std::to_string(s.id.value) + "/" + std::to_string(unit);
  outcome.fingerprint = outcome.fingerprint * 31 + crc32c(mark);
  if (s.units[unit].fate != Unit::Fate::deliver) violated("a refused event was published");
  if (++s.copies[unit] == 1) {
    if (!profile.hash || !profile.key_order) return;
    auto [last, fresh] = s.last_of_key.try_emplace(std::to_string(unit).front(), unit);
    if (!fresh && std::exchange(last->second, unit) > unit)
      violated("event " + std::to_string(unit) + " of stream " + std::to_string(s.id.value) +
               " came behind a later one of its key");
    return;
  }
  ++outcome.extra_copies;
  extra[s.source] += s.units[unit].events;
  if (extra[s.source] > rerouted[s.source])
    violated("event " + std::to_string(unit) + " of stream " + std::to_string(s.id.value) +
             " is at two receivers and nobody counted that");
}

/// Producers write until everything is there.
void World::write_data() {
  bool more = false;
  for (auto& s : streams) {
    if (s->available == s->units.size()) continue;
    s->available = std::min(s->units.size(), s->available + random.below(12));
    more = true;
  }
  if (more) clock.after(some(profile.chaos_time / 8), [this] { write_data(); });
  if (node->up()) node->data_available();
}

void World::chaos() {
  if (calm) return;
  clock.after(some(profile.chaos_gap * 2), [this] { chaos(); });
  Profile& p = profile;
  double dice = static_cast<double>(random.below(1'000'000)) / 1e6 *
                (p.sender_crashes + p.receiver_crashes + p.cuts + p.stalls + p.starvation + p.full_disks + p.holds);
  auto falls_on = [&dice](double share) { return dice >= 0 && (dice -= share) < 0; };
  Receiver& r = *receivers[random.below(receivers.size())];
  auto links = node->connections();
  if (falls_on(p.sender_crashes)) {
    if (node->up()) node->crash();
  } else if (falls_on(p.receiver_crashes)) {
    if (r.up()) r.crash();
  } else if (falls_on(p.cuts) && !links.empty()) {
    auto c = links[random.below(links.size())];
    if (random.chance(0.5)) c->up.frames.clear();
    if (random.chance(0.5)) c->down.frames.clear();
    // Either side may be the only one that notices.
    bool unnoticed = random.chance(0.3) && !p.sender_notices;
    bool half = random.chance(0.3);
    if (!half && c->receiver_open) {
      c->receiver_open = false;
      receivers[c->receiver]->closed(*c);
    }
    if (half || !unnoticed) node->broken(c);
  } else if (falls_on(p.stalls) && !links.empty()) {
    links[random.below(links.size())]->stall(some(8s));
  } else if (falls_on(p.starvation)) {
    r.starve(some(5s));
  } else if (falls_on(p.full_disks)) {
    r.fail_next_group();
  } else if (falls_on(p.holds)) {
    if (random.chance(0.3)) r.slow_disk(some(800ms));
    if (r.up()) r.hold_something();
  }
}

Outcome World::run() {
  for (auto& r : receivers) r->start();
  node->start();
  write_data();
  chaos();
  constexpr uint64_t kSteps = 2'000'000;
  if (!clock.run(clock.now() + profile.chaos_time, kSteps)) violated("it spins");
  calm = true;
  for (auto& r : receivers) r->slow_disk(Duration::zero());
  for (int waits = 0; !node->settled(); ++waits) {
    if (waits == 600) violated("not everything arrives after the faults have stopped: " + node->state());
    if (!clock.run(clock.now() + 1s, kSteps)) violated("it spins");
  }
  finish();
  return outcome;
}

void World::finish() {
  // The last dead letters are written, and everybody is connected again: CLOSE goes to who is.
  if (!clock.run(clock.now() + 30s, 1'000'000)) violated("it spins");
  for (auto& s : streams) {
    uint64_t deliverable = 0;
    for (size_t i = 0; i < s->units.size(); ++i) {
      bool refused = s->units[i].fate != Unit::Fate::deliver;
      if (!refused) deliverable += s->units[i].events;
      if (!refused && s->copies[i] == 0) violated("an event is at no receiver");
      if (refused && !s->dead_letters.contains(i)) violated("a refused event is in no dead letter");
      outcome.dead_letters += refused;
    }
    if (s->memory.delivered != deliverable) violated("events are counted wrong");
    if (wants_far[s->source] && s->memory.far != s->units.back().last) violated("far stays behind");
  }
  if (node->unacked() != 0) violated("the window is not empty");
  if (receivers.size() == 1 && outcome.rerouted != 0) violated("rerouted, with one receiver");
  node->close_streams();
  if (!clock.run(clock.now() + 30s, 1'000'000)) violated("it spins");
  for (auto& r : receivers)
    if (r->streams() != 0) violated("a closed stream is not forgotten");
}

}  // namespace ph::link_sim
