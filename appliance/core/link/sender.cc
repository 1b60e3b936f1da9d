#include "core/link/sender.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/coding.h"
#include "base/result.h"
#include "codec/event/block.h"
#include "core/link/range_set.h"

namespace ph::link {
namespace {

constexpr ReceiverIndex kNobody = SIZE_MAX;
constexpr size_t kReadAheadBytes = 1024 * 1024;  // pulled from sources beyond what could be sent
constexpr size_t kResumeStreamsMax = 10'000;     // a RESUME frame

enum class ItemState : uint8_t {
  waiting,    // for a receiver
  in_flight,  // sent on the present connection of `at`
  uncertain,  // was sent to `at`, whose connection is lost: may be there or not
  acked,      // waits for the ones before it
};

struct Item {
  SenderBatch batch;
  ItemState state = ItemState::waiting;
  ReceiverIndex at = kNobody;
  uint64_t serial = 0;  // order of offer: resends keep their place
  uint64_t rejected_events = 0;
  bool unasked = false;  // released from a receiver that could not be asked; said when it is sent elsewhere
};

struct Stream {
  SourceIndex source = 0;
  uint64_t settled = 0;
  uint64_t next = 0;  // end of what was offered
  uint64_t far = 0;
  uint64_t assigned = UINT64_MAX;  // positions given at the source when it was opened; UINT64_MAX: not known
  RangeSet acked;                  // above settled
  RangeSet far_set;
  RangeSet rejected;
  std::map<uint64_t, Item> items;  // by first position; acked ones until they are part of the prefix
  std::set<ReceiverIndex> used;    // durable: may hold something
  std::set<ReceiverIndex> asking;  // WillUse is out
  std::set<ReceiverIndex> doubt;   // used before this process started, not yet asked
  uint64_t doubt_bytes = 0;        // sent elsewhere while in doubt
  uint64_t duplicates = 0;
  bool dirty = false;
};

struct Receiver {
  std::string address;
  int64_t weight = 1;
  int64_t turn = 0;  // smooth weighted round robin
  ReceiverState state = ReceiverState::idle;
  size_t resume_answers = 0;  // RESUMED frames still to come
  uint64_t credit = 0;
  uint64_t sent = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t in_flight_batches = 0;
  Instant progress{};  // ACK, CREDIT, RESUMED or TCP progress
  Instant heard{};
  Instant spoke{};
  Instant lost_at{};
  Instant connect_at{};
  Duration backoff{};
  uint64_t connects = 0;
  uint64_t failures = 0;
  std::string last_error;
  struct Holding {
    bool held = false;
    uint32_t epoch = 0;
  };
  std::unordered_map<StreamId, Holding> holds;
};

class SenderCore final : public Sender {
 public:
  SenderCore(SenderOptions options, Random& random);

  SourceIndex add_source(std::vector<SenderStream> streams, bool wants_far) override;
  void start(Instant now) override;
  void connected(ReceiverIndex receiver, const Hello& peer, Instant now) override;
  void disconnected(ReceiverIndex receiver, std::string reason, Instant now) override;
  void received(ReceiverIndex receiver, const Frame& frame, Instant now) override;
  void progressed(ReceiverIndex receiver, Instant now) override { receivers_[receiver].progress = now; }
  void durable(SourceIndex source, StreamId stream, ReceiverIndex receiver, Instant now) override;
  size_t room() const override;
  void offer(SourceIndex source, SenderBatch batch, Instant now) override;
  void close_stream(StreamId stream) override;
  void tick(Instant now) override;
  Instant deadline() const override;
  std::vector<SenderEffect> take_effects() override;
  std::vector<ReceiverStatus> receivers() const override;
  uint64_t unacked_events() const override { return unacked_events_; }
  uint64_t unacked_bytes() const override { return unacked_bytes_; }

 private:
  using Streams = std::unordered_map<StreamId, Stream>;

