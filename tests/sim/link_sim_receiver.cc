// The receivers of the link simulation: what service/relay's LinkServer and Intake do with ReceiverStreams, over a
// group commit that takes time, fails and is cut off by crashes. See link_sim.h.
#include <algorithm>

#include "base/coding.h"
#include "codec/event/block.h"
#include "core/link/packed.h"
#include "sim/link_sim.h"

namespace ph::link_sim {
namespace {

constexpr WallTime kWall = WallTime(std::chrono::hours(400'000));

}  // namespace

Receiver::Receiver(World& world, size_t index) : world_(world), index_(index) {}

link::StreamKey Receiver::key(StreamId stream) const {
  return {world_.sender_id, link::target_hash("t"), stream};
}

void Receiver::later(Duration delay, std::function<void()> what) {
  world_.clock.after(delay, [this, incarnation = incarnation_, what = std::move(what)] {
    if (incarnation == incarnation_ && streams_) what();
  });
}

void Receiver::start() {
  ++incarnation_;
  starved_until_ = {};
  streams_ = link::ReceiverStreams::make();
  for (const auto& [k, value] : stored_)
    if (!streams_->load(k, value)) world_.violated("a stored stream does not load");
  later(world_.some(500ms), [this] { far_reached(); });
}

void Receiver::crash() {
  ++world_.outcome.receiver_crashes;
  world_.trace([&] { return "r" + std::to_string(index_) + " crashes"; });
  // The group being written may have reached the disk without anybody having heard.
  if (busy_ && world_.random.chance(0.5))
    for (Arrival& a : writing_) make_durable(a);
  for (const auto& c : world_.node->connections()) {
    if (c->receiver != index_ || c->incarnation != incarnation_) continue;
    c->receiver_open = false;
    if (world_.random.chance(0.5)) world_.clock.after(world_.profile.latency, [this, c] { world_.node->broken(c); });
  }
  streams_.reset();
  current_.reset();
  owners_.clear();
  held_.clear();
  epochs_.clear();
  waiting_.clear();
  writing_.clear();
  busy_ = scheduled_ = false;
  world_.clock.after(50ms + world_.some(6s), [this] { start(); });
}

void Receiver::accept(const std::shared_ptr<Connection>& c) {
  link::Hello hello;
  hello.node.raw[0] = static_cast<unsigned char>(index_ + 1);
  hello.features = link::features::need;
  send(*c, hello);
}

void Receiver::closed(Connection& c) {
  if (current_.get() == &c) current_.reset();
}

void Receiver::send(Connection& c, const link::Frame& frame) {
  if (c.receiver_open) c.push(false, link::encode(frame));
}

void Receiver::deliver(Connection& c, const std::string& bytes) {
  auto decoded = link::decode(bytes);
  if (!decoded) world_.violated("a frame does not decode: " + decoded.error().to_string());
  const auto& frame = std::get<link::Frame>(decoded->frame);
  if (std::holds_alternative<link::Hello>(frame)) {
    if (current_ && current_.get() != &c) current_->receiver_open = false;  // an older connection of the channel
    current_ = c.shared_from_this();
    c.introduced = true;
    grant(c);
  } else if (const auto* resume = std::get_if<link::Resume>(&frame)) {
    on_resume(c, *resume);
  } else if (const auto* events = std::get_if<link::Events>(&frame)) {
    take(c, *events, bytes.size());
  } else if (const auto* close = std::get_if<link::CloseStream>(&frame)) {
    owners_.erase(key(close->stream));
    held_.erase(key(close->stream));
    if (streams_->close(key(close->stream))) stored_.erase(link::store_key(key(close->stream)));
  } else if (const auto* ping = std::get_if<link::Ping>(&frame)) {
    send(c, link::Pong{ping->token});
  }
}

void Receiver::on_resume(Connection& c, const link::Resume& resume) {
  bool writing = std::any_of(resume.streams.begin(), resume.streams.end(),
                             [this](const auto& s) { return streams_->writing(key(s.stream)); });
  if (!writing && c.resumes_waiting == 0) return answer(c, resume);
  ++c.resumes_waiting;
  after_writes([this, session = c.weak_from_this(), resume] {
    if (auto s = session.lock()) {
      --s->resumes_waiting;
      if (s->receiver_open) answer(*s, resume);
    }
  });
}

void Receiver::answer(Connection& c, const link::Resume& resume) {
  link::Resumed out;
  for (const auto& s : resume.streams) {
    link::StreamKey k = key(s.stream);
    owners_[k] = c.weak_from_this();
    held_.erase(k);
    epochs_.erase(k);
    streams_->far(k, 0, s.far);
    out.streams.push_back(streams_->resume(k, s.settled));
  }
  send(c, out);
  grant(c);
}

void Receiver::grant(Connection& c) {
  if (world_.clock.now() < starved_until_ && !world_.calm) return;
  const uint64_t allowance = world_.profile.allowance;
  uint64_t credit = c.consumed + allowance;
  if (credit < c.granted + allowance / 4) return;
  c.granted = credit;
  send(c, link::Credit{credit});
}

void Receiver::starve(Duration time) {
  starved_until_ = world_.clock.now() + time;
  later(time, [this] {
    if (current_) grant(*current_);
  });
}

void Receiver::take(Connection& c, const link::Events& events, size_t bytes) {
  if (c.received >= c.granted) world_.violated("EVENTS were begun without credit");
  c.received += bytes;
  link::StreamKey k = key(events.stream);
  if (auto& owner = owners_[k]; owner.lock().get() != &c) {
    owner = c.weak_from_this();
    held_.erase(k);
    epochs_.erase(k);
  }
  auto epoch = epochs_.find(k);
  if (held_.contains(k) || events.hold_epoch != (epoch == epochs_.end() ? 0 : epoch->second)) {
    c.consumed += bytes;
    return grant(c);
  }
  SourceStream& s = *world_.find(events.stream);
  streams_->far(k, 0, events.far);
  auto fresh = streams_->admit(k, events.settled, events.first, events.last);
  if (!fresh) world_.violated("more holes than a receiver keeps");
  Arrival a{k, c.weak_from_this(), {events.first, events.last}, *fresh, {}, {}, 0, bytes, events.wants_far, {}, {}};
  Slice packed(std::string(events.packed.view()));
  bool whole =
      link::for_each_block(packed, events.first, events.last,
                           [&](uint64_t first, uint64_t last, const Slice& block) { place(a, s, first, last, block); });
  if (!whole) world_.violated("EVENTS whose blocks are not their positions");
  for (const auto& r : a.rejects) streams_->reject(k, r.first, r.last, r.reason);
  if (!a.fresh.empty()) a.value = streams_->value_with(k, a.fresh, kWall);
  waiting_.push_back(std::move(a));
  schedule();
}

void Receiver::place(Arrival& a, SourceStream& s, uint64_t first, uint64_t last, const Slice& bytes) {
  auto block = event::decode(bytes);
  if (!block) world_.violated("a block does not decode: " + block.error().to_string());
  uint64_t taken = 0;
  for (const link::Range& r : a.fresh) {
    link::Range part{std::max(r.first, first), std::min(r.last, last)};
    if (part.first >= part.last) continue;
    event::Block piece = part == link::Range{first, last} ? *block
                                                          : event::cut(*block, block->id.first + (part.first - first),
                                                                       block->id.first + (part.last - first));
    std::string expected;
    for (size_t i = s.unit_at(part.first); i < s.units.size() && s.units[i].first < part.last; ++i) {
      const Unit& u = s.units[i];
      expected += u.bytes;
      if (u.fate == Unit::Fate::deliver)
        a.units.emplace_back(&s, i);
      else
        a.rejects.push_back({u.first, u.last, u.fate == Unit::Fate::refuse_line ? "line" : "category"});
    }
    if (piece.payload.view() != expected) world_.violated("a block has other bytes than its positions");
    taken += piece.events;
  }
  a.duplicates += block->events - taken;
}

// --- group commit, as store/commit does it

void Receiver::after_writes(std::function<void()> what) {
  Arrival a;
  a.after = std::move(what);
  waiting_.push_back(std::move(a));
  schedule();
}

void Receiver::schedule() {
  if (busy_ || scheduled_) return;
  scheduled_ = true;
  later(Duration(1), [this] { launch(); });
}

void Receiver::launch() {
  scheduled_ = false;
  if (busy_ || waiting_.empty()) return;
  busy_ = true;
  writing_.swap(waiting_);
  bool good = !std::exchange(fail_next_, false);
  later(1ms + world_.some(30ms) + disk_extra_, [this, good] { complete(good); });
}

void Receiver::make_durable(Arrival& a) {
  if (!a.value.empty()) stored_[link::store_key(a.key)] = a.value;
  for (auto [s, unit] : a.units) {
    if (!published_.insert({s->id, unit}).second) world_.violated("an event is published twice by one receiver");
    uint64_t& end = published_to_[s->id];
    if (world_.receivers.size() == 1 && s->units[unit].first < end)
      world_.violated("order is broken with one receiver");
    end = s->units[unit].last;
    world_.publish(index_, *s, unit);
  }
  if (a.wants_far)
    for (const link::Range& r : a.fresh) pending_far_.emplace_back(a.key, r);
}

void Receiver::complete(bool good) {
  busy_ = false;
  std::deque<Arrival> done;
  done.swap(writing_);
  if (good)
    for (Arrival& a : done) make_durable(a);
  else
    for (; !waiting_.empty(); waiting_.pop_front()) done.push_back(std::move(waiting_.front()));  // it fails with it
  std::set<link::StreamKey> failed;
  for (Arrival& a : done) {
    if (a.after) {
      a.after();
    } else if (good) {
      streams_->commit(a.key, a.fresh);
      acknowledge(a);
    } else {
      streams_->abandon(a.key, a.fresh);
      failed.insert(a.key);
      if (auto c = a.session.lock()) {
        c->consumed += a.bytes;
        grant(*c);
      }
    }
  }
  if (!good) ++world_.outcome.failed_groups;
  for (const auto& k : failed) hold(k);
  if (!waiting_.empty()) schedule();
}

void Receiver::acknowledge(Arrival& a) {
  auto c = a.session.lock();
  if (!c) return;
  c->consumed += a.bytes;
  link::Ack ack;
  ack.stream = a.key.stream;
  for (const link::Range& r : streams_->held(a.key, a.whole.first, a.whole.last))
    ack.accepted.push_back({r.first, r.last});
  for (const link::Range& r : streams_->far_held(a.key, a.whole.first, a.whole.last))
    ack.far.push_back({r.first, r.last});
  ack.duplicates = a.duplicates;
  ack.rejects = a.rejects;
  send(*c, ack);
  grant(*c);
}

void Receiver::hold_something() {
  if (owners_.empty()) return;
  auto it = owners_.begin();
  std::advance(it, static_cast<long>(world_.random.below(owners_.size())));
  hold(it->first);
}

void Receiver::hold(const link::StreamKey& k) {
  if (held_.contains(k)) return;
  ++world_.outcome.holds;
  uint32_t epoch = ++epochs_[k];
  held_[k] = {epoch, false};
  auto say = [this, k, epoch] {
    auto held = held_.find(k);
    if (held == held_.end() || held->second.epoch != epoch || held->second.said) return;
    held->second.said = true;
    if (auto c = owners_[k].lock()) send(*c, link::Hold{k.stream, "full"});
    later(world_.some(3s), [this, k] { release(k); });
  };
  if (streams_->writing(k))
    after_writes(say);
  else
    say();
}

void Receiver::release(const link::StreamKey& k) {
  auto held = held_.find(k);
  if (held == held_.end() || !held->second.said) return;
  held_.erase(held);
  if (auto c = owners_[k].lock()) send(*c, link::Release{k.stream});
}

/// What is durable here reaches its end some time later; the list of it is durable as well.
void Receiver::far_reached() {
  later(world_.some(500ms), [this] { far_reached(); });
  // While a stream is written its value would count what is not durable yet.
  for (const auto& [k, r] : pending_far_)
    if (streams_->writing(k)) return;
  std::map<link::StreamKey, link::Ack> acks;
  for (const auto& [k, r] : pending_far_) {
    if (!streams_->far(k, r.first, r.last)) continue;
    acks[k].stream = k.stream;
    acks[k].far.push_back({r.first, r.last});
  }
  pending_far_.clear();
  for (const auto& [k, ack] : acks) {
    stored_[link::store_key(k)] = streams_->value(k, kWall);
    if (auto c = owners_[k].lock()) send(*c, ack);
  }
}

}  // namespace ph::link_sim
