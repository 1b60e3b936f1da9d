#include "service/agent/agent_source.h"

#include <algorithm>

#include "base/log.h"
#include "codec/event/block.h"
#include "service/agent/ledger.h"
#include "service/agent/retirement.h"
#include "service/agent/scan.h"

namespace ph::agent {
namespace {

constexpr Duration kBehindAfter = 5s;
constexpr uint64_t kBehindBytes = 1024 * 1024;
constexpr int kBehindLook = 64;                     // generations that are looked at
constexpr uint64_t kReserveMax = 16 * 1024 * 1024;  // what a fast reader reserves beyond what it must

}  // namespace

AgentSource::AgentSource(Parts& parts, std::string route, TargetOptions target, CounterRecord counters)
    : parts_(parts),
      route_(std::move(route)),
      target_(std::move(target)),
      counted_(counters),
      again_timer_(parts.loop.make_timer()),
      retry_(parts.loop.make_timer()) {}

AgentSource::~AgentSource() = default;

/// The cursor whose present stream this is.
Cursor* AgentSource::find(StreamId stream) {
  auto it = streams_.find(stream);
  return it == streams_.end() || it->second->stream != stream ? nullptr : it->second;
}

void AgentSource::add_stream(Cursor& c) {
  streams_[c.stream] = &c;
  for (const Past& p : c.past) streams_[p.record.stream] = &c;
}

void AgentSource::remove_stream(Cursor& c) {
  let_go(c);
  streams_.erase(c.stream);
  for (const Past& p : c.past) streams_.erase(p.record.stream);
  if (!c.in_lane) return;
  if (auto lane = lanes_.find(c.generation->lane); lane != lanes_.end()) drop_from_lane(lane->second, c);
}

/// No position behind the file's end was ever given out; a receiver that knows one met another past of this node. Of a
/// file that was not found (yet) only an old size is known.
uint64_t AgentSource::assigned(const Cursor& c) {
  if (c.end) return *c.end;
  return c.generation->verified ? std::max(c.generation->size, c.read) : std::max(c.reserved, c.read);
}

std::vector<port::OpenStream> AgentSource::open_streams() {
  std::vector<port::OpenStream> out;
  for (const auto& [id, c] : streams_) {
    if (id != c->stream) continue;
    for (const Past& p : c->past)
      out.push_back({p.record.stream, p.record.until, p.far, UINT64_MAX, p.record.receivers});
    if (!c->receivers.empty() || (target_.wants_far && c->far < c->settled))
      out.push_back({c->stream, c->settled, std::max(c->far, c->far_own), assigned(*c), c->receivers});
  }
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
  if (!lane.queued && !held_.contains(c.generation->lane)) {
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

/// The generation that the lane's turn is for; the lane has data.
Cursor& AgentSource::choose(Lane& lane) {
  auto it = lane.with_data.lower_bound(lane.at);
  if (it == lane.with_data.end()) it = lane.with_data.begin();
  if (lane.with_data.size() < 2) {
    lane.behind_since.reset();
    return *it->second;
  }
  Instant now = parts_.loop.now();
  if (!lane.behind_since) lane.behind_since = now;
  if (target_.live_share == 0 || now - *lane.behind_since < kBehindAfter) return *it->second;
  auto youngest = std::prev(lane.with_data.end());
  uint64_t behind = 0;
  int looked = 0;
  for (auto g = lane.with_data.begin(); g != youngest && behind < kBehindBytes && ++looked < kBehindLook; ++g)
    behind += g->second->generation->size - g->second->read;
  if (behind < kBehindBytes && looked < kBehindLook) return *it->second;
  bool live = ++lane.turns % (target_.live_share + 1) != 0;
  return live ? *youngest->second : *lane.with_data.begin()->second;
}

// --- how far it may be handed out
//
// What was in flight when the power went is sent again under a new stream id, because what the file holds at those
// positions now cannot be known to be what was sent. Those lines may then be at a receiver twice, and are counted; so
// the store must know, before anything leaves, how far things may leave. It is told in steps far greater than a batch,
// with the cursor's regular writes, so that nobody waits for it in the ordinary course of things.

void AgentSource::reserve(Cursor& c) {
  if (c.receivers.empty()) return;  // nothing leaves before will_use(), and that comes here
  uint64_t ahead = 2 * parts_.reader->step_max(c);
  ahead += std::min<uint64_t>(2 * (c.read - std::min(c.read, c.read_when_asked)), kReserveMax);
  c.read_when_asked = c.read;
  c.asked = std::max(c.asked, c.read + ahead);
}

bool AgentSource::may_hand_out(Cursor& c) {
  // Before the first record with a receiver is written everything waits for that; from then on it tells the bound.
  uint64_t bound = c.reserved != 0 ? c.reserved : c.asked != 0 ? c.asked : UINT64_MAX;
  if (bound >= c.read && bound - c.read >= parts_.reader->step_max(c)) return true;
  ask_for_more(c);
  return false;
}

void AgentSource::ask_for_more(Cursor& c) {
  parts_.ledger->touch(c);
  if (std::exchange(c.reserving, true)) return;
  parts_.ledger->when_durable([this, stream = c.stream] {
    Cursor* waiting = find(stream);
    if (!waiting) return;
    waiting->reserving = false;
    if (has_data(*waiting)) ready(*waiting);
  });
}

std::optional<port::Batch> AgentSource::next(size_t bytes_max) {
  if (!parts_.running) return std::nullopt;
  while (!turns_.empty()) {
    Lane& lane = *turns_.front();
    turns_.pop_front();
    bool waits = held_.contains(*lane.name);
    while (!waits && !lane.with_data.empty()) {
      Cursor& c = choose(lane);
      if (waits = !may_hand_out(c); waits) break;  // and the lane with it, so that its order stays
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
      if (outcome.again) read_again(c, *outcome.again);
      drop_from_lane(lane, c);
      lane.at = g.order + 1;
      if (outcome.nothing == SourceReader::Nothing::replaced)
        parts_.scanner->replaced(g, outcome.stat);
      else if (outcome.nothing == SourceReader::Nothing::lost)
        parts_.scanner->lost(g);
      else
        parts_.retirement->consider(g);
    }
    if (waits) {
      lane.queued = false;  // ready() lists it again
      continue;
    }
    // Idle lanes cost no memory, and begin at their oldest generation again.
    lanes_.erase(lanes_.find(*lane.name));
  }
  return std::nullopt;
}

void AgentSource::read_again(Cursor& c, Duration after) {
  if (std::exchange(c.again, true)) return;
  again_.emplace(parts_.loop.now() + after, c.stream);
  again_timer_->start(std::max(again_.begin()->first - parts_.loop.now(), Duration::zero()), [this] { run_again(); });
}

void AgentSource::run_again() {
  const Instant now = parts_.loop.now();
  while (!again_.empty() && again_.begin()->first <= now) {
    Cursor* c = find(again_.begin()->second);
    again_.erase(again_.begin());
    if (!c) continue;
    c->again = false;
    c->stalled = 0;
    if (has_data(*c)) ready(*c);
  }
  if (!again_.empty()) again_timer_->start(again_.begin()->first - now, [this] { run_again(); });
}

port::Batch AgentSource::hand_out(Cursor& c, SourceReader::Read read) {
  port::Batch& batch = read.batch;
  c.read = batch.last;
  c.read_window = read.window;
  c.in_oversize = read.in_oversize;
  c.handed.push_back({batch.last, read.window, parts_.loop.wall_now(), batch.events});
  c.waiting_since.reset();
  if (c.generation->size > c.read) c.waiting_since = parts_.loop.wall_now();
  c.queued_events += batch.events;
  queued_events_ += batch.events;
  // In time, so that the next ones need not wait.
  if (c.reserved != 0 && c.reserved - std::min(c.reserved, c.read) < parts_.reader->step_max(c) * 3 / 2)
    ask_for_more(c);
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
  parts_.ledger->when_durable(std::move(durable));
}

/// When the counters are on disk as they are now: they are held back until the dead letters are.
void AgentSource::when_counted(port::Task task) {
  if (letters_ == 0) return parts_.ledger->when_durable(std::move(task));
  after_letters_.emplace_back([this, t = std::move(task)]() mutable { parts_.ledger->when_durable(std::move(t)); });
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
  c->far = c->far_own = c->settled;  // a sink of this node is the end of the way
  Generation& g = *c->generation;
  if (!g.stored) entries.put(generation_key(g.id), encode(Ledger::record_of(g)));
  entries.put(cursor_key(g.id, target_.name), encode(Ledger::record_of(*c)));
  entries.put(counter_key(route_, target_.name), encode(counted_));
  return entries;
}

void AgentSource::far_advanced(StreamId stream, uint64_t far) {
  auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  Cursor& c = *it->second;
  if (c.stream == stream) c.far_own = std::max(c.far_own, std::min(far, c.read));
  for (Past& p : c.past)
    if (p.record.stream == stream) p.far = std::max(p.far, std::min(far, p.record.until));
  move_far(c);
}

/// Past streams first: the present one begins where the last of them ended.
void AgentSource::move_far(Cursor& c) {
  uint64_t before = c.far;
  while (!c.past.empty() && c.past.front().far >= c.past.front().record.until) {
    StreamId done = c.past.front().record.stream;
    c.far = std::max(c.far, c.past.front().record.until);
    c.past.erase(c.past.begin());
    streams_.erase(done);
    parts_.ledger->touch(c);
    parts_.ledger->when_durable([this, done] { closed(done); });  // receivers forget it then
  }
  c.far = std::max(c.far, c.past.empty() ? c.far_own : c.past.front().far);
  if (c.far == before) return;
  parts_.ledger->touch(c);
  parts_.retirement->consider(*c.generation);
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

void AgentSource::rerouted_unasked(uint64_t events, port::Task durable) {
  count_maybe(events);
  when_counted(std::move(durable));
}

void AgentSource::count_maybe(uint64_t events) {
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

/// The present stream becomes a past one, if far acknowledgements of it are still to come.
void AgentSource::give_up_stream(Cursor& c) {
  uint64_t begun = 0;
  std::vector<Past> kept;
  for (Past& p : c.past) {
    p.record.until = std::min(p.record.until, c.settled);  // the file may have become shorter
    if (p.record.until <= begun) {
      streams_.erase(p.record.stream);
      continue;
    }
    begun = p.record.until;
    kept.push_back(std::move(p));
  }
  c.past = std::move(kept);
  if (target_.wants_far && !c.receivers.empty() && c.settled > std::max(c.far, begun))
    c.past.push_back({{c.stream, c.settled, c.receivers}, std::max(c.far_own, begun)});
  else
    streams_.erase(c.stream);
  c.far_own = c.settled;
}

void AgentSource::renew_cursor(Cursor& c) {
  let_go(c);
  give_up_stream(c);
  c.again = false;  // what is planned names the stream before
  c.reserved = c.asked = 0;
  c.read_when_asked = c.settled;
  c.reserving = false;
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
  let_go(c);
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
