// Flapping: clients that connect and disconnect all the time. A client id whose connections end `count_max` times
// within `window` is reported once, and is then counted anew. One table per worker, for the client ids whose home it
// is. Bound: kFlappingMax client ids; when that is full and none is over, further ones are not watched.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/time.h"

namespace ph::security {

inline constexpr size_t kFlappingMax = 100'000;

struct FlappingLimits {
  bool enabled = false;
  uint32_t count_max = 15;
  Duration window = std::chrono::minutes(1);
};

class Flapping {
 public:
  /// A connection of this client has ended. True: it flaps.
  bool ended(const std::string& client_id, const FlappingLimits& limits, Instant now) {
    if (!limits.enabled) return false;
    if (clients_.size() >= kFlappingMax && !clients_.contains(client_id)) {
      sweep(limits, now);
      if (clients_.size() >= kFlappingMax) return false;
    }
    Entry& entry = clients_[client_id];
    if (entry.count == 0 || now - entry.since >= limits.window) entry = {now, 0};
    if (++entry.count < limits.count_max) return false;
    clients_.erase(client_id);
    return true;
  }
  /// Forgets whose window is over.
  void sweep(const FlappingLimits& limits, Instant now) {
    std::erase_if(clients_, [&](const auto& c) { return now - c.second.since >= limits.window; });
  }
  size_t size() const { return clients_.size(); }

 private:
  struct Entry {
    Instant since{};
    uint32_t count = 0;
  };
  std::unordered_map<std::string, Entry> clients_;
};

}  // namespace ph::security
