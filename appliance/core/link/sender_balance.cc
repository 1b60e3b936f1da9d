// Sender: who gets what. Streams with something to send take turns; each batch goes to the receiver whose turn it is
// among those that can take it now.
#include <algorithm>

#include "core/link/sender_state.h"

namespace ph::link {

void SenderCore::activate(SenderQueue& s) {
  if (s.active || s.pending.empty()) return;
  s.active = true;
  active_.push_back(s.id);
}

void SenderCore::activate_all() {
  for (auto& [id, s] : streams_) activate(s);
}

/// Whether a receiver that an earlier run used for the stream is still to be asked.
bool SenderCore::waits_for_resume(const SenderQueue& s) const {
  if (s.unasked == 0) return false;
  if (!resume_over_) return true;
  for (size_t r = 0; r < peers_.size(); ++r)
    if (s.use[r].unasked && peers_[r].state == ReceiverState::resuming) return true;
  return false;
}

void SenderCore::pump() {
  size_t full = 0;  // streams in a row that found no receiver with credit
  while (full < active_.size() && bucket_.open(now_)) {
    SenderQueue* s = find(active_.front());
    active_.pop_front();
    if (!s || !s->active) continue;  // closed
    s->active = false;
    if (s->pending.empty() || s->counting || waits_for_resume(*s)) continue;
    keys_ ? pump_hashed(*s, full) : pump_in_turns(*s, full);
  }
}

void SenderCore::pump_in_turns(SenderQueue& s, size_t& full) {
  Flying& b = s.batches.at(*s.pending.begin());
  if (b.ordinal - s.batches.begin()->second.ordinal >= kSpanMax) return;  // advance() wakes it
  if (count_copies(s, b)) return;                                         // counted() wakes it
  ReceiverIndex chosen = kNowhere;
  switch (pick(s, b, chosen)) {
    case Pick::found:
      cut_to_credit(b, peers_[chosen]);
      launch(b, chosen);
      full = 0;
      break;
    case Pick::stream_waits:
      return;  // durable(), RELEASE or a receiver that becomes ready wakes it
    case Pick::receivers_full:
      ++full;
      break;
  }
  activate(s);
}

SenderCore::Pick SenderCore::pick(SenderQueue& s, const Flying& b, ReceiverIndex& chosen) {
  // With several receivers at work each has its weight's share of the window, so that a slow one cannot fill it alone.
  uint64_t weights = 0;
  for (const SenderPeer& peer : peers_)
    if (peer.state == ReceiverState::ready && (peer.sent < peer.credit || !peer.in_flight.empty()))
      weights += peer.options.weight;
  bool full = false;
  std::vector<ReceiverIndex> candidates, durable;
  for (size_t r = 0; r < peers_.size(); ++r) {
    const SenderPeer& peer = peers_[r];
    if (peer.state != ReceiverState::ready || s.use[r].held) continue;
    uint64_t share = weights ? options_.window_bytes * peer.options.weight / weights : 0;
    const bool crowded = !peer.in_flight.empty() && peer.in_flight_bytes >= share;
    if (crowded || !takes(peer, b)) {
      if (!crowded) say_need(r);
      full = true;
      continue;
    }
    candidates.push_back(r);
    if (s.use[r].state == Use::State::durable) durable.push_back(r);
  }
  if (candidates.empty()) return full ? Pick::receivers_full : Pick::stream_waits;
  if (std::find(durable.begin(), durable.end(), s.intended) != durable.end()) {
    chosen = std::exchange(s.intended, kNowhere);
    return Pick::found;
  }
  ReceiverIndex turn = *next_turn(candidates);
  if (s.use[turn].state == Use::State::durable) {
    chosen = turn;
    return Pick::found;
  }
  if (s.use[turn].state == Use::State::unused) {
    request_use(s, turn);
  }
  s.intended = turn;
  if (auto other = next_turn(durable)) {  // does not wait while another one can go on
    chosen = *other;
    return Pick::found;
  }
  return Pick::stream_waits;
}

/// One durable note covers all connections to an address.
void SenderCore::request_use(SenderQueue& s, ReceiverIndex r) {
  for (size_t other = 0; other < peers_.size(); ++other)
    if (peers_[other].place == peers_[r].place) s.use[other].state = Use::State::requested;
  effects_.emplace_back(effect::WillUse{s.source, s.id, r});
}

/// Smooth weighted round robin: every candidate gains its weight, the richest one pays for all.
std::optional<ReceiverIndex> SenderCore::next_turn(const std::vector<ReceiverIndex>& candidates) {
  if (candidates.empty()) return std::nullopt;
  int64_t total = 0;
  ReceiverIndex richest = candidates.front();
  for (ReceiverIndex r : candidates) {
    SenderPeer& peer = peers_[r];
    peer.turn += peer.options.weight;
    total += peer.options.weight;
    if (peer.turn > peers_[richest].turn) richest = r;
  }
  peers_[richest].turn -= total;
  return richest;
}

/// Everybody who may hold it already is one possible copy more.
uint32_t SenderCore::copies(const Flying& b) const {
  const SenderQueue& s = *b.stream;
  const bool unknown = s.unasked > 0 && b.first < s.assigned && !(options_.strict && options_.strict_before);
  return static_cast<uint32_t>(b.maybe.size()) + (unknown ? 1 : 0) + (s.given_up.intersects(b.first, b.last) ? 1 : 0);
}

/// Whether the stream has to wait for counted(). All that is pending is counted at once, each copy once, but only when
/// somebody is there to take it: until then who may hold it can still come back and be asked.
bool SenderCore::count_copies(SenderQueue& s, const Flying& next) {
  if (copies(next) <= next.counted) return false;
  bool taker = false;
  for (size_t r = 0; r < peers_.size(); ++r)
    taker |= peers_[r].state == ReceiverState::ready && !s.use[r].held && takes(peers_[r], next);
  if (!taker) return false;
  uint64_t events = 0;
  for (uint64_t first : s.pending) {
    Flying& b = s.batches.at(first);
    uint32_t now = copies(b);
    if (now <= b.counted) continue;
    events += b.events * (now - b.counted);
    b.counted = now;
  }
  s.counting = true;
  effects_.emplace_back(effect::ReroutedUnasked{s.source, s.id, events});
  return true;
}

void SenderCore::launch(Flying& b, ReceiverIndex r) {
  SenderQueue& s = *b.stream;
  SenderPeer& peer = peers_[r];
  Use& use = s.use[r];
  PH_ASSERT(copies(b) <= b.counted, "a further copy is counted before it can come to be");
  no_longer_pending(b);
  if (peer.in_flight.empty()) {
    peer.progress_at = now_;
    peer.pace.begin(now_);
  }
  fence(b, r);
  b.at = r;
  b.flight = next_flight_++;
  b.sent = true;
  peer.in_flight.emplace_hint(peer.in_flight.end(), b.flight, &b);
  peer.in_flight_bytes += b.size;
  use.sent_below = std::max(use.sent_below, b.last);
  Slice compact = compressed(b, peer);
  Encoded frame = encode(Events{.stream = s.id,
                                .settled = told(s),
                                .hold_epoch = use.hold_epoch,
                                .first = b.first,
                                .last = b.last,
                                .events = b.events,
                                .codec = compact.empty() ? codecs::none : codecs::zstd,
                                .wants_far = sources_[s.source].wants_far,
                                .packed = compact.empty() ? b.packed : compact,
                                .far = sources_[s.source].wants_far ? s.far : 0,
                                .attempt = options_.strict ? attempt_base_ + b.flight : 0});
  bucket_.take(frame.size());
  peer.sent += compact.empty() ? frame.size() : frame.size() - compact.size() + b.packed.size();
  effects_.emplace_back(effect::Send{r, std::move(frame)});
}

}  // namespace ph::link
