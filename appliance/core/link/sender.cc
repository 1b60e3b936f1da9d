#include "core/link/sender.h"

#include <algorithm>

#include "core/link/sender_state.h"

namespace ph::link {

std::unique_ptr<Sender> Sender::make(SenderOptions options, Random& random) {
  return std::make_unique<SenderCore>(std::move(options), random);
}

SenderCore::SenderCore(SenderOptions options, Random& random)
    : options_(std::move(options)), random_(random), attempt_base_(options_.strict ? random.next() >> 2 : 0) {
  options_.connections = std::max<size_t>(1, options_.connections);
  if (options_.hash) {
    std::vector<Owners::Place> places;
    for (const auto& r : options_.receivers) places.push_back({r.address, std::max<uint32_t>(1, r.weight)});
    keys_ = std::make_unique<KeyFinder>(*options_.hash);
    owners_ = std::make_unique<Owners>(std::move(places), options_.connections);
  }
  for (size_t place = 0; place < options_.receivers.size(); ++place) {
    for (size_t i = 0; i < options_.connections; ++i) {
      SenderPeer& peer = peers_.emplace_back();
      peer.options = options_.receivers[place];
      peer.options.weight = std::max<uint32_t>(1, peer.options.weight);
      peer.place = place;
      peer.retry_delay = options_.probe_min;
    }
  }
}

SourceIndex SenderCore::add_source(std::vector<SenderStream> streams, bool wants_far) {
  PH_ASSERT(!started_, "sources are added before start()");
  SourceIndex index = sources_.size();
  sources_.emplace_back().wants_far = wants_far;
  for (const SenderStream& s : streams) open(index, s);
  return index;
}

SenderQueue& SenderCore::open(SourceIndex source, const SenderStream& stream) {
  auto [it, fresh] = streams_.try_emplace(stream.stream);
  PH_ASSERT(fresh, "a stream belongs to one source of an upstream");
  SenderQueue& s = it->second;
  s.id = stream.stream;
  s.source = source;
  s.settled = s.next = stream.settled;
  s.assigned = stream.assigned;
  s.far = stream.far;
  s.use.resize(peers_.size());
  for (const std::string& address : stream.receivers) {
    ++s.unasked;  // one that is configured no more is never asked: what it holds counts as uncertain
    size_t place = SIZE_MAX;
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (peers_[r].options.address != address || s.use[r].unasked) continue;
      if (place == SIZE_MAX) place = peers_[r].place;
      if (peers_[r].place != place) break;
      s.use[r].state = Use::State::durable;
      s.use[r].unasked = true;
    }
  }
  if (options_.strict) load_publishers(s, stream);
  return s;
}

void SenderCore::start(Instant now) {
  now_ = now;
  started_ = true;
  started_at_ = now;
  resume_until_ = now + options_.resume_timeout;
  for (size_t r = 0; r < peers_.size(); ++r) {
    peers_[r].away_since = now;
    connect(r);
  }
  finish();
}

SenderQueue* SenderCore::find(StreamId stream) {
  auto it = streams_.find(stream);
  return it == streams_.end() ? nullptr : &it->second;
}

void SenderCore::send(ReceiverIndex r, const Frame& frame) {
  effects_.emplace_back(effect::Send{r, encode(frame)});
}

/// The end of every input: what is settled is told first, then new batches go out.
void SenderCore::finish() {
  std::vector<StreamId> dirty;
  dirty.swap(dirty_);
  for (StreamId id : dirty)
    if (SenderQueue* s = find(id)) advance(*s);
  pump();
  flush_decisions();
  count_parked();
  bool wanted = false;
  for (size_t i = 0; i < sources_.size(); ++i) {
    bool starving = room(i) == 0;
    if (std::exchange(sources_[i].starving, starving) && !starving) wanted = true;
  }
  if (wanted) effects_.emplace_back(effect::Wanted{});
}

void SenderCore::disconnected(ReceiverIndex receiver, std::string reason, Instant now) {
  now_ = now;
  if (peers_[receiver].state == ReceiverState::idle) return;  // we said Disconnect before
  lost(receiver, std::move(reason));
  finish();
}

void SenderCore::received(ReceiverIndex receiver, const Frame& frame, Instant now) {
  now_ = now;
  SenderPeer& peer = peers_[receiver];
  if (peer.state != ReceiverState::resuming && peer.state != ReceiverState::ready) return;
  peer.heard_at = now;
  if (!std::holds_alternative<Ping>(frame)) peer.progress_at = now;
  if (const auto* ack = std::get_if<Ack>(&frame)) {
    on(receiver, *ack);
  } else if (const auto* credit = std::get_if<Credit>(&frame)) {
    on(receiver, *credit);
  } else if (const auto* resumed = std::get_if<Resumed>(&frame)) {
    on(receiver, *resumed);
  } else if (const auto* hold = std::get_if<Hold>(&frame)) {
    on(receiver, *hold);
  } else if (const auto* release = std::get_if<Release>(&frame)) {
    on(receiver, *release);
  } else if (const auto* ping = std::get_if<Ping>(&frame)) {
    send(receiver, Pong{ping->token});
  } else if (std::holds_alternative<Pong>(frame)) {
    peer.pinged = false;
  } else if (const auto* goodbye = std::get_if<Goodbye>(&frame)) {
    drop(receiver, "peer said goodbye: " + goodbye->reason);
  } else {
    drop(receiver, "a frame that only a sender sends");
  }
  finish();
}

