// Generation and Cursor: one incarnation of a source file, and one target's place in it. Plain state that the agent's
// parts share; owned by GenerationTable. On disk they are the records of core/agent/records.h.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/agent/fingerprint.h"
#include "core/agent/records.h"
#include "core/agent/source_name.h"
#include "port/files.h"

namespace ph::agent {

class AgentSource;
struct Generation;

/// A batch that was handed out and is not settled.
struct Handed {
  uint64_t last = 0;
  Window window;  // ends at last
  WallTime at{};
  uint64_t events = 0;
};
/// Events below `last` that went to the dead letters instead.
struct DeadRange {
  uint64_t last = 0;
  uint64_t events = 0;
};

/// A stream of this cursor that was given up while its far acknowledgements were still to come.
struct Past {
  PastStream record;
  uint64_t far = 0;
};

struct CategoryOptions;

struct Cursor {
  Generation* generation = nullptr;
  AgentSource* source = nullptr;
  StreamId stream;  // the generation's id, unless it had to be renewed for this target
  uint64_t settled = 0;
  uint64_t far = 0;
  uint64_t read = 0;  // handed out up to here
  // Settled position when the end cut off what had been in flight before a restart.
  std::optional<uint64_t> abandoned;
  std::optional<uint64_t> end;              // set once nothing more can be read
  Window window;                            // ends at or below settled; what is stored
  Window read_window;                       // ends at read
  std::optional<bool> in_oversize = false;  // read stands inside a line longer than line_max; nullopt: to be found out
  uint64_t stalled = 0;                     // file size at which no further whole line was found
  uint64_t tail_size = 0;                   // file size since which an event of several lines may still go on,
  Instant tail_since{};                     // and since when
  bool again = false;                       // is read again at a time, not only when the file grows
  uint64_t queued_events = 0;
  uint64_t dropped = 0;  // bytes that were counted as dropped when the generation ended
  std::list<Handed> handed;
  std::vector<DeadRange> dead;
  std::vector<std::string> receivers;
  // What may have been sent, as the store knows it (AgentSource): receivers see nothing behind `reserved`.
  uint64_t reserved = 0;  // durable
  uint64_t asked = 0;     // of the record written last; at or behind reserved
  uint64_t read_when_asked = 0;
  bool reserving = false;                 // a write was asked for
  std::vector<Past> past;                 // streams before the present one, ascending
  uint64_t far_own = 0;                   // of the present stream, which begins where the last past one ended
  std::optional<WallTime> waiting_since;  // unread bytes since
  uint64_t stored_settled = 0;            // durable
  uint64_t stored_far = 0;
  Window stored_window;
  bool dirty = false;
  bool in_lane = false;  // listed in its source's lane as having data
};

struct Generation {
  StreamId id;
  Identity identity;
  GenerationState state = GenerationState::live;
  uint64_t boot = 0;
  uint64_t order = 0;  // of discovery: within a lane the lower one is older
  Prefix prefix;
  std::string lane;
  std::string category;
  std::string directory;
  std::string name;
  uint64_t size = 0;    // greatest seen
  uint64_t proven = 0;  // as large the file was when it was last seen to be still this one
  int64_t modified_ns = 0;
  bool verified = false;    // looked at since the process started
  bool truncated = false;   // ended because its file was truncated in its place
  bool copy = false;        // its file was made by copying: before it is read on it is looked at as such
  bool unreadable = false;  // could not be opened when last tried
  bool dirty = false;
  bool stored = false;
  Instant first_seen{};
  Instant kept_until{};                // not forgotten earlier: a copy may have its bytes
  std::optional<uint64_t> final_size;  // proven: nobody will finish the last line; deliver it as it is

  uint64_t seen_in_scan = 0;
  uint32_t absences = 0;
  Instant absent_since{};

  std::unique_ptr<port::File> file;  // our only descriptor, when open
  std::list<Generation*>::iterator place{};
  bool pinned = false;  // the descriptor is the only way to the bytes
  bool big = false;     // its writers lock it (lsd-wire.md, Source files)
  std::optional<Instant> locked_since;
  const CategoryOptions* options = nullptr;  // of its category

  bool scheduled = false;  // in the retirement's queue, at `due`
  Instant due{};
  Duration backoff{};
  Instant not_before{};  // no rotation earlier: the last try failed
  Instant drained_since{};
  bool removing = false;    // its directory is being synced
  bool forgetting = false;  // its records are being removed
  std::string staying;      // why it was not deleted when last tried

  std::vector<std::unique_ptr<Cursor>> cursors;  // one per target of its route; empty: no route

  bool in_hidden() const { return directory == kHiddenDirectory; }
  bool readable() const { return state != GenerationState::ended; }
};

/// Whether the cursor has something that was not handed out yet: more than the partial line at which it stalled, or
/// that partial line once it is known to be final.
inline bool has_data(const Cursor& c) {
  const Generation& g = *c.generation;
  if (c.end || !g.verified || g.size <= c.read) return false;
  return g.size > c.stalled || g.final_size == g.size;
}
/// All that can be handed out is, and is settled. What may be left is a last line without newline.
inline bool all_settled(const Generation& g) {
  for (const auto& c : g.cursors)
    if (c->settled != c->read || (c->read != g.size && (c->stalled != g.size || g.final_size == g.size))) return false;
  return !g.cursors.empty();
}
/// Some target has not been handed out all that is known of it.
inline bool has_tail(const Generation& g) {
  for (const auto& c : g.cursors)
    if (c->read != g.size) return true;
  return false;
}

}  // namespace ph::agent