  void on_resumed(ReceiverIndex r, const Resumed& frame, Instant now);
  void on_ack(ReceiverIndex r, const Ack& ack, Instant now);
  void on_hold(ReceiverIndex r, StreamId id);
  bool needs_asking(const Stream& s, ReceiverIndex r) const;
  void lose(ReceiverIndex r, std::string reason, Instant now);
  void disconnect(ReceiverIndex r, std::string reason, Instant now);
  void acknowledge(StreamId id, Stream& s, uint64_t first, uint64_t last);
  void note_rejects(StreamId id, Stream& s, const std::vector<Reject>& rejects);
  void note_far(StreamId id, Stream& s, const std::vector<Span>& spans);
  void mark_acked(Item& item);
  void make_waiting(StreamId id, Item& item);
  void leave_flight(Item& item);
  void dirty(StreamId id, Stream& s);
  void settle(StreamId id, Stream& s);
  void dispatch();
  bool send(StreamId id, Stream& s, Item& item, std::set<StreamId>& blocked);
  ReceiverIndex choose(StreamId id);
  bool can_take(const Receiver& r) const { return r.state == ReceiverState::ready && r.sent < r.credit; }
  bool is_held(const Receiver& r, StreamId id) const;
  void check_started(Instant now);
  void reroute(Instant now);
  void send_frame(ReceiverIndex r, const Frame& frame);
  Instant latest(const Receiver& r) const { return std::max(r.heard, r.progress); }

