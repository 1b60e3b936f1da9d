#include "store/spool/log_source.h"

#include <algorithm>

#include "base/coding.h"
#include "base/limits.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "store/spool/segment_format.h"

namespace ph::spool {
namespace {

constexpr Duration kRetryAfter = 1s;

Slice gap_block(uint64_t first, uint64_t last, uint64_t events, uint64_t epoch, WallTime at) {
  event::Block block;
  block.gap = true;
  block.topic = "dropped";
  block.id = {NodeId{}, StreamId{epoch}, first, last};
  block.events = events;
  block.accepted_at = at;
  return Slice(event::encode(block));
}

void pack(std::string& packed, uint64_t span, ByteView block) {
  put_varint(packed, span);
  put_sized(packed, block);
}

}  // namespace

LogSource::LogSource(LogSourceOptions options, SegmentLog& log, LogRetention& retention, port::Loop& loop,
                     port::DiskQueue& disk, port::KeyedStore& store, port::DeadLetters& dead_letters)
    : options_(std::move(options)),
      log_(log),
      retention_(retention),
      loop_(loop),
      disk_(disk),
      store_(store),
      dead_letters_(dead_letters),
      persist_timer_(loop.make_timer()),
      retry_timer_(loop.make_timer()),
      stream_timer_(loop.make_timer()),
      ages_timer_(loop.make_timer()),
      drops_timer_(loop.make_timer()),
      ages_(options_.keep.value_or(Duration::max())) {}

LogSource::~LogSource() {
  *alive_ = false;
}

Result<std::unique_ptr<LogSource>> LogSource::open(LogSourceOptions options, SegmentLog& log, LogRetention& retention,
                                                   port::Loop& loop, port::DiskQueue& disk, port::KeyedStore& store,
                                                   port::DeadLetters& dead_letters) {
  std::unique_ptr<LogSource> source(new LogSource(std::move(options), log, retention, loop, disk, store, dead_letters));
  PH_TRY(source->load());
  return source;
}

// --- start

Result<> LogSource::load() {
  PH_ASSIGN(auto cursor, store_.get(key("cursor")));
  if (cursor && !decode(*cursor, state_))
    return fail(errors::damaged, key("cursor") + " in the store is damaged or newer than this version");
  if (!cursor) PH_TRY(begin_at_oldest());
  if (state_.settled > log_.durable_end()) {  // both are in one store: only if the log's own entry was damaged
    log_error("spool_cursor_ahead", {{"route", options_.route}, {"target", options_.target}});
    state_.began += log_.durable_events() - state_.events;  // delivered stays what it was
    state_.settled = log_.durable_end();
    state_.events = log_.durable_events();
  }
  // What of a drop is on disk still; by the same measure as the queue is, which it is taken from.
  settled_byte_ = log_.end_byte() - log_.bytes_from(state_.settled);
  for (Drop& d : state_.drops) {
    d.staged = d.durable = d.earlier = true;
    d.end_byte = log_.end_byte() - log_.bytes_from(d.last);
    d.bytes = log_.bytes_from(d.first) - log_.bytes_from(d.last);
  }
  known_end_ = log_.durable_end();
  known_end_byte_ = log_.end_byte();
  PH_ASSIGN(auto stream, store_.get(key("stream")));
  port::WriteBatch batch;  // not synced: nothing leaves before will_use(), which is
  if (!stream || !decode_stream(*stream)) {
    stream_ = loop_.random().stream_id();
    if (!cursor) far_ = state_.settled;  // otherwise unknown: the far end tells again
    batch.put(key("stream"), encode_stream());
  }
  batch.put(key("cursor"), encode(state_));
  PH_ASSIGN(auto waited, store_.get(key("waited")));
  if (waited && options_.keep && !ages_.decode(*waited, loop_.now()))
    log_warn("spool_ages_lost", {{"route", options_.route}, {"target", options_.target}});
  if (waited && !options_.keep) batch.remove(key("waited"));
  PH_TRY(store_.write(batch, false));
  PH_TRY(load_letters());
  durable_settled_ = state_.settled;
  rewind();
  watch_ = log_.watch([this] {
    drop_surplus();
    wake();
  });
  persisted(true, state_);
  retention_.far_reported(options_.target, far_);
  begin_drops();  // the bound, or `keep`, may be another one than before
  return {};
}

Result<> LogSource::begin_at_oldest() {
  state_.settled = log_.first_sequence();
  state_.events = log_.durable_events();
  auto oldest = log_.read_from(state_.settled);
  PH_ASSIGN(auto record, oldest->next());
  if (record) state_.events = record->events_before;
  state_.began = state_.events;
  return {};
}

Result<> LogSource::load_letters() {
  PH_TRY(store_.scan(key("dead/"), [this](ByteView, ByteView value) {
    auto letter = port::decode_dead_letter(Slice(std::string(value)));
    if (letter) {
      letters_bytes_ += letter->block.size();
      letters_.push_back({std::move(*letter), false, state_.settled});
    }
    return !letters_full();
  }));
  if (!letters_.empty()) write_letters();
  return {};
}

std::vector<port::OpenStream> LogSource::open_streams() {
  port::OpenStream open;
  open.stream = stream_;
  open.settled = state_.settled;
  open.far = far_;
  open.assigned = log_.durable_end();
  open.receivers.assign(receivers_.begin(), receivers_.end());
  return {open};
}

// --- handing out

void LogSource::rewind() {
  out_.clear();
  drop_wanted_ = false;
  handed_out_ = state_.settled;
  handed_events_ = state_.events;
  cursor_.reset();
  peeked_.reset();
}

/// The record at `position`, not yet taken; null at the durable end, or when it cannot be read now.
const Record* LogSource::peek(uint64_t position) const {
  if (peeked_ && peeked_->first == position) return &*peeked_;
  if (!cursor_ || cursor_->position() != position) {
    bool at_handed_out = position == handed_out_;
    cursor_ = log_.read_from(position, at_handed_out ? std::optional(handed_events_) : std::nullopt);
  }
  peeked_.reset();
  auto record = cursor_->next();
  if (!record) {
    log_error("spool_read_failed", {{"route", options_.route}, {"error", record.error().to_string()}});
    auto* self = const_cast<LogSource*>(this);
    retry_timer_->start(kRetryAfter, [self] { self->wake(); });
    return nullptr;
  }
  if (!*record) return nullptr;
  peeked_ = std::move(**record);
  if (position == state_.settled && !peeked_->damaged) settled_byte_ = peeked_->end_byte - peeked_->bytes;
  return &*peeked_;
}

LogSource::Drop* LogSource::drop_at(uint64_t position) {
  for (Drop& d : state_.drops)
    if (d.first == position) return &d;
  return nullptr;
}

void LogSource::hand_out(const Record& r, std::string& packed, uint64_t& events) {
  pack(packed, r.sequence + 1 - handed_out_, r.block.view());
  if (!r.damaged) events += r.events;
  handed_out_ = r.sequence + 1;
  handed_events_ = r.events_before + r.events;
  out_.push_back(
      {handed_out_, handed_events_, r.events, r.end_byte, r.accepted_at, r.damaged ? Fate::damaged : Fate::deliver});
}

void LogSource::hand_out_drop(const Drop& d, std::string& packed) {
  drop_wanted_ = false;
  WallTime at = out_.empty() ? WallTime{} : out_.back().accepted_at;
  pack(packed, d.last - d.first, gap_block(d.first, d.last, d.events, log_.epoch(), at).view());
  handed_out_ = d.last;
  handed_events_ += d.events;
  out_.push_back({d.last, handed_events_, d.events, d.end_byte, at, Fate::dropped});
}

std::optional<port::Batch> LogSource::next(size_t bytes_max) {
  waiting_ = true;
  if (renewing_ || letters_full()) return std::nullopt;
  port::Batch batch;
  batch.stream = stream_;
  batch.first = handed_out_;
  std::string packed;
  while (packed.size() < std::max<size_t>(bytes_max, 1)) {
    if (Drop* drop = drop_at(handed_out_)) {
      if (!drop->durable) {  // else a crash would bring back what the receiver knows to be gone
        drop_wanted_ = true;
        persist();
        break;
      }
      hand_out_drop(*drop, packed);
      continue;
    }
    const Record* record = peek(handed_out_);
    if (!record) break;
    if (!packed.empty() && packed.size() + record->block.size() > bytes_max) break;
    hand_out(*record, packed, batch.events);
    peeked_.reset();
  }
  if (packed.empty()) return std::nullopt;
  waiting_ = false;
  batch.last = handed_out_;
  batch.packed = Slice(std::move(packed));
  return batch;
}

void LogSource::wake() {
  if (!waiting_ || woken_) return;
  woken_ = true;  // posted: one call a turn, and never from inside a commit
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    woken_ = false;
    if (ready_) ready_();
  });
}

