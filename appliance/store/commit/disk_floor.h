// DiskFloor: what a file system keeps free for what cannot wait: cursors and deletions, by which a full disk empties
// again, and the store's own housekeeping, without which a node that was killed on a full disk could not start.
// Whatever takes events in (spools, received files) asks here first and stops at the reserve, so it can never take that
// room, also not in a burst; what other processes leave is what there is. One for each file system, shared by all that
// write to it.
//
// Two questions. admit(), on the disk thread with every group, is the rule: no group that would go below the reserve is
// written. room(), on the loop, is for those who can hold their events back before they come: after a refusal it says
// no until there is room for what was refused, so a full disk costs a look a second and no group that fails again.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "port/files.h"
#include "port/loop.h"

namespace ph::commit {

class DiskFloor {
 public:
  static constexpr Duration kLookEvery = std::chrono::milliseconds(200);
  static constexpr uint64_t kShareOfDisk = 4;  // a reserve is at most 1/4 of its file system

  /// `directory` exists.
  DiskFloor(port::Loop& loop, port::Files& files, std::string directory, uint64_t reserve)
      : loop_(loop), files_(files), directory_(std::move(directory)), reserve_(reserve) {}
  DiskFloor(const DiskFloor&) = delete;
  DiskFloor& operator=(const DiskFloor&) = delete;

  /// Disk thread. Error: file.no_space, `growth` more bytes would take of the reserve. A file system that cannot be
  /// asked refuses nothing: the write will tell.
  Result<> admit(uint64_t growth);
  /// Loop. Whether events may be taken in; the answer may be kLookEvery old.
  bool room();
  /// Loop. Why not, as of the last room(); nothing: there is room.
  const std::optional<std::string>& shortage() const { return shortage_; }
  /// Groups refused since the start.
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
  const std::string& directory() const { return directory_; }

 private:
  uint64_t reserve_of(const port::DiskSpace& space) const;

  port::Loop& loop_;
  port::Files& files_;
  const std::string directory_;
  const uint64_t reserve_;
  std::atomic<uint64_t> refused_growth_ = 0;  // the largest since room() last said yes
  std::atomic<uint64_t> refusals_ = 0;
  std::optional<Instant> looked_;
  std::optional<std::string> shortage_;
};

}  // namespace ph::commit
