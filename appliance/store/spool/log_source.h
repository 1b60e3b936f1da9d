// LogSource: one target's view of a route's segment log: the durable cursor and the counters of that (route, target)
// pair. Owned by the event plane's loop, between the log and an upstream or a sink of this node.
//
// Counters derive from sequences: every record carries the total of events before it, so what a target has delivered is
// the total at its cursor less where it began, less what was dropped or dead-lettered; nothing is counted in memory
// alone, and nothing is scanned at start.
//
// Two ways of being moved, never both:
//   advanced()         an upstream: the cursor is written within persist_after, in one synced batch with the counters
//   advance_entries()  a sink of this node: it commits the cursor with its data; this source then only reads back how
//                      far that has come, because writing it earlier would pass data that is not durable yet
//
// Store entries, prefix s/<route>/t/<target>/ (integers varint unless said otherwise):
//   cursor  u8 version 3, settled, events before settled, events before where this target began, dropped, of which
//           damaged, dead-lettered, duplicate, maybe duplicate, number of drops, each: first, last - first, events;
//           then, not in version 1: of the dropped, expired; then, not in version 2: of the dropped, by `full` and by
//           `keep`
//   waited  how long what waits has waited (waiting_ages.h); there while the route has a `keep`
//   stream  u8 version 1, u64 log epoch, u64 stream id, far, number of receivers, each sized
//   dead/<u64 key first>  a dead letter (dead_letters.h) whose file is not durable yet, or was not when the cursor
//   passed
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "port/dead_letters.h"
#include "port/event_source.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "store/spool/segment_log.h"
#include "store/spool/waiting_ages.h"

namespace ph::spool {

/// Keeps a log until the slowest of its targets is past it, and knows how far the route is done at the far end. Loop
/// only; must outlive the sources.
class LogRetention {
 public:
  /// Nothing is released before each of `targets` has reported.
  LogRetention(SegmentLog& log, std::vector<std::string> targets);
  /// A live change of the route. A target that left holds nothing back any more; its cursor stays in the store.
  void set_targets(std::vector<std::string> targets);

  /// `target` durably needs nothing below `settled`, nor of the ranges `skipped` above it.
  void reported(const std::string& target, uint64_t settled, std::vector<std::pair<uint64_t, uint64_t>> skipped);
  void far_reported(const std::string& target, uint64_t far);
  /// Called with the sequence below which every target reported the end of the way: at first when all have reported,
  /// then whenever it grows.
  void on_far(std::function<void(uint64_t)> far);

 private:
  struct Target {
    std::optional<uint64_t> settled;
    std::vector<std::pair<uint64_t, uint64_t>> skipped;
    std::optional<uint64_t> far;
  };
  void apply();
  void apply_far();
  SegmentLog& log_;
  std::map<std::string, Target> targets_;
  std::function<void(uint64_t)> on_far_;
  std::optional<uint64_t> far_;
};

/// `route.spool.full`: what happens to what is more than `bytes_max`, as far as it is not in flight.
enum class Overflow : uint8_t { keep_all, drop_oldest, drop_newest };

/// Other than keep_all, and a `keep`, are for targets that can be away: not for a source that is moved by
/// advance_entries().
struct LogSourceOptions {
  std::string route;
  std::string target;
  bool wants_far = false;
  Duration persist_after = std::chrono::seconds(1);
  Overflow overflow = Overflow::keep_all;
  uint64_t bytes_max = 0;        // behind what is in flight; with an overflow that drops
  std::optional<Duration> keep;  // what waited longer, while the node ran, is dropped
};

class LogSource final : public port::EventSource {
 public:
  /// A target without a cursor begins at the oldest record that is kept. Errors: of the store, of reading the log.
  static Result<std::unique_ptr<LogSource>> open(LogSourceOptions options, SegmentLog& log, LogRetention& retention,
                                                 port::Loop& loop, port::DiskQueue& disk, port::KeyedStore& store,
                                                 port::DeadLetters& dead_letters);
  ~LogSource() override;
  /// What a `cursor` entry says is settled; nullopt for one that is damaged or newer.
  static std::optional<uint64_t> settled_in(ByteView cursor);

  // port::EventSource
  const std::string& route() const override { return options_.route; }
  const std::string& target() const override { return options_.target; }
  bool wants_far() const override { return options_.wants_far; }
  std::vector<port::OpenStream> open_streams() override;
  std::optional<port::Batch> next(size_t bytes_max) override;
  void on_ready(port::Task ready) override { ready_ = std::move(ready); }
  void will_use(StreamId stream, const std::string& receiver, port::Task durable) override;
  void advanced(StreamId stream, uint64_t settled, uint64_t events, uint64_t duplicates) override;
  port::WriteBatch advance_entries(StreamId stream, uint64_t settled, uint64_t events) override;
  void far_advanced(StreamId stream, uint64_t far) override;
  void rejected(StreamId stream, uint64_t first, uint64_t last, Slice block, const std::string& reason) override;
  void expired(StreamId stream, uint64_t first, uint64_t last) override;
  void rerouted_unasked(uint64_t events, port::Task durable) override;
  void renew(StreamId stream) override;
  void on_closed(std::move_only_function<void(StreamId)> closed) override { closed_ = std::move(closed); }
  port::TargetCounters counters() const override;

  /// Gives up the oldest records that were not handed out yet, until at most `bytes_max` are queued behind what is in
  /// flight. They become one gap block, topic "dropped", which is handed out once {gap, cursor, counters} are durable;
  /// then, too, their segments go (amendment 20). Done by itself when the options say so.
  void drop_oldest(uint64_t bytes_max);
  uint64_t settled() const { return state_.settled; }
  uint64_t far() const { return far_; }
  /// Writes what is not written yet now; for an orderly end. `done` runs when that is durable or has failed.
  void persist_now(port::Task done) override;

