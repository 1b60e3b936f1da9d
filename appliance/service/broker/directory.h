// Directory: which worker holds a client's session, and who may touch it next. Each client id has one home worker (by
// hash), whose directory orders everything that happens to that id: a claim is granted at once or waits until the one
// before it is settled, so two connections with one client id never open, move or end a session at the same time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/bytes.h"

namespace ph::broker {

inline constexpr uint32_t kNobody = 0xFFFFFFFF;

/// A connection that wants the session of its client id.
struct Claim {
  uint32_t worker = kNobody;
  uint64_t ticket = 0;  // the worker's number for it
};

struct Granted {
  Claim claim;
  uint32_t holder = kNobody;  // where the session is; kNobody: there is none
};

class Directory {
 public:
  /// nullopt: it waits, settle() will grant it.
  std::optional<Granted> claim(const std::string& client_id, Claim claim) {
    Entry& entry = entries_[client_id];
    if (entry.busy) {
      waiting_[client_id].push_back(claim);
      return std::nullopt;
    }
    entry.busy = true;
    return Granted{claim, entry.holder};
  }

  /// The claim that was granted has done its work: `holder` has the session now, kNobody if there is none. Returns the
  /// next grant.
  std::optional<Granted> settle(const std::string& client_id, uint32_t holder) {
    auto it = entries_.find(client_id);
    if (it == entries_.end()) return std::nullopt;
    it->second.holder = holder;
    it->second.busy = false;
    auto waiting = waiting_.find(client_id);
    if (waiting == waiting_.end()) {
      if (holder == kNobody) entries_.erase(it);
      return std::nullopt;
    }
    const Claim next = waiting->second.front();
    waiting->second.pop_front();
    if (waiting->second.empty()) waiting_.erase(waiting);
    it->second.busy = true;
    return Granted{next, holder};
  }

  /// The worker's session has ended by itself. While a claim is at work, or when the session lives elsewhere by now,
  /// that is old news.
  void released(const std::string& client_id, uint32_t worker) {
    auto it = entries_.find(client_id);
    if (it != entries_.end() && !it->second.busy && it->second.holder == worker) entries_.erase(it);
  }

  /// At start: the session was there before.
  void restore(const std::string& client_id, uint32_t holder) { entries_[client_id].holder = holder; }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint32_t holder = kNobody;
    bool busy = false;
  };
  std::unordered_map<std::string, Entry> entries_;
  std::unordered_map<std::string, std::deque<Claim>> waiting_;
};

}  // namespace ph::broker
