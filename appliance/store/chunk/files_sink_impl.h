// The files sink's inside, shared by what it does with lines (files_sink.cc) and what it does about files that are
// there: retention, quotas, figures (files_sink_watch.cc). Not for others.
#pragma once

#include <deque>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "store/chunk/chunk_writer.h"
#include "store/chunk/files_sink.h"
#include "store/chunk/plain_writer.h"

namespace ph::chunk {

/// A category as the loop sees it; `chunks` and `plain` belong to the disk thread while a group is being written.
struct Category {
  const CategoryOptions* options = nullptr;
  bool checked = false;       // nothing else stood where its file belongs; asked again after a failed group
  std::string_view obstacle;  // what stands there
  bool queued = false;        // has lines or upkeep for the next group
  bool scheduled = false;     // stands in the rotation queue
  std::string_view fault;     // why it can never be written
  uint64_t pending_bytes = 0;
  uint64_t stored_bytes = 0;  // of its files, as of the last look, and what was written since
  Holding holding;            // as of the last look
  std::vector<Slice> lines;
  ChunkCategory chunks;
  PlainCategory plain;

  /// What the lines go to: a directory of chunks, or a file.
  std::string path() const { return options->mode == FileMode::plain ? plain.path() : chunks.path; }
  /// Also true for one that was in chunk mode before: its last chunk still wants to be closed.
  bool has_chunks() const { return options->mode == FileMode::chunks || chunks.stored.last.name; }
};

struct Look {
  Category* category = nullptr;
  Result<Holding> found = {};
};
struct Removal {
  Category* category = nullptr;
  ClosedChunk chunk;
};

/// What begin() set aside.
struct Group {
  std::vector<Look> looks;
  std::vector<Removal> removals;
  Removed over_max;  // by removals
  AgeClock ages;
  std::vector<ChunkWork> chunks;
  std::vector<PlainWork> plain;
  std::vector<Category*> categories;
  std::vector<uint64_t> category_bytes;  // of each of them
  Instant now{};
  uint32_t today = 0;
  uint64_t events = 0;
  uint64_t bytes = 0;
  bool flushed = false;
};

struct Totals {
  uint64_t events = 0, bytes = 0, chunks = 0, rejected = 0, cut = 0;
  Removed expired, over_max;
  uint64_t over_quota = 0;
  bool operator==(const Totals&) const = default;

  std::vector<uint64_t*> fields() {
    return {&events,         &bytes,         &chunks,          &rejected,       &cut,
            &expired.chunks, &expired.bytes, &over_max.chunks, &over_max.bytes, &over_quota};
  }
};
constexpr size_t kTotalsVersion1 = 5;  // fields

std::string encode(Totals totals);
std::optional<Totals> decode_totals(ByteView bytes);

class SinkImpl final : public FilesSink {
 public:
  SinkImpl(FilesSinkOptions options, port::Loop& loop, port::Files& files, port::KeyedStore& store,
           commit::Committer& committer)
      : options_(std::move(options)),
        loop_(loop),
        files_(files),
        store_(store),
        committer_(committer),
        open_files_(files),
        cut_(files, options_.state_directory + "/cut"),
        chunk_writer_(files, store, open_files_, cut_, compressor_, options_.directory, options_.sync_each_max),
        plain_writer_(files, store, open_files_, cut_, compressor_, options_.directory,
                      options_.state_directory + "/journal", options_.sync_each_max),
        retention_(files),
        rotation_timer_(loop.make_timer()),
        look_timer_(loop.make_timer()),
        retry_timer_(loop.make_timer()) {}

  Result<> start();

  std::string_view refuses(std::string_view name) override;
  std::string_view obstacle(std::string_view name) override;
  bool room() override { return !options_.floor || options_.floor->room(); }
  std::vector<Obstacle> obstacles() override;
  void append(const event::Block& block) override;
  FilesSinkStats stats() const override;

  void begin(port::WriteBatch& entries) override;
  commit::Growth growth() const override;
  Result<> flush() override;
  void add_flushed(port::WriteBatch& entries) override;
  void finished(const Result<>& outcome) override;

 private:
  Category& category_of(std::string_view name);
  const CategoryOptions& options_of(std::string_view name) const;
  Result<> load_entries();
  std::string_view fault_of(std::string_view name) const;
  void look(Category& c);
  void queue(Category& c);
  bool succeed(Group& group);
  void fail_group(Group& group, const Error& error);
  void schedule(Category& c, Instant due);
  void arm_rotation();
  void rotate_due();
  void recover_some();
  bool watches() const;
  bool watched(const Category& c) const;
  std::string_view used_up(const Category& c) const;
  void begin_looks();
  void end_looks();
  void look_at(Look& look, const AgeClock& ages);
  void took_looks(Group& group);
  static void count_removed(const Group& group, Totals& to);
  Totals totals_after(const Group& group) const;

  FilesSinkOptions options_;
  port::Loop& loop_;
  port::Files& files_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  std::unordered_map<std::string, std::unique_ptr<Category>> categories_;
  std::unordered_set<std::string> plain_paths_;  // of those in plain mode

  // Loop.
  std::vector<Category*> queued_;
  uint64_t pending_events_ = 0;
  uint64_t pending_bytes_ = 0;
  std::deque<Category*> to_recover_;
  using Due = std::pair<Instant, Category*>;
  struct Later {
    bool operator()(const Due& a, const Due& b) const { return a.first > b.first; }
  };
  std::priority_queue<Due, std::vector<Due>, Later> rotations_;
  std::deque<Group> groups_;  // begun, not finished: one being written, and perhaps one that fails with it
  Totals totals_;
  uint64_t rejected_ = 0;         // since the last stored totals
  uint64_t cut_before_ = 0;       // bytes cut by this process that are already in totals_
  ChunkCounters chunk_counters_;  // copies: the writers' own change on the disk thread
  PlainCounters plain_counters_;
  std::string plain_trouble_;
  uint64_t damaged_entries_ = 0;
  std::string alarm_;
  std::vector<Category*> blocked_;  // in whose place something else was found
  AgeClock ages_;
  std::deque<Category*> to_look_at_;
  std::deque<Removal> to_remove_;
  bool looking_ = false;       // between begin_looks() and end_looks()
  bool removed_all_ = true;    // nothing was left that a rule wants gone
  uint64_t stored_bytes_ = 0;  // of all categories' files
  uint64_t over_quota_ = 0;    // since the last stored totals

  // Disk thread.
  OpenFiles open_files_;
  CutBytes cut_;
  Compressor compressor_;
  ChunkWriter chunk_writer_;
  PlainWriter plain_writer_;
  Retention retention_;

  std::unique_ptr<port::Timer> rotation_timer_;
  std::unique_ptr<port::Timer> look_timer_;
  std::unique_ptr<port::Timer> retry_timer_;
};

}  // namespace ph::chunk
