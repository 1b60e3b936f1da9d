// Ledger: generations, cursors and counters on disk. What changed is written lazily, all in one synced batch on the
// disk thread, at most AgentOptions::flush after it changed; who needs it durable now says so and is told.
//
// Order of writes: the store's records may lag behind what was delivered, never run ahead of it. A target with a dead
// letter that is not yet on disk moves neither cursor nor counters there until it is (amendment 14). A target whose
// sink commits cursors together with its data (AgentSource::advance_entries) is left out: its records belong to that
// commit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "service/agent/generation_table.h"

namespace ph::agent {

class Ledger {
 public:
  explicit Ledger(Parts& parts);

  void touch(Generation& g);
  void touch(Cursor& c);
  void touch(AgentSource& source);
  /// Runs once everything that was touched before is on disk. Writes at once; a failed write is tried again for ever.
  void when_durable(port::Task task);
  /// Removes all records of a generation; `done` runs once that is on disk.
  void forget(Generation& g, port::Task done);
  /// Removes one key with the next write.
  void remove(std::string key) {
    extra_.remove(std::move(key));
    arm();
  }
  /// Writes the marker of a clean stop together with everything else.
  void finish(port::Task done);
  /// Whether the stored cursor stands at or behind `position`.
  bool settled_at(const Cursor& c, uint64_t position) const;
  /// The same, and the far one too where the target wants it: what the source file's bytes are kept for.
  bool released_at(const Cursor& c, uint64_t position) const;
  /// Forgets pointers to a generation that is about to go.
  void drop(Generation& g);

  static GenerationRecord record_of(const Generation& g);
  static CursorRecord record_of(const Cursor& c);

 private:
  struct Flush;
  struct Stored {
    uint64_t settled = 0;
    uint64_t far = 0;
  };
  Stored stored(const Cursor& c) const;
  void arm();
  void flush();
  void build(Flush& flush);
  void completed(std::shared_ptr<Flush> flush);

  Parts& parts_;
  std::unique_ptr<port::Timer> timer_;
  std::vector<Generation*> generations_;
  std::vector<Cursor*> cursors_;
  std::vector<AgentSource*> sources_;
  port::WriteBatch extra_;  // removals and markers
  std::vector<port::Task> waiters_;
  bool writing_ = false;
  bool again_ = false;
};

}  // namespace ph::agent
