// What LogSource gives up on purpose: `route.spool.max` with full = "drop_oldest" or "drop_newest", and `keep`
// (amendment 20). What is in flight is never dropped. A drop is counted in memory at once, then written with cursor and
// counters in one batch; only then is its gap block handed out, and only then do its segments go. So the sums hold
// after any crash: an event is either still a record, or counted as dropped.
//
// What an earlier run had in flight may be at a receiver already, and is at the front of the queue again. So after a
// start nothing is dropped from the front for a while: the sender takes as much as was in flight, and asks.
#include <algorithm>

#include "base/log.h"
#include "store/spool/log_source.h"
#include "store/spool/segment_format.h"

namespace ph::spool {
namespace {

constexpr size_t kDropsMax = 64;  // more, from as many restarts, are joined after all
constexpr Duration kAskFor = 5s;

}  // namespace

void LogSource::begin_drops() {
  if (receivers_.empty()) return drop_surplus();
  drops_timer_->start(kAskFor, [this] {
    drop_surplus();
    wake();
  });
}

/// When a group became durable, and at the start.
void LogSource::drop_surplus() {
  const bool asking = drops_timer_->pending();
  if (options_.keep && !asking) look_at_ages();
  if (options_.overflow == Overflow::drop_oldest && !asking) drop_oldest(options_.bytes_max);
  if (options_.overflow == Overflow::drop_newest) drop_newest();
  known_end_ = log_.durable_end();
  known_end_byte_ = log_.end_byte();
}

void LogSource::drop_oldest(uint64_t bytes_max) {
  if (waiting_bytes_at_most() <= bytes_max) return;
  drop_while(
      [&](const Record& r, uint64_t dropped) { return log_.end_byte() - (r.end_byte - r.bytes) - dropped > bytes_max; },
      &State::dropped_full);
}

void LogSource::drop_waited(uint64_t below) {
  drop_while([below](const Record& r, uint64_t) { return r.sequence < below; }, &State::dropped_keep);
}

/// Gives up the oldest that is not in flight, as long as `surplus` says so; it is told how many bytes behind the record
/// were given up before.
void LogSource::drop_while(const std::function<bool(const Record&, uint64_t)>& surplus, uint64_t State::* reason) {
  PH_ASSERT(!local_, "dropping is for targets that can be away");
  for (uint64_t position = handed_out_;;) {
    if (const Drop* drop = drop_at(position)) {
      position = drop->last;
      continue;
    }
    const Record* r = peek(position);
    if (r) note_begin(*r);
    if (!r || !surplus(*r, dropped_bytes_from(position))) break;
    position = r->sequence + 1;
    add_drop({r->first, position, r->events, r->end_byte, r->bytes}, reason);
    peeked_.reset();
  }
}

/// Of the group that has just become durable, gives up what does not fit.
void LogSource::drop_newest() {
  const uint64_t end = log_.durable_end(), end_byte = log_.end_byte(), from = std::max(known_end_, handed_out_);
  if (from >= end || waiting_bytes_at_most() <= options_.bytes_max) return;
  uint64_t oldest = handed_out_;
  while (const Drop* drop = drop_at(oldest)) oldest = drop->last;
  const Record* first = peek(oldest);
  if (!first) return;
  note_begin(*first);
  uint64_t waiting = end_byte - (first->end_byte - first->bytes) - dropped_bytes_from(oldest);
  if (waiting <= options_.bytes_max) return;
  // What was there before stays, also if it is more: the bound may have become smaller.
  const uint64_t group_byte = std::max(known_end_byte_, first->end_byte - first->bytes);
  waiting -= std::min(waiting, end_byte - group_byte);
  auto cursor = log_.read_from(from);
  for (;;) {
    auto r = cursor->next();
    if (!r || !*r) return;  // what cannot be read now stays; it is more than the bound by one group
    if (waiting + (*r)->end_byte - group_byte <= options_.bytes_max) continue;
    add_drop({(*r)->first, end, log_.durable_events() - (*r)->events_before, end_byte,
              end_byte - ((*r)->end_byte - (*r)->bytes)},
             &State::dropped_full);
    return;
  }
}

/// Where an earlier run's drop ends on disk is known only to a segment, until the record behind it was read.
void LogSource::note_begin(const Record& r) {
  for (Drop& d : state_.drops) {
    if (d.last != r.first || !d.earlier) continue;
    const uint64_t begins = r.end_byte - r.bytes;
    d.bytes += begins - std::min(begins, d.end_byte);
    d.end_byte = std::max(begins, d.end_byte);
  }
}

void LogSource::add_drop(Drop more, uint64_t State::* reason) {
  state_.dropped += more.events;
  state_.*reason += more.events;
  unwritten_drops_ += more.bytes;
  auto at = std::lower_bound(state_.drops.begin(), state_.drops.end(), more.first,
                             [](const Drop& d, uint64_t first) { return d.first < first; });
  Drop* before = at == state_.drops.begin() ? nullptr : &*std::prev(at);
  // Between the two a segment may end: its header is given up as well.
  if (before && before->last == more.first && !before->earlier) more.bytes = more.end_byte - before->end_byte;
  if (before && before->last == more.first && !before->staged) {
    before->last = more.last;
    before->events += more.events;
    before->end_byte = more.end_byte;
    before->bytes += more.bytes;
  } else {
    state_.drops.insert(at, more);
  }
  dirty();
  // Its disk space comes back when it is written.
  if (unwritten_drops_ >= options_.bytes_max / 8) persist();
}

/// Before a write: neighbours become one gap, unless a receiver may have seen one of them alone, and then could not
/// tell what of the greater one is new to it. Not while somebody waits for a gap: each write would make it a new one.
void LogSource::join_drops() {
  auto& drops = state_.drops;
  for (size_t i = 0; i + 1 < drops.size() && !drop_wanted_;) {
    Drop &a = drops[i], &b = drops[i + 1];
    const bool seen = a.first < handed_out_ || ((a.earlier || b.earlier) && drops.size() <= kDropsMax);
    if (a.last != b.first || seen) {
      ++i;
      continue;
    }
    a.last = b.last;
    a.events += b.events;
    a.end_byte = b.end_byte;
    a.bytes += b.bytes;
    a.earlier = a.earlier || b.earlier;
    a.durable = false;
    drops.erase(drops.begin() + static_cast<ptrdiff_t>(i) + 1);
  }
  for (Drop& d : drops) d.staged = true;
}

/// What a write held is on disk.
void LogSource::drops_durable(const State& state) {
  for (const Drop& written : state.drops)
    for (Drop& d : state_.drops)
      if (d.first == written.first && d.last == written.last) d.durable = true;
  if (const Drop* next = drop_at(handed_out_); next && next->durable) wake();
}

uint64_t LogSource::dropped_bytes_from(uint64_t position) const {
  uint64_t bytes = 0;
  for (const Drop& d : state_.drops)
    if (d.first >= position) bytes += d.bytes;
  return bytes;
}

/// Bytes queued behind what is in flight; up to about a MiB too many where no record was read yet.
uint64_t LogSource::waiting_bytes_at_most() const {
  std::optional<uint64_t> begins = out_.empty() ? settled_byte_ : std::optional(out_.back().end_byte);
  const uint64_t all = begins ? log_.end_byte() - *begins : log_.bytes_from(handed_out_);
  return all - std::min(all, dropped_bytes_from(handed_out_));
}

void LogSource::look_at_ages() {
  const Instant now = loop_.now();
  const uint64_t end = log_.durable_end();
  if (state_.settled < end && ages_.note(end, now)) dirty();
  if (auto below = ages_.expired(now)) {
    drop_waited(*below);
    dirty();  // its marks are gone
  }
  if (auto due = ages_.due(end)) {
    const Duration wait = std::max<Duration>(*due - now, 1ms);
    ages_timer_->start(wait, [this] {
      look_at_ages();
      wake();
    });
  }
}

}  // namespace ph::spool
