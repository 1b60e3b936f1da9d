// Sender: how much. What may be pulled, how long a batch is, what leaves under a rate, what is compressed.
#include <algorithm>

#include "core/link/packed.h"
#include "core/link/sender_state.h"

namespace ph::link {
namespace {

constexpr uint64_t kWorthCompressing = 32 * 1024 * 1024;  // bytes per second; a faster way is not waited for
constexpr uint32_t kPlainAfterVain = 15;                  // batches

}  // namespace

/// The batch's bytes compressed; empty: it goes as it is.
Slice SenderCore::compressed(const Flying& b, SenderPeer& peer) {
  if (options_.compress == Compress::none || !peer.inflates) return {};
  if (options_.compress == Compress::automatic) {
    // Only where the way is what takes the time: something waits on it already, and it is slow.
    if (peer.in_flight_bytes == b.size || peer.pace.rate() >= kWorthCompressing) return {};
    if (peer.plain_left > 0) {
      --peer.plain_left;
      return {};
    }
  }
  Slice compact = compressor_.compress(b.packed.view());
  if (compact.size() > b.packed.size() / 10 * 9) {
    peer.plain_left = kPlainAfterVain;
    return {};
  }
  return compact;
}

/// Whether a frame with some of the batch may begin now. For less than frame_min it waits: there is more to come once
/// the receiver has dealt with what it has.
bool SenderCore::takes(const SenderPeer& peer, const Flying& b) const {
  if (peer.sent >= peer.credit) return false;
  const uint64_t left = peer.credit - peer.sent;
  return left >= options_.frame_min || b.size + kFrameHead <= left;
}

/// Leaves of a pending batch what its receiver has room for; the rest stays pending behind it. What cannot be cut there
/// goes over the credit, once.
void SenderCore::cut_to_credit(Flying& b, const SenderPeer& peer) {
  const uint64_t left = peer.credit - peer.sent;
  if (b.size + kFrameHead <= left || b.stream->batches.size() >= kSpanMax) return;
  const auto at = cut_point(b.packed, b.first, b.last, left - std::min<uint64_t>(left, kFrameHead));
  if (!at) return;
  std::vector<Flying> pieces;
  uint64_t events = 0;
  for (const auto& [first, last] : {std::pair(b.first, *at), std::pair(*at, b.last)}) {
    auto part = cut_packed(b.packed, b.first, b.last, first, last);
    if (!part) return;
    Flying& piece = pieces.emplace_back();
    piece.first = first;
    piece.last = last;
    piece.events = part->events;
    piece.packed = std::move(part->packed);
    piece.owner = b.owner;
    piece.owned_at = b.owned_at;
    piece.partitions = b.partitions;  // of both: it fences more than it must, and nothing less
    if (b.rejected_events) piece.rejected_events = refused_events(*b.stream, piece);
    events += piece.events;
  }
  if (events != b.events) return;
  replace(b, std::move(pieces));
}

void SenderCore::say_need(ReceiverIndex r) {
  SenderPeer& peer = peers_[r];
  if (!peer.hears_need || std::exchange(peer.said_need, true)) return;
  send(r, Need{peer.sent});
}

void SenderCore::on(ReceiverIndex r, const Credit& credit) {
  SenderPeer& peer = peers_[r];
  if (credit.bytes <= peer.credit) return;
  peer.credit = credit.bytes;
  peer.said_need = false;
  const uint64_t answered = peer.sent - std::min<uint64_t>(peer.sent, peer.in_flight_bytes);
  peer.allowance = peer.credit - std::min(peer.credit, answered);
}

void SenderCore::set_rate(std::optional<uint64_t> rate, Instant now) {
  now_ = now;
  bucket_.set(rate, now);
  finish();
}

size_t SenderCore::batch_bytes() const {
  size_t bytes = Pace::kBatchMax;
  for (const SenderPeer& peer : peers_)
    if (peer.state == ReceiverState::ready)
      bytes = std::min({bytes, peer.pace.batch_bytes(), std::max<size_t>(Pace::kBatchMin, peer.allowance / 8 * 7)});
  if (bucket_.rate()) bytes = std::min<size_t>(bytes, std::max<size_t>(Pace::kBatchMin, *bucket_.rate() / 4));
  return bytes;
}

/// Whether nobody takes the stream now that could; with a hash, whether one does not, as the rest waits behind that.
bool SenderCore::is_held(const SenderQueue& s) const {
  bool held = false, open = false;
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].state != ReceiverState::ready) continue;
    held |= s.use[r].held;
    open |= !s.use[r].held;
  }
  return keys_ ? held : !open;
}

