// ChunkWriter: the disk side of chunk mode. Runs on the disk thread inside the sink's flush(); between groups, when the
// disk thread is idle, the sink also calls committed() and failed() from the loop.
//
// What consumers see
//   Everything whose name sorts below the target of `_current` is complete, committed and never touched again. So the
//   link moves to a chunk only after the group that first wrote to it is durable, with everything below it.
//   A chunk is closed when it has chunk_max bytes, counted before compression (checked between blocks: it exceeds that
//   by less than one block) or when chunk_interval has passed since its first line. If lines wait, they begin the next
//   chunk. If none wait, the next chunk is made empty and the link moves there at once: the closed one is consumable
//   without waiting for more lines, and the link always names a file that exists, as LSD's does. Should the date have
//   changed when the first line comes, the waiting empty chunk is removed before the link moves on, so that consumers
//   meet no empty chunk and no chunk with an old date.
//
// What a crash finds
//   A group that begins chunks first writes their names into the store, synced, as "reserved". So whatever recovery
//   meets is one of: the newest chunk, cut to its committed size; a reserved name, whose bytes never happened: saved
//   aside, removed; anything else, left alone. Recovery of a category runs with its first work after the start, and the
//   chunk that was open then is never written to again: consumers may have been told that it is closed.
//
// What a failure does
//   A failed write or sync takes the group back: chunks that it began are removed, the one that was open is cut to its
//   committed size, synced and closed. When the store failed, its answer may be wrong: a batch that was called failed
//   may yet be durable, cursors and all. So it is asked first, behind a write that it takes; if the batch is there, the
//   lines stay (their sender, told that it failed, may send them again: counted). Until that is known and done, nothing
//   else is written.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "port/keyed_store.h"
#include "store/chunk/disk_files.h"

namespace ph::chunk {

/// Part of a group that goes to one chunk.
struct ChunkPiece {
  ChunkMark chunk;    // size: committed before this group
  bool fresh = true;  // holds no committed line
  bool made = false;  // the file exists
  bool written = false;
  uint64_t lines_before = 0;             // bytes of lines in it before this group
  size_t first_line = 0, last_line = 0;  // slices of the work [first, last)
  uint64_t bytes = 0;                    // of its lines
  uint64_t stored = 0;                   // that they take in the file
};

/// One category, owned by the sink, touched by the writer alone after its construction.
struct ChunkCategory {
  std::string name;
  std::string path;        // its directory
  uint64_t chunk_max = 0;  // bytes of lines, before compression
  Compression compression = Compression::none;
  Duration interval{};

  ChunkEntry stored;       // what the store says
  bool recovered = false;  // the directory was looked at since the start
  ChunkName greatest;      // no name at or below it may be made
  ChunkName linked;        // what _current points at
  ChunkName filled;        // newest chunk with committed lines
  struct Open {
    ChunkMark chunk;
    Instant first_write{};  // of its first line; meaningless while it is empty
    uint64_t line_bytes = 0;
  };
  std::optional<Open> open;
  std::optional<ChunkMark> superseded;  // an empty chunk to remove before the link moves past it
  bool link_owed = false;
  bool removal_owed = false;        // chunks were removed, their directory is to be synced
  std::vector<ChunkPiece> pieces;   // of the group being written, or of one to be taken back
  ChunkName greatest_before_group;  // names of a group that was taken back are used again

  /// When the open chunk is due for rotation; nullopt when there is nothing to rotate.
  std::optional<Instant> rotation_due() const;
  /// Whether the newest lines are closed but the link does not say so yet.
  bool behind() const { return !open && filled && linked <= filled; }
};

struct ChunkWork {
  ChunkCategory* category = nullptr;
  std::vector<Slice> lines;
};

struct ChunkCounters {
  uint64_t chunks = 0;        // begun
  uint64_t vanished = 0;      // open chunks that somebody removed or replaced
  uint64_t shortened = 0;     // chunks found shorter than their committed size
  uint64_t abandoned = 0;     // chunks closed because a write or sync failed
  uint64_t late_commits = 0;  // groups called failed that were found durable
};

class ChunkWriter {
 public:
  ChunkWriter(port::Files& files, port::KeyedStore& store, OpenFiles& open_files, CutBytes& cut, Compressor& compressor,
              std::string directory, size_t sync_each_max)
      : files_(files),
        store_(store),
        open_(open_files),
        cut_(cut),
        compressor_(compressor),
        directory_(std::move(directory)),
        sync_(files, directory_, sync_each_max) {}

