// The durable half of LogSource: its entries in the store, dead letters, and the stream's identity. Every write is made
// on the disk thread from a snapshot, in the order of the snapshots.
#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "store/spool/log_source.h"
#include "store/spool/segment_format.h"

namespace ph::spool {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kCursorVersion = 3;
constexpr Duration kRetryAfter = 1s;
constexpr size_t kReceiversMax = 256;   // addresses that one upstream ever used; more: the first ones are asked
constexpr size_t kLettersMax = 10'000;  // not durable yet; then next() waits
constexpr size_t kLettersBytesMax = 64 * 1024 * 1024;

/// For what may fail without harm: it is said, nothing more.
void tolerate(const Result<>& outcome) {
  if (!outcome) log_warn("spool_cleanup_failed", {{"error", outcome.error().to_string()}});
}

}  // namespace

// --- entries

std::string LogSource::key(std::string_view name) const {
  return store_prefix(log_.name()) + "t/" + options_.target + "/" + std::string(name);
}

std::string LogSource::letter_key(uint64_t first) const {
  std::string out = key("dead/");
  put_key(out, first);
  return out;
}

std::string LogSource::encode(const State& s) {
  std::string out(1, static_cast<char>(kCursorVersion));
  for (uint64_t n : {s.settled, s.events, s.began, s.dropped, s.dropped_damaged, s.dead_lettered, s.duplicate,
                     s.maybe_duplicate, uint64_t{s.drops.size()}})
    put_varint(out, n);
  for (const Drop& d : s.drops)
    for (uint64_t n : {d.first, d.last - d.first, d.events}) put_varint(out, n);
  for (uint64_t n : {s.dropped_expired, s.dropped_full, s.dropped_keep}) put_varint(out, n);
  return out;
}

std::optional<uint64_t> LogSource::settled_in(ByteView cursor) {
  State state;
  return decode(cursor, state) ? std::optional(state.settled) : std::nullopt;
}

bool LogSource::decode(ByteView bytes, State& s) {
  Reader in(bytes);
  const auto version = in.fixed<uint8_t>();
  const bool known = version >= 1 && version <= kCursorVersion;
  for (uint64_t* n : {&s.settled, &s.events, &s.began, &s.dropped, &s.dropped_damaged, &s.dead_lettered, &s.duplicate,
                      &s.maybe_duplicate})
    *n = in.varint();
  for (uint64_t drops = in.varint(); drops > 0 && in.ok(); --drops) {
    Drop d{in.varint(), 0, 0};
    d.last = d.first + in.varint();
    d.events = in.varint();
    s.drops.push_back(d);
  }
  if (version >= 2) s.dropped_expired = in.varint();
  if (version >= 3) {
    s.dropped_full = in.varint();
    s.dropped_keep = in.varint();
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
  join_drops();
  batch.put(key("cursor"), encode(state_));
  if (options_.keep) batch.put(key("waited"), ages_.encode(loop_.now()));
  return batch;
}

void LogSource::persist() {
  if (persisting_) return;
  persisting_ = true;
  dirty_ = false;
  unwritten_drops_ = 0;
  persist_timer_->cancel();
  struct Job {
    port::WriteBatch batch;
    State state;
    std::vector<port::Task> counted;
    bool done = false;
  };
  auto job = std::make_shared<Job>();
  job->counted = std::exchange(count_waiters_, {});
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
    if (!job->done) {
      stream_dirty_ = true;
      std::move(count_waiters_.begin(), count_waiters_.end(), std::back_inserter(job->counted));
      count_waiters_ = std::move(job->counted);
    }
    bool again = dirty_ && job->done && (!after_persist_.empty() || !count_waiters_.empty());
    persisted(job->done, job->state);
    if (job->done)
      for (port::Task& task : job->counted) task();
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
  drops_durable(state);
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
  if (!forget.empty()) tolerate(store_.write(forget, false));
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