// --- moving on

void LogSource::move_to(uint64_t settled) {
  while (!out_.empty() && out_.front().last <= settled) {
    const Out& o = out_.front();
    state_.settled = o.last;
    state_.events = o.events_after;
    settled_byte_ = o.end_byte;
    if (o.fate == Fate::rejected) state_.dead_lettered += o.events;
    if (o.fate == Fate::damaged) {
      state_.dropped += o.events;
      state_.dropped_damaged += o.events;
    }
    if (o.fate == Fate::expired) {
      state_.dropped += o.events;
      state_.dropped_expired += o.events;
    }
    out_.pop_front();
  }
  std::erase_if(state_.drops, [this](const Drop& d) { return d.last <= state_.settled; });
  ages_.settled(state_.settled);
}

void LogSource::advanced(StreamId stream, uint64_t settled, uint64_t, uint64_t duplicates) {
  if (stream != stream_) return;  // a late acknowledgement of a stream that was renewed
  PH_ASSERT(!local_, "a source is moved in one way");
  move_to(settled);
  state_.duplicate += duplicates;
  dirty();
}

port::WriteBatch LogSource::advance_entries(StreamId stream, uint64_t settled, uint64_t) {
  PH_ASSERT(options_.overflow == Overflow::keep_all && !options_.keep, "dropping is for targets that can be away");
  local_ = true;
  if (stream == stream_) move_to(settled);
  dirty();
  return entries();
}

