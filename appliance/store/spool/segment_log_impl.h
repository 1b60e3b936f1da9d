// The segment log's inside, shared by its writer (segment_log.cc) and its cursors (segment_cursor.cc). Not for others.
#pragma once

#include <list>
#include <map>
#include <set>
#include <vector>

#include "store/spool/segment_format.h"
#include "store/spool/segment_log.h"
#include "store/spool/segment_reader.h"
#include "store/spool/segment_recovery.h"

namespace ph::spool {

class LogCursor;

class LogImpl final : public SegmentLog {
 public:
  using Cursors = std::set<LogCursor*>;
  /// A place where a record is known to begin: about one a MiB, so that a cursor need not walk a segment from its head.
  struct Mark {
    uint64_t sequence;
    uint64_t offset;
    uint64_t events_before;
  };
  struct Segment {
    uint64_t bytes = 0;   // acknowledged ones, or the file's size as recovery found it
    uint64_t base = 0;    // end_byte() before its first byte
    uint64_t begins = 0;  // as in its header; 0: not read yet
    std::vector<Mark> marks;
    void mark(const Mark& m) {
      if (m.offset >= (marks.empty() ? kRecordsOffset : marks.back().offset) + SegmentReader::kReadSize)
        marks.push_back(m);
    }
  };
  using Segments = std::map<uint64_t, Segment>;  // by first sequence

  LogImpl(SegmentLogOptions options, port::Files& files, port::KeyedStore& store, Recovered recovered);

  // commit::Participant
  void begin(port::WriteBatch& entries) override;
  commit::Growth growth() const override;
  Result<> flush() override;
  void add_flushed(port::WriteBatch& entries) override;
  void finished(const Result<>& outcome) override;

  // SegmentLog
  uint64_t append(Slice block, uint64_t events, WallTime accepted_at) override;
  uint64_t durable_end() const override { return end_.end; }
  uint64_t first_sequence() const override { return floor_; }
  uint64_t durable_events() const override { return end_.events; }
  uint64_t epoch() const override { return end_.epoch; }
  const std::string& name() const override { return options_.name; }
  std::shared_ptr<void> watch(std::function<void()> grown) override;
  std::unique_ptr<Cursor> read_from(uint64_t sequence, std::optional<uint64_t> events_before) override;
  void release_below(uint64_t sequence) override;
  void release_range(uint64_t first, uint64_t last) override;
  SpoolStats stats() const override;
  uint64_t bytes_from(uint64_t sequence) const override;
  uint64_t end_byte() const override { return end_byte_; }

  // for cursors
  const std::shared_ptr<Cursors>& cursors() const { return cursors_; }
  Segments& segments() { return segments_; }
  port::Files& files() { return files_; }
  std::string path(uint64_t segment) const { return options_.directory + "/" + segment_name(segment); }
  /// Sequence at which a segment takes over from the one before it.
  uint64_t begins(Segments::iterator segment);
  /// Counts and alarms a damaged place, once for all cursors and restarts.
  void found(const Damage& damage);
  /// Whether all of [first, last) was given up on purpose: what is missing there is no damage.
  bool released(uint64_t first, uint64_t last) const { return contains(released_, first, last); }

 private:
  struct Pending {
    uint64_t sequence;
    uint64_t events;
    WallTime accepted_at;
    Slice block;
  };
  /// What one group writes to one segment.
  struct Part {
    uint64_t segment = 0;
    bool is_new = false;
    uint64_t begins = 0;  // of a new one, as in its header
    uint64_t offset = 0;  // where it begins to write records
    uint64_t end = 0;     // behind the last one
    std::vector<Mark> marks;
    std::shared_ptr<port::File> file;
    std::string buffer;  // not written yet; it ends at `end`
  };
  struct Group {
    std::vector<Pending> records;
    std::vector<Part> parts;
    DurableEnd end;                          // before it; as flush() goes on, behind what it has encoded
    std::shared_ptr<port::File> active;      // active_ when it began
    std::map<uint64_t, uint64_t> leftovers;  // to clean up: segment -> acknowledged bytes, 0 = the whole file
    bool cleaned = false;
    bool touched = false;  // flush() was called
  };

