// Committer: the one group commit of the event plane. Everything that must be on disk before an acknowledgement goes
// through it: many batches, few syncs.
//
// A group is what was asked for while the group before was being written. It runs in three steps:
//   on the loop        each dirty participant swaps its pending writes out (begin) and names its store entries
//   on the disk thread each participant writes and syncs its files (flush); then one synced store batch commits the
//                      entries of all participants and requests
//   on the loop        finished() to each participant, then the requests' callbacks, in order
// A group succeeds or fails whole, and a failed one takes with it what was asked for while it was being written: later
// entries build on earlier ones (a stream's ranges, a cursor), so none may become durable without those before it.
// Nothing of a failed group was acknowledged; files are rolled back to what the store says.
// A group that would take of a disk's reserve fails so, before a byte of it is written (disk_floor.h); entries alone
// are no growth: cursors move, and by that a full disk empties.
// The store's own write is no such failure: what it refused may yet turn out durable (its log is read again), so it is
// made again, every kStoreRetry, until it is taken. Until then nothing is acknowledged: that is the back-pressure.
//
// Threads: all members are called on the loop; flush() alone runs on the disk thread. Bounds: one group in flight.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "store/commit/disk_floor.h"

namespace ph::commit {

/// What a flush() will add to a file system.
struct Growth {
  DiskFloor* floor = nullptr;
  uint64_t bytes = 0;
};

class Participant {
 public:
  virtual ~Participant() = default;
  /// Loop: moves what is pending aside for flush(), and adds the store entries that make it count.
  virtual void begin(port::WriteBatch& entries) = 0;
  /// Loop, right after begin(): what taking in what was set aside costs. If that would take of the reserve, the group
  /// fails before anything is written. Housekeeping and deletions are no growth.
  virtual Growth growth() const { return {}; }
  /// Disk thread: writes and syncs what begin() set aside. On failure nothing of it may count.
  virtual Result<> flush() = 0;
  /// Disk thread, after a successful flush(): adds entries that begin() could not know (the inode of a new file).
  virtual void add_flushed(port::WriteBatch& entries) { (void)entries; }
  /// Loop: the group is durable, or failed and must be undone. After a failure elsewhere flush() may not have been
  /// called at all.
  virtual void finished(const Result<>& outcome) = 0;
};

class Committer {
 public:
  static constexpr Duration kStoreRetry = std::chrono::seconds(1);
  /// `store_floor`, where the store lies: what goes there together with growth counts as growth.
  Committer(port::Loop& loop, port::DiskQueue& disk, port::KeyedStore& store, DiskFloor* store_floor = nullptr);
  ~Committer();

  /// Says that `participant` has pending writes. Idempotent within a group.
  void touch(Participant& participant);
  /// Asks for `entries` to be committed together with what `needs` have pending now; `done` gets the outcome.
  void request(std::vector<Participant*> needs, port::WriteBatch entries,
               std::move_only_function<void(const Result<>&)> done);
  /// Asks for `entries` that stand for themselves: no file and no entry of anybody else makes them wrong, so they are
  /// written even if the rest of their group fails. `done` runs once they are durable, in the order of asking.
  void request_alone(port::WriteBatch entries, std::move_only_function<void()> done);
  /// Whether a group is being written.
  bool busy() const { return busy_; }
  uint64_t groups() const { return groups_; }
  uint64_t store_failures() const { return store_failures_; }
  /// Why the last group failed, or still waits for its store write; nothing once one succeeded.
  const std::optional<Error>& trouble() const { return trouble_; }

 private:
  struct Request {
    std::vector<Participant*> needs;
    port::WriteBatch entries;
    std::move_only_function<void(const Result<>&)> done;
    bool alone = false;
  };
  struct Group;
  void schedule();
  void launch();
  void complete(std::shared_ptr<Group> group);
  std::shared_ptr<Group> gather();

  port::Loop& loop_;
  port::DiskQueue& disk_;
  port::KeyedStore& store_;
  DiskFloor* store_floor_;
  std::vector<Participant*> dirty_;
  std::vector<Request> requests_;
  bool busy_ = false;
  bool scheduled_ = false;
  uint64_t groups_ = 0;
  uint64_t store_failures_ = 0;
  std::optional<Error> trouble_;
  std::unique_ptr<port::Timer> retry_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted tasks outlive us at shutdown
};

}  // namespace ph::commit
