// Resolver: host names to addresses without stopping the loop. The C library's lookup waits as long as it likes (a dead
// name server: many seconds) and cannot be cancelled, so each runs on a thread of its own that is never joined: neither
// another name nor the end of the process waits for it. Owned by a LoopState, used on its thread. Internal to this
// room.
//
// Bounds: one lookup a name at a time, whoever asks meanwhile shares its answer; kLookupsMax at once, further names
// wait; kLookupWaitersMax askers, more are refused. Who asks has its own time limit.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace ph::io {

struct LoopState;

inline constexpr size_t kLookupsMax = 8;
inline constexpr size_t kLookupWaitersMax = 4096;
inline constexpr size_t kAddressesMax = 16;  // of one name; further ones are not tried

using Addresses = std::vector<boost::asio::ip::address>;

class Resolver {
 public:
  using Answer = std::move_only_function<void(const Result<Addresses>&)>;
  /// The lookup itself; tests put a slow one in its place.
  using Lookup = std::function<Result<Addresses>(const std::string& host)>;

  explicit Resolver(LoopState& loop);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  /// Calls `answer` later, on the loop.
  void resolve(const std::string& host, Answer answer);
  void replace_lookup(Lookup lookup) { lookup_ = std::move(lookup); }

 private:
  /// What a lookup's thread finds when it is done: the loop, if there still is one.
  struct Gate {
    std::mutex mutex;
    Resolver* resolver;
    LoopState* loop;
  };
  void start(const std::string& host);
  void finished(const std::string& host, const Result<Addresses>& found);

  std::shared_ptr<Gate> gate_;
  Lookup lookup_;
  std::map<std::string, std::vector<Answer>> waiting_;  // askers of each name that is looked up or queued
  std::deque<std::string> queued_;
  size_t running_ = 0;
  size_t waiters_ = 0;
};

/// getaddrinfo, here and now. Errors: net.name.
Result<Addresses> look_up(const std::string& host);

}  // namespace ph::io
