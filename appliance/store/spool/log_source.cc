#include "store/spool/log_source.h"

#include <algorithm>

#include "base/coding.h"
#include "base/limits.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "store/spool/segment_format.h"

namespace ph::spool {
namespace {

constexpr uint8_t kVersion = 1;
constexpr Duration kRetryAfter = 1s;
constexpr size_t kReceiversMax = 256;   // addresses that one upstream ever used; more: the first ones are asked
constexpr size_t kLettersMax = 10'000;  // not durable yet; then next() waits
constexpr size_t kLettersBytesMax = 64 * 1024 * 1024;

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
      stream_timer_(loop.make_timer()) {}

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

// --- what is durable

std::string LogSource::key(std::string_view name) const {
  return store_prefix(options_.route) + "t/" + options_.target + "/" + std::string(name);
}

std::string LogSource::letter_key(uint64_t first) const {
  std::string out = key("dead/");
  put_key(out, first);
  return out;
}

std::string LogSource::encode(const State& s) {
  std::string out(1, static_cast<char>(kVersion));
  for (uint64_t n : {s.settled, s.events, s.began, s.dropped, s.dropped_damaged, s.dead_lettered, s.duplicate,
                     s.maybe_duplicate, uint64_t{s.drops.size()}})
    put_varint(out, n);
  for (const Drop& d : s.drops)
    for (uint64_t n : {d.first, d.last - d.first, d.events}) put_varint(out, n);
  return out;
}

bool LogSource::decode(ByteView bytes, State& s) {
  Reader in(bytes);
  bool known = in.fixed<uint8_t>() == kVersion;
  for (uint64_t* n : {&s.settled, &s.events, &s.began, &s.dropped, &s.dropped_damaged, &s.dead_lettered, &s.duplicate,
                      &s.maybe_duplicate})
    *n = in.varint();
  for (uint64_t drops = in.varint(); drops > 0 && in.ok(); --drops) {
    Drop d{in.varint(), 0, 0};
    d.last = d.first + in.varint();
    d.events = in.varint();
    s.drops.push_back(d);
  }
  return known && in.ok() && in.at_end();
}

std::string LogSource::encode_stream() const {
  std::string out(1, static_cast<char>(kVersion));
  put_fixed<uint64_t>(out, log_.epoch());
  put_fixed<uint64_t>(out, stream_.value);
  put_varint(out, far_);
  put_varint(out, receivers_.size());
  for (const std::string& r : receivers_) put_sized(out, r);
  return out;
}

bool LogSource::decode_stream(ByteView bytes) {
  Reader in(bytes);
  bool known = in.fixed<uint8_t>() == kVersion && in.fixed<uint64_t>() == log_.epoch();
  StreamId stream{in.fixed<uint64_t>()};
  uint64_t far = in.varint();
  std::set<std::string> receivers;
  for (uint64_t n = in.varint(); n > 0 && in.ok(); --n) receivers.emplace(in.sized());
  if (!known || !in.ok() || stream.value == 0) return false;
  stream_ = stream;
  far_ = far;
  receivers_ = std::move(receivers);
  return true;
}

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
  PH_ASSIGN(auto stream, store_.get(key("stream")));
  port::WriteBatch batch;  // not synced: nothing leaves before will_use(), which is
  if (!stream || !decode_stream(*stream)) {
    stream_ = loop_.random().stream_id();
    if (!cursor) far_ = state_.settled;  // otherwise unknown: the far end tells again
    batch.put(key("stream"), encode_stream());
  }
  batch.put(key("cursor"), encode(state_));
  PH_TRY(store_.write(batch, false));
  PH_TRY(load_letters());
  durable_settled_ = state_.settled;
  rewind();
  watch_ = log_.watch([this] { wake(); });
  persisted(true, state_);
  retention_.far_reported(options_.target, far_);
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
    if (letter) letters_.push_back({std::move(*letter), false, state_.settled});
    return letters_.size() < kLettersMax;
  }));
  for (const Letter& l : letters_) letters_bytes_ += l.letter.block.size();
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
  if (position == state_.settled && !peeked_->damaged)
    settled_byte_ = peeked_->end_byte - kRecordHeaderSize - peeked_->block.size();
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
  WallTime at = out_.empty() ? WallTime{} : out_.back().accepted_at;
  pack(packed, d.last - d.first, gap_block(d.first, d.last, d.events, log_.epoch(), at).view());
  handed_out_ = d.last;
  handed_events_ += d.events;
  uint64_t end_byte = d.end_byte != 0 ? d.end_byte : log_.end_byte() - log_.bytes_from(d.last);
  out_.push_back({d.last, handed_events_, d.events, end_byte, at, Fate::dropped});
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
    out_.pop_front();
  }
  std::erase_if(state_.drops, [this](const Drop& d) { return d.last <= state_.settled; });
}

