// IoJobPool: port::JobPool on a few threads of lower priority, so that hashing passwords does not slow down the loops.
//
// Bound: at most `waiting_max` jobs wait; further ones are refused and counted. The destructor ends the jobs at work,
// drops those that wait (their `done` with them) and joins; every loop that was named must still be there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "port/crypto.h"

namespace ph::io {

class IoJobPool final : public port::JobPool {
 public:
  IoJobPool(size_t threads, size_t waiting_max);
  ~IoJobPool() override;
  IoJobPool(const IoJobPool&) = delete;
  IoJobPool& operator=(const IoJobPool&) = delete;

  /// From any thread.
  bool run(port::Task job, port::Loop& loop, port::Task done) override;
  /// Ends as the destructor does; jobs given later are refused.
  void finish();

  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    port::Task job;
    port::Loop* loop = nullptr;
    port::Task done;
  };
  void work();

  const size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Entry> entries_;
  bool ending_ = false;
  std::atomic<size_t> waiting_{0};
  std::atomic<uint64_t> refused_{0};
  std::vector<std::thread> threads_;
};

}  // namespace ph::io
