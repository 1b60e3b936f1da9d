// GenerationTable: all generations the agent knows, found by id or by inode, and the few ways in which one begins and
// ends. Parts: what the agent's rooms-within-the-room share; the agent wires them once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "service/agent/agent.h"
#include "service/agent/generation.h"

namespace ph::agent {

class GenerationTable;
class Ledger;
class Retirement;
class Scanner;
class SourceReader;

struct Parts {
  AgentOptions options;
  port::Loop& loop;
  port::DiskQueue& disk;
  port::Files& files;
  port::KeyedStore& store;
  port::DeadLetters& dead_letters;
  NodeId node;
  uint64_t boot = 0;             // hash of options.boot_id; 0: unknown
  bool stopped_cleanly = false;  // last time
  bool running = false;          // start() is through and stop() was not called
  AgentStats stats{};
  std::vector<std::vector<AgentSource*>> sources_of_route{};
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);  // posted tasks outlive us at shutdown

  GenerationTable* table = nullptr;
  Ledger* ledger = nullptr;
  Retirement* retirement = nullptr;
  Scanner* scanner = nullptr;
  SourceReader* reader = nullptr;

  /// The entry of a category; null: none matches.
  const CategoryOptions* options_of(std::string_view category) const;
  bool tails(const Generation& g) const { return g.options ? g.options->tail : options.tail; }
  /// Absolute path of an entry.
  std::string path(std::string_view directory, std::string_view name) const;
  std::string path(const Generation& g) const { return path(g.directory, g.name); }
  /// Runs `task` on the loop unless the agent is gone by then.
  void post(port::Task task);
};

/// Where a file was found and what that makes of it.
struct Place {
  std::string directory;
  std::string name;
  std::string lane;
  std::string category;
};

/// More files than this are not tracked: they stay, and the scan says so.
inline constexpr size_t kGenerationsMax = 200'000;

class GenerationTable {
 public:
  explicit GenerationTable(Parts& parts) : parts_(parts) {}

  /// Takes a stored generation in; its cursors begin as stored (by target), new targets at 0.
  Generation& load(GenerationRecord record, std::map<std::string, CursorRecord> cursors);
  /// A file not seen before: a new id, cursors at 0.
  Generation& create(Place place, const port::FileStat& stat);
  /// The file of `old` holds other content now: `old` ends, what was not handed out is dropped and counted in bytes.
  Generation& replace(Generation& old, const port::FileStat& stat);
  /// Whether a truncated generation can live on in a copy of its bytes: nobody was told that it is over, and the copy
  /// has all that was handed out.
  bool can_move(const Generation& truncated, const port::FileStat& copy) const;
  /// The generation lives on in a copy of its bytes, as if it had been renamed: under its ids, with all that is in
  /// flight. What was counted as dropped and is in the copy is not.
  void move_to_copy(Generation& truncated, Place place, const port::FileStat& stat);
  /// A file not seen before that holds the bytes of `original` and can't take it over: its cursors begin where that was
  /// read to.
  Generation& create_copy(Place place, const port::FileStat& stat, Generation& original);
  /// No byte can be read any more. What was handed out may still be settled; the rest is dropped and counted in bytes.
  void end(Generation& g);
  /// After a power cut: cursors go back to what the file still has, under new stream ids. What a receiver may have been
  /// sent behind them will come again: its lines are counted, in the write that makes the new ids durable. An error:
  /// the file could not be read, and nothing has changed.
  Result<> renew_all(Generation& g, uint64_t size);
  /// Forgets a generation whose records are gone from the store.
  void erase(StreamId id);

  Generation* find(StreamId id);
  Generation* by_inode(uint64_t device, uint64_t inode);
  bool lane_known(const std::string& lane) const { return lanes_.contains(lane); }
  size_t lane_size(const std::string& lane) const {
    auto it = lanes_.find(lane);
    return it == lanes_.end() ? 0 : it->second.size();
  }
  template <class Visit>
  void each_in_lane(const std::string& lane, Visit visit) const {
    if (auto it = lanes_.find(lane); it != lanes_.end())
      for (Generation* g : it->second) visit(*g);
  }
  size_t size() const { return generations_.size(); }
  /// In no particular order. `visit` must not add or erase.
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [id, g] : generations_) visit(*g);
  }

  /// The file is this long now and still the same: wakes who can read on.
  void grown(Generation& g, uint64_t size);
  /// Wakes the sources for which the generation has data.
  void wake(Generation& g);

 private:
  struct Inode {
    uint64_t device;
    uint64_t inode;
    bool operator==(const Inode&) const = default;
  };
  struct InodeHash {
    size_t operator()(const Inode& i) const noexcept {
      return std::hash<uint64_t>{}(i.inode * 0x9E3779B97F4A7C15 ^ i.device);
    }
  };
  Generation& add(std::unique_ptr<Generation> g);
  Generation& add_new(Place place, const port::FileStat& stat);
  void begin_at(Generation& g, uint64_t position);
  void recover(Cursor& c, uint64_t copy_size);
  void attach(Generation& g) { by_inode_[{g.identity.device, g.identity.inode}] = &g; }
  void detach(Generation& g);
  /// What was in flight below `end` when the process ended cannot be read again: counted as dropped. (A receiver may
  /// have it; nobody can tell any more.)
  void abandon(Cursor& c, uint64_t end);

  Parts& parts_;
  std::unordered_map<StreamId, std::unique_ptr<Generation>> generations_;
  std::unordered_map<Inode, Generation*, InodeHash> by_inode_;
  std::unordered_map<std::string, std::vector<Generation*>> lanes_;
  uint64_t next_order_ = 1;
};

inline Identity identity_of(const port::FileStat& stat) {
  return {stat.device, stat.inode, stat.birth_ns};
}

}  // namespace ph::agent
