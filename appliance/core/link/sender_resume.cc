// Sender: connections. Probing with back-off, asking by RESUME before anything is sent, what is lost with a connection,
// and when it may go elsewhere.
#include <algorithm>

#include "core/link/sender_state.h"

namespace ph::link {
namespace {

constexpr int kProbeOutageShare = 60;  // delays are up to this part of the outage so far

}  // namespace

void SenderCore::connect(ReceiverIndex r) {
  SenderPeer& peer = peers_[r];
  peer.state = ReceiverState::connecting;
  peer.reached = false;
  peer.progress_at = now_;
  ++peer.connects;
  effects_.emplace_back(effect::Connect{r});
}

void SenderCore::connected(ReceiverIndex receiver, const Hello& hello, Instant now) {
  now_ = now;
  SenderPeer& peer = peers_[receiver];
  if (peer.state != ReceiverState::connecting) return;
  peer.reached = true;
  if (options_.strict && !(hello.features & features::strict)) {
    drop(receiver, "the receiver cannot stage: dedup = \"strict\" needs a newer one");
    return finish();
  }
  peer.state = ReceiverState::resuming;
  peer.reached = true;
  peer.node = hello.node;
  peer.inflates = hello.features & features::zstd;
  peer.progress_at = peer.heard_at = now;
  peer.credit = peer.sent = peer.owed = peer.allowance = 0;
  peer.pinged = peer.said_need = false;
  peer.hears_need = hello.features & features::need;
  peer.acked_flight = peer.overtaken_flight = 0;
  ask(receiver);
  finish();
}

/// Asks about every stream that the receiver was used for: also where nothing is uncertain, it learns which connection
/// speaks for the stream now and how far it is settled.
void SenderCore::ask(ReceiverIndex r) {
  SenderPeer& peer = peers_[r];
  peer.asked.clear();
  Resume resume;
  auto send_it = [&] {
    auto& ids = peer.asked.emplace_back();
    for (const auto& s : resume.streams) ids.push_back(s.stream);
    send(r, resume);
    resume.streams.clear();
  };
  for (auto& [id, s] : streams_) {
    if (s.use[r].state != Use::State::durable) continue;
    resume.streams.push_back({id, told(s), sources_[s.source].wants_far ? s.far : 0});
    if (resume.streams.size() == kResumeStreams) send_it();
  }
  if (!resume.streams.empty() || peer.asked.empty()) send_it();
}

void SenderCore::on(ReceiverIndex r, const Resumed& resumed) {
  SenderPeer& peer = peers_[r];
  if (peer.state != ReceiverState::resuming || peer.asked.empty()) return drop(r, "RESUMED without RESUME");
  const auto& ids = peer.asked.front();
  bool same = ids.size() == resumed.streams.size();
  for (size_t i = 0; same && i < ids.size(); ++i) same = ids[i] == resumed.streams[i].stream;
  if (!same) return drop(r, "RESUMED does not answer RESUME");
  for (const Resumed::Stream& told : resumed.streams) {
    SenderQueue* s = find(told.stream);
    if (!s) {  // closed or renewed meanwhile: this connection speaks for it since it asked, and is the last to do so
      send(r, CloseStream{told.stream});
      continue;
    }
    if (!resume_stream(r, *s, told)) return drop(r, "RESUMED tells of what was never sent");
  }
  peer.asked.pop_front();
  if (!peer.asked.empty()) return;
  peer.state = ReceiverState::ready;
  peer.dropped_us = false;
  peer.retry_delay = options_.probe_min;
  if (options_.strict) tell_publishers(r);
  watch_presence();
  activate_all();
}

/// False if the answer cannot be true.
bool SenderCore::resume_stream(ReceiverIndex r, SenderQueue& s, const Resumed::Stream& told) {
  Use& use = s.use[r];
  uint64_t below = std::max(told.settled, told.highest);
  auto known = [&](const auto& range) { return range.last <= below; };
  if (!std::all_of(told.accepted.begin(), told.accepted.end(), known) ||
      !std::all_of(told.rejects.begin(), told.rejects.end(), known))
    return false;
  uint64_t possible = std::max(s.assigned, s.settled);
  for (size_t other = 0; other < peers_.size(); ++other)  // one node may be listed under several addresses
    if (peers_[other].node == peers_[r].node) possible = std::max(possible, s.use[other].sent_below);
  if (renewed_.contains(s.id)) {  // kept for its far acknowledgements alone
    for (const Span& span : told.far) s.far_acked.add(span.first, std::min(span.last, s.settled));
    for (const Resumed::Staged& staged : told.staged) discard(r, s.id, staged.attempt);
    mark_dirty(s);
    return true;
  }
  if (below > possible) {
    // This node has forgotten what it once sent: numbers would be given out twice (amendment 3).
    effects_.emplace_back(effect::Renew{s.source, s.id});
    for (const Resumed::Staged& staged : told.staged) discard(r, s.id, staged.attempt);
    renewed_.insert(s.id);
    forget_batches(s);
    // What it settled may not be at the end of its way yet: that is heard of under the old id alone.
    bool far_to_come = sources_[s.source].wants_far && s.far < s.settled;
    for (const Span& span : told.far) s.far_acked.add(span.first, std::min(span.last, s.settled));
    far_to_come ? mark_dirty(s) : drop_stream(s);
    return true;
  }
  use.known_below = std::max(use.known_below, below);
  if (use.unasked) {  // the first HELLO of this run ended all connections of the run before
    for (size_t other = 0; other < peers_.size(); ++other)
      if (peers_[other].place == peers_[r].place) s.use[other].unasked = false;
    --s.unasked;
  }
  for (const Reject& reject : told.rejects) note_reject(s, reject);
  cover(s, 0, told.settled);
  for (const Span& span : told.accepted) cover(s, span.first, span.last);
  for (const Span& span : told.far) s.far_acked.add(span.first, std::min(span.last, below));
  resolve(r, s);
  if (options_.strict) resume_owned(r, s, told);
  mark_dirty(s);
  return true;
}

/// The receiver said what it holds of the stream: what it does not hold is free to be sent.
void SenderCore::resolve(ReceiverIndex r, SenderQueue& s) {
  if (s.use[r].uncertain == 0) return;
  std::vector<Flying*> free;
  for (auto& [first, b] : s.batches) {
    auto at = std::find(b.maybe.begin(), b.maybe.end(), r);
    if (at == b.maybe.end()) continue;
    b.maybe.erase(at);
    --s.use[r].uncertain;
    --peers_[r].uncertain;
    if (b.at == kNowhere && may_go_elsewhere(b)) free.push_back(&b);
  }
  for (Flying* b : free) make_pending(*b);
}

bool SenderCore::may_go_elsewhere(const Flying& b) const {
  return std::all_of(b.maybe.begin(), b.maybe.end(), [this](ReceiverIndex r) { return peers_[r].expired; });
}

void SenderCore::drop(ReceiverIndex r, std::string reason) {
  effects_.emplace_back(effect::Disconnect{r, reason});
  lost(r, std::move(reason));
}

void SenderCore::lost(ReceiverIndex r, std::string reason) {
  SenderPeer& peer = peers_[r];
  if (peer.state == ReceiverState::ready) peer.away_since = now_;
  if (peer.reached && peer.state != ReceiverState::ready) peer.dropped_us = true;
  peer.state = ReceiverState::idle;
  ++peer.failures;
  peer.last_error = std::move(reason);
  peer.retry_delay = std::min(peer.retry_delay, longest_delay(peer));
  // Two thirds, spread by half of that to both sides: never over the delay, and never in step with others.
  peer.retry_at = now_ + random_.jitter(peer.retry_delay * 2 / 3);
  peer.retry_delay = peer.retry_delay * 2;
  if (options_.strict) lose_staged(r);
  if (!peer.in_flight.empty() && peer.uncertain == 0) {
    peer.lost_at = now_;
    peer.expired = false;
  }
  for (auto& [flight, b] : peer.in_flight) {
    b->at = kNowhere;
    b->maybe.push_back(r);
    ++b->stream->use[r].uncertain;
    ++peer.uncertain;
  }
  peer.in_flight.clear();
  peer.in_flight_bytes = 0;
  peer.asked.clear();
  peer.pinged = false;
  peer.overtaken_flight = 0;
  for (auto& [id, s] : streams_) {
    s.use[r].held = false;
    s.use[r].hold_epoch = 0;
  }
  for (auto it = held_streams_.begin(); it != held_streams_.end();) {
    const SenderQueue& s = streams_.at(*it);
    bool held = std::any_of(s.use.begin(), s.use.end(), [](const Use& u) { return u.held; });
    it = held ? std::next(it) : held_streams_.erase(it);
  }
  if (options_.strict) lose_publishers(r);
  expire(r);
  activate_all();  // who waited for this one looks for another
}

/// An attempt at a receiver that is away costs next to nothing, so that it is used again within a second or two of its
/// return, be it after a minute; after an hour nobody waits for the second. One that answers and then drops us is
/// worked hard by that: there the delay grows at once. How many come at a time the receiver sees to (kAcceptsASecond of
/// its server).
Duration SenderCore::longest_delay(const SenderPeer& peer) const {
  if (peer.dropped_us) return options_.probe_max;
  Duration quick = std::min(options_.probe_quick, options_.probe_max);
  return std::clamp((now_ - peer.away_since) / kProbeOutageShare, quick, options_.probe_max);
}

/// After resume_timeout without an answer, what the receiver may hold goes elsewhere. With one receiver it waits.
void SenderCore::expire(ReceiverIndex r) {
  SenderPeer& peer = peers_[r];
  if (peer.uncertain == 0 || peer.expired || options_.receivers.size() < 2 || peer.state == ReceiverState::resuming ||
      now_ < peer.lost_at + options_.resume_timeout)
    return;
  peer.expired = true;
  for (auto& [id, s] : streams_) {
    if (s.use[r].uncertain == 0) continue;
    std::vector<Flying*> free;
    for (auto& [first, b] : s.batches)
      if (!b.maybe.empty() && b.at == kNowhere && may_go_elsewhere(b)) free.push_back(&b);
    for (Flying* b : free) make_pending(*b);
  }
}

}  // namespace ph::link
