// Scanner: finds the source files, tells which generation each one is, and notices what happens to them. Notifications
// say where to look; a rescan of everything finds what they missed; a directory that cannot be watched is polled.
//
// The source directory has two levels: files in it, and files in its first-level directories (lsd-wire.md). Besides
// these the agent's own hidden directory is looked at. Symbolic links are not followed; dotfiles, compressed copies,
// FIFOs and sockets are skipped; each is logged once.
//
// A file that is not found is not gone: a listing during a rename sees neither name. Gone is what our own descriptor
// says has no link left, what another file with the same inode replaced, or what two scans a grace apart did not find.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "service/agent/copy_watch.h"
#include "service/agent/generation_table.h"

namespace ph::agent {

class Scanner {
 public:
  Scanner(Parts& parts, WatcherFactory make_watcher);

  /// Looks at everything. Errors: file.* when the source directory itself cannot be listed.
  Result<> scan_all();
  /// Begins to watch, poll and rescan.
  void start();
  void stop();

  /// The reader found other content in the generation's file.
  void replaced(Generation& g, const port::FileStat& stat);
  /// The generation was not found under its name, or could not be read: looks for it, later.
  void lost(Generation& g);
  /// A file that the retirement moved by mistake: another one had taken the name of the one it meant.
  void found_hidden(const std::string& name, const port::FileStat& stat) {
    found(std::string(kHiddenDirectory), name, stat);
    create_fresh();
  }
  /// Adds what the scanner knows to the status.
  void status(AgentStats& stats) const;

 private:
  struct Fresh {
    std::string directory;
    std::string name;
    port::FileStat stat;
    SourceName source;
    int64_t group_birth = 0;  // of the oldest new rotation of the same original
  };
  /// A file at a place: its generation is updated or replaced, or noted to be made by create_fresh().
  void found(const std::string& directory, const std::string& name, const port::FileStat& stat);
  void on_events(const std::vector<port::Watcher::Event>& events);
  void look(const std::string& directory, const std::string& name);
  Result<> scan_below();
  Result<> scan_directory(const std::string& directory);
  void scan_entry(const std::string& directory, const std::string& name);
  void add_directory(const std::string& directory);
  void drop_directory(const std::string& directory);
  void watch(const std::string& directory);
  bool readable_again(Generation& g);
  bool verify(Generation& g, const port::FileStat& stat);
  void update(Generation& g, const std::string& directory, const std::string& name, const port::FileStat& stat);
  void create_fresh();
  void create(Fresh& fresh);
  SourceName source_of(const std::string& directory, const std::string& name) const;
  bool is_rotation(const Generation& g) const;
  bool leads_to(const Generation& g) const;
  bool grows(Generation& g, const port::FileStat& stat);
  void grow(Generation& g, const port::FileStat& stat);
  void learn(Generation& g);
  void begin_anew(Generation& g, const port::FileStat& stat);
  void find_what_was_in_flight();
  void look_around(const std::string& directory);
  void check_absent();
  /// Its descriptor says that nothing leads to the file any more, or another file has its inode.
  void gone(Generation& g);
  void rescan();
  void rescan_within(Duration delay);
  void stays(const std::string& directory, const std::string& name, std::string_view reason);
  bool wanted(const std::string& directory, const std::string& name, const SourceName& source) const;
  void log_once(std::string_view event, const std::string& path, std::string_view reason);

  Parts& parts_;
  WatcherFactory make_watcher_;
  std::unique_ptr<port::Watcher> watcher_;
  std::unique_ptr<port::Timer> rescan_timer_;
  std::unique_ptr<port::Timer> poll_timer_;
  Instant rescan_at_{};
  std::set<std::string> directories_;  // looked at: "" is the source directory
  std::set<std::string> watched_;
  std::set<std::string> unlisted_;  // could not be listed in this scan: nothing in them counts as absent
  std::vector<Fresh> fresh_;
  std::set<std::pair<uint64_t, uint64_t>> fresh_inodes_;  // two links to one file are one
  CopyWatch copies_;
  std::vector<std::pair<StreamId, port::FileStat>> grown_copies_;
  std::set<std::string> around_;  // directories that are about to be listed
  std::set<std::string> logged_;
  std::map<std::string, std::string> staying_;  // path -> reason, at most kStayingMax
  uint64_t staying_total_ = 0;
  bool scanning_ = false;
  uint64_t scan_ = 0;
  bool started_ = false;
};

}  // namespace ph::agent
