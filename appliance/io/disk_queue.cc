#include "io/disk_queue.h"

#include <pthread.h>

#include "base/log.h"
#include "base/result.h"

namespace ph::io {

IoDiskQueue::IoDiskQueue(port::Loop& loop) : loop_(loop), thread_([this] { work(); }) {
  pthread_setname_np(thread_.native_handle(), "posthouse-disk");
}

IoDiskQueue::~IoDiskQueue() {
  finish();
}

void IoDiskQueue::finish() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  thread_.join();
}

void IoDiskQueue::run(port::Task job, port::Task done) {
  size_t now_waiting = waiting_.fetch_add(1, std::memory_order_relaxed) + 1;
  {
    std::lock_guard lock(mutex_);
    PH_ASSERT(!ending_, "a disk job was given while the disk queue ends");
    entries_.push_back({std::move(job), std::move(done)});
  }
  more_.notify_one();
  if (now_waiting > kDiskBacklogTold && now_waiting % kDiskBacklogTold == 1) {
    backlogs_.fetch_add(1, std::memory_order_relaxed);
    log_warn("disk_fell_behind", {{"jobs", now_waiting}});
  }
}

void IoDiskQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [this] { return ending_ || !entries_.empty(); });
    if (entries_.empty()) return;
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    entry.job();
    entry.job = nullptr;
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    if (entry.done) loop_.post(std::move(entry.done));
    lock.lock();
  }
}

}  // namespace ph::io