void SenderCore::count_parked() {
  if (held_streams_.empty() && parked_ == 0 && parked_streams_.empty()) return;
  parked_ = 0;
  for (SenderSource& source : sources_) source.parked = 0;
  for (StreamId id : held_streams_) {
    SenderQueue& s = streams_.at(id);
    if (!is_held(s)) continue;
    parked_ += s.pending_charge;
    sources_[s.source].parked += s.pending_charge;
    park(s);
  }
  for (auto it = parked_streams_.begin(); it != parked_streams_.end();) {
    SenderQueue& s = streams_.at(*it++);
    if (!held_streams_.contains(s.id) || !is_held(s)) release(s);
  }
}

/// Offers the source to take back what is pending at the stream's end. A held stream would fill the window, one of
/// several of a source as well as all of them.
void SenderCore::park(SenderQueue& s) {
  if (options_.strict || !any_ready()) return;
  uint64_t from = s.next;
  for (auto it = s.batches.rbegin(); it != s.batches.rend(); ++it) {
    const Flying& b = it->second;
    if (!b.pending || !b.maybe.empty() || b.rejected_events > 0) break;
    from = b.first;
  }
  if (s.parked_from == from) return;
  s.parked_from = from;
  parked_streams_.insert(s.id);
  effects_.emplace_back(effect::Parked{s.source, s.id, from});
}

void SenderCore::release(SenderQueue& s) {
  s.parked_from.reset();
  parked_streams_.erase(s.id);
  if (std::exchange(s.taken_back, false)) effects_.emplace_back(effect::Released{s.source, s.id});
}

bool SenderCore::still_parked(StreamId stream, uint64_t from) {
  SenderQueue* s = find(stream);
  if (!s || s->parked_from != from) return false;  // released meanwhile, or offered with another beginning
  const auto begin = s->batches.lower_bound(from);
  const bool at_batch = begin == s->batches.end() ? s->next == from : begin->first == from;
  const bool here = at_batch && std::all_of(begin, s->batches.end(), [](const auto& b) {
                      return b.second.pending && b.second.maybe.empty() && b.second.rejected_events == 0;
                    });
  if (!here) s->parked_from.reset();
  return here;
}

void SenderCore::taken_back(StreamId stream, uint64_t from, Instant now) {
  now_ = now;
  SenderQueue* s = find(stream);
  PH_ASSERT(s && s->parked_from == from, "what is taken back was asked for");
  s->taken_back = true;
  for (auto it = s->batches.lower_bound(from); it != s->batches.end(); it = s->batches.erase(it)) {
    Flying& b = it->second;
    PH_ASSERT(b.pending && b.maybe.empty(), "what is taken back is nowhere");
    no_longer_pending(b);
    unfence(b);
    uncount(b);
  }
  s->next = from;
  s->next_ordinal = s->batches.empty() ? 0 : s->batches.rbegin()->second.ordinal + 1;
  if (s->stretched && !s->stretches()) {
    s->stretched = false;
    --sources_[s->source].stretched;
  }
  finish();
}

bool SenderCore::any_ready() const {
  return std::ranges::any_of(peers_, [](const SenderPeer& p) { return p.state == ReceiverState::ready; });
}

size_t SenderCore::room() const {
  if (!any_ready()) return 0;
  size_t window = options_.window_bytes;
  size_t used = charged_ - std::min(parked_, window);
  size_t room = used < window ? window - used : 0;
  // Crumbs would be filled with many small batches.
  return room >= std::min<size_t>(window / 4, 64 * 1024) ? room : 0;
}

size_t SenderCore::room(SourceIndex source) const {
  const SenderSource& s = sources_[source];
  if (s.parked >= options_.window_bytes / 2 || s.stretched > 0) return 0;
  return room();
}

}  // namespace ph::link
