// The durable side of Session: what it tells its Keeper, and the part of its queue that is in the store only.
#include <algorithm>

#include "core/session/records.h"
#include "core/session/session.h"

namespace ph::session {
namespace {

constexpr size_t kPageMessages = 64;
constexpr size_t kPageBytes = 256 * 1024;
/// After a crash the sequences begin so much higher: what was sent but not yet written may have used the next ones.
constexpr uint64_t kSequenceSkip = 16'384;

}  // namespace

void Session::keep(uint64_t uid) {
  PH_ASSERT(uid != 0 && queued() == 0 && in_flight() == 0, "a session is durable from its beginning");
  uid_ = uid;
  keeper().touch(*this);
}

SessionRecord Session::record() const {
  SessionRecord out;
  out.client_id = client_id_;
  out.owner = owner_;
  out.expiry = expiry_;
  if (!output_) out.detached_at = detached_at_;
  out.next_sequence = next_sequence_;
  out.queued = inflight_.size() + queued() - mqueue_qos0_;
  out.queued_bytes = queued_bytes();
  out.maybe_sent = output_ ? context_->limits.inflight_max : inflight_.size() + maybe_sent_;
  return out;
}

void Session::restore(uint64_t uid, const SessionRecord& record, Instant now) {
  uid_ = uid;
  owner_ = record.owner;
  expiry_ = record.expiry;
  detached_at_ = record.detached_at.value_or(now);
  next_sequence_ = record.next_sequence + kSequenceSkip;
  stored_.count = record.queued;
  stored_.bytes = record.queued_bytes;
  stored_.unsure = true;
  maybe_sent_ = std::min<uint64_t>(record.maybe_sent, record.queued);
}

void Session::set_context(SessionContext& context) {
  context_ = &context;
  if (!durable()) return;
  // The last worker has handed in what it was told before the session left, so this worker's turn covers it.
  const uint64_t turn = keeper().turn();
  for (size_t i = 0; i < inflight_.size(); ++i) inflight_[i].turn = turn;
  for (size_t i = 0; i < mqueue_.size(); ++i) mqueue_[i].turn = turn;
  stored_.turn = turn;
  if (stored_.quiet) stored_.quiet = turn;
  keeper().touch(*this);
}

bool Session::may_send(uint64_t turn) {
  if (!durable() || keeper().may_send(turn)) return true;
  keeper().wake(*this);
  return false;
}

void Session::note(const Copy& copy, const MessagePtr& message, uint64_t sequence) {
  keeper().add(uid_, sequence, message, copy.qos, copy.retain, copy.subscription_ids,
               copy.shared ? *copy.shared : nullptr);
  keeper().touch(*this);
}

void Session::forget(const Entry& entry) {
  if (entry.sequence == 0) return;
  keeper().remove(uid_, entry.sequence, entry.message ? entry.message->number : 0);
  keeper().touch(*this);
}

/// Lets go of an entry that the keeper knows, and that is behind all others.
void Session::store_only(Entry entry) {
  if (stored_.empty()) stored_.first = entry.sequence;
  ++stored_.count;
  stored_.bytes += bytes_of(entry.message);
  stored_.turn = std::max(stored_.turn, entry.turn);
}

/// The client is gone: what is in flight and what waits is in the store alone, but for QoS 0, which is nowhere else.
void Session::spill() {
  Ring<Entry> stays;
  uint64_t first = 0;
  auto put_away = [&](const Entry& e) {
    if (first == 0) first = e.sequence;
    ++stored_.count;
    if (e.sent)
      ++maybe_sent_;
    else
      stored_.bytes += bytes_of(e.message);
    stored_.turn = std::max(stored_.turn, e.turn);
  };
  // Acknowledgements come in any order: an entry among these may be gone, and still in the store.
  if (!inflight_.empty()) stored_.quiet = keeper().turn();
  for (size_t i = 0; i < inflight_.size(); ++i) put_away(inflight_[i]);
  inflight_.clear();
  resent_ = pubrels_due_ = 0;
  while (!mqueue_.empty()) {
    Entry q = std::move(mqueue_.front());
    mqueue_.pop_front();
    if (q.sequence == 0) {
      stays.push_back(std::move(q));
      continue;
    }
    mqueue_bytes_ -= bytes_of(q.message);
    put_away(q);
  }
  mqueue_ = std::move(stays);
  if (first != 0) stored_.first = first;
  stored_.unsent = 0;
}

/// Drops the first of what is in the store and was never sent, without bringing it into memory; false if it is still on
/// its way there.
bool Session::drop_stored() {
  uint64_t from = stored_.unsent ? stored_.unsent : stored_.first;
  for (size_t skip = stored_.unsent ? 0 : maybe_sent_; !stored_.empty();) {
    const KeptPage page = keeper().load(uid_, from, skip + 1, kPageBytes);
    if (page.entries.size() > skip) {
      const KeptEntry& e = page.entries[skip];
      keeper().remove(uid_, e.sequence, e.message ? e.message->number : 0);
      keeper().touch(*this);
      stored_.count -= std::min<size_t>(stored_.count, 1);
      stored_.bytes -= std::min(stored_.bytes, bytes_of(e.message));
      stored_.unsent = e.sequence + 1;
      if (maybe_sent_ == 0)
        stored_.first = stored_.unsent;
      else
        stored_.quiet = keeper().turn();
      context_->counters.drop(Drop::queue_full);
      return true;
    }
    if (page.end) return false;
    skip -= page.entries.size();
    from = page.next;
  }
  return false;
}

/// Brings the first of what is in the store into memory; false if nothing came. Then either there was nothing, or it is
/// still on its way to the disk and pump() follows.
bool Session::load_page() {
  while (!stored_.empty()) {
    if (!keeper().durable(stored_.quiet)) {
      keeper().wake(*this);
      return false;
    }
    KeptPage page = keeper().load(uid_, stored_.first, kPageMessages, kPageBytes);
    stored_.first = page.next;
    if (stored_.unsent < page.next) stored_.unsent = 0;
    for (KeptEntry& e : page.entries) {
      Entry q{std::move(e)};
      q.turn = keeper().durable(stored_.turn) ? 0 : stored_.turn;
      q.sent = maybe_sent_ > 0;
      if (q.sent)
        --maybe_sent_;
      else
        stored_.bytes -= std::min(stored_.bytes, bytes_of(q.message));
      stored_.count -= std::min<size_t>(stored_.count, 1);
      mqueue_bytes_ += bytes_of(q.message);
      mqueue_.push_back(std::move(q));
    }
    if (page.end && keeper().durable(stored_.turn)) {
      stored_ = {};
      maybe_sent_ = 0;
    }
    if (!page.entries.empty()) return true;
    if (page.end && !stored_.empty()) {
      keeper().wake(*this);
      return false;
    }
  }
  return false;
}

}  // namespace ph::session
