// Sender, strict (amendment 17): what makes an event be published once although receivers vanish.
//
//   EVENTS with an attempt   the receiver stages: durable, in no file
//   ACK.staged               it did. The sender records this receiver as the one publisher of these positions (Own)
//   owned()                  that is on disk: DECIDE publish, to the publisher alone; ACK.accepted answers
//
// A receiver that is lost before Own was recorded has no word in it: its batches go elsewhere at once, and what it
// staged is discarded when it says so in RESUMED. A publisher that is lost is waited for, since it may have published;
// when it is back it has published (accepted), or still has it staged (told again), or has neither (then nobody has).
#include <algorithm>

#include "core/link/packed.h"
#include "core/link/sender_state.h"

namespace ph::link {

/// Publishers of an earlier run. Nothing of their ranges is sent before they said what became of them.
void SenderCore::load_publishers(SenderQueue& s, const SenderStream& stream) {
  if (stream.published > s.settled) s.acked.add(s.settled, stream.published);
  for (const SenderOwned& o : stream.owned) {
    if (o.last <= std::max(s.settled, stream.published)) continue;
    if (o.given_up) {
      s.given_up.add(o.first, o.last);
      continue;
    }
    Publisher publisher{.last = o.last, .address = o.receiver, .attempt = o.attempt, .durable = true};
    for (size_t r = 0; r < peers_.size() && publisher.receiver == kNowhere; ++r)
      if (peers_[r].options.address == o.receiver) publisher.receiver = r;
    s.publishers.emplace(o.first, publisher);
  }
}

/// An earlier run cut its batches elsewhere. Cut at the ends of what has a publisher, a batch waits only as far as it
/// must: what follows would pass the rest of it otherwise.
std::vector<SenderBatch> SenderCore::parts_by_publisher(const SenderQueue& s, SenderBatch&& batch) {
  std::vector<SenderBatch> parts;
  uint64_t at = batch.first, events = 0;
  auto add = [&](uint64_t last) {
    if (at >= last) return true;
    auto part = cut_packed(batch.packed, batch.first, batch.last, at, last);
    if (!part) return false;
    events += part->events;
    parts.push_back({batch.stream, at, last, part->events, std::move(part->packed)});
    at = last;
    return true;
  };
  bool cut = true;
  auto it = s.publishers.upper_bound(batch.first);
  if (it != s.publishers.begin()) --it;
  for (; cut && it != s.publishers.end() && it->first < batch.last; ++it)
    cut = add(it->first) && add(std::min(it->second.last, batch.last));
  if (parts.empty() || !cut || !add(batch.last) || events != batch.events) {
    parts.clear();
    parts.push_back(std::move(batch));
  }
  return parts;
}

/// Nothing of its keys leaves for anybody meanwhile.
void SenderCore::wait_for_publisher(Flying& b) {
  b.stream->waiting.insert(b.first);
  fence(b, kNowhere);
}

void SenderCore::staged(ReceiverIndex r, SenderQueue& s, uint64_t attempt) {
  SenderPeer& peer = peers_[r];
  auto it = peer.in_flight.find(attempt - attempt_base_);
  if (it == peer.in_flight.end() || it->second->stream != &s) return discard(r, s.id, attempt);  // another one has it
  const Flying& b = *it->second;
  if (publishes(b, r)) return;
  PH_ASSERT(!has_publisher(s, b.first, b.last), "a range is sent to nobody while it has a publisher");
  s.publishers.emplace(b.first, Publisher{.last = b.last, .receiver = r, .attempt = attempt});
  effects_.emplace_back(effect::Own{s.source, s.id, r, b.first, b.last, attempt});
}

void SenderCore::owned(SourceIndex, StreamId stream, uint64_t first, uint64_t attempt, Instant now) {
  now_ = now;
  SenderQueue* s = find(stream);
  if (!s) return;
  auto it = s->publishers.find(first);
  if (it == s->publishers.end() || it->second.attempt != attempt) return;
  it->second.durable = true;
  if (peers_[it->second.receiver].state == ReceiverState::ready) publish(*s, it->second);
  finish();
}

void SenderCore::publish(SenderQueue& s, Publisher& publisher) {
  if (publisher.told) return;
  publisher.told = true;
  ++peers_[publisher.receiver].owed;
  decisions_[{publisher.receiver, s.id}].publish.push_back(publisher.attempt);
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
void SenderCore::tell_publishers(ReceiverIndex r) {
  for (auto& [id, s] : streams_)
    for (auto& [first, publisher] : s.publishers)
      if (publisher.receiver == r && publisher.durable) publish(s, publisher);
}

std::map<uint64_t, Publisher>::iterator SenderCore::forget_publisher(SenderQueue& s,
                                                                     std::map<uint64_t, Publisher>::iterator it) {
  if (it->second.told) --peers_[it->second.receiver].owed;
  return s.publishers.erase(it);
}

void SenderCore::forget_publishers(SenderQueue& s) {
  for (auto it = s.publishers.begin(); it != s.publishers.end();) it = forget_publisher(s, it);
  s.waiting.clear();
  s.given_up.clear();
}

bool SenderCore::has_publisher(const SenderQueue& s, uint64_t first, uint64_t last) const {
  auto it = s.publishers.lower_bound(last);
  return it != s.publishers.begin() && std::prev(it)->second.last > first;
}

bool SenderCore::publishes(const Flying& b, ReceiverIndex r) const {
  auto it = b.stream->publishers.find(b.first);
  return it != b.stream->publishers.end() && it->second.receiver == r;
}

/// What is acknowledged needs no publisher.
void SenderCore::settle_publishers(SenderQueue& s) {
  for (auto it = s.publishers.begin(); it != s.publishers.end();) {
    const uint64_t first = std::max(it->first, s.settled);
    const bool over = first >= it->second.last || s.acked.contains(first, it->second.last);
    it = over ? forget_publisher(s, it) : std::next(it);
  }
  release_waiting(s);
}

void SenderCore::release_waiting(SenderQueue& s) {
  std::vector<Flying*> free;
  for (uint64_t first : s.waiting) {
    Flying& b = s.batches.at(first);
    if (!has_publisher(s, b.first, b.last)) free.push_back(&b);
  }
  for (Flying* b : free) {
    s.waiting.erase(b->first);
    make_pending(*b);
  }
}

void SenderCore::resume_owned(ReceiverIndex r, SenderQueue& s, const Resumed::Stream& told) {
  Use& use = s.use[r];
  for (const Resumed::Staged& staged : told.staged) {
    auto publisher = std::find_if(s.publishers.begin(), s.publishers.end(),
                                  [&](const auto& o) { return o.second.attempt == staged.attempt; });
    if (publisher != s.publishers.end()) {
      // One node may be listed under several addresses, or under a new one.
      if (publisher->second.receiver == kNowhere) publisher->second.receiver = r;
      use.known_below = std::max(use.known_below, publisher->second.last);
      continue;
    }
    const bool in_flight = std::any_of(peers_.begin(), peers_.end(), [&](const SenderPeer& peer) {
      auto it = peer.in_flight.find(staged.attempt - attempt_base_);
      return it != peer.in_flight.end() && it->second->stream == &s;
    });
    if (!in_flight) discard(r, s.id, staged.attempt);
  }
  // What it neither published nor has staged, it will not publish any more.
  for (auto it = s.publishers.begin(); it != s.publishers.end();) {
    const bool has = std::any_of(told.staged.begin(), told.staged.end(),
                                 [&](const auto& staged) { return staged.attempt == it->second.attempt; });
    it = it->second.receiver == r && !has ? forget_publisher(s, it) : std::next(it);
  }
  release_waiting(s);
}

/// The connection is gone. Before the publisher of a batch was chosen it is free; with one, the publisher is waited
/// for.
void SenderCore::lose_staged(ReceiverIndex r) {
  SenderPeer& peer = peers_[r];
  for (auto& [flight, b] : std::exchange(peer.in_flight, {})) {
    b->at = kNowhere;
    if (publishes(*b, r))
      b->stream->waiting.insert(b->first);
    else
      make_pending(*b);
  }
  peer.in_flight_bytes = 0;
}

void SenderCore::lose_publishers(ReceiverIndex r) {
  for (auto& [id, s] : streams_)
    for (auto& [first, publisher] : s.publishers)
      if (publisher.receiver == r) publisher.told = false;
  peers_[r].owed = 0;
  std::erase_if(decisions_, [r](const auto& d) { return d.first.first == r; });
}

bool SenderCore::is_away(ReceiverIndex r) const {
  return peers_[r].state == ReceiverState::idle || peers_[r].state == ReceiverState::connecting;
}

/// What these publishers own is free from here on, and counted before it leaves.
template <class Gone>
uint64_t SenderCore::give_up_if(Gone gone) {
  uint64_t count = 0;
  for (auto& [id, s] : streams_) {
    bool any = false;
    for (auto it = s.publishers.begin(); it != s.publishers.end();) {
      if (!gone(it->second)) {
        ++it;
        continue;
      }
      s.given_up.add(it->first, it->second.last);
      it = forget_publisher(s, it);
      ++count;
      any = true;
    }
    if (any) release_waiting(s);
  }
  given_up_batches_ += count;
  return count;
}

void SenderCore::give_up_publishers() {
  if (options_.strict_give_up == Duration::max()) return;
  give_up_if([&](const Publisher& publisher) {
    const ReceiverIndex r = publisher.receiver;
    if (r == kNowhere) return now_ - started_at_ >= options_.strict_give_up;
    return is_away(r) && now_ - peers_[r].away_since >= options_.strict_give_up;
  });
}

uint64_t SenderCore::give_up(const std::string& address, Instant now) {
  now_ = now;
  const uint64_t count = give_up_if([&](const Publisher& publisher) {
    const ReceiverIndex r = publisher.receiver;
    return r == kNowhere ? publisher.address == address : peers_[r].options.address == address && is_away(r);
  });
  finish();
  return count;
}

std::vector<AwayOwner> SenderCore::away_owners() const {
  std::map<std::string, AwayOwner> by_address;
  for (const auto& [id, s] : streams_)
    for (const auto& [first, publisher] : s.publishers) {
      const ReceiverIndex r = publisher.receiver;
      if (r != kNowhere && !is_away(r)) continue;
      const std::string& address = r == kNowhere ? publisher.address : peers_[r].options.address;
      AwayOwner& owner = by_address[address];
      owner.address = address;
      owner.configured = r != kNowhere;
      ++owner.batches;
      if (owner.streams.size() < kAwayStreamsShown && (owner.streams.empty() || owner.streams.back() != id))
        owner.streams.push_back(id);
    }
  std::vector<AwayOwner> out;
  for (auto& [address, owner] : by_address) out.push_back(std::move(owner));
  return out;
}

bool SenderCore::holds_any(ReceiverIndex r) const {
  return std::any_of(held_streams_.begin(), held_streams_.end(),
                     [&](StreamId id) { return streams_.at(id).use[r].held; });
}

uint64_t SenderCore::stranded_batches() const {
  uint64_t sum = 0;
  for (const auto& [id, s] : streams_)
    sum += static_cast<uint64_t>(std::count_if(s.publishers.begin(), s.publishers.end(),
                                               [](const auto& o) { return o.second.receiver == kNowhere; }));
  return sum;
}

}  // namespace ph::link
