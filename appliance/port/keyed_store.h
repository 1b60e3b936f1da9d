// KeyedStore: ordered keys, atomic batches. LevelDB with paranoid checks in io/; a map in the simulator, which loses
// unsynced batches in a crash. Small state only: cursors, ranges, sizes, counters. Key prefixes by owner:
//   n/  node identity            a/  agent: generations, cursors     r/  receiver: streams, ranges
//   f/  files sink: chunks       s/  spool: durable ends, epochs     u/  upstream: receivers used, cursors
//   c/  counters                 m/  broker: sessions, retained      x/  access: users, rules, bans
//   d/  events that were taken   i/  interest of peers in topics      l/  dead letters: what is being done with them
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::port {

/// Puts and deletes, applied in order, all or none.
class WriteBatch {
 public:
  struct Entry {
    std::string key;
    std::optional<std::string> value;  // nullopt: delete
  };
  void put(std::string key, std::string value) { entries_.push_back({std::move(key), std::move(value)}); }
  void remove(std::string key) { entries_.push_back({std::move(key), std::nullopt}); }
  void append(WriteBatch other) {
    for (auto& e : other.entries_) entries_.push_back(std::move(e));
  }
  bool empty() const { return entries_.empty(); }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// Safe to call from the loop and from the disk thread at once.
class KeyedStore {
 public:
  virtual ~KeyedStore() = default;
  virtual Result<std::optional<std::string>> get(ByteView key) = 0;
  /// Visits keys with the prefix in byte order; the visitor returns false to stop.
  Result<> scan(ByteView prefix, const std::function<bool(ByteView key, ByteView value)>& visit) {
    return scan_from(prefix, prefix, visit);
  }
  /// The same, beginning at the first key that is not below `from`, which begins with the prefix: one page of many.
  virtual Result<> scan_from(ByteView prefix, ByteView from,
                             const std::function<bool(ByteView key, ByteView value)>& visit) = 0;
  /// synced: durable when it returns (disk thread only). Otherwise ordered before every later batch, durable with it.
  virtual Result<> write(const WriteBatch& batch, bool synced) = 0;
};

}  // namespace ph::port
