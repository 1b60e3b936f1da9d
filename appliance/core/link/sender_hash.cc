// Sender: who gets what, by a hash of each event. A batch is cut into runs of one owner each; a run waits for its owner
// and nobody else, so the other owners' runs pass it.
//
// Order of a key within its stream:
//   - runs of one owner that have a partition in common leave in ascending order, over one connection;
//   - a partition of which unacknowledged runs are (or may be) at one receiver is fenced: its events leave for no other
//     one. A run comes off its fence when it is acknowledged, or when it is to be sent again itself (its receiver was
//     asked, or did not answer for resume_timeout): then it leaves before everything behind it, like any other.
#include <algorithm>

#include "core/link/sender_state.h"

namespace ph::link {

void SenderCore::add_hashed(SenderQueue& s, SenderBatch&& batch) {
  for (Run& run : runs_by_owner(batch.packed, batch.first, batch.last, batch.events, *keys_, *owners_)) {
    Flying& b = add_run(s, {batch.stream, run.first, run.last, run.events, std::move(run.packed)});
    b.owner = run.owner;
    b.owned_at = owners_epoch_;
    b.partitions = std::move(run.partitions);
    begin(b);
  }
}

void SenderCore::pump_hashed(SenderQueue& s, size_t& full) {
  if (s.owned_at != owners_epoch_) find_owners(s);
  bool launched = false, crowded = false;
  for (auto& [r, runs] : s.owned) {
    if (runs.empty() || r == kNowhere) continue;
    const SenderPeer& peer = peers_[r];
    if (peer.state != ReceiverState::ready || s.use[r].held) continue;  // wakes the stream when that changes
    if (s.use[r].state != Use::State::durable) {
      if (s.use[r].state == Use::State::unused) request_use(s, r);
      continue;  // durable() wakes it
    }
    Flying* next = next_run(s, r, runs);
    if (!next) continue;  // advance() wakes it, or what its fence waits for
    Flying& b = *next;
    const bool takes_it = takes(peer, b);
    if (!takes_it || !bucket_.open(now_)) {
      if (!takes_it) say_need(r);
      crowded = true;
      continue;
    }
    if (count_copies(s, b)) return;  // counted() wakes it
    cut_to_credit(b, peer);
    launch(b, r);
    launched = true;
  }
  if (launched)
    full = 0;
  else if (crowded)
    ++full;
  else
    return;
  activate(s);
}

/// The owner's first run that may leave now: one that is fenced off is passed by those that have none of its keys.
Flying* SenderCore::next_run(SenderQueue& s, ReceiverIndex r, const std::set<uint64_t>& runs) {
  std::set<uint16_t> passed;
  for (uint64_t first : runs) {
    Flying& b = s.batches.at(first);
    if (b.ordinal - s.batches.begin()->second.ordinal >= kSpanMax) return nullptr;
    const bool behind =
        std::any_of(b.partitions.begin(), b.partitions.end(), [&passed](uint16_t p) { return passed.contains(p); });
    if (!behind && !fenced_off(s, b, r)) return &b;
    passed.insert(b.partitions.begin(), b.partitions.end());
  }
  return nullptr;
}

/// Whether the partition's events must wait for another receiver than their owner. Strict alone: otherwise that ends by
/// itself, soon.
bool SenderCore::fenced_apart(const SenderQueue& s, uint16_t partition) const {
  if (!options_.strict) return false;
  auto fence = s.fences.find(partition);
  return fence != s.fences.end() && fence->second.at != owners_->of(partition);
}

/// Whether what is known of a pending run's owner still holds, after it was updated if all its partitions moved to one.
bool SenderCore::fits_owner(const SenderQueue& s, Flying& b) const {
  if (b.owned_at == owners_epoch_) return true;
  if (b.owned_at == 0 || b.partitions.empty()) return false;
  size_t owner = owners_->of(b.partitions.front());
  const bool apart = fenced_apart(s, b.partitions.front());
  for (uint16_t p : b.partitions)
    if (owners_->of(p) != owner || fenced_apart(s, p) != apart) return false;
  b.owner = owner;
  b.owned_at = owners_epoch_;
  return true;
}

/// Brings all that is pending to the owners of the moment; runs whose keys part are cut again, also where only some of
/// them are fenced.
void SenderCore::find_owners(SenderQueue& s) {
  s.owned_at = owners_epoch_;
  const auto apart = [&](uint16_t partition) { return fenced_apart(s, partition); };
  s.owned.clear();
  const std::vector<uint64_t> pending(s.pending.begin(), s.pending.end());
  for (uint64_t first : pending) {
    Flying& b = s.batches.at(first);
    if (fits_owner(s, b)) {
      s.owned[b.owner].insert(first);
      continue;
    }
    std::vector<Flying> pieces;
    for (Run& run : runs_by_owner(b.packed, b.first, b.last, b.events, *keys_, *owners_, apart)) {
      Flying& piece = pieces.emplace_back();
      piece.first = run.first;
      piece.last = run.last;
      piece.events = run.events;
      piece.packed = std::move(run.packed);
      piece.owner = run.owner;
      piece.owned_at = owners_epoch_;
      piece.partitions = std::move(run.partitions);
      if (b.rejected_events) piece.rejected_events = refused_events(s, piece);
    }
    replace(b, std::move(pieces));
  }
  // Pieces have the number of what they were: each counts for the span, since each may be a hole at a receiver.
  s.next_ordinal = 0;
  for (auto& [first, b] : s.batches) b.ordinal = s.next_ordinal++;
}

bool SenderCore::fenced_off(const SenderQueue& s, const Flying& b, ReceiverIndex r) const {
  if (s.fences.empty()) return false;
  return std::any_of(b.partitions.begin(), b.partitions.end(), [&](uint16_t p) {
    auto fence = s.fences.find(p);
    return fence != s.fences.end() && fence->second.at != r;
  });
}

void SenderCore::fence(Flying& b, ReceiverIndex r) {
  if (!keys_) return;
  for (uint16_t p : b.partitions) {
    SenderQueue::Fence& fence = b.stream->fences[p];
    fence.at = r;
    ++fence.runs;
  }
  b.fenced = true;
}

void SenderCore::unfence(Flying& b) {
  if (!b.fenced) return;
  b.fenced = false;
  for (uint16_t p : b.partitions) {
    auto fence = b.stream->fences.find(p);
    if (fence != b.stream->fences.end() && --fence->second.runs == 0) b.stream->fences.erase(fence);
  }
  activate(*b.stream);
}

/// Partitions go with who is there: a receiver that is away for resume_timeout loses its own until it is back.
void SenderCore::watch_presence() {
  if (!keys_) return;
  bool changed = false;
  std::vector<bool> present;
  for (SenderPeer& peer : peers_) {
    bool there = peer.state == ReceiverState::ready;
    bool keyless = !there && (peer.keyless || now_ - peer.away_since >= options_.resume_timeout);
    changed |= std::exchange(peer.keyless, keyless) != keyless;
    present.push_back(!keyless);
  }
  if (!changed || !owners_->set_present(present)) return;
  ++owners_epoch_;
  activate_all();
}

}  // namespace ph::link
