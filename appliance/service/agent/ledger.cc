#include "service/agent/ledger.h"

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "service/agent/agent_source.h"

namespace ph::agent {

/// One write: what goes to the disk thread, and what to do when it is back.
struct Ledger::Flush {
  port::WriteBatch batch;
  Result<> outcome;
  struct Written {
    StreamId generation;
    AgentSource* source;
    uint64_t settled;
    uint64_t far;
    Window window;
    StreamId stream;
    uint64_t reserved;
  };
  std::vector<Written> cursors;
  std::vector<StreamId> generations;
  std::vector<AgentSource*> sources;
  port::WriteBatch extra;  // again, should the write fail
  std::vector<port::Task> waiters;
};

Ledger::Ledger(Parts& parts) : parts_(parts), timer_(parts.loop.make_timer()) {}

void Ledger::touch(Generation& g) {
  if (!g.dirty) generations_.push_back(&g);
  g.dirty = true;
  arm();
}

void Ledger::touch(Cursor& c) {
  if (!c.dirty) cursors_.push_back(&c);
  c.dirty = true;
  if (!c.generation->stored) touch(*c.generation);
  arm();
}

void Ledger::touch(AgentSource& source) {
  if (std::find(sources_.begin(), sources_.end(), &source) == sources_.end()) sources_.push_back(&source);
  arm();
}

void Ledger::when_durable(port::Task task) {
  waiters_.push_back(std::move(task));
  if (writing_) {
    again_ = true;
    return;
  }
  // Posted, not run at once: what the rest of this turn needs durable joins the write.
  parts_.post([this] { flush(); });
}

void Ledger::forget(Generation& g, port::Task done) {
  drop(g);
  for (const auto& c : g.cursors) extra_.remove(cursor_key(g.id, c->source->target()));
  extra_.remove(generation_key(g.id));
  waiters_.push_back(std::move(done));
  arm();  // lazily: nothing waits for it but the receivers' memory
}

void Ledger::finish(port::Task done) {
  std::string boot;
  put_fixed<uint64_t>(boot, parts_.boot);
  extra_.put(std::string(kCleanKey), std::move(boot));
  when_durable(std::move(done));
}

/// What the store holds. Of a sink that commits cursors itself only the store can say.
Ledger::Stored Ledger::stored(const Cursor& c) const {
  if (!c.source->commits_itself()) return {c.stored_settled, c.stored_far};
  auto value = parts_.store.get(cursor_key(c.generation->id, c.source->target()));
  if (!value || !*value) return {};
  auto record = decode_cursor(**value);
  return record ? Stored{record->settled, record->far} : Stored{};
}

bool Ledger::settled_at(const Cursor& c, uint64_t position) const {
  return stored(c).settled >= position;
}

bool Ledger::released_at(const Cursor& c, uint64_t position) const {
  Stored s = stored(c);
  return s.settled >= position && (!c.source->wants_far() || s.far >= position);
}

void Ledger::drop(Generation& g) {
  std::erase(generations_, &g);
  std::erase_if(cursors_, [&g](const Cursor* c) { return c->generation == &g; });
  g.dirty = false;
  for (auto& c : g.cursors) c->dirty = false;
}

GenerationRecord Ledger::record_of(const Generation& g) {
  return {g.id,   g.state,    g.identity,  g.boot, g.order,     g.proven, g.prefix,
          g.lane, g.category, g.directory, g.name, g.truncated, g.copy};
}

CursorRecord Ledger::record_of(const Cursor& c) {
  CursorRecord record{c.stream,    c.settled, c.far, std::max(c.read, c.settled), c.end, c.window,
                      c.receivers, c.asked,   {}};
  for (const Past& p : c.past) record.past.push_back(p.record);
  return record;
}

void Ledger::arm() {
  if (!writing_ && !timer_->pending()) timer_->start(parts_.options.flush, [this] { flush(); });
}

void Ledger::build(Flush& f) {
  std::vector<Cursor*> kept_cursors;
  for (Cursor* c : cursors_) {
    // Until the dead letters are on disk the cursor does not move in the store; who waits to use a receiver, or to hand
    // out more, does not wait for that.
    bool held = c->source->letters_pending() > 0;
    if (held) kept_cursors.push_back(c);
    if (held && waiters_.empty()) continue;
    if (!held) c->dirty = false;
    Generation& g = *c->generation;
    // A record's `size` and prefix tell a power cut and a truncation from growth: they go along with the cursor.
    if (!g.dirty) generations_.push_back(&g), g.dirty = true;
    if (c->source->commits_itself()) continue;
    c->source->reserve(*c);
    CursorRecord record = record_of(*c);
    if (held && c->stored_settled <= c->settled) {
      record.settled = c->stored_settled;
      record.far = std::min(c->far, c->stored_settled);
      record.window = c->stored_window;
    }
    f.batch.put(cursor_key(g.id, c->source->target()), encode(record));
    f.cursors.push_back({g.id, c->source, record.settled, record.far, record.window, c->stream, c->asked});
  }
  cursors_ = std::move(kept_cursors);
  for (Generation* g : generations_) {
    g->dirty = false;
    f.batch.put(generation_key(g->id), encode(record_of(*g)));
    f.generations.push_back(g->id);
  }
  generations_.clear();
  std::vector<AgentSource*> kept_sources;
  for (AgentSource* s : sources_) {
    if (s->letters_pending() > 0) {
      kept_sources.push_back(s);
    } else if (!s->commits_itself()) {
      f.batch.put(counter_key(s->route(), s->target()), encode(s->counter_record()));
      f.sources.push_back(s);
    }
  }
  sources_ = std::move(kept_sources);
  f.extra = std::move(extra_);
  extra_ = {};
  f.batch.append(f.extra);
  f.waiters.swap(waiters_);
}

void Ledger::flush() {
  if (writing_) {
    again_ = true;
    return;
  }
  timer_->cancel();
  auto f = std::make_shared<Flush>();
  build(*f);
  if (f->batch.empty() && f->waiters.empty()) return;
  writing_ = true;
  parts_.disk.run(
      [f, &store = parts_.store] {
        if (!f->batch.empty()) f->outcome = store.write(f->batch, true);
      },
      [this, alive = parts_.alive, f] {
        if (*alive) completed(f);
      });
}

void Ledger::completed(std::shared_ptr<Flush> f) {
  writing_ = false;
  if (!f->outcome) {
    ++parts_.stats.store_failures;
    log_error("agent_store_write_failed", {{"error", f->outcome.error().to_string()}});
    for (StreamId id : f->generations)
      if (Generation* g = parts_.table->find(id)) touch(*g);
    for (const auto& w : f->cursors)
      if (Generation* g = parts_.table->find(w.generation))
        for (auto& c : g->cursors)
          if (c->source == w.source) touch(*c);
    for (AgentSource* s : f->sources) touch(*s);
    port::WriteBatch newer = std::move(extra_);
    extra_ = std::move(f->extra);
    extra_.append(std::move(newer));
    waiters_.insert(waiters_.begin(), std::make_move_iterator(f->waiters.begin()),
                    std::make_move_iterator(f->waiters.end()));
    again_ = false;
    timer_->start(std::max<Duration>(parts_.options.flush, std::chrono::seconds(1)), [this] { flush(); });
    return;
  }
  for (StreamId id : f->generations)
    if (Generation* g = parts_.table->find(id)) g->stored = true;
  for (const auto& w : f->cursors) {
    Generation* g = parts_.table->find(w.generation);
    if (!g) continue;
    for (auto& c : g->cursors) {
      if (c->source != w.source) continue;
      c->stored_settled = w.settled;
      c->stored_far = w.far;
      c->stored_window = w.window;
      if (c->stream == w.stream) c->reserved = w.reserved;
    }
  }
  for (auto& task : f->waiters) task();
  if (again_) {
    again_ = false;
    flush();
  } else if (!generations_.empty() || !cursors_.empty() || !sources_.empty() || !extra_.empty()) {
    arm();
  }
}

}  // namespace ph::agent
