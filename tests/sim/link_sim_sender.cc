// The sending node of the link simulation: what service/relay's Upstream and a source do, with a store that loses
// what was not written yet. See link_sim.h.
#include <algorithm>

#include "base/coding.h"
#include "codec/event/block.h"
#include "sim/link_sim.h"

namespace ph::link_sim {
namespace {

std::string address(size_t receiver) {
  return "r" + std::to_string(receiver);
}

}  // namespace

SendingNode::SendingNode(World& world) : world_(world) {}
SendingNode::~SendingNode() = default;

void SendingNode::later(Duration delay, std::function<void()> what) {
  world_.clock.after(delay, [this, run = run_, what = std::move(what)] {
    if (run == run_ && sender_) what();
  });
}

void SendingNode::start() {
  ++run_;
  attempt_ = 0;
  tick_at_ = Instant::max();
  links_.assign(world_.receivers.size(), nullptr);
  link::SenderOptions options;
  for (size_t r = 0; r < world_.receivers.size(); ++r)
    options.receivers.push_back({address(r), static_cast<uint32_t>(1 + r % 3)});
  options.window_bytes = world_.profile.window;
  if (world_.profile.hash) options.hash = link::HashRule{link::HashRule::By::regex, "[xR]([0-9])", 0};
  options.request_timeout = 3s;
  options.resume_timeout = 1s;
  options.probe_max = 1s;
  options.confirms_stored = true;
  options.frame_min = 200;
  sender_ = link::Sender::make(std::move(options), world_.random);
  std::vector<std::vector<link::SenderStream>> open(world_.profile.sources);
  for (auto& s : world_.streams) {
    if (s->closed) continue;
    s->memory = s->stored;
    s->refused.clear();
    s->read = s->unit_at(0 + s->stored.settled < s->units.back().last ? s->stored.settled : s->units.front().first);
    if (s->stored.settled >= s->units.back().last) s->read = s->units.size();
    // A stream that was never used is met by its first batch.
    if (s->receivers.empty() && s->stored.settled == s->units.front().first) continue;
    open[s->source].push_back({s->id,
                               s->stored.settled,
                               s->stored.far,
                               s->position(s->available),
                               {s->receivers.begin(), s->receivers.end()}});
  }
  for (size_t i = 0; i < open.size(); ++i) sender_->add_source(std::move(open[i]), world_.wants_far[i]);
  sender_->start(world_.clock.now());
  std::function<void()> keep_storing = [this] { store(); };
  later(world_.some(1s), keep_storing);
  pump();
}

void SendingNode::crash() {
  ++world_.outcome.sender_crashes;
  world_.trace([] { return std::string("sender crashes"); });
  sender_.reset();
  for (auto& c : links_)
    if (c) broken(c);
  ++run_;
  world_.clock.after(1ms + world_.some(2s), [this] { start(); });
}

std::vector<std::shared_ptr<Connection>> SendingNode::connections() const {
  std::vector<std::shared_ptr<Connection>> out;
  for (const auto& c : links_)
    if (c && c->sender_open) out.push_back(c);
  return out;
}

/// The cursors reach the disk now and then, all in one batch; one that is past a refused event waits for its dead
/// letter.
void SendingNode::store() {
  for (auto& s : world_.streams) {
    if (s->memory.settled < s->stored.settled) world_.violated("a stored cursor goes back");
    bool waits = false;
    for (size_t i = 0; i < s->units.size() && s->units[i].last <= s->memory.settled; ++i)
      if (s->units[i].fate != Unit::Fate::deliver && !s->dead_letters.contains(i)) waits = true;
    if (waits) continue;
    s->stored = s->memory;
    if (!s->closed) sender_->stored(s->source, s->id, s->stored.settled, world_.clock.now());
  }
  later(world_.some(1s), [this] { store(); });
}

/// The sender's end is gone. What it had handed to its kernel may still arrive, much later.
void SendingNode::broken(const std::shared_ptr<Connection>& c) {
  if (!c->sender_open) return;
  world_.trace([&] { return "connection to r" + std::to_string(c->receiver) + " is broken"; });
  c->sender_open = false;
  c->down.frames.clear();
  switch (world_.random.below(3)) {
    case 0:
      c->up.frames.clear();
      break;
    case 1:
      c->up.stalled_until = world_.clock.now() + world_.some(10s);
      break;
    default:
      break;
  }
  if (!std::exchange(c->up.draining, true)) world_.clock.after(world_.profile.latency, [c] { c->drain(true); });
  if (!sender_ || links_[c->receiver] != c) return;
  links_[c->receiver] = nullptr;
  sender_->disconnected(c->receiver, "broken", world_.clock.now());
  pump();
}

void SendingNode::on(const link::effect::Connect& e) {
  ++world_.outcome.connections;
  auto c = std::make_shared<Connection>();
  c->world = &world_;
  c->receiver = e.receiver;
  c->run = run_;
  links_[e.receiver] = c;
  later(world_.profile.latency, [this, c] {
    Receiver& r = *world_.receivers[c->receiver];
    if (!c->sender_open) return;
    if (!r.up()) return broken(c);
    c->incarnation = r.incarnation();
    r.accept(c);
    c->push(true, link::encode(link::Hello{.node = world_.sender_id,
                                           .name = "sender",
                                           .site = "a",
                                           .target = "t",
                                           .incarnation = run_,
                                           .channel = c->receiver,
                                           .attempt = ++attempt_}));
  });
}

void SendingNode::deliver(Connection& c, const std::string& bytes) {
  if (links_[c.receiver].get() != &c) return;
  auto decoded = link::decode(bytes);
  if (!decoded) world_.violated("a frame does not decode: " + decoded.error().to_string());
  const auto& frame = std::get<link::Frame>(decoded->frame);
  if (const auto* hello = std::get_if<link::Hello>(&frame))
    sender_->connected(c.receiver, *hello, world_.clock.now());
  else
    sender_->received(c.receiver, frame, world_.clock.now());
  pump();
}

void SendingNode::pump() {
  if (!sender_ || pumping_) return;
  pumping_ = true;
  for (bool again = true; again;) {
    if (sender_->deadline() <= world_.clock.now()) sender_->tick(world_.clock.now());
    auto effects = sender_->take_effects();
    for (auto& e : effects) apply(e);
    again = !effects.empty();
    if (!again) {
      pull();
      effects = sender_->take_effects();
      for (auto& e : effects) apply(e);
      again = !effects.empty();
    }
  }
  pumping_ = false;
  if (sender_->unacked_bytes() > 2 * world_.profile.window + 16 * 1024) world_.violated("the window has no bound");
  Instant due = sender_->deadline();
  if (due < tick_at_ || tick_at_ <= world_.clock.now()) {
    tick_at_ = due;
    later(std::max(due - world_.clock.now(), Duration(1)), [this] { pump(); });
  }
}

void SendingNode::pull() {
  for (size_t source = 0; source < world_.profile.sources; ++source) {
    std::vector<SourceStream*> ready;
    for (auto& s : world_.streams)
      if (s->source == source && s->read < s->available) ready.push_back(s.get());
    if (ready.empty() || sender_->room(source) == 0) continue;
    sender_->offer(source, next_batch(*ready[world_.random.below(ready.size())]), world_.clock.now());
  }
}

/// The next few units in blocks; where a batch and its blocks end is different each time, as after a crash.
link::SenderBatch SendingNode::next_batch(SourceStream& s) {
  size_t count = std::min<size_t>(s.available - s.read, 1 + world_.random.below(12));
  link::SenderBatch batch{s.id, s.units[s.read].first, s.units[s.read + count - 1].last, 0, {}};
  std::string packed;
  for (size_t end = s.read + count; s.read < end;) {
    event::Block b;
    const Unit& first = s.units[s.read];
    bool refused = first.fate == Unit::Fate::refuse_block;
    b.category = refused ? "bad/name" : "events";
    b.id = {world_.sender_id, s.id, first.first, 0};
    std::string payload;
    uint64_t position = first.first;
    do {
      const Unit& u = s.units[s.read++];
      payload += u.bytes;
      b.events += u.events;
      position = u.last;
    } while (!s.log && s.read < end && (s.units[s.read].fate == Unit::Fate::refuse_block) == refused &&
             world_.random.chance(0.7));
    b.id.last = b.id.first + payload.size();
    b.payload = Slice(std::move(payload));
    batch.events += b.events;
    put_varint(packed, position - first.first);
    put_sized(packed, event::encode(b));
  }
  batch.packed = Slice(std::move(packed));
  return batch;
}

void SendingNode::apply(link::SenderEffect& effect) {
  namespace fx = link::effect;
  if (auto* send = std::get_if<fx::Send>(&effect)) {
    if (auto& c = links_[send->receiver]) c->push(true, send->frame);
  } else if (auto* connect = std::get_if<fx::Connect>(&effect)) {
    on(*connect);
  } else if (auto* disconnect = std::get_if<fx::Disconnect>(&effect)) {
    auto c = std::exchange(links_[disconnect->receiver], nullptr);
    if (c) broken(c);
  } else if (auto* use = std::get_if<fx::WillUse>(&effect)) {
    on(*use);
  } else if (auto* advanced = std::get_if<fx::Advanced>(&effect)) {
    on(*advanced);
  } else if (auto* rejected = std::get_if<fx::Rejected>(&effect)) {
    on(*rejected);
  } else if (auto* far = std::get_if<fx::FarAdvanced>(&effect)) {
    SourceStream& s = *world_.find(far->stream);
    if (far->far <= s.memory.far || far->far > s.memory.settled) world_.violated("far goes back, or past settled");
    s.memory.far = far->far;
  } else if (auto* rerouted = std::get_if<fx::ReroutedUnasked>(&effect)) {
    world_.trace([&] { return "rerouted unasked " + std::to_string(rerouted->events); });
    later(world_.some(30ms), [this, e = *rerouted] {
      world_.rerouted[e.source] += e.events;
      world_.outcome.rerouted += e.events;
      sender_->counted(e.source, e.stream, world_.clock.now());
      pump();
    });
  } else if (std::holds_alternative<fx::Renew>(effect)) {
    world_.violated("a stream is renewed although nothing was rolled back");
  }
}

void SendingNode::on(const link::effect::WillUse& e) {
  later(world_.some(30ms), [this, e] {
    world_.find(e.stream)->receivers.insert(address(e.receiver));
    sender_->durable(e.source, e.stream, e.receiver, world_.clock.now());
    pump();
  });
}

void SendingNode::on(const link::effect::Advanced& e) {
  SourceStream& s = *world_.find(e.stream);
  world_.trace([&] {
    return "stream " + std::to_string(s.id.value % 1000) + " settled " + std::to_string(e.settled) + " +" +
           std::to_string(e.events);
  });
  if (e.settled <= s.memory.settled) world_.violated("settled does not grow");
  if (e.duplicates > e.events) world_.violated("more duplicates than events");
  uint64_t events = 0;
  size_t end = e.settled == s.units.back().last ? s.units.size() : s.unit_at(e.settled);
  for (size_t i = s.unit_at(s.memory.settled); i < end; ++i) {
    if (s.units[i].fate == Unit::Fate::deliver) {
      events += s.units[i].events;
      if (s.copies[i] == 0) world_.violated("event " + std::to_string(i) + " is settled and at no receiver");
    } else if (!s.refused.contains(i)) {
      world_.violated("a refused event is settled and was not reported");
    }
  }
  if (events != e.events)
    world_.violated("Advanced tells of " + std::to_string(e.events) + " events, it is " + std::to_string(events));
  s.memory.settled = e.settled;
  s.memory.delivered += e.events;
  world_.outcome.duplicates += e.duplicates;
}

void SendingNode::on(const link::effect::Rejected& e) {
  SourceStream& s = *world_.find(e.stream);
  world_.trace([&] {
    return "rejected stream " + std::to_string(s.id.value % 1000) + " [" + std::to_string(e.first) + "," +
           std::to_string(e.last) + ")";
  });
  auto block = event::decode(e.block);
  if (!block) world_.violated("a refused block does not decode");
  std::string expected;
  size_t first = s.unit_at(e.first);
  for (size_t i = first; i < s.units.size() && s.units[i].first < e.last; ++i) {
    if (s.units[i].fate == Unit::Fate::deliver) world_.violated("an event is reported as refused that was not");
    if (!s.refused.insert(i).second) world_.violated("an event is reported as refused twice");
    expected += s.units[i].bytes;
  }
  if (block->payload.view() != expected) world_.violated("a refused block has other bytes than its positions");
  later(world_.some(50ms), [this, e, first] {
    SourceStream& stream = *world_.find(e.stream);
    for (size_t i = first; i < stream.units.size() && stream.units[i].first < e.last; ++i)
      stream.dead_letters.insert(i);
  });
}

bool SendingNode::settled() const {
  if (!sender_) return false;
  return std::all_of(world_.streams.begin(), world_.streams.end(), [this](const auto& s) {
    uint64_t end = s->units.back().last;
    return s->memory.settled == end && (!world_.wants_far[s->source] || s->memory.far == end);
  });
}

std::string SendingNode::state() const {
  if (!sender_) return "down";
  std::string out;
  for (const auto& s : world_.streams)
    out += "stream " + std::to_string(s->id.value % 1000) + " settled " + std::to_string(s->memory.settled) + " far " +
           std::to_string(s->memory.far) + " of " + std::to_string(s->units.back().last) + ", read " +
           std::to_string(s->read) + "/" + std::to_string(s->available) + "/" + std::to_string(s->units.size()) + "; ";
  for (const auto& r : sender_->receivers())
    out += r.address + " state " + std::to_string(static_cast<int>(r.state)) + " in flight " +
           std::to_string(r.in_flight_batches) + " uncertain " + std::to_string(r.uncertain_batches) + "; ";
  return out + "room " + std::to_string(sender_->room());
}

void SendingNode::close_streams() {
  for (auto& s : world_.streams) {
    s->closed = true;
    sender_->close_stream(s->id);
  }
  pump();
}

}  // namespace ph::link_sim