 private:
  enum class Fate : uint8_t { deliver, damaged, dropped, rejected, expired };
  /// A block that was handed out and is not settled.
  struct Out {
    uint64_t last;
    uint64_t events_after;
    uint64_t events;
    uint64_t end_byte;
    WallTime accepted_at;
    Fate fate;
  };
  struct Drop {
    uint64_t first;
    uint64_t last;
    uint64_t events;
    uint64_t end_byte = 0;
    uint64_t bytes = 0;
    bool staged = false;   // a write holds it: it grows no more
    bool durable = false;  // may be handed out
    bool earlier = false;  // of an earlier run, which may have handed it out as it is: joined with no other
  };
  /// What the cursor entry holds.
  struct State {
    uint64_t settled = 0;
    uint64_t events = 0;  // before settled
    uint64_t began = 0;   // events before where this target began
    uint64_t dropped = 0;
    uint64_t dropped_damaged = 0;
    uint64_t dropped_expired = 0;
    uint64_t dropped_full = 0;
    uint64_t dropped_keep = 0;
    uint64_t dead_lettered = 0;
    uint64_t duplicate = 0;
    uint64_t maybe_duplicate = 0;
    std::vector<Drop> drops;  // ascending; not settled yet, though counted as dropped
  };
  struct Letter {
    port::DeadLetter letter;
    bool in_file = false;
    std::optional<uint64_t> staged_at;  // the cursor of the last batch that holds its entry
  };

  LogSource(LogSourceOptions options, SegmentLog& log, LogRetention& retention, port::Loop& loop, port::DiskQueue& disk,
            port::KeyedStore& store, port::DeadLetters& dead_letters);
  Result<> load();
  Result<> begin_at_oldest();
  Result<> load_letters();
  static std::string encode(const State& state);
  static bool decode(ByteView bytes, State& state);
  std::string encode_stream() const;
  bool decode_stream(ByteView bytes);
  std::string key(std::string_view name) const;
  std::string letter_key(uint64_t first) const;

  const Record* peek(uint64_t position) const;
  Drop* drop_at(uint64_t position);
  void begin_drops();
  void drop_surplus();
  void drop_newest();
  void drop_waited(uint64_t below);
  void drop_while(const std::function<bool(const Record&, uint64_t bytes)>& surplus, uint64_t State::* reason);
  void note_begin(const Record& r);
  void add_drop(Drop more, uint64_t State::* reason);
  uint64_t dropped_bytes_from(uint64_t position) const;
  uint64_t waiting_bytes_at_most() const;
  void look_at_ages();
  void join_drops();
  void drops_durable(const State& state);
  bool set_fate(uint64_t first, uint64_t last, Fate fate);
  void hand_out(const Record& record, std::string& packed, uint64_t& events);
  void hand_out_drop(const Drop& drop, std::string& packed);
  void rewind();
  void move_to(uint64_t settled);
  void wake();
  void dirty();
  port::WriteBatch entries();
  void persist();
  void persisted(bool written, const State& state);
  void write_letters();
  void forget_letters();
  bool letters_full() const;
  void write_stream(port::Task durable);
  void start_stream_write();

  LogSourceOptions options_;
  SegmentLog& log_;
  LogRetention& retention_;
  port::Loop& loop_;
  port::DiskQueue& disk_;
  port::KeyedStore& store_;
  port::DeadLetters& dead_letters_;
  std::shared_ptr<void> watch_;
  port::Task ready_;
  std::move_only_function<void(StreamId)> closed_;
  std::unique_ptr<port::Timer> persist_timer_;
  std::unique_ptr<port::Timer> retry_timer_;
  std::unique_ptr<port::Timer> stream_timer_;
  std::unique_ptr<port::Timer> ages_timer_;
  std::unique_ptr<port::Timer> drops_timer_;  // pending: who was sent something is being asked what he has

  State state_;
  StreamId stream_;
  uint64_t far_ = 0;
  std::set<std::string> receivers_;
  std::deque<Out> out_;
  uint64_t handed_out_ = 0;  // position behind the last block that next() gave
  uint64_t handed_events_ = 0;
  bool drop_wanted_ = false;  // next() waits for a drop to be durable
  WaitingAges ages_;
  uint64_t known_end_ = 0;  // the log's durable end, and end_byte() there, as drop_surplus() last saw it
  uint64_t known_end_byte_ = 0;
  uint64_t unwritten_drops_ = 0;  // bytes that were dropped since the last persist() began
  mutable std::unique_ptr<SegmentLog::Cursor> cursor_;
  mutable std::optional<Record> peeked_;
  mutable std::optional<uint64_t> settled_byte_;  // SegmentLog::end_byte() at the cursor, once known
  std::deque<Letter> letters_;
  size_t letters_bytes_ = 0;
  bool local_ = false;     // moved by advance_entries()
  bool renewing_ = false;  // the new stream id is not durable yet
  bool waiting_ = true;    // next() had nothing
  bool woken_ = false;
  bool dirty_ = false;
  bool stream_dirty_ = false;
  bool writing_stream_ = false;
  std::vector<port::Task> stream_waiters_;  // run once the stream entry as it is now is durable
  bool persisting_ = false;
  bool writing_letters_ = false;
  uint64_t durable_settled_ = 0;
  std::vector<port::Task> after_persist_;
  std::vector<port::Task> count_waiters_;  // run once the counters as they are now are durable
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::spool
