#include "service/agent/agent_source.h"

#include <algorithm>

#include "base/log.h"
#include "codec/event/block.h"
#include "service/agent/ledger.h"
#include "service/agent/retirement.h"
#include "service/agent/scan.h"

namespace ph::agent {

AgentSource::AgentSource(Parts& parts, std::string route, TargetOptions target, CounterRecord counters)
    : parts_(parts),
      route_(std::move(route)),
      target_(std::move(target)),
      counted_(counters),
      retry_(parts.loop.make_timer()) {}

AgentSource::~AgentSource() = default;

Cursor* AgentSource::find(StreamId stream) {
  auto it = streams_.find(stream);
  return it == streams_.end() ? nullptr : it->second;
}

void AgentSource::remove_stream(Cursor& c) {
  streams_.erase(c.stream);
  if (!c.in_lane) return;
  if (auto lane = lanes_.find(c.generation->lane); lane != lanes_.end()) drop_from_lane(lane->second, c);
}

/// No position behind the file's end was ever given out; a receiver that knows one met another past of this node. Of a
/// file that was not found (yet) only an old size is known.
uint64_t AgentSource::assigned(const Cursor& c) {
  if (c.end) return *c.end;
  return c.generation->verified ? std::max(c.generation->size, c.read) : UINT64_MAX;
}

std::vector<port::OpenStream> AgentSource::open_streams() {
  std::vector<port::OpenStream> out;
  for (const auto& [id, c] : streams_)
    if (!c->receivers.empty() || (target_.wants_far && c->far < c->settled))
      out.push_back({c->stream, c->settled, c->far, assigned(*c), c->receivers});
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.stream < b.stream; });
  return out;
}

void AgentSource::ready(Cursor& c) {
  if (!c.waiting_since) c.waiting_since = parts_.loop.wall_now();
  auto entry = lanes_.try_emplace(c.generation->lane).first;
  Lane& lane = entry->second;
  lane.name = &entry->first;
  if (!c.in_lane) lane.with_data[c.generation->order] = &c;
  c.in_lane = true;
  if (!lane.queued) {
    lane.queued = true;
    turns_.push_back(&lane);
  }
  wake();
}

void AgentSource::wake() {
  if (waking_ || !parts_.running || turns_.empty() || !on_ready_) return;
  waking_ = true;
  parts_.post([this] {
    waking_ = false;
    if (on_ready_) on_ready_();
  });
}

void AgentSource::drop_from_lane(Lane& lane, Cursor& c) {
  if (c.in_lane) lane.with_data.erase(c.generation->order);
  c.in_lane = false;
}

std::optional<port::Batch> AgentSource::next(size_t bytes_max) {
  if (!parts_.running) return std::nullopt;
  while (!turns_.empty()) {
    Lane& lane = *turns_.front();
    turns_.pop_front();
    while (!lane.with_data.empty()) {
      auto it = lane.with_data.lower_bound(lane.at);
      if (it == lane.with_data.end()) it = lane.with_data.begin();
      Cursor& c = *it->second;
      Generation& g = *c.generation;
      lane.at = g.order;
      auto outcome = parts_.reader->read(c, bytes_max);
      if (outcome.read) {
        port::Batch batch = hand_out(c, std::move(*outcome.read));
        if (!has_data(c)) {
          drop_from_lane(lane, c);
          lane.at = g.order + 1;
        }
        if (lane.with_data.empty())
          lanes_.erase(lanes_.find(*lane.name));
        else
          turns_.push_back(&lane);
        return batch;
      }
      c.stalled = g.size;
      drop_from_lane(lane, c);
      lane.at = g.order + 1;
      if (outcome.nothing == SourceReader::Nothing::replaced)
        parts_.scanner->replaced(g, outcome.stat);
      else if (outcome.nothing == SourceReader::Nothing::lost)
        parts_.scanner->lost(g);
      else
        parts_.retirement->consider(g);
    }
    // Idle lanes cost no memory, and begin at their oldest generation again.
    lanes_.erase(lanes_.find(*lane.name));
  }
  return std::nullopt;
}

