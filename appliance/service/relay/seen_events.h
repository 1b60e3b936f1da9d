// SeenEvents: which events this node has taken, by their own identity (origin, ingress stream, positions), whatever
// link brought them: so an event that comes by two ways is kept once (amendment 5). Owned by the event plane's loop;
// the intake asks it before it places a block, the tap before it takes what a sink published.
//
// What is seen is seen within a scope: the route that takes the event, with the category where that tells targets
// apart, since an event that matched two routes of its origin is meant to arrive under both.
//
// A mark counts at once, so that two copies in one group commit are one, and is durable with the group that holds the
// event: put() adds it to that batch. A group that failed takes its marks back: undo().
//
// Kept until every way is settled would need all senders' word for it; they have none to give, since a relay cannot
// know what others still hold. So a mark is kept for at least kKeepFor, which is as long as a receiver remembers a
// silent stream, or until kPagesMax further pages were begun. Forgotten means not seen: an event that is older than
// that and comes once more is there twice, never lost. docs/event_identity.md.
//
// Store entries, prefix d/ (integers big-endian in keys so that they sort):
//   d/state            u8 version 1, varint generation, varint time it began (Unix seconds); then maybe varint how
//   often
//                      one was ended by its number, varint when that was last, varint when the generation before began
//                      (Unix seconds)
//   d/p/<u64 generation><u64 hash of scope><16 origin><u64 stream><u64 page>   u8 version 1, RangeSet
// A page is 2^24 positions of a stream of lines, whose positions are bytes, or 4096 of a stream of messages. A page is
// looked for in the generation of now and the one before, and written in the one of now. An entry with a newer version
// is an error at load(): this node was downgraded.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "codec/event/block.h"
#include "core/link/range_set.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "store/commit/committer.h"

namespace ph::relay {

class SeenEvents {
 public:
  static constexpr Duration kKeepFor = limits::kStreamTtl;
  static constexpr size_t kPagesMax = 250'000;  // a generation; two are kept, about 20 MB each on disk
  static constexpr size_t kCachedMax = 8192;    // pages in memory beyond those that are being written
  static constexpr size_t kSweepBatch = 1000;

  /// What one group commit adds.
  class Marks {
   public:
    bool empty() const { return list_.empty(); }

   private:
    friend class SeenEvents;
    struct Mark {
      std::string page;
      link::Range range;
    };
    std::vector<Mark> list_;
  };

  SeenEvents(port::Loop& loop, port::KeyedStore& store, commit::Committer& committer, size_t pages_max = kPagesMax);
  ~SeenEvents();
  /// Errors: of the store, relay.seen_newer.
  Result<> load();

  /// Parts of the id's positions that were not seen in the scope, ascending. A store that cannot be read has seen
  /// nothing: rather twice than never.
  std::vector<link::Range> unseen(std::string_view scope, event::BlockKind kind, const event::EventId& id);
  /// They are seen from now on. `marks` must come back by put() and then durable() or undo().
  void mark(std::string_view scope, event::BlockKind kind, const event::EventId& id, Marks& marks);
  void put(const Marks& marks, port::WriteBatch& to);
  void durable(const Marks& marks);
  void undo(const Marks& marks);

  /// Pages of this generation, and how often a generation was ended by their number and not by its age, ever.
  size_t pages() const { return pages_; }
  uint64_t ended_early() const { return ended_early_; }
  /// For how long identities are kept at least as things are, where that is less than kKeepFor: an alarm, for as long
  /// as kKeepFor after the last early end.
  std::optional<Duration> short_memory() const;

 private:
  struct Page {
    link::RangeSet ranges;
    size_t pending = 0;   // marks that are neither durable nor undone
    bool stored = false;  // in this generation
    std::list<const std::string*>::iterator used;
  };
  using Pages = std::unordered_map<std::string, Page>;

  template <class Visit>
  void for_each_page(std::string_view scope, event::BlockKind kind, const event::EventId& id, Visit visit);
  Pages::iterator page(const std::string& name);
  void evict();
  std::string key(uint64_t generation, std::string_view name) const;
  void next_generation(bool early);
  void sweep();

  port::Loop& loop_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  const size_t pages_max_;
  uint64_t generation_ = 1;
  WallTime began_{};
  bool state_due_ = true;  // not in the store yet
  size_t pages_ = 0;
  uint64_t ended_early_ = 0;
  WallTime last_early_{};
  WallTime before_began_{};              // the generation before, which is looked at as well
  Pages cache_;                          // by name: the key behind the generation
  std::list<const std::string*> usage_;  // least lately used first
  std::unique_ptr<port::Timer> sweep_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
