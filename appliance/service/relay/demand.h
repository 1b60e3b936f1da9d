// Demand: which topics the far ends of this node's upstreams want, as they last said: what a route with
// `when = "subscribed"` is asked by. The event plane's loop writes it; any thread asks it.
//
// Nothing is left out without a word: an upstream with an address that never answered, or whose node cannot tell, wants
// everything. What was told is kept through outages and restarts until the address says something else, so a session
// that waits at the far end counts while the link is down.
//
// Store, i/<sized upstream><sized address>: u8 version 1, sized site, then an INTEREST frame (codec/link/frames.h).
// Written within kPersistAfter of a change; older knowledge after a crash is corrected when the link is up again. An
// entry that is damaged or newer counts as never told.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/link/frames.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "store/commit/committer.h"

namespace ph::relay {

using InterestEntries = std::set<link::Interest::Entry>;

class Demand {
 public:
  static constexpr Duration kPersistAfter = std::chrono::seconds(1);
  static constexpr Duration kRebuildAfter = std::chrono::milliseconds(50);

  struct Upstream {
    std::string name;
    std::vector<std::string> addresses;
  };
  struct Address {
    std::string name;
    bool known = false;                // else everything is wanted there
    std::string site;                  // empty: never heard
    std::set<std::string> categories;  // that the entries are for; of others everything is wanted
    InterestEntries entries;
    bool answering = false;  // an answer has begun and is not whole:
    std::set<std::string> coming_categories;
    InterestEntries coming;
    bool unsaved = false;
  };

  Demand(std::vector<Upstream> upstreams, port::Loop& loop, port::KeyedStore& store, commit::Committer& committer);
  ~Demand();
  Result<> load();

  // --- from upstreams, on the loop
  /// A HELLO: where the address is, and whether its node can tell what is wanted.
  void heard(const std::string& upstream, const std::string& address, const std::string& site, bool tells);
  void told(const std::string& upstream, const std::string& address, const link::Interest& interest);

  // --- any thread
  /// Of messages that are sent under the category.
  bool wants(size_t upstream, const std::string& category, std::string_view topic) const;

  // --- on the loop
  const std::vector<Address>& addresses(size_t upstream) const { return state_[upstream].addresses; }
  size_t upstreams() const { return state_.size(); }
  /// Called after something changed.
  void on_change(std::function<void()> changed) { changed_ = std::move(changed); }
  /// Filters that the upstream is known to want; nullopt: everything.
  std::optional<size_t> filters_of(const std::string& upstream) const;

 private:
  struct State {
    std::string name;
    std::vector<Address> addresses;
  };
  struct Snapshot;
  const Snapshot& snapshot() const;
  Address* find(const std::string& upstream, const std::string& address, State** of = nullptr);
  void changed(Address& address);
  void rebuild();
  void persist();

  port::Loop& loop_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  std::vector<State> state_;
  std::function<void()> changed_ = [] {};
  std::unique_ptr<port::Timer> rebuild_timer_;
  std::unique_ptr<port::Timer> persist_timer_;
  const uint64_t id_;  // of this object, for the threads' copies
  std::atomic<uint64_t> version_{0};
  mutable std::mutex mutex_;  // of snapshot_; taken by a thread once a version
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace ph::relay
