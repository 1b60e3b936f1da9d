// AgentSource: one target's view of its route's source files, as the port EventSource. Owns the order in which lines
// are handed out, the target's counters and its dead letters on their way to disk.
//
// A lane is what has an order of its own: a first-level file with its rotations, or a category's directory. Lanes with
// data take turns, one batch each. Within a lane the source stays with a generation until that is read to its end, then
// goes on to the next younger one; behind the youngest it begins again at the oldest. A lane that is behind, for some
// seconds and by a megabyte of older files, gives most of its turns to its youngest file (TargetOptions::live_share),
// so that fresh events go beside an old backlog; in each file the order holds.
//
// Accounting: a counter moves when the settled cursor passes what it counts, and is stored in the same batch as that
// cursor; what was handed out and is not settled is `queued` and lives in memory alone. So in = delivered + dropped +
// dead_lettered + queued holds at any moment and after any crash.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "port/event_source.h"
#include "service/agent/generation_table.h"
#include "service/agent/source_reader.h"

namespace ph::agent {

class AgentSource : public port::EventSource {
 public:
  AgentSource(Parts& parts, std::string route, TargetOptions target, CounterRecord counters);
  ~AgentSource() override;

  const std::string& route() const override { return route_; }
  const std::string& target() const override { return target_.name; }
  bool wants_far() const override { return target_.wants_far; }
  std::vector<port::OpenStream> open_streams() override;
  std::optional<port::Batch> next(size_t bytes_max) override;
  void on_ready(port::Task ready) override { on_ready_ = std::move(ready); }
  void will_use(StreamId stream, const std::string& receiver, port::Task durable) override;
  void advanced(StreamId stream, uint64_t settled, uint64_t events, uint64_t duplicates) override;
  port::WriteBatch advance_entries(StreamId stream, uint64_t settled, uint64_t events) override;
  void far_advanced(StreamId stream, uint64_t far) override;
  void rejected(StreamId stream, uint64_t first, uint64_t last, Slice block, const std::string& reason) override;
  void rerouted_unasked(uint64_t events, port::Task durable) override;
  void persist_now(port::Task durable) override { when_counted(std::move(durable)); }
  void renew(StreamId stream) override;
  bool take_back(StreamId stream, uint64_t from) override;
  void resume(StreamId stream) override;
  void on_closed(std::move_only_function<void(StreamId)> closed) override { on_closed_ = std::move(closed); }
  port::TargetCounters counters() const override;

  // --- for the agent's other parts
  void add_stream(Cursor& c);
  void remove_stream(Cursor& c);
  /// The cursor has data: lists it, and tells who pulls.
  void ready(Cursor& c);
  /// Nothing of the cursor can be read any more; `unread` bytes of it never were.
  void ended(Cursor& c, uint64_t unread);
  /// Gives the cursor a new stream, which begins at its settled position.
  void renew_cursor(Cursor& c);
  /// Sets how far the record that is about to be written lets the cursor be handed out.
  void reserve(Cursor& c);
  /// Counts events that may come to be twice at the far side.
  void count_maybe(uint64_t events);
  /// The stream's records are gone: tells who pulls.
  void closed(StreamId stream);
  void wake();
  /// Counts bytes that can never be delivered because they were in flight when a file was lost.
  void count_dropped(uint64_t bytes);
  /// Of those, bytes that a copy of the file has.
  void recovered(uint64_t bytes);

  /// Whether the target's sink writes cursors itself, together with its data.
  bool commits_itself() const { return commits_itself_; }
  size_t letters_pending() const { return letters_; }
  size_t held_lanes() const { return held_.size(); }
  uint64_t taken_back_bytes() const { return taken_back_bytes_; }
  const CounterRecord& counter_record() const { return counted_; }

 private:
  struct Lane {
    std::map<uint64_t, Cursor*> with_data;  // by order of the generation
    uint64_t at = 0;                        // where the lane goes on
    bool queued = false;
    std::optional<Instant> behind_since;  // data in more than one generation
    uint32_t turns = 0;                   // while behind
    const std::string* name = nullptr;    // its key
  };
  Cursor* find(StreamId stream);
  bool may_hand_out(Cursor& c);
  void ask_for_more(Cursor& c);
  void move_far(Cursor& c);
  void give_up_stream(Cursor& c);
  void read_again(Cursor& c, Duration after);
  void run_again();
  static uint64_t assigned(const Cursor& c);
  port::Batch hand_out(Cursor& c, SourceReader::Read read);
  void drop_from_lane(Lane& lane, Cursor& c);
  void let_go(const Cursor& c);
  Cursor& choose(Lane& lane);
  void settle(Cursor& c, uint64_t settled, uint64_t events, uint64_t duplicates);
  void when_counted(port::Task task);
  void send_letter(Cursor& c, port::DeadLetter letter);
  void write_letter(std::shared_ptr<port::DeadLetter> letter);

  Parts& parts_;
  std::string route_;
  TargetOptions target_;
  CounterRecord counted_;
  std::unordered_map<StreamId, Cursor*> streams_;
  std::unordered_map<std::string, Lane> lanes_;
  std::deque<Lane*> turns_;  // lanes with data
  // Lanes that wait for their target, by the streams which it holds: nothing of them is handed out, so that they take
  // no room from others.
  std::unordered_map<std::string, std::set<StreamId>> held_;
  uint64_t taken_back_bytes_ = 0;
  uint64_t queued_events_ = 0;
  bool commits_itself_ = false;
  size_t letters_ = 0;  // dead letters not yet on disk
  std::vector<port::Task> after_letters_;
  port::Task on_ready_;
  std::move_only_function<void(StreamId)> on_closed_;
  bool waking_ = false;
  std::multimap<Instant, StreamId> again_;  // cursors that are to be read at a time; each once
  std::unique_ptr<port::Timer> again_timer_;
  std::unique_ptr<port::Timer> retry_;
  std::vector<std::shared_ptr<port::DeadLetter>> failed_letters_;
};

}  // namespace ph::agent
