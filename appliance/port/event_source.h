// EventSource: where a target's events come from. One source serves one (route, target) pair: the agent's view of its
// source files, or a cursor over a route's segment log. It owns the durable cursor and the counters of that pair; an
// upstream or a local sink pulls from it and tells it how far the target got.
//
// A source hands out each event once, in stream order, and keeps no bytes: who pulled a batch holds it until it is
// acknowledged and resends from there (amendment 11: sent bytes are never re-read).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/time.h"
#include "port/keyed_store.h"
#include "port/loop.h"

namespace ph::port {

/// Consecutive blocks of one hop stream. Positions of a stream are dense: each batch begins where the one before ended;
/// what was lost or dropped on purpose is a gap block. A source file's positions are byte offsets in its generation, a
/// log's are record sequences.
struct Batch {
  StreamId stream;
  uint64_t first = 0;
  uint64_t last = 0;  // exclusive
  uint64_t events = 0;
  /// The blocks, each: varint (its last - its first), then sized encoded block (codec/event/block.h). The first block
  /// begins at `first`, each next one where the one before ended.
  Slice packed;
};

/// What a source knows of a stream that was open when the process started.
struct OpenStream {
  StreamId stream;
  uint64_t settled = 0;                // everything below is acknowledged; next() begins here
  uint64_t far = 0;                    // everything below is durable at the end of its way
  uint64_t assigned = UINT64_MAX;      // one past the last position ever given out: a receiver that knows more proves
                                       // that this node was rolled back; UINT64_MAX: cannot tell
  std::vector<std::string> receivers;  // addresses that may hold something above settled: ask them first
};

/// Per route and target, in events unless said otherwise. in = delivered + dropped + dead_lettered + queued.
struct TargetCounters {
  uint64_t in = 0;
  uint64_t delivered = 0;
  uint64_t duplicate = 0;        // the far side already had it
  uint64_t maybe_duplicate = 0;  // rerouted while the first receiver could not be asked
  uint64_t dropped = 0;
  uint64_t dropped_expired = 0;  // part of dropped: messages whose expiry passed before they arrived
  uint64_t dropped_damaged = 0;  // part of dropped: found damaged on disk
  uint64_t dropped_full = 0;     // part of dropped: route.spool.full = "drop_..."
  uint64_t dropped_keep = 0;     // part of dropped: waited longer than route.spool.keep
  uint64_t dropped_bytes = 0;    // files: truncated or deleted by others before they were read; never counted in `in`
  uint64_t dead_lettered = 0;
  uint64_t queued = 0;
  uint64_t queued_bytes = 0;
  uint64_t unread_bytes = 0;  // files: not read yet, so not yet counted in `in`
  std::optional<WallTime> oldest_unacked;
};

class EventSource {
 public:
  virtual ~EventSource() = default;

  virtual const std::string& route() const = 0;
  virtual const std::string& target() const = 0;
  virtual bool wants_far() const = 0;  // the route says ack = "far"

  /// Streams with unsettled or possibly unsettled events, as of start. Called once, before next().
  virtual std::vector<OpenStream> open_streams() = 0;

  /// The next events, at most about `bytes_max` (at least one block); nullopt: none now, on_ready will tell.
  virtual std::optional<Batch> next(size_t bytes_max) = 0;
  /// Sets the one callback made, on the loop, when next() may have something again.
  virtual void on_ready(Task ready) = 0;

  /// `receiver` is about to be sent part of `stream` for the first time. `durable` runs once that is on disk; nothing
  /// of the stream may leave to that receiver before (amendment 16).
  virtual void will_use(StreamId stream, const std::string& receiver, Task durable) = 0;

  /// Everything below `settled` is acknowledged by a receiver, and `events` is how many events that added. `duplicates`
  /// of them were known to be there already. Persisted lazily (within a second), with the counters, in one batch.
  virtual void advanced(StreamId stream, uint64_t settled, uint64_t events, uint64_t duplicates) = 0;
  /// Writes what advanced() said, now instead of lazily: for targets that can't be asked after a crash what they hold.
  virtual void persist_now(Task durable) { durable(); }
  /// For sinks of this node: the store entries that advanced() would write, so that the sink commits them together with
  /// the data. The source has moved when this returns; the sink must commit the entries or stop the process.
  virtual WriteBatch advance_entries(StreamId stream, uint64_t settled, uint64_t events) = 0;
  /// Everything below `far` is durable at the end of its way.
  virtual void far_advanced(StreamId stream, uint64_t far) = 0;
  /// The receiver refused this block for good. The source writes it to the dead letters, durably, before its cursor
  /// passes (amendment 14). `block` is an encoded block. Counted by the source; not in advanced()'s `events`.
  virtual void rejected(StreamId stream, uint64_t first, uint64_t last, Slice block, const std::string& reason) = 0;
  /// The events of this block expired before they reached the end of their way: counted as dropped when the cursor
  /// passes. Not in advanced()'s `events`. A source whose events never expire keeps this one.
  virtual void expired(StreamId /*stream*/, uint64_t /*first*/, uint64_t /*last*/) {}
  /// So many events are about to be sent again elsewhere although their first receiver could not be asked. `durable`
  /// runs once that is counted on disk; they leave only then. A failed write is tried again for ever.
  virtual void rerouted_unasked(uint64_t events, Task durable) = 0;
  /// A receiver knows positions above everything this stream ever handed out: this node was rolled back (amendment 3).
  /// The source mints a new id, durably, alarms, and next() begins again at `settled` under it.
  virtual void renew(StreamId stream) = 0;

  /// Takes back what it handed out of the stream from `from` on, the end of one of its batches: it is at no receiver,
  /// and whoever pulled it forgets it (so that a category that is held takes no room from the others). Nothing of the
  /// stream, nor of what has an order with it, is handed out before resume(). False: it cannot, and nothing changed.
  virtual bool take_back(StreamId /*stream*/, uint64_t /*from*/) { return false; }
  /// What take_back() stopped goes on. Of a stream that is unknown or goes on already: nothing.
  virtual void resume(StreamId /*stream*/) {}

  /// Sets the callback made when a stream has ended for good (file deleted, epoch closed) and is settled to its end, so
  /// that receivers may forget it.
  virtual void on_closed(std::move_only_function<void(StreamId)> closed) = 0;

  virtual TargetCounters counters() const = 0;
};

}  // namespace ph::port