void SenderCore::on(ReceiverIndex r, const Ack& ack) {
  SenderQueue* s = find(ack.stream);
  if (!s) return;  // closed or renewed meanwhile
  uint64_t below = known_below(r, *s);
  auto known = [&](const auto& range) { return range.last <= below || range.last <= s->settled; };
  if (!std::all_of(ack.accepted.begin(), ack.accepted.end(), known) ||
      !std::all_of(ack.rejects.begin(), ack.rejects.end(), known) ||
      !std::all_of(ack.far.begin(), ack.far.end(), known))
    return drop(r, "acknowledged what was never sent");
  peers_[r].retry_delay = options_.probe_min;
  for (const Reject& reject : ack.rejects) note_reject(*s, reject);
  for (const Span& span : ack.accepted) cover(*s, span.first, span.last);
  for (const Span& span : ack.far) s->far_acked.add(span.first, span.last);
  for (uint64_t attempt : ack.staged) staged(r, *s, attempt);
  s->duplicates += ack.duplicates;
  mark_dirty(*s);
  check_answers(r);
}

/// One past the greatest position that the node behind `r` can know of, over all connections to it.
uint64_t SenderCore::known_below(ReceiverIndex r, const SenderQueue& s) const {
  uint64_t below = 0;
  for (size_t other = 0; other < peers_.size(); ++other)
    if (other == r || peers_[other].node == peers_[r].node)
      below = std::max({below, s.use[other].sent_below, s.use[other].known_below});
  return below;
}

/// Notes when the oldest batch in flight was overtaken by later ones: a receiver that lost track of a batch would
/// otherwise keep it for ever while its other answers count as progress.
void SenderCore::check_answers(ReceiverIndex r) {
  SenderPeer& peer = peers_[r];
  uint64_t oldest = peer.in_flight.empty() ? 0 : peer.in_flight.begin()->first;
  if (oldest == 0 || oldest >= peer.acked_flight) {
    peer.overtaken_flight = 0;
  } else if (peer.overtaken_flight != oldest) {
    peer.overtaken_flight = oldest;
    peer.overtaken_at = now_;
  }
}

void SenderCore::on(ReceiverIndex r, const Hold& hold) {
  SenderQueue* s = find(hold.stream);
  if (!s) return;
  Use& use = s->use[r];
  use.held = true;
  ++use.hold_epoch;
  held_streams_.insert(s->id);
  // It took nothing that is not acknowledged: what is on its way there is dropped, and free to go elsewhere.
  std::vector<Flying*> back;
  for (auto& [first, b] : s->batches)
    if (b.at == r && !publishes(b, r)) back.push_back(&b);
  for (Flying* b : back) {
    take_from_flight(*b);
    make_pending(*b);
  }
  check_answers(r);
}

void SenderCore::on(ReceiverIndex r, const Release& release) {
  SenderQueue* s = find(release.stream);
  if (!s) return;
  s->use[r].held = false;
  if (std::none_of(s->use.begin(), s->use.end(), [](const Use& u) { return u.held; })) held_streams_.erase(s->id);
  activate(*s);
}

void SenderCore::progressed(ReceiverIndex receiver, Instant now) {
  now_ = now;
  peers_[receiver].progress_at = now;
}

void SenderCore::durable(SourceIndex, StreamId stream, ReceiverIndex receiver, Instant now) {
  now_ = now;
  if (SenderQueue* s = find(stream)) {
    for (size_t r = 0; r < peers_.size(); ++r)
      if (peers_[r].place == peers_[receiver].place) s->use[r].state = Use::State::durable;
    activate(*s);
  }
  finish();
}

void SenderCore::counted(SourceIndex, StreamId stream, Instant now) {
  now_ = now;
  if (SenderQueue* s = find(stream)) {
    s->counting = false;
    activate(*s);
  }
  finish();
}

void SenderCore::stored(SourceIndex, StreamId stream, uint64_t settled, Instant now) {
  now_ = now;
  SenderQueue* s = find(stream);
  if (!s) return;
  std::erase_if(s->lingering, [settled](const auto& r) { return r.second.last <= settled; });
}

