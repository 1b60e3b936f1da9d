// PlainWriter: the disk side of plain mode: one file per category, appended for ever, which consumers tail and others
// rotate. Runs on the disk thread inside the sink's flush(); committed() and failed() come from the loop between
// groups.
//
// A group's lines are durable, and acknowledged, when they are in the journal. The group after it copies them to the
// file at an offset that the store has known since before the first byte was written, and moves the store's entry on.
// So a crash at any point makes the same bytes be written again at the same place: the file is never cut and no line
// comes twice. What is not copied yet is one group at most: while copying fails, new lines are refused.
//
// A compressed log is a row of gzip members or zstd frames, one a group. They are made before they go to the journal,
// so that what is written again is the same bytes whatever library or settings a later start has.
//
// Files are known by identity, not by name. When the file of that name is another one (rotated away), is missing, or is
// shorter than what was written (copied and truncated), the lines go to what stands there now, at its end. When a copy
// may have been half done in the file that went away, it is completed there, wherever that lies in the directory; if it
// cannot be found, the lines are written to the new file, which is counted as maybe twice.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "port/keyed_store.h"
#include "store/chunk/disk_files.h"
#include "store/chunk/journal.h"

namespace ph::chunk {

struct PlainCategory {
  std::string name;
  std::string base;  // <directory>/<name>: its file but for the suffix
  Compression compression = Compression::none;
  std::optional<PlainEntry> stored;  // where the next byte goes

  std::string path(Compression how) const { return base + std::string(suffix_of(how)); }
  std::string path() const { return path(compression); }
};

struct PlainWork {
  PlainCategory* category = nullptr;
  std::vector<Slice> lines;  // as they go to the file, once they are in the journal
};

struct PlainCounters {
  uint64_t files = 0;            // begun
  uint64_t late_commits = 0;     // groups called failed that were found durable
  uint64_t maybe_duplicate = 0;  // copies begun again although the file of the first attempt is gone
};

class PlainWriter {
 public:
  PlainWriter(port::Files& files, port::KeyedStore& store, OpenFiles& open_files, CutBytes& cut, Compressor& compressor,
              std::string directory, std::string journal_directory, size_t sync_each_max)
      : files_(files),
        store_(store),
        open_(open_files),
        cut_(cut),
        compressor_(compressor),
        directory_(std::move(directory)),
        sync_(files, directory_, sync_each_max),
        journal_(files, std::move(journal_directory)) {}

  /// At start: finds what is in the journal and not known to be copied.
  Result<> open(const std::function<PlainCategory&(std::string_view name)>& category);
  /// Copies what is owed, then makes the group durable in the journal.
  Result<> flush(std::vector<PlainWork>& group);
  void add_entries(port::WriteBatch& entries) const;
  /// The group of the last flush() is durable. Whether its lines are owed to their files now.
  bool committed();
  void failed();
  /// Lines wait to be copied, or the store to be asked: wants another flush().
  bool owes() const { return !backlog_.empty() || store_uncertain_; }
  const PlainCounters& counters() const { return counters_; }
  /// Why what is in the journal cannot be copied now; empty: it can.
  const std::string& trouble() const { return trouble_; }
  uint64_t journal_damaged() const { return journal_.damaged(); }

 private:
  struct Copy {
    PlainCategory* category = nullptr;
    Compression compression = Compression::none;
    std::vector<Slice> bytes;
    std::string path = {};  // where the file lies; usually category->path(compression)
    PlainEntry to = {};
    PlainEntry after = {};
  };
  Result<> ask_store();
  Result<> copy_backlog();
  Result<> resolve(Copy& copy, port::WriteBatch& assignments);
  Result<> assign(Copy& copy, bool exists, port::WriteBatch& assignments);
  Result<std::optional<std::string>> find(FileId id, uint64_t size_min);
  Result<> write(Copy& copy);
  Result<> append(std::vector<PlainWork>& group);
  Result<> compress(PlainWork& work);

  port::Files& files_;
  port::KeyedStore& store_;
  OpenFiles& open_;
  CutBytes& cut_;
  Compressor& compressor_;
  std::string directory_;
  GroupSync sync_;
  Journal journal_;
  std::string buffer_;
  JournalMark mark_;       // what the store says
  JournalMark next_mark_;  // what it will say after this group
  std::vector<Copy> backlog_;
  bool attempted_ = false;  // the backlog may have been written, in part or whole
  bool copied_ = false;     // by this group
  bool wrote_ = false;      // this group changed something that the store is to know
  bool store_uncertain_ = false;
  std::vector<PlainWork> journaled_;  // by this group: the next backlog
  PlainCounters counters_;
  std::string trouble_;
};

}  // namespace ph::chunk