  SenderOptions options_;
  Random& random_;
  std::vector<bool> wants_far_;
  std::vector<Receiver> receivers_;
  Streams streams_;
  std::map<uint64_t, std::pair<StreamId, uint64_t>> waiting_;  // serial -> item
  uint64_t waiting_bytes_ = 0;
  uint64_t unacked_bytes_ = 0;
  uint64_t unacked_events_ = 0;
  uint64_t serial_ = 0;
  std::vector<StreamId> dirty_;
  std::vector<SenderEffect> effects_;
  bool started_ = false;  // sources may be pulled
  Instant begun_{};
  Instant now_{};
};

SenderCore::SenderCore(SenderOptions options, Random& random) : options_(std::move(options)), random_(random) {
  for (const auto& r : options_.receivers) {
    Receiver receiver;
    receiver.address = r.address;
    receiver.weight = std::max<int64_t>(1, r.weight);
    receiver.backoff = options_.probe_min;
    receivers_.push_back(std::move(receiver));
  }
}

SourceIndex SenderCore::add_source(std::vector<SenderStream> streams, bool wants_far) {
  SourceIndex index = wants_far_.size();
  wants_far_.push_back(wants_far);
  for (SenderStream& in : streams) {
    Stream& s = streams_[in.stream];
    s.source = index;
    s.settled = s.next = in.settled;
    s.far = in.far;
    s.assigned = in.assigned;
    for (const std::string& address : in.receivers)
      for (ReceiverIndex r = 0; r < receivers_.size(); ++r)
        if (receivers_[r].address == address) {
          s.used.insert(r);
          s.doubt.insert(r);
        }
  }
  return index;
}

void SenderCore::start(Instant now) {
  begun_ = now_ = now;
  for (Receiver& r : receivers_) r.connect_at = now;
  tick(now);
}

void SenderCore::send_frame(ReceiverIndex r, const Frame& frame) {
  receivers_[r].spoke = now_;
  effects_.push_back(effect::Send{r, encode(frame)});
}

bool SenderCore::needs_asking(const Stream& s, ReceiverIndex r) const {
  if (!s.used.contains(r)) return false;
  return s.doubt.contains(r) || !s.items.empty() || (wants_far_[s.source] && s.far < s.settled);
}

void SenderCore::connected(ReceiverIndex index, const Hello&, Instant now) {
  now_ = now;
  Receiver& r = receivers_[index];
  r.state = ReceiverState::resuming;
  r.progress = r.heard = now;
  r.credit = r.sent = 0;
  r.holds.clear();
  r.resume_answers = 0;
  // Always at least one RESUME: its answer is what proves the receiver, and resets the back-off.
  Resume ask;
  auto flush = [&] {
    ++r.resume_answers;
    send_frame(index, ask);
    ask.streams.clear();
  };
  for (auto& [id, s] : streams_) {
    if (!needs_asking(s, index)) continue;
    ask.streams.push_back({id, s.settled});
    if (ask.streams.size() == kResumeStreamsMax) flush();
  }
  flush();
}

void SenderCore::disconnected(ReceiverIndex receiver, std::string reason, Instant now) {
  now_ = now;
  lose(receiver, std::move(reason), now);
}

void SenderCore::disconnect(ReceiverIndex r, std::string reason, Instant now) {
  effects_.push_back(effect::Disconnect{r, reason});
  lose(r, std::move(reason), now);
}

void SenderCore::lose(ReceiverIndex index, std::string reason, Instant now) {
  Receiver& r = receivers_[index];
  if (r.state == ReceiverState::idle) return;
  bool had_session = r.state != ReceiverState::connecting;
  r.state = ReceiverState::idle;
  ++r.failures;
  r.last_error = std::move(reason);
  if (had_session) r.lost_at = now;
  r.connect_at = now + random_.jitter(r.backoff);
  r.backoff = std::min(r.backoff * 2, options_.probe_max);
  r.holds.clear();
  for (auto& [id, s] : streams_)
    for (auto& [first, item] : s.items)
      if (item.state == ItemState::in_flight && item.at == index) {
        leave_flight(item);
        item.state = ItemState::uncertain;
        item.at = index;
      }
}

void SenderCore::received(ReceiverIndex index, const Frame& frame, Instant now) {
  now_ = now;
  Receiver& r = receivers_[index];
  if (r.state != ReceiverState::resuming && r.state != ReceiverState::ready) return;
  r.heard = now;
  if (const auto* ack = std::get_if<Ack>(&frame)) {
    on_ack(index, *ack, now);
  } else if (const auto* resumed = std::get_if<Resumed>(&frame)) {
    on_resumed(index, *resumed, now);
  } else if (const auto* credit = std::get_if<Credit>(&frame)) {
    r.progress = now;
    r.credit = std::max(r.credit, credit->bytes);
  } else if (const auto* hold = std::get_if<Hold>(&frame)) {
    r.progress = now;
    on_hold(index, hold->stream);
  } else if (const auto* release = std::get_if<Release>(&frame)) {
    r.progress = now;
    r.holds[release->stream].held = false;
  } else if (const auto* ping = std::get_if<Ping>(&frame)) {
    send_frame(index, Pong{ping->token});
  } else if (std::holds_alternative<Goodbye>(frame) || std::holds_alternative<Pong>(frame)) {
    // heard; a GOODBYE is followed by the end of the connection
  } else {
    disconnect(index, "the receiver sent a frame that only a sender sends", now);
  }
}

void SenderCore::on_resumed(ReceiverIndex index, const Resumed& frame, Instant now) {
  Receiver& r = receivers_[index];
  if (r.state != ReceiverState::resuming || r.resume_answers == 0)
    return disconnect(index, "RESUMED without a RESUME", now);
  r.progress = now;
  r.backoff = options_.probe_min;
  for (const auto& answer : frame.streams) {
    auto it = streams_.find(answer.stream);
    if (it == streams_.end()) continue;  // closed since
    Stream& s = it->second;
    bool first_contact = s.doubt.erase(index) > 0;
    uint64_t known = std::max(answer.highest, answer.settled);
    uint64_t limit = first_contact ? std::max(s.assigned, s.next) : s.next;
    if (known > limit) {
      // This node was rolled back: it would give out positions a second time. A new stream id, everything
      // unacknowledged once more under it.
      SourceIndex source = s.source;
      StreamId id = answer.stream;
      for (auto& [first, item] : s.items) {
        if (item.state == ItemState::acked) continue;
        mark_acked(item);
      }
      streams_.erase(it);
      effects_.push_back(effect::Renew{source, id});
      continue;
    }
    note_rejects(answer.stream, s, answer.rejects);
    acknowledge(answer.stream, s, s.settled, answer.settled);
    for (const Span& span : answer.accepted) acknowledge(answer.stream, s, span.first, span.last);
    note_far(answer.stream, s, answer.far);
  }
  if (--r.resume_answers > 0) return;
  r.state = ReceiverState::ready;
  for (auto& [id, s] : streams_)
    for (auto& [first, item] : s.items)
      if (item.state == ItemState::uncertain && item.at == index) make_waiting(id, item);
  check_started(now);
  effects_.push_back(effect::Wanted{});
}

void SenderCore::on_ack(ReceiverIndex index, const Ack& ack, Instant now) {
  receivers_[index].progress = now;
  receivers_[index].backoff = options_.probe_min;
  auto it = streams_.find(ack.stream);
  if (it == streams_.end()) return;  // closed or renewed since
  Stream& s = it->second;
  for (const Span& span : ack.accepted)
    if (span.last > s.next) return disconnect(index, "acknowledged what was never sent", now);
  note_rejects(ack.stream, s, ack.rejects);
  s.duplicates += ack.duplicates;
  for (const Span& span : ack.accepted) acknowledge(ack.stream, s, span.first, span.last);
  note_far(ack.stream, s, ack.far);
}

void SenderCore::on_hold(ReceiverIndex index, StreamId id) {
  auto& hold = receivers_[index].holds[id];
  hold.held = true;
  ++hold.epoch;
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  for (auto& [first, item] : it->second.items) {
    if (item.state != ItemState::in_flight || item.at != index) continue;
    leave_flight(item);
    make_waiting(id, item);
  }
}

void SenderCore::durable(SourceIndex, StreamId id, ReceiverIndex receiver, Instant now) {
  now_ = now;
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  it->second.asking.erase(receiver);
  it->second.used.insert(receiver);
}

void SenderCore::dirty(StreamId id, Stream& s) {
  if (std::exchange(s.dirty, true)) return;
  dirty_.push_back(id);
}

void SenderCore::acknowledge(StreamId id, Stream& s, uint64_t first, uint64_t last) {
  first = std::max(first, s.settled);
  if (first >= last) return;
  s.acked.add(first, last);
  auto it = s.items.upper_bound(first);
  if (it != s.items.begin()) --it;
  for (; it != s.items.end() && it->first < last; ++it) {
    Item& item = it->second;
    if (item.state != ItemState::acked && s.acked.contains(item.batch.first, item.batch.last)) mark_acked(item);
  }
  dirty(id, s);
}

void SenderCore::mark_acked(Item& item) {
  if (item.state == ItemState::in_flight) leave_flight(item);
  if (item.state == ItemState::waiting && waiting_.erase(item.serial)) waiting_bytes_ -= item.batch.packed.size();
  item.state = ItemState::acked;
  unacked_bytes_ -= item.batch.packed.size();
  unacked_events_ -= item.batch.events;
  item.batch.packed = {};
}

void SenderCore::make_waiting(StreamId id, Item& item) {
  item.state = ItemState::waiting;
  waiting_[item.serial] = {id, item.batch.first};
  waiting_bytes_ += item.batch.packed.size();
}

void SenderCore::leave_flight(Item& item) {
  Receiver& r = receivers_[item.at];
  r.in_flight_bytes -= item.batch.packed.size();
  --r.in_flight_batches;
}

void SenderCore::note_rejects(StreamId id, Stream& s, const std::vector<Reject>& rejects) {
  for (const Reject& reject : rejects) {
    if (reject.first < s.settled || s.rejected.contains(reject.first, reject.last)) continue;
    auto it = s.items.upper_bound(reject.first);
    if (it != s.items.begin()) --it;
    for (; it != s.items.end() && it->first < reject.last; ++it) {
      Item& item = it->second;
      Slice packed = item.batch.packed;
      Reader in(packed.view());
      uint64_t at = item.batch.first;
      while (!in.at_end() && in.ok()) {
        uint64_t span = in.varint();
        ByteView bytes = in.sized();
        if (!in.ok()) break;
        uint64_t end = at + span;
        if (at < reject.last && reject.first < end && !s.rejected.contains(at, end)) {
          Slice block = packed.sub(static_cast<size_t>(bytes.data() - packed.data()), bytes.size());
          if (auto decoded = event::decode(block)) item.rejected_events += decoded->events;
          s.rejected.add(at, end);
          effects_.push_back(effect::Rejected{s.source, id, at, end, std::move(block), reject.reason});
        }
        at = end;
      }
    }
  }
}

void SenderCore::note_far(StreamId id, Stream& s, const std::vector<Span>& spans) {
  if (!wants_far_[s.source]) return;
  for (const Span& span : spans) s.far_set.add(span.first, span.last);
  uint64_t far = s.far_set.contiguous_from(s.far);
  // What was settled before this process knew anything of far ranges cannot be waited for position by position.
  if (far <= s.far) return;
  s.far = far;
  s.far_set.forget_below(far);
  dirty(id, s);
  effects_.push_back(effect::FarAdvanced{s.source, id, far});
}

/// Moves the settled position over the contiguous acknowledged items and says so once.
void SenderCore::settle(StreamId id, Stream& s) {
  s.dirty = false;
  uint64_t events = 0;
  uint64_t from = s.settled;
  while (!s.items.empty() && s.items.begin()->second.state == ItemState::acked) {
    Item& item = s.items.begin()->second;
    s.settled = item.batch.last;
    events += item.batch.events - item.rejected_events;
    s.items.erase(s.items.begin());
  }
  if (s.settled == from) return;
  s.acked.forget_below(s.settled);
  s.rejected.forget_below(s.settled);
  effects_.push_back(effect::Advanced{s.source, id, s.settled, events, std::exchange(s.duplicates, 0)});
}

size_t SenderCore::room() const {
  if (!started_) return 0;
  if (std::none_of(receivers_.begin(), receivers_.end(),
                   [](const Receiver& r) { return r.state == ReceiverState::ready; }))
    return 0;
  if (unacked_bytes_ >= options_.window_bytes || waiting_bytes_ >= kReadAheadBytes) return 0;
  return std::min<size_t>(options_.window_bytes - unacked_bytes_, kReadAheadBytes - waiting_bytes_);
}

void SenderCore::offer(SourceIndex source, SenderBatch batch, Instant now) {
  now_ = now;
  StreamId id = batch.stream;
  auto [it, fresh] = streams_.try_emplace(id);
  Stream& s = it->second;
  if (fresh) {
    s.source = source;
    s.settled = s.next = s.far = batch.first;
  }
  PH_ASSERT(batch.first == s.next && batch.last > batch.first, "a source hands its positions out without holes");
  s.next = batch.last;
  Item item;
  item.serial = ++serial_;
  unacked_bytes_ += batch.packed.size();
  unacked_events_ += batch.events;
  item.batch = std::move(batch);
  Item& placed = s.items.emplace(item.batch.first, std::move(item)).first->second;
  if (s.acked.contains(placed.batch.first, placed.batch.last)) {
    s.duplicates += placed.batch.events;
    mark_acked(placed);
    waiting_.erase(placed.serial);
    dirty(id, s);
    return;
  }
  make_waiting(id, placed);
}

void SenderCore::close_stream(StreamId id) {
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  Stream& s = it->second;
  settle(id, s);
  PH_ASSERT(s.items.empty(), "a stream is closed when it is settled to its end");
  for (ReceiverIndex r : s.used)
    if (receivers_[r].state == ReceiverState::ready || receivers_[r].state == ReceiverState::resuming)
      send_frame(r, CloseStream{id});
  streams_.erase(it);
}

void SenderCore::check_started(Instant now) {
  if (started_) return;
  // Everyone who may hold something from before must have been asked, or be out of reach for a while.
  if (now - begun_ < options_.resume_timeout)
    for (const auto& [id, s] : streams_)
      if (!s.doubt.empty()) return;
  started_ = true;
  effects_.push_back(effect::Wanted{});
}

void SenderCore::reroute(Instant now) {
  for (ReceiverIndex index = 0; index < receivers_.size(); ++index) {
    const Receiver& r = receivers_[index];
    if (r.state == ReceiverState::ready || now - r.lost_at < options_.resume_timeout) continue;
    bool others = false;
    for (ReceiverIndex o = 0; o < receivers_.size(); ++o)
      others |= o != index && receivers_[o].state == ReceiverState::ready;
    if (!others) continue;
    for (auto& [id, s] : streams_)
      for (auto& [first, item] : s.items)
        if (item.state == ItemState::uncertain && item.at == index) {
          item.unasked = true;
          make_waiting(id, item);
        }
  }
}

void SenderCore::tick(Instant now) {
  now_ = now;
  for (ReceiverIndex index = 0; index < receivers_.size(); ++index) {
    Receiver& r = receivers_[index];
    switch (r.state) {
      case ReceiverState::idle:
        if (now < r.connect_at) break;
        r.state = ReceiverState::connecting;
        ++r.connects;
        effects_.push_back(effect::Connect{index});
        break;
      case ReceiverState::connecting:
        break;  // the driver bounds it
      case ReceiverState::resuming:
      case ReceiverState::ready:
        if ((r.in_flight_batches > 0 || r.resume_answers > 0) && now - r.progress >= options_.request_timeout)
          disconnect(index, "no progress within the request timeout", now);
        else if (now - latest(r) >= options_.request_timeout)
          disconnect(index, "silent for the request timeout", now);
        else if (now - std::max(latest(r), r.spoke) >= options_.request_timeout / 3)
          send_frame(index, Ping{++serial_});
        break;
    }
  }
  check_started(now);
  reroute(now);
}

Instant SenderCore::deadline() const {
  Instant due = Instant::max();
  auto by = [&due](Instant t) { due = std::min(due, t); };
  if (!started_) by(begun_ + options_.resume_timeout);
  bool anybody_ready = false;
  for (const Receiver& r : receivers_) anybody_ready |= r.state == ReceiverState::ready;
  for (const Receiver& r : receivers_) {
    if (r.state == ReceiverState::idle) by(r.connect_at);
    if (r.state == ReceiverState::resuming || r.state == ReceiverState::ready) {
      if (r.in_flight_batches > 0 || r.resume_answers > 0) by(r.progress + options_.request_timeout);
      by(latest(r) + options_.request_timeout);
      by(std::max(latest(r), r.spoke) + options_.request_timeout / 3);
    }
    if (r.state != ReceiverState::ready && anybody_ready && now_ < r.lost_at + options_.resume_timeout)
      by(r.lost_at + options_.resume_timeout);
  }
  return due;
}

bool SenderCore::is_held(const Receiver& r, StreamId id) const {
  auto it = r.holds.find(id);
  return it != r.holds.end() && it->second.held;
}

ReceiverIndex SenderCore::choose(StreamId id) {
  ReceiverIndex best = kNobody;
  int64_t total = 0;
  for (ReceiverIndex index = 0; index < receivers_.size(); ++index) {
    Receiver& r = receivers_[index];
    if (!can_take(r) || is_held(r, id)) continue;
    r.turn += r.weight;
    total += r.weight;
    if (best == kNobody || r.turn > receivers_[best].turn) best = index;
  }
  if (best != kNobody) receivers_[best].turn -= total;
  return best;
}

bool SenderCore::send(StreamId id, Stream& s, Item& item, std::set<StreamId>& blocked) {
  ReceiverIndex index = choose(id);
  if (index == kNobody) {
    blocked.insert(id);
    return false;
  }
  if (!s.used.contains(index)) {
    blocked.insert(id);
    if (s.asking.insert(index).second) effects_.push_back(effect::WillUse{s.source, id, index});
    return false;
  }
  Receiver& r = receivers_[index];
  bool doubtful = std::any_of(s.doubt.begin(), s.doubt.end(), [index](ReceiverIndex d) { return d != index; });
  if (doubtful && s.doubt_bytes < options_.window_bytes) {
    s.doubt_bytes += item.batch.packed.size();
    item.unasked = true;
  }
  if (item.unasked && item.at != index) effects_.push_back(effect::ReroutedUnasked{s.source, item.batch.events});
  item.unasked = false;
  Events frame;
  frame.stream = id;
  frame.settled = s.settled;
  if (auto hold = r.holds.find(id); hold != r.holds.end()) frame.hold_epoch = hold->second.epoch;
  frame.first = item.batch.first;
  frame.last = item.batch.last;
  frame.events = item.batch.events;
  frame.wants_far = wants_far_[s.source];
  frame.packed = item.batch.packed;
  if (r.in_flight_batches == 0) r.progress = now_;
  Encoded encoded = encode(frame);
  r.sent += encoded.size();
  r.in_flight_bytes += item.batch.packed.size();
  ++r.in_flight_batches;
  r.spoke = now_;
  item.state = ItemState::in_flight;
  item.at = index;
  waiting_bytes_ -= item.batch.packed.size();
  effects_.push_back(effect::Send{index, std::move(encoded)});
  return true;
}

void SenderCore::dispatch() {
  if (waiting_.empty()) return;
  std::set<StreamId> blocked;  // an item that cannot go keeps those behind it, so that order holds
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (std::none_of(receivers_.begin(), receivers_.end(), [this](const Receiver& r) { return can_take(r); })) return;
    auto [id, first] = it->second;
    Stream& s = streams_.at(id);
    if (!blocked.contains(id) && send(id, s, s.items.at(first), blocked))
      it = waiting_.erase(it);
    else
      ++it;
  }
}

std::vector<SenderEffect> SenderCore::take_effects() {
  for (StreamId id : std::exchange(dirty_, {}))
    if (auto it = streams_.find(id); it != streams_.end()) settle(id, it->second);
  dispatch();
  return std::exchange(effects_, {});
}

std::vector<ReceiverStatus> SenderCore::receivers() const {
  std::vector<ReceiverStatus> out;
  for (const Receiver& r : receivers_)
    out.push_back(
        {r.address, r.state, r.in_flight_batches, r.in_flight_bytes, 0, r.connects, r.failures, r.last_error});
  for (const auto& [id, s] : streams_)
    for (const auto& [first, item] : s.items)
      if (item.state == ItemState::uncertain) ++out[item.at].uncertain_batches;
  return out;
}

}  // namespace

std::unique_ptr<Sender> Sender::make(SenderOptions options, Random& random) {
  return std::make_unique<SenderCore>(std::move(options), random);
}

}  // namespace ph::link