void SenderCore::offer(SourceIndex source, SenderBatch batch, Instant now) {
  now_ = now;
  if (renewed_.contains(batch.stream)) return;  // pulled before the source heard of it
  SenderQueue* s = find(batch.stream);
  // A stream that start() did not know is settled and far up to here, and no receiver holds anything above.
  if (!s)
    s = &open(
        source,
        {.stream = batch.stream, .settled = batch.first, .far = batch.first, .assigned = batch.first, .receivers = {}});
  PH_ASSERT(s->source == source, "a stream belongs to one source");
  PH_ASSERT(batch.first == s->next && batch.first < batch.last, "batches of a stream follow each other");
  s->next = batch.last;
  // Room for the head of the frame.
  if (batch.packed.size() > limits::kFrameMax - 256)
    add_oversize(*s, batch);
  else
    add_batch(*s, std::move(batch));
  finish();
}

void SenderCore::close_stream(StreamId stream) {
  SenderQueue* s = find(stream);
  if (!s) return;
  s->closing = true;
  if (s->batches.empty()) send_close(*s);
}

void SenderCore::tick(Instant now) {
  now_ = now;
  for (size_t r = 0; r < peers_.size(); ++r) {
    SenderPeer& peer = peers_[r];
    bool late = now - peer.progress_at >= options_.request_timeout;
    switch (peer.state) {
      case ReceiverState::idle:
        if (started_ && now >= peer.retry_at) connect(r);
        break;
      case ReceiverState::connecting:
        if (late) drop(r, "not connected within the request timeout");
        break;
      case ReceiverState::resuming:
        if (late) drop(r, "no RESUMED within the request timeout");
        break;
      case ReceiverState::ready:
        if (awaits_answer(r) && late) {
          drop(r, "no progress within the request timeout");
        } else if (peer.overtaken_flight != 0 && now - peer.overtaken_at >= options_.request_timeout) {
          drop(r, "a batch stayed unanswered while later ones were acknowledged");
        } else if (!awaits_answer(r) && now - peer.heard_at >= options_.request_timeout / 3) {
          peer.pinged = true;
          peer.progress_at = now;
          send(r, Ping{random_.next()});
        }
    }
    expire(r);
  }
  if (options_.strict) give_up_publishers();
  watch_presence();
  if (started_ && !resume_over_ && now >= resume_until_) {
    resume_over_ = true;
    activate_all();
  }
  finish();
}

/// Whether the receiver must say something within the request timeout. One that was told to publish and holds a stream
/// of ours has no room to do so: that may last, and PING alone tells whether it is there.
bool SenderCore::awaits_answer(ReceiverIndex r) const {
  const SenderPeer& peer = peers_[r];
  if (peer.pinged) return true;
  return peer.owed > 0 ? !holds_any(r) : !peer.in_flight.empty();
}

Instant SenderCore::deadline() const {
  Instant due = Instant::max();
  if (!started_) return due;
  if (!resume_over_) due = resume_until_;
  if (!active_.empty()) due = std::min(due, bucket_.opens_at());
  for (size_t r = 0; r < peers_.size(); ++r) {
    const SenderPeer& peer = peers_[r];
    Instant late = peer.progress_at + options_.request_timeout;
    if (peer.state == ReceiverState::idle) {
      due = std::min(due, peer.retry_at);
    } else if (peer.state != ReceiverState::ready || awaits_answer(r)) {
      due = std::min(due, late);
    } else {
      due = std::min(due, peer.heard_at + options_.request_timeout / 3);
    }
    if (keys_ && peer.state != ReceiverState::ready && !peer.keyless)
      due = std::min(due, peer.away_since + options_.resume_timeout);
    if (peer.overtaken_flight != 0) due = std::min(due, peer.overtaken_at + options_.request_timeout);
    if (peer.uncertain && !peer.expired && options_.receivers.size() > 1 && peer.state != ReceiverState::resuming)
      due = std::min(due, peer.lost_at + options_.resume_timeout);
  }
  return due;
}

std::vector<SenderEffect> SenderCore::take_effects() {
  return std::exchange(effects_, {});
}

std::vector<ReceiverStatus> SenderCore::receivers() const {
  std::vector<ReceiverStatus> out;
  for (const SenderPeer& peer : peers_) {
    ReceiverStatus& s = out.emplace_back();
    s.address = peer.options.address;
    s.state = peer.state;
    s.in_flight_batches = peer.in_flight.size();
    s.in_flight_bytes = peer.in_flight_bytes;
    s.uncertain_batches = peer.uncertain;
    s.connects = peer.connects;
    s.failures = peer.failures;
    s.last_error = peer.last_error;
  }
  for (const auto& [id, s] : streams_)
    for (const auto& [first, publisher] : s.publishers)
      if (publisher.receiver != kNowhere) ++out[publisher.receiver].owned_batches;
  return out;
}

}  // namespace ph::link
