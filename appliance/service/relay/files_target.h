// FilesTarget: moves a source's events into this node's files: source -> FilesSink -> one commit with the source's
// cursor. So a chunk and the cursor behind it cannot disagree, and a crash repeats nothing. A stream whose category has
// something else standing in the place of its files, or no room left in its quota, waits until that is over: its source
// takes it back, or it waits here. Other streams go on, as long as what waits here is less than kWaitingBytes. While
// the disk has no room, nothing is taken from the source.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "port/event_source.h"
#include "port/loop.h"
#include "store/chunk/files_sink.h"
#include "store/commit/committer.h"

namespace ph::relay {

class FilesTarget {
 public:
  static constexpr size_t kGroupBytes = 1024 * 1024;  // taken for one commit
  static constexpr size_t kWaitingBytes = 1024 * 1024;
  static constexpr Duration kRetryAfter = std::chrono::seconds(1);

  FilesTarget(port::EventSource& source, chunk::FilesSink& sink, commit::Committer& committer, port::Loop& loop);
  ~FilesTarget();
  void start();

 private:
  void pump();
  bool place(port::Batch batch);
  void resume_held();
  std::string blocked(const port::Batch& batch) const;
  void write();
  void soon();

  port::EventSource& source_;
  chunk::FilesSink& sink_;
  commit::Committer& committer_;
  port::Loop& loop_;
  std::vector<port::Batch> group_;  // being written; kept until durable, so that a failed commit is made again
  std::set<std::pair<StreamId, uint64_t>> refused_;  // blocks of the group: stream and first position
  port::WriteBatch entries_;
  std::vector<port::Batch> waiting_;  // the cursor has not passed these
  std::set<StreamId> waiting_streams_;
  std::map<StreamId, std::string> held_;  // their source has back what it gave of them; the category that is blocked
  size_t waiting_bytes_ = 0;
  std::unique_ptr<port::Timer> retry_;
  std::unique_ptr<port::Timer> look_again_;
  bool posted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