  /// Writes and syncs a group. Work without lines is upkeep (recovery, rotation) and never fails the group. Errors:
  /// file.*, store errors, chunk.names_used_up.
  Result<> flush(std::vector<ChunkWork>& group, Instant now, uint32_t today);
  void add_entries(port::WriteBatch& entries) const;
  /// The group of the last flush() is durable. Whether links are owed that were not before.
  bool committed();
  /// The group of the last successful flush() did not become durable.
  void failed();
  /// Links to be moved, or a group to be taken back: wants another flush().
  bool owes() const { return !links_owed_.empty() || !take_back_.empty(); }
  const ChunkCounters& counters() const { return counters_; }

 private:
  // Upkeep.
  void move_links();
  Result<> move_link(ChunkCategory& c);
  Result<> keep_up(ChunkCategory& c, Instant now, uint32_t today);
  Result<> begin_empty(ChunkCategory& c, uint32_t today);
  // Recovery.
  Result<> recover_waiting(std::vector<ChunkWork>& group);
  Result<> recover(ChunkCategory& c);
  Result<> cut_back(ChunkCategory& c, const ChunkMark& mark);
  Result<> remove_unhappened(ChunkCategory& c, const std::string& name);
  Result<> adopt_empty(ChunkCategory& c, const std::string& link);
  // The group.
  Result<> write_group(std::vector<ChunkWork>& group, Instant now, uint32_t today);
  static Result<> name_next(ChunkCategory& c, ChunkMark& chunk, uint32_t today);
  Result<> plan(ChunkCategory& c, const std::vector<Slice>& lines, Instant now, uint32_t today);
  Result<> reserve(const std::vector<ChunkCategory*>& categories);
  Result<> write_pieces(ChunkCategory& c, const std::vector<Slice>& lines, uint32_t today);
  Result<bool> write_piece(ChunkCategory& c, ChunkPiece& piece, const std::vector<Slice>& lines);
  Result<port::File*> file_of(ChunkCategory& c, ChunkPiece& piece);
  Result<port::File*> make_file(ChunkCategory& c, ChunkMark& mark);
  Result<> move_to_new_names(ChunkCategory& c, uint32_t today);
  // Taking back.
  Result<> take_back();
  Result<> take_back(ChunkCategory& c);
  Result<> take_back(ChunkCategory& c, ChunkPiece& piece);

  static std::string file_name(const ChunkCategory& c, const ChunkMark& chunk) {
    return to_file_name(c.name, chunk.name, chunk.compression);
  }
  static std::string path_of(const ChunkCategory& c, const ChunkMark& chunk) {
    return c.path + "/" + file_name(c, chunk);
  }
  static ChunkEntry reserving(const ChunkCategory& c);
  static ChunkEntry entry_after(const ChunkCategory& c);

  port::Files& files_;
  port::KeyedStore& store_;
  OpenFiles& open_;
  CutBytes& cut_;
  Compressor& compressor_;
  std::string directory_;
  GroupSync sync_;
  std::string buffer_;
  std::vector<ChunkCategory*> touched_;    // of the group being written
  std::vector<ChunkCategory*> take_back_;  // categories whose pieces did not happen
  bool store_uncertain_ = false;
  Instant group_now_{};
  std::vector<ChunkCategory*> links_owed_;
  std::set<std::string> directories_;  // with new names, to be synced before the group counts
  ChunkCounters counters_;
};

}  // namespace ph::chunk