port::Batch AgentSource::hand_out(Cursor& c, SourceReader::Read read) {
  port::Batch& batch = read.batch;
  c.read = batch.last;
  c.read_window = read.window;
  c.in_oversize = read.in_oversize;
  c.handed.push_back({batch.last, read.window, parts_.loop.wall_now()});
  c.waiting_since.reset();
  if (c.generation->size > c.read) c.waiting_since = parts_.loop.wall_now();
  c.queued_events += batch.events;
  queued_events_ += batch.events;
  if (read.dead_letter) {
    c.dead.push_back({batch.last, 1});
    ++c.queued_events;
    ++queued_events_;
    send_letter(c, {parts_.loop.wall_now(), route_, target_.name, c.generation->category, "line_oversize", c.stream,
                    batch.first, batch.last, std::move(*read.dead_letter)});
  }
  return std::move(batch);
}

void AgentSource::will_use(StreamId stream, const std::string& receiver, port::Task durable) {
  Cursor* c = find(stream);
  if (!c) return;  // closed meanwhile: nothing of it is left to send
  bool known = std::find(c->receivers.begin(), c->receivers.end(), receiver) != c->receivers.end();
  if (!known) c->receivers.push_back(receiver);
  parts_.ledger->touch(*c);
  parts_.ledger->touch(*c->generation);
  if (letters_ > 0) {  // until they are on disk, the cursor's record is held back
    after_letters_.emplace_back(
        [this, task = std::move(durable)]() mutable { parts_.ledger->when_durable(std::move(task)); });
    return;
  }
  parts_.ledger->when_durable(std::move(durable));
}

void AgentSource::settle(Cursor& c, uint64_t settled, uint64_t events, uint64_t duplicates) {
  if (settled > c.read) {
    log_error("settled_beyond_read", {{"target", target_.name}, {"settled", settled}, {"read", c.read}});
    settled = c.read;
  }
  counted_.delivered += events;
  counted_.duplicate += duplicates;
  uint64_t passed = events;
  if (settled > c.settled) {
    c.settled = settled;
    while (!c.handed.empty() && c.handed.front().last <= settled) {
      c.window = c.handed.front().window;
      c.handed.pop_front();
    }
    for (const DeadRange& d : c.dead)
      if (d.last <= settled) {
        counted_.dead_lettered += d.events;
        passed += d.events;
      }
    std::erase_if(c.dead, [settled](const DeadRange& d) { return d.last <= settled; });
  }
  // At the end of what was handed out nothing is queued, whatever the caller counted.
  passed = c.settled == c.read ? c.queued_events : std::min(passed, c.queued_events);
  c.queued_events -= passed;
  queued_events_ -= std::min(passed, queued_events_);
  parts_.ledger->touch(c);
  parts_.ledger->touch(*this);
  if (c.settled == c.read) parts_.retirement->consider(*c.generation);
}

void AgentSource::advanced(StreamId stream, uint64_t settled, uint64_t events, uint64_t duplicates) {
  if (Cursor* c = find(stream)) settle(*c, settled, events, duplicates);
}

port::WriteBatch AgentSource::advance_entries(StreamId stream, uint64_t settled, uint64_t events) {
  port::WriteBatch entries;
  Cursor* c = find(stream);
  if (!c) return entries;
  commits_itself_ = true;
  settle(*c, settled, events, 0);
  c->far = c->settled;  // a sink of this node is the end of the way
  Generation& g = *c->generation;
  if (!g.stored) entries.put(generation_key(g.id), encode(Ledger::record_of(g)));
  entries.put(cursor_key(g.id, target_.name), encode(Ledger::record_of(*c)));
  entries.put(counter_key(route_, target_.name), encode(counted_));
  return entries;
}

void AgentSource::far_advanced(StreamId stream, uint64_t far) {
  Cursor* c = find(stream);
  if (!c || far <= c->far) return;
  c->far = std::min(far, c->read);
  parts_.ledger->touch(*c);
  parts_.retirement->consider(*c->generation);
}

void AgentSource::rejected(StreamId stream, uint64_t first, uint64_t last, Slice block, const std::string& reason) {
  Cursor* c = find(stream);
  if (!c) return;
  auto decoded = event::decode(block);
  uint64_t events = decoded && !decoded->gap ? decoded->events : 0;
  auto at = std::find_if(c->dead.begin(), c->dead.end(), [last](const DeadRange& d) { return d.last >= last; });
  if (at != c->dead.end() && at->last == last) return;  // told before: rejects are re-reported until settled
  c->dead.insert(at, {last, events});
  send_letter(*c, {parts_.loop.wall_now(), route_, target_.name, c->generation->category, reason, stream, first, last,
                   std::move(block)});
}

void AgentSource::send_letter(Cursor& c, port::DeadLetter letter) {
  ++letters_;
  parts_.ledger->touch(c);
  write_letter(std::make_shared<port::DeadLetter>(std::move(letter)));
}