  Result<Part*> part_for(Group& group, const Pending& record);
  size_t encode_into(Part& part, Group& group, size_t from);
  Result<> write_group(Group& group);
  Result<> write_out(Part& part);
  Result<> finish(Part& part);
  void undo_parts(std::vector<Part>& parts);
  void name_leftovers(port::WriteBatch& entries, Group& group);
  void retire_released();
  void retire(Segments::iterator segment);
  void prune_damaged();
  std::string key(std::string_view name) const { return store_prefix(options_.name) + std::string(name); }

  const SegmentLogOptions options_;
  port::Files& files_;
  port::KeyedStore& store_;
  Segments segments_;
  DurableEnd end_;
  uint64_t next_;  // above end_.next while records are pending
  uint64_t floor_;
  uint64_t end_byte_ = 0;
  Ranges released_;  // above floor_
  uint64_t quarantined_;
  uint64_t looked_after_;
  std::set<std::pair<uint64_t, uint64_t>> damage_;  // segment, offset
  std::vector<Pending> pending_;
  bool doomed_ = false;  // begin() was called again before finished(): that second group fails with the first one
  std::unique_ptr<Group> group_;        // the disk thread's between begin() and finished()
  std::shared_ptr<port::File> active_;  // file of end_.segment, while it may be appended to
  // What failed groups left in files. Named in the store by the next group, so that no restart takes it for records;
  // cleaned up by the one after (the store may have kept what it reported as failed), and then forgotten.
  std::map<uint64_t, uint64_t> leftovers_new_, leftovers_naming_, leftovers_named_;
  std::vector<uint64_t> leftovers_cleaned_;
  std::list<std::weak_ptr<std::function<void()>>> watchers_;
  const std::shared_ptr<Cursors> cursors_ = std::make_shared<Cursors>();  // shared with them: some outlive the log
};

class LogCursor final : public SegmentLog::Cursor {
 public:
  LogCursor(LogImpl& log, uint64_t position, std::optional<uint64_t> events_before)
      : log_(log),
        all_(log.cursors()),
        position_(position),
        events_(events_before.value_or(0)),
        events_given_(events_before.has_value()) {
    all_->insert(this);
  }
  ~LogCursor() override { all_->erase(this); }
  LogCursor(const LogCursor&) = delete;
  LogCursor& operator=(const LogCursor&) = delete;
  /// A segment is deleted, in which nothing lies at or behind `end`. A descriptor that nobody needs any more would keep
  /// its bytes on a disk that may be full.
  void let_go(uint64_t segment, uint64_t end);
  Result<std::optional<Record>> next() override;
  uint64_t position() const override { return position_; }

 private:
  struct Place {
    uint64_t segment = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::string reason;
  };
  Result<bool> ensure_open();
  Result<> open_at(LogImpl::Segments::iterator segment);
  bool leave_segment(std::string reason);
  std::optional<Record> take(const SegmentReader::Item& item);
  Record gap(uint64_t until, uint64_t events_after, WallTime accepted_at, uint64_t end_offset);
  uint64_t byte_at(uint64_t offset) const;

  LogImpl& log_;
  const std::shared_ptr<LogImpl::Cursors> all_;
  uint64_t position_;
  uint64_t events_;  // before position_
  bool events_given_;
  uint64_t segment_ = 0;         // being read; 0: none yet
  uint64_t base_ = 0;            // its Segment::base
  uint64_t bound_ = UINT64_MAX;  // records from here on are in a later segment, whatever stands in this one
  std::unique_ptr<port::File> file_;
  std::optional<SegmentReader> reader_;
  std::optional<Place> damage_;  // seen, and not yet known what it cost
  WallTime last_accepted_{};
  int read_errors_ = 0;
};

}  // namespace ph::spool
