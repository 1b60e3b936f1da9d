// Sender: the window. Batches as they are offered, covered by acknowledgements, cut where only a part is covered,
// settled in order.
#include <algorithm>

#include "core/link/packed.h"
#include "core/link/sender_state.h"

namespace ph::link {

void SenderCore::add_batch(SenderQueue& s, SenderBatch&& batch) {
  for (SenderBatch& part : parts_by_publisher(s, std::move(batch))) {
    if (keys_)
      add_hashed(s, std::move(part));
    else
      begin(add_run(s, std::move(part)));
  }
}

/// What becomes of a batch that was just registered.
void SenderCore::begin(Flying& b) {
  SenderQueue& s = *b.stream;
  if (s.acked.contains(b.first, b.last))
    acknowledge(b);
  else if (has_publisher(s, b.first, b.last))
    wait_for_publisher(b);
  else
    make_pending(b);
}

/// Registers a batch, or what a hash makes of it, as the stream's last one.
Flying& SenderCore::add_run(SenderQueue& s, SenderBatch&& batch) {
  auto [it, fresh] = s.batches.try_emplace(batch.first);
  PH_ASSERT(fresh, "batches of a stream do not overlap");
  Flying& b = it->second;
  b.stream = &s;
  b.first = batch.first;
  b.last = batch.last;
  b.events = batch.events;
  b.size = batch.packed.size();
  b.packed = std::move(batch.packed);
  b.ordinal = s.next_ordinal++;
  unacked_events_ += b.events;
  unacked_bytes_ += b.size;
  charged_ += b.charge();
  if (!s.stretched && s.stretches()) {
    s.stretched = true;
    ++sources_[s.source].stretched;
  }
  for (auto early = s.early_rejects.begin(); early != s.early_rejects.end() && early->first < b.last;) {
    const Reject& reject = early->second;
    report_reject(b, std::max(reject.first, b.first), std::min(reject.last, b.last), reject.reason);
    early = reject.last <= b.last ? s.early_rejects.erase(early) : std::next(early);
  }
  return b;
}

/// A batch that fits no frame: block by block, and a block that fits none is refused here.
void SenderCore::add_oversize(SenderQueue& s, const SenderBatch& batch) {
  std::vector<PlacedBlock> blocks = blocks_within(batch.packed, batch.first, batch.last, batch.first, batch.last);
  PH_ASSERT(!blocks.empty() && blocks.back().last == batch.last, "a source packs whole blocks");
  for (PlacedBlock& block : blocks) {
    std::string bytes;
    put_varint(bytes, block.last - block.first);
    put_sized(bytes, block.block.view());
    bool fits = bytes.size() <= limits::kFrameMax - 256;
    if (!fits) s.acked.add(std::max(block.first, s.settled), block.last);
    if (!fits) s.early_rejects[block.first] = {block.first, block.last, "frame_too_long"};
    add_batch(s, {s.id, block.first, block.last, block.events, Slice(std::move(bytes))});
  }
}

/// Notes that [first, last) is durable at a receiver, and acknowledges the batches that are covered now.
void SenderCore::cover(SenderQueue& s, uint64_t first, uint64_t last) {
  first = std::max(first, s.settled);
  if (first >= last) return;
  s.acked.add(first, last);
  auto it = s.batches.upper_bound(first);
  if (it != s.batches.begin()) --it;
  while (it != s.batches.end() && it->first < last) {
    Flying& b = it->second;
    ++it;  // splitting adds pieces before it
    if (b.acked || b.last <= first) continue;
    if (s.acked.contains(b.first, b.last))
      acknowledge(b);
    else if (b.pending)
      split(b);
  }
  if (!s.publishers.empty()) settle_publishers(s);
}

void SenderCore::acknowledge(Flying& b) {
  SenderQueue& s = *b.stream;
  if (b.at != kNowhere) {
    peers_[b.at].acked_flight = std::max(peers_[b.at].acked_flight, b.flight);
    peers_[b.at].pace.acked(b.size, now_);
  }
  take_from_flight(b);
  no_longer_pending(b);
  forget_maybe(b);
  s.waiting.erase(b.first);
  unfence(b);
  if (!b.sent) s.duplicates += b.events - b.rejected_events;  // it was there before this run sent it
  uncount(b);
  b.packed = {};
  b.acked = true;
  mark_dirty(s);
}

void SenderCore::uncount(const Flying& b) {
  unacked_events_ -= b.events;
  unacked_bytes_ -= b.size;
  charged_ -= b.charge();
}

void SenderCore::take_from_flight(Flying& b) {
  if (b.at == kNowhere) return;
  SenderPeer& peer = peers_[b.at];
  peer.in_flight.erase(b.flight);
  peer.in_flight_bytes -= b.size;
  b.at = kNowhere;
}

void SenderCore::no_longer_pending(Flying& b) {
  if (!b.pending) return;
  b.pending = false;
  b.stream->pending.erase(b.first);
  if (keys_) b.stream->owned[b.owner].erase(b.first);
  b.stream->pending_charge -= b.charge();
}

void SenderCore::forget_maybe(Flying& b) {
  for (ReceiverIndex r : b.maybe) {
    --b.stream->use[r].uncertain;
    --peers_[r].uncertain;
  }
  b.maybe.clear();
}

void SenderCore::make_pending(Flying& b) {
  if (b.acked || b.pending) return;
  SenderQueue& s = *b.stream;
  unfence(b);
  b.pending = true;
  s.pending.insert(b.first);
  s.pending_charge += b.charge();
  if (keys_) {
    s.owned[b.owner].insert(b.first);
    if (b.owned_at != owners_epoch_) s.owned_at = 0;
  }
  if (s.acked.intersects(b.first, b.last)) split(b);
  activate(s);
}

/// Cuts a pending batch of which a part is covered: only the rest is to be sent, because it may go to a receiver that
/// does not have that part. False if it cannot be cut there: then it is sent whole, and who has a part trims it.
bool SenderCore::split(Flying& b) {
  SenderQueue& s = *b.stream;
  std::vector<Flying> pieces;
  uint64_t at = b.first, events = 0;
  auto add = [&](uint64_t last, bool covered) {
    if (at >= last) return true;
    auto part = cut_packed(b.packed, b.first, b.last, at, last);
    if (!part) return false;
    Flying& piece = pieces.emplace_back();
    piece.first = at;
    piece.last = last;
    piece.events = part->events;
    piece.packed = std::move(part->packed);
    piece.acked = covered;
    if (covered && b.rejected_events) piece.rejected_events = refused_events(s, piece);  // what was refused is covered
    events += part->events;
    at = last;
    return true;
  };
  for (const Range& gap : s.acked.missing(b.first, b.last))
    if (!add(gap.first, true) || !add(gap.last, false)) return false;
  if (!add(b.last, true) || events != b.events) return false;
  replace(b, std::move(pieces));
  return true;
}

uint64_t SenderCore::refused_events(const SenderQueue& s, const Flying& b) {
  uint64_t events = 0;
  for (const Range& refused : s.rejected.within(b.first, b.last))
    for (const PlacedBlock& block : blocks_within(b.packed, b.first, b.last, refused.first, refused.last))
      events += block.events;
  return std::min(events, b.events);
}

/// Puts pieces that make up a pending batch in its place; those marked as acked are covered.
void SenderCore::replace(Flying& b, std::vector<Flying>&& pieces) {
  SenderQueue& s = *b.stream;
  no_longer_pending(b);
  uncount(b);
  Flying whole = b;
  forget_maybe(b);  // each piece counts itself again
  for (Flying& piece : pieces) {
    bool covered = piece.acked;
    Flying& kept = piece.first == b.first ? b : s.batches[piece.first];
    piece.acked = false;
    piece.stream = &s;
    piece.size = piece.packed.size();
    piece.ordinal = whole.ordinal;
    piece.maybe = whole.maybe;
    piece.counted = whole.counted;
    piece.sent = whole.sent;
    for (ReceiverIndex r : piece.maybe) {
      ++s.use[r].uncertain;
      ++peers_[r].uncertain;
    }
    kept = std::move(piece);
    unacked_events_ += kept.events;
    unacked_bytes_ += kept.size;
    charged_ += kept.charge();
    if (covered) {
      acknowledge(kept);
    } else {
      kept.pending = true;
      s.pending.insert(kept.first);
      s.pending_charge += kept.charge();
      if (keys_) s.owned[kept.owner].insert(kept.first);
      if (kept.owned_at != owners_epoch_) s.owned_at = 0;
    }
  }
}

void SenderCore::note_reject(SenderQueue& s, const Reject& reject) {
  uint64_t first = std::max(reject.first, s.settled);
  for (const Range& part : s.rejected.missing(first, std::max(first, reject.last))) {
    auto it = s.batches.upper_bound(part.first);
    if (it != s.batches.begin()) --it;
    for (; it != s.batches.end() && it->first < part.last; ++it) {
      Flying& b = it->second;
      uint64_t from = std::max(part.first, b.first), to = std::min(part.last, b.last);
      // One that is acknowledged already has no bytes left: a receiver does not refuse what another one accepted.
      if (from < to && !b.acked) report_reject(b, from, to, reject.reason);
    }
    uint64_t later = std::max(part.first, s.next);
    if (later < part.last) s.early_rejects[later] = {later, part.last, reject.reason};
  }
  // Refused is answered; and it is refused for good, so that no other receiver is bothered with it.
  cover(s, reject.first, reject.last);
}

void SenderCore::report_reject(Flying& b, uint64_t first, uint64_t last, const std::string& reason) {
  SenderQueue& s = *b.stream;
  for (PlacedBlock& block : blocks_within(b.packed, b.first, b.last, first, last)) {
    if (s.rejected.intersects(block.first, block.last)) continue;
    s.rejected.add(block.first, block.last);
    s.lingering[block.first] = {block.last, std::nullopt};
    b.rejected_events = std::min(b.events, b.rejected_events + block.events);
    effects_.emplace_back(effect::Rejected{s.source, s.id, block.first, block.last, std::move(block.block), reason});
  }
}

void SenderCore::mark_dirty(SenderQueue& s) {
  if (s.dirty) return;
  s.dirty = true;
  dirty_.push_back(s.id);
}

/// Moves settled over the acknowledged prefix and tells it, once for all batches of an input.
void SenderCore::advance(SenderQueue& s) {
  s.dirty = false;
  uint64_t before = s.settled, events = 0;
  while (!s.batches.empty()) {
    const Flying& b = s.batches.begin()->second;
    if (!b.acked) break;
    events += b.events - b.rejected_events;
    s.settled = b.last;
    s.batches.erase(s.batches.begin());
  }
  if (s.settled != before) {
    s.acked.forget_below(s.settled);
    s.rejected.forget_below(s.settled);
    s.given_up.forget_below(s.settled);
    uint64_t duplicates = std::min(s.duplicates, events);
    s.duplicates -= duplicates;
    effects_.emplace_back(effect::Advanced{s.source, s.id, s.settled, events, duplicates});
    if (s.stretched && !s.stretches()) {
      s.stretched = false;
      --sources_[s.source].stretched;
    }
    if (!s.pending.empty()) activate(s);  // it may have been too far ahead of settled
  }
  uint64_t far = std::min(s.settled, s.far_acked.contiguous_from(s.far));
  if (far > s.far) {
    s.far = far;
    s.far_acked.forget_below(far);
    if (sources_[s.source].wants_far) effects_.emplace_back(effect::FarAdvanced{s.source, s.id, far});
  }
  if (s.closing && s.batches.empty()) send_close(s);
}

/// What receivers are told as settled.
uint64_t SenderCore::told(SenderQueue& s) const {
  for (auto& [first, reject] : s.lingering) {
    if (reject.last > s.settled || reject.settled_at) break;
    reject.settled_at = now_;
  }
  while (!options_.confirms_stored && !s.lingering.empty()) {
    const auto& oldest = s.lingering.begin()->second;
    if (!oldest.settled_at || now_ < *oldest.settled_at + options_.reject_linger) break;
    s.lingering.erase(s.lingering.begin());
  }
  return s.lingering.empty() ? s.settled : std::min(s.settled, s.lingering.begin()->first);
}

/// On every connection, used for the stream or not: a receiver forgets it when all that lead there have said so. One
/// that is asking about it hears that when it is answered.
void SenderCore::send_close(SenderQueue& s) {
  for (size_t r = 0; r < peers_.size(); ++r) {
    const ReceiverState state = peers_[r].state;
    const bool asked = std::ranges::any_of(peers_[r].asked,
                                           [&](const auto& ids) { return std::ranges::find(ids, s.id) != ids.end(); });
    if (state == ReceiverState::ready || (state == ReceiverState::resuming && !asked)) send(r, CloseStream{s.id});
  }
  drop_stream(s);
}

void SenderCore::forget_batches(SenderQueue& s) {
  for (auto& [first, b] : s.batches) {
    if (b.acked) continue;
    take_from_flight(b);
    no_longer_pending(b);
    forget_maybe(b);
    unfence(b);
    uncount(b);
  }
  s.batches.clear();
  forget_publishers(s);
  s.acked.clear();
  s.early_rejects.clear();
  s.next = s.settled;
  if (std::exchange(s.stretched, false)) --sources_[s.source].stretched;
}

void SenderCore::drop_stream(SenderQueue& s) {
  forget_batches(s);
  held_streams_.erase(s.id);
  parked_streams_.erase(s.id);
  streams_.erase(s.id);
}

}  // namespace ph::link
