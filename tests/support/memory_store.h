// MemoryStore: a KeyedStore in memory that knows which batches are durable: a power cut takes back the unsynced tail.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "port/keyed_store.h"

namespace ph::test {

class MemoryStore : public port::KeyedStore {
 public:
  Result<std::optional<std::string>> get(ByteView key) override {
    std::lock_guard lock(mutex_);
    auto it = now_.find(key);
    if (it == now_.end()) return std::nullopt;
    return it->second;
  }
  Result<> scan_from(ByteView prefix, ByteView from, const std::function<bool(ByteView, ByteView)>& visit) override {
    std::string at(from);
    while (true) {  // in steps: a visitor that stops early pays for what it has seen only
      std::map<std::string, std::string, std::less<>> copy;
      {
        std::lock_guard lock(mutex_);
        for (auto it = now_.lower_bound(at); it != now_.end() && it->first.starts_with(prefix); ++it) {
          copy.insert(*it);
          if (copy.size() == 64) break;
        }
      }
      for (const auto& [key, value] : copy)
        if (!visit(key, value)) return {};
      if (copy.size() < 64) return {};
      at = copy.rbegin()->first + '\0';
    }
  }
  Result<> write(const port::WriteBatch& batch, bool synced) override {
    if (before_write) before_write();
    std::lock_guard lock(mutex_);
    if (fail_writes) return fail("store.failed", "injected");
    apply(now_, batch);
    unsynced_.push_back(batch);
    ++writes;
    if (synced) {
      for (const auto& b : unsynced_) apply(durable_, b);
      unsynced_.clear();
      ++syncs;
    }
    return {};
  }

  /// Power cut: a random prefix of the unsynced batches survives, the rest is gone.
  void cut_power(Random& random) {
    std::lock_guard lock(mutex_);
    size_t keep = random.below(unsynced_.size() + 1);
    for (size_t i = 0; i < keep; ++i) apply(durable_, unsynced_[i]);
    unsynced_.clear();
    now_ = durable_;
  }

  size_t size() const { return now_.size(); }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [k, v] : now_) sum += k.size() + v.size();
    return sum;
  }

  bool fail_writes = false;
  std::function<void()> before_write;  // may throw SimulatedCrash
  uint64_t writes = 0;
  uint64_t syncs = 0;

 private:
  using Map = std::map<std::string, std::string, std::less<>>;
  static void apply(Map& map, const port::WriteBatch& batch) {
    for (const auto& e : batch.entries()) {
      if (e.value)
        map[e.key] = *e.value;
      else
        map.erase(e.key);
    }
  }
  mutable std::mutex mutex_;
  Map now_;
  Map durable_;
  std::vector<port::WriteBatch> unsynced_;
};

}  // namespace ph::test