void LogSource::far_advanced(StreamId stream, uint64_t far) {
  if (stream != stream_ || far <= far_) return;
  far_ = far;
  stream_dirty_ = true;
  retention_.far_reported(options_.target, far_);
  dirty();
}

/// False if nothing of it is on its way any more.
bool LogSource::set_fate(uint64_t first, uint64_t last, Fate fate) {
  auto at = std::lower_bound(out_.begin(), out_.end(), first, [](const Out& o, uint64_t f) { return o.last <= f; });
  if (at == out_.end()) return false;
  for (; at != out_.end(); ++at) {
    if (at->fate == Fate::deliver) at->fate = fate;
    if (at->last >= last) break;
  }
  return true;
}

void LogSource::expired(StreamId stream, uint64_t first, uint64_t last) {
  if (stream == stream_) set_fate(first, last, Fate::expired);
}

void LogSource::rejected(StreamId stream, uint64_t first, uint64_t last, Slice block, const std::string& reason) {
  if (stream != stream_ || !set_fate(first, last, Fate::rejected)) return;
  Letter letter;
  letter.letter = {loop_.wall_now(), options_.route, options_.target, {}, reason, stream, first, last, block};
  if (auto decoded = event::decode(block)) {
    if (decoded->gap) return;  // counted as dropped already
    letter.letter.category = decoded->category;
  }
  letters_bytes_ += block.size();
  letters_.push_back(std::move(letter));
  write_letters();
}

void LogSource::rerouted_unasked(uint64_t events, port::Task durable) {
  PH_ASSERT(!local_, "a sink of this node has nobody to ask");
  state_.maybe_duplicate += events;
  count_waiters_.push_back(std::move(durable));
  dirty();
  persist();
}

port::TargetCounters LogSource::counters() const {
  port::TargetCounters c;
  uint64_t undelivered = 0, undelivered_bytes = 0;
  for (const Drop& d : state_.drops) {
    undelivered += d.events;
    undelivered_bytes += d.bytes;
  }
  c.in = log_.durable_events() - state_.began;
  c.dropped = state_.dropped;
  c.dropped_expired = state_.dropped_expired;
  c.dropped_damaged = state_.dropped_damaged;
  c.dropped_full = state_.dropped_full;
  c.dropped_keep = state_.dropped_keep;
  c.dead_lettered = state_.dead_lettered;
  c.delivered = state_.events - state_.began - (state_.dropped - undelivered) - state_.dead_lettered;
  c.duplicate = state_.duplicate;
  c.maybe_duplicate = state_.maybe_duplicate;
  c.queued = log_.durable_events() - state_.events - undelivered;
  if (state_.settled == log_.durable_end()) return c;
  const Record* first = nullptr;
  if (out_.empty()) {
    uint64_t oldest = state_.settled;
    for (const Drop& d : state_.drops)
      if (d.first == oldest) oldest = d.last;
    first = peek(oldest);
  }
  uint64_t bytes = settled_byte_ ? log_.end_byte() - *settled_byte_ : log_.bytes_from(state_.settled);
  c.queued_bytes = bytes - std::min(bytes, undelivered_bytes);
  WallTime oldest = !out_.empty() ? out_.front().accepted_at : first ? first->accepted_at : WallTime{};
  if (oldest != WallTime{}) c.oldest_unacked = oldest;
  return c;
}

}  // namespace ph::spool
