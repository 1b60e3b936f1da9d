// Agent: reads producers' files in place and offers them as event sources, one per (route, target). The files are the
// spool: there is no second copy, only cursors. First station of a line's way; behind it stand upstreams and sinks.
//
//   scan          finds files and tells generations apart          scanner.h
//   source        one target's view: fair, in order, counted       agent_source.h
//   reader        bytes of a generation into blocks, verified      source_reader.h
//   ledger        generations, cursors and counters on disk        ledger.h
//   retirement    rotation, the proof that nobody writes, deletion retirement.h
//
// A target's cursor never waits for another's. Owned by the event plane's loop; only store writes, directory syncs and
// dead letters run on the disk thread. Bounds: open descriptors, memory for one block while reading, and what
// AgentStats counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "core/agent/line_packer.h"
#include "core/agent/multiline.h"
#include "port/dead_letters.h"
#include "port/event_source.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "port/loop.h"

namespace ph::agent {

struct TargetOptions {
  std::string name;
  bool wants_far = false;  // deleted only when durable at the end of its way
  /// Of a lane that is behind: so many batches of its youngest file for each one of what is older; 0: in order alone.
  uint32_t live_share = 3;
};
struct RouteOptions {
  std::string name;
  std::vector<TargetOptions> targets;
};

/// How a category's files are read.
struct CategoryOptions {
  std::vector<std::string> masks;              // the first entry with a matching mask counts
  bool tail = false;                           // somebody else rotates and deletes: nothing is touched
  std::shared_ptr<const Multiline> multiline;  // null: a line is an event
};

struct AgentOptions {
  std::string directory;  // absolute, without a trailing slash
  size_t line_max = limits::kLineMaxDefault;
  Oversize oversize = Oversize::split;
  uint64_t rotate_bytes = 1'000'000;                // larger: rotated
  Duration rotate_age = std::chrono::seconds(60);   // known longer: rotated
  Duration grace = std::chrono::seconds(1);         // between rotation and the first try to delete; at least 1 s
  Duration rescan = std::chrono::seconds(30);       // finds what notifications missed
  Duration poll = std::chrono::seconds(1);          // for directories that cannot be watched
  Duration flush = std::chrono::milliseconds(500);  // cursors are on disk this long after they moved, at the latest
  size_t descriptors_max = 64;
  std::vector<std::string> include;  // masks of paths below the directory, or of names; empty: all
  std::vector<std::string> exclude;  // likewise
  bool tail = false;                 // of categories that no entry matches
  std::vector<CategoryOptions> categories;
  std::string boot_id;  // of the running kernel; empty: unknown, taken as never rebooted
  std::vector<RouteOptions> routes;
  /// The route (index) of a category; nullopt: none, the file stays.
  std::function<std::optional<size_t>(std::string_view category)> route_of;
  /// Where reading of a file begins that is seen for the first time; empty: at 0. For what another program has
  /// delivered of it (`posthouse migrate`).
  std::function<uint64_t(const std::string& path, const port::FileStat& stat)> begins_at;
};

/// Makes the watcher of the source directory; its callback runs on the loop. An empty factory: every directory is
/// polled.
using WatcherFactory = std::function<Result<std::unique_ptr<port::Watcher>>(port::WatchFn)>;

/// A file that stays, and why.
struct StayingFile {
  std::string path;
  std::string reason;
};

struct AgentStats {
  // now
  uint64_t generations = 0;
  uint64_t descriptors = 0;
  uint64_t directories_watched = 0;
  uint64_t directories_polled = 0;
  uint64_t rotated_waiting = 0;  // files in the hidden directory
  uint64_t held_lanes = 0;       // what a target holds: files of one name with their rotations, or of one directory
  // since start
  uint64_t scans = 0;
  uint64_t overflows = 0;             // notifications lost
  uint64_t rotated = 0;               // renamed into the hidden directory
  uint64_t deleted = 0;               // unlinked with proof
  uint64_t drained_after_unlink = 0;  // a writer was waiting while we unlinked; its bytes were read from the descriptor
  uint64_t renamed = 0;               // by producers, followed
  uint64_t truncated = 0;             // same file, other content: a new generation
  uint64_t copies = 0;                // of copy-truncate: read on where the original was read to
  uint64_t replaced = 0;              // inode used again by another file
  uint64_t power_cuts = 0;            // generations continued under new stream ids
  uint64_t vanished = 0;              // deleted by others before they were delivered
  uint64_t renewed = 0;               // streams renewed because a receiver knew more than this node
  uint64_t newline_added = 0;
  uint64_t joined_events = 0;     // of several lines
  uint64_t locked_waits = 0;      // a "_big" file that its writer had locked was read later,
  uint64_t locked_too_long = 0;   // or without the lock, after kLockPatience
  uint64_t taken_back_bytes = 0;  // read, held by the target, and to be read again
  uint64_t oversize_lines = 0;
  uint64_t oversize_bytes = 0;  // of those, not delivered
  uint64_t dropped_bytes = 0;   // truncated or deleted before they were read, summed over targets
  uint64_t read_failures = 0;
  uint64_t store_failures = 0;
  uint64_t dead_letter_failures = 0;
  uint64_t records_damaged = 0;  // stored records that could not be read
  /// At most kStayingMax: bad category, no route, unreadable (as of the latest scan); no proof, held (as last tried).
  std::vector<StayingFile> staying;
  uint64_t staying_total = 0;
};
inline constexpr size_t kStayingMax = 100;

class Agent {
 public:
  /// Loads what is stored, looks at every file and verifies the known ones. What is passed by reference must outlive
  /// the agent. Errors: file.* when the source directory cannot be listed, agent.newer_version, store.*.
  static Result<std::unique_ptr<Agent>> open(AgentOptions options, port::Loop& loop, port::DiskQueue& disk,
                                             port::Files& files, WatcherFactory watcher, port::KeyedStore& store,
                                             port::DeadLetters& dead_letters, NodeId node);
  virtual ~Agent() = default;

  /// One per route and target, in the order of the options. They live as long as the agent.
  virtual std::vector<port::EventSource*> sources() = 0;
  /// Begins to watch, hand out, rotate and delete.
  virtual void start() = 0;
  /// Hands out nothing more and writes everything down; `done` runs on the loop once that is on disk.
  virtual void stop(port::Task done) = 0;
  virtual AgentStats stats() const = 0;
};

}  // namespace ph::agent
