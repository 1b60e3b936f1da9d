// IoDiskQueue: the disk thread. Jobs run one at a time in the order given; `done` is posted to the loop after its job.
// Everything that waits for a disk (fsync, synced store writes) runs here, so that a loop never does.
//
// Shutdown: the destructor runs every job that was given, then joins. The `done`s posted meanwhile run only if the loop
// still does. Bounds: none refuses a job, because each stands for data somebody waits for; its users keep one group in
// flight. Above kDiskBacklogTold waiting jobs the disk does not keep up, which is counted and logged.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "port/loop.h"

namespace ph::io {

inline constexpr size_t kDiskBacklogTold = 1024;

class IoDiskQueue final : public port::DiskQueue {
 public:
  /// `loop` must outlive the queue.
  explicit IoDiskQueue(port::Loop& loop);
  ~IoDiskQueue() override;
  IoDiskQueue(const IoDiskQueue&) = delete;
  IoDiskQueue& operator=(const IoDiskQueue&) = delete;

  /// From any thread.
  void run(port::Task job, port::Task done) override;

  /// Runs every job that was given, then ends the thread; no job may be given any more. For an owner whose jobs refer
  /// to things that go before the queue does. Idempotent.
  void finish();

  /// Jobs given and not yet finished; from any thread.
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  uint64_t backlogs() const { return backlogs_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    port::Task job;
    port::Task done;
  };
  void work();

  port::Loop& loop_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Entry> entries_;
  bool ending_ = false;
  std::atomic<size_t> waiting_{0};
  std::atomic<uint64_t> backlogs_{0};
  std::thread thread_;
};

}  // namespace ph::io
