// Sender, strict (amendment 17): what makes an event be published once although receivers vanish.
//
//   EVENTS with an attempt   the receiver stages: durable, in no file
//   ACK.staged               it did. The sender records this receiver as the one owner of these positions (Own)
//   owned()                  that is on disk: DECIDE publish, to the owner alone; ACK.accepted answers
//
// A receiver that is lost before Own was recorded has no word in it: its batches go elsewhere at once, and what it
// staged is discarded when it says so in RESUMED. An owner that is lost is waited for, since it may have published;
// when it is back it has published (accepted), or still has it staged (told again), or has neither (then nobody has).
#include <algorithm>

#include "core/link/sender_state.h"

namespace ph::link {

/// Owners of an earlier run. Nothing of their ranges is sent before they said what became of them.
void SenderCore::load_owners(SenderQueue& s, const SenderStream& stream) {
  if (stream.published > s.settled) s.acked.add(s.settled, stream.published);
  for (const SenderOwned& o : stream.owned) {
    if (o.last <= std::max(s.settled, stream.published)) continue;
    Owner owner{.last = o.last, .attempt = o.attempt, .durable = true};
    for (size_t r = 0; r < peers_.size() && owner.receiver == kNowhere; ++r)
      if (peers_[r].options.address == o.receiver) owner.receiver = r;
    s.owners.emplace(o.first, owner);
  }
}

void SenderCore::staged(ReceiverIndex r, SenderQueue& s, uint64_t attempt) {
  SenderPeer& peer = peers_[r];
  auto it = peer.in_flight.find(attempt - attempt_base_);
  if (it == peer.in_flight.end() || it->second->stream != &s) return discard(r, s.id, attempt);  // another one has it
  const Flying& b = *it->second;
  if (owns(b, r)) return;
  PH_ASSERT(!has_owner(s, b.first, b.last), "a range is sent to nobody while it has an owner");
  s.owners.emplace(b.first, Owner{.last = b.last, .receiver = r, .attempt = attempt});
  effects_.emplace_back(effect::Own{s.source, s.id, r, b.first, b.last, attempt});
}

void SenderCore::owned(SourceIndex, StreamId stream, uint64_t first, uint64_t attempt, Instant now) {
  now_ = now;
  SenderQueue* s = find(stream);
  if (!s) return;
  auto it = s->owners.find(first);
  if (it == s->owners.end() || it->second.attempt != attempt) return;
  it->second.durable = true;
  if (peers_[it->second.receiver].state == ReceiverState::ready) publish(*s, it->second);
  finish();
}

void SenderCore::publish(SenderQueue& s, Owner& owner) {
  if (owner.told) return;
  owner.told = true;
  ++peers_[owner.receiver].owed;
  decisions_[{owner.receiver, s.id}].publish.push_back(owner.attempt);
}

void SenderCore::discard(ReceiverIndex r, StreamId stream, uint64_t attempt) {
  decisions_[{r, stream}].discard.push_back(attempt);
}

void SenderCore::flush_decisions() {
  for (auto& [to, decide] : std::exchange(decisions_, {})) {
    const auto& [r, stream] = to;
    const ReceiverState state = peers_[r].state;
    if (state != ReceiverState::ready && state != ReceiverState::resuming) continue;
    decide.stream = stream;
    send(r, decide);
  }
}

/// The receiver answered for all of its streams: what it owns is decided now.
void SenderCore::tell_owners(ReceiverIndex r) {
  for (auto& [id, s] : streams_)
    for (auto& [first, owner] : s.owners)
      if (owner.receiver == r && owner.durable) publish(s, owner);
}

std::map<uint64_t, Owner>::iterator SenderCore::forget_owner(SenderQueue& s, std::map<uint64_t, Owner>::iterator it) {
  if (it->second.told) --peers_[it->second.receiver].owed;
  return s.owners.erase(it);
}

void SenderCore::forget_owners(SenderQueue& s) {
  for (auto it = s.owners.begin(); it != s.owners.end();) it = forget_owner(s, it);
  s.waiting.clear();
  s.given_up.clear();
}

bool SenderCore::has_owner(const SenderQueue& s, uint64_t first, uint64_t last) const {
  auto it = s.owners.lower_bound(last);
  return it != s.owners.begin() && std::prev(it)->second.last > first;
}

bool SenderCore::owns(const Flying& b, ReceiverIndex r) const {
  auto it = b.stream->owners.find(b.first);
  return it != b.stream->owners.end() && it->second.receiver == r;
}

/// What is acknowledged needs no owner.
void SenderCore::settle_owners(SenderQueue& s) {
  for (auto it = s.owners.begin(); it != s.owners.end();) {
    const uint64_t first = std::max(it->first, s.settled);
    const bool over = first >= it->second.last || s.acked.contains(first, it->second.last);
    it = over ? forget_owner(s, it) : std::next(it);
  }
  release_waiting(s);
}

void SenderCore::release_waiting(SenderQueue& s) {
  std::vector<Flying*> free;
  for (uint64_t first : s.waiting) {
    Flying& b = s.batches.at(first);
    if (!has_owner(s, b.first, b.last)) free.push_back(&b);
  }
  for (Flying* b : free) {
    s.waiting.erase(b->first);
    make_pending(*b);
  }
}

void SenderCore::resume_owned(ReceiverIndex r, SenderQueue& s, const Resumed::Stream& told) {
  Use& use = s.use[r];
  for (const Resumed::Staged& staged : told.staged) {
    auto owner = std::find_if(s.owners.begin(), s.owners.end(),
                              [&](const auto& o) { return o.second.attempt == staged.attempt; });
    if (owner != s.owners.end()) {
      // One node may be listed under several addresses, or under a new one.
      if (owner->second.receiver == kNowhere) owner->second.receiver = r;
      use.known_below = std::max(use.known_below, owner->second.last);
      continue;
    }
    const bool in_flight = std::any_of(peers_.begin(), peers_.end(), [&](const SenderPeer& peer) {
      auto it = peer.in_flight.find(staged.attempt - attempt_base_);
      return it != peer.in_flight.end() && it->second->stream == &s;
    });
    if (!in_flight) discard(r, s.id, staged.attempt);
  }
  // What it neither published nor has staged, it will not publish any more.
  for (auto it = s.owners.begin(); it != s.owners.end();) {
    const bool has = std::any_of(told.staged.begin(), told.staged.end(),
                                 [&](const auto& staged) { return staged.attempt == it->second.attempt; });
    it = it->second.receiver == r && !has ? forget_owner(s, it) : std::next(it);
  }
  release_waiting(s);
}

/// The connection is gone. Before the owner of a batch was chosen it is free; with one, the owner is waited for.
void SenderCore::lose_staged(ReceiverIndex r) {
  SenderPeer& peer = peers_[r];
  for (auto& [flight, b] : std::exchange(peer.in_flight, {})) {
    b->at = kNowhere;
    if (owns(*b, r))
      b->stream->waiting.insert(b->first);
    else
      make_pending(*b);
  }
  peer.in_flight_bytes = 0;
}

void SenderCore::lose_owners(ReceiverIndex r) {
  for (auto& [id, s] : streams_)
    for (auto& [first, owner] : s.owners)
      if (owner.receiver == r) owner.told = false;
  peers_[r].owed = 0;
  std::erase_if(decisions_, [r](const auto& d) { return d.first.first == r; });
}

void SenderCore::give_up_owners() {
  if (options_.strict_give_up == Duration::max()) return;
  auto gone = [&](ReceiverIndex r) {
    if (r == kNowhere) return now_ - started_at_ >= options_.strict_give_up;
    const ReceiverState state = peers_[r].state;
    const bool away = state == ReceiverState::idle || state == ReceiverState::connecting;
    return away && now_ - peers_[r].away_since >= options_.strict_give_up;
  };
  for (auto& [id, s] : streams_) {
    bool any = false;
    for (auto it = s.owners.begin(); it != s.owners.end();) {
      if (!gone(it->second.receiver)) {
        ++it;
        continue;
      }
      s.given_up.add(it->first, it->second.last);
      it = forget_owner(s, it);
      any = true;
    }
    if (any) release_waiting(s);
  }
}

bool SenderCore::holds_any(ReceiverIndex r) const {
  return std::any_of(held_streams_.begin(), held_streams_.end(),
                     [&](StreamId id) { return streams_.at(id).use[r].held; });
}

uint64_t SenderCore::stranded_batches() const {
  uint64_t sum = 0;
  for (const auto& [id, s] : streams_)
    sum += static_cast<uint64_t>(
        std::count_if(s.owners.begin(), s.owners.end(), [](const auto& o) { return o.second.receiver == kNowhere; }));
  return sum;
}

}  // namespace ph::link
