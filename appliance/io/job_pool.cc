#include "io/job_pool.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace ph::io {
namespace {

constexpr int kNice = 5;

}  // namespace

IoJobPool::IoJobPool(size_t threads, size_t waiting_max) : waiting_max_(waiting_max) {
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
    pthread_setname_np(threads_.back().native_handle(), "posthouse-jobs");
  }
}

IoJobPool::~IoJobPool() {
  finish();
}

void IoJobPool::finish() {
  std::deque<Entry> dropped;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    dropped.swap(entries_);
  }
  more_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

bool IoJobPool::run(port::Task job, port::Loop& loop, port::Task done) {
  {
    std::lock_guard lock(mutex_);
    if (ending_ || entries_.size() >= waiting_max_) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    entries_.push_back({std::move(job), &loop, std::move(done)});
    waiting_.store(entries_.size(), std::memory_order_relaxed);
  }
  more_.notify_one();
  return true;
}

void IoJobPool::work() {
  // Of this thread alone, which is Linux's meaning of it.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [this] { return ending_ || !entries_.empty(); });
    if (ending_) return;
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    waiting_.store(entries_.size(), std::memory_order_relaxed);
    lock.unlock();
    entry.job();
    entry.job = nullptr;
    entry.loop->post(std::move(entry.done));
    lock.lock();
  }
}

}  // namespace ph::io