void LogSource::advanced(StreamId stream, uint64_t settled, uint64_t, uint64_t duplicates) {
  if (stream != stream_) return;  // a late acknowledgement of a stream that was renewed
  PH_ASSERT(!local_, "a source is moved in one way");
  move_to(settled);
  state_.duplicate += duplicates;
  dirty();
}

port::WriteBatch LogSource::advance_entries(StreamId stream, uint64_t settled, uint64_t) {
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

void LogSource::rejected(StreamId stream, uint64_t first, uint64_t last, Slice block, const std::string& reason) {
  if (stream != stream_) return;
  auto at = std::lower_bound(out_.begin(), out_.end(), first, [](const Out& o, uint64_t f) { return o.last <= f; });
  if (at == out_.end()) return;
  for (; at != out_.end(); ++at) {
    if (at->fate == Fate::deliver) at->fate = Fate::rejected;
    if (at->last >= last) break;
  }
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

void LogSource::rerouted_unasked(uint64_t events) {
  state_.maybe_duplicate += events;
  dirty();
}

void LogSource::drop_oldest(uint64_t bytes_max) {
  PH_ASSERT(!local_, "dropping is for targets that can be away");
  bool changed = false;
  for (;;) {
    Drop* drop = drop_at(handed_out_);
    const Record* r = peek(drop ? drop->last : handed_out_);
    if (!r) break;
    uint64_t bytes = kRecordHeaderSize + (r->damaged ? 0 : r->block.size());
    if (log_.end_byte() - (r->end_byte - bytes) <= bytes_max) break;
    if (!drop) drop = &state_.drops.emplace_back(Drop{handed_out_, handed_out_, 0});
    drop->last = r->sequence + 1;
    drop->events += r->events;
    drop->end_byte = r->end_byte;
    drop->bytes += bytes;
    state_.dropped += r->events;
    peeked_.reset();
    changed = true;
  }
  if (!changed) return;
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
  c.dead_lettered = state_.dead_lettered;
  c.delivered = state_.events - state_.began - (state_.dropped - undelivered) - state_.dead_lettered;
  c.duplicate = state_.duplicate;
  c.maybe_duplicate = state_.maybe_duplicate;
  c.queued = log_.durable_events() - state_.events - undelivered;
  if (state_.settled == log_.durable_end()) return c;
  const Record* first = nullptr;
  if (out_.empty()) {
    auto drop = std::find_if(state_.drops.begin(), state_.drops.end(),
                             [this](const Drop& d) { return d.first == state_.settled; });
    first = peek(drop == state_.drops.end() ? state_.settled : drop->last);
  }
  uint64_t bytes = settled_byte_ ? log_.end_byte() - *settled_byte_ : log_.bytes_from(state_.settled);
  c.queued_bytes = bytes - std::min(bytes, undelivered_bytes);
  WallTime oldest = !out_.empty() ? out_.front().accepted_at : first ? first->accepted_at : WallTime{};
  if (oldest != WallTime{}) c.oldest_unacked = oldest;
  return c;
}

// --- making it durable

void LogSource::dirty() {
  dirty_ = true;
  if (!persist_timer_->pending()) persist_timer_->start(options_.persist_after, [this] { persist(); });
}

/// The cursor with its counters, and the dead letters that it passes and that are in no file yet.
port::WriteBatch LogSource::entries() {
  port::WriteBatch batch;
  for (Letter& l : letters_) {
    if (l.in_file || l.letter.first >= state_.settled) continue;
    batch.put(letter_key(l.letter.first), port::encode(l.letter));
    l.staged_at = state_.settled;
  }
  batch.put(key("cursor"), encode(state_));
  return batch;
}

void LogSource::persist() {
  if (persisting_) return;
  persisting_ = true;
  dirty_ = false;
  persist_timer_->cancel();
  struct Job {
    port::WriteBatch batch;
    State state;
    bool done = false;
  };
  auto job = std::make_shared<Job>();
  if (std::exchange(stream_dirty_, false)) job->batch.put(key("stream"), encode_stream());
  port::Task run;
  if (local_) {
    run = [job, &store = store_, cursor = key("cursor")] {
      if (!job->batch.empty() && !store.write(job->batch, true)) return;
      auto value = store.get(cursor);
      job->done = value && *value && decode(**value, job->state);
    };
  } else {
    job->batch.append(entries());
    job->state = state_;
    run = [job, &store = store_] { job->done = store.write(job->batch, true).has_value(); };
  }
  disk_.run(std::move(run), [this, alive = alive_, job] {
    if (!*alive) return;
    persisting_ = false;
    if (!job->done) stream_dirty_ = true;
    bool again = dirty_ && job->done && !after_persist_.empty();
    persisted(job->done, job->state);
    if (again) return persist();
    for (port::Task& task : std::exchange(after_persist_, {})) task();
  });
}

void LogSource::persisted(bool written, const State& state) {
  if (!written) {
    log_error("spool_cursor_not_written", {{"route", options_.route}, {"target", options_.target}});
    return dirty();
  }
  durable_settled_ = std::max(durable_settled_, state.settled);
  std::vector<std::pair<uint64_t, uint64_t>> skipped;
  uint64_t needed = state.settled;
  for (const Drop& d : state.drops) {
    if (d.first == needed) needed = d.last;
    skipped.emplace_back(d.first, d.last);
  }
  retention_.reported(options_.target, needed, std::move(skipped));
  forget_letters();
  write_letters();
  if (dirty_ || (local_ && durable_settled_ < state_.settled) || !letters_.empty()) dirty();
}

void LogSource::persist_now(port::Task done) {
  after_persist_.push_back(std::move(done));
  if (persisting_)
    dirty_ = true;
  else
    persist();
}

// --- dead letters

void LogSource::write_letters() {
  if (writing_letters_) return;
  auto letters = std::make_shared<std::vector<port::DeadLetter>>();
  for (const Letter& l : letters_)
    if (!l.in_file) letters->push_back(l.letter);
  if (letters->empty()) return;
  writing_letters_ = true;
  auto outcome = std::make_shared<Result<>>();
  disk_.run([letters, outcome, &to = dead_letters_] { *outcome = to.append(*letters); },
            [this, alive = alive_, letters, outcome] {
              if (!*alive) return;
              writing_letters_ = false;
              if (!*outcome) {
                log_error("dead_letter_not_written",
                          {{"route", options_.route}, {"error", outcome->error().to_string()}});
                return dirty();  // in the store meanwhile; tried again with the next persist
              }
              size_t written = letters->size();
              for (Letter& l : letters_) {
                if (written == 0) break;
                if (l.in_file) continue;
                l.in_file = true;
                --written;
              }
              forget_letters();
              write_letters();
            });
}

bool LogSource::letters_full() const {
  return letters_.size() >= kLettersMax || letters_bytes_ >= kLettersBytesMax;
}

/// Letters that are in their file, and whose entry in the store no batch on its way can bring back.
void LogSource::forget_letters() {
  port::WriteBatch forget;
  bool was_full = letters_full();
  while (!letters_.empty()) {
    const Letter& l = letters_.front();
    if (!l.in_file || durable_settled_ < l.staged_at.value_or(0)) break;
    if (l.staged_at) forget.remove(letter_key(l.letter.first));
    letters_bytes_ -= l.letter.block.size();
    letters_.pop_front();
  }
  if (!forget.empty()) (void)store_.write(forget, false);
  if (was_full && !letters_full()) wake();
}

// --- the stream's identity

void LogSource::will_use(StreamId stream, const std::string& receiver, port::Task durable) {
  if (stream != stream_) return;
  bool fresh = receivers_.size() < kReceiversMax && receivers_.insert(receiver).second;
  if (!fresh && !writing_stream_ && stream_waiters_.empty()) return loop_.post(std::move(durable));
  write_stream(std::move(durable));
}

void LogSource::renew(StreamId stream) {
  if (stream != stream_) return;
  stream_ = loop_.random().stream_id();
  log_error("stream_renewed",
            {{"route", options_.route},
             {"target", options_.target},
             {"reason", "a receiver knows positions that were never given: this node was rolled back"}});
  receivers_.clear();
  rewind();
  renewing_ = true;
  write_stream([this] {
    renewing_ = false;
    waiting_ = true;
    wake();
  });
}

void LogSource::write_stream(port::Task durable) {
  stream_waiters_.push_back(std::move(durable));
  if (!writing_stream_ && !stream_timer_->pending()) start_stream_write();
}

void LogSource::start_stream_write() {
  writing_stream_ = true;
  struct Job {
    port::WriteBatch batch;
    std::vector<port::Task> waiters;
    bool done = false;
  };
  auto job = std::make_shared<Job>();
  job->batch.put(key("stream"), encode_stream());
  job->waiters = std::exchange(stream_waiters_, {});
  disk_.run([job, &store = store_] { job->done = store.write(job->batch, true).has_value(); },
            [this, alive = alive_, job] {
              if (!*alive) return;
              writing_stream_ = false;
              if (!job->done) {
                log_error("spool_stream_not_written", {{"route", options_.route}, {"target", options_.target}});
                std::move(stream_waiters_.begin(), stream_waiters_.end(), std::back_inserter(job->waiters));
                stream_waiters_ = std::move(job->waiters);
                return stream_timer_->start(kRetryAfter, [this] { start_stream_write(); });
              }
              for (port::Task& task : job->waiters) task();
              if (!stream_waiters_.empty() && !writing_stream_) start_stream_write();
            });
}

}  // namespace ph::spool