/// At once, not with the next flush: a sink's own commit is asked for later and so comes after it on the disk thread.
void AgentSource::write_letter(std::shared_ptr<port::DeadLetter> letter) {
  auto outcome = std::make_shared<Result<>>();
  parts_.disk.run([letter, outcome, &letters = parts_.dead_letters] { *outcome = letters.append({*letter}); },
                  [this, alive = parts_.alive, letter, outcome] {
                    if (!*alive) return;
                    if (!*outcome) {
                      ++parts_.stats.dead_letter_failures;
                      log_error("dead_letter_write_failed",
                                {{"target", letter->target}, {"error", outcome->error().to_string()}});
                      failed_letters_.push_back(letter);
                      if (!retry_->pending())
                        retry_->start(std::chrono::seconds(1), [this] {
                          auto again = std::move(failed_letters_);
                          failed_letters_.clear();
                          for (auto& l : again) write_letter(std::move(l));
                        });
                      return;
                    }
                    if (--letters_ > 0) return;
                    parts_.ledger->touch(*this);  // what was held back goes out with the next write
                    auto tasks = std::move(after_letters_);
                    after_letters_.clear();
                    for (auto& task : tasks) task();
                  });
}

void AgentSource::rerouted_unasked(uint64_t events) {
  counted_.maybe_duplicate += events;
  parts_.ledger->touch(*this);
}

void AgentSource::renew(StreamId stream) {
  Cursor* c = find(stream);
  if (!c) return;
  ++parts_.stats.renewed;
  log_error("stream_renewed", {{"target", target_.name},
                               {"path", parts_.path(*c->generation)},
                               {"reason", "a receiver knows more of it than this node: was it rolled back?"}});
  if (c->end) {  // its bytes can't be read again
    count_dropped(*c->end - c->settled);
    c->settled = c->read = *c->end;
  }
  renew_cursor(*c);
  if (c->end) parts_.retirement->consider(*c->generation);
}

void AgentSource::renew_cursor(Cursor& c) {
  streams_.erase(c.stream);
  do c.stream = parts_.loop.random().stream_id();
  while (streams_.contains(c.stream));
  streams_[c.stream] = &c;
  queued_events_ -= std::min(c.queued_events, queued_events_);
  c.queued_events = 0;
  c.read = c.settled;
  c.far = std::min(c.far, c.settled);
  c.read_window = c.window.end == c.read ? c.window : Window{};
  if (c.window.end > c.settled) c.window = {};
  c.in_oversize.reset();
  c.stalled = 0;
  c.handed.clear();
  c.dead.clear();
  c.receivers.clear();
  parts_.ledger->touch(c);
  if (has_data(c)) ready(c);
}

void AgentSource::ended(Cursor& c, uint64_t unread) {
  if (c.in_lane)
    if (auto lane = lanes_.find(c.generation->lane); lane != lanes_.end()) drop_from_lane(lane->second, c);
  c.waiting_since.reset();
  if (unread > 0) count_dropped(unread);
}

void AgentSource::count_dropped(uint64_t bytes) {
  counted_.dropped_bytes += bytes;
  parts_.ledger->touch(*this);
}

void AgentSource::recovered(uint64_t bytes) {
  counted_.dropped_bytes -= std::min(bytes, counted_.dropped_bytes);
  parts_.ledger->touch(*this);
}

void AgentSource::closed(StreamId stream) {
  if (on_closed_) on_closed_(stream);
}

port::TargetCounters AgentSource::counters() const {
  port::TargetCounters out;
  out.delivered = counted_.delivered;
  out.duplicate = counted_.duplicate;
  out.maybe_duplicate = counted_.maybe_duplicate;
  out.dropped = counted_.dropped;
  out.dropped_bytes = counted_.dropped_bytes;
  out.dead_lettered = counted_.dead_lettered;
  out.queued = queued_events_;
  out.in = out.delivered + out.dropped + out.dead_lettered + out.queued;
  auto older = [&out](WallTime at) {
    if (!out.oldest_unacked || at < *out.oldest_unacked) out.oldest_unacked = at;
  };
  for (const auto& [id, c] : streams_) {
    out.queued_bytes += c->read - c->settled;
    if (!c->end && c->generation->size > c->read) out.unread_bytes += c->generation->size - c->read;
    if (!c->handed.empty())
      older(c->handed.front().at);
    else if (c->waiting_since && has_data(*c))
      older(*c->waiting_since);
  }
  return out;
}

}  // namespace ph::agent
