// SharedGroup: the members of one shared subscription ($share/<group>/<filter>, $queue/<filter>) as one broker worker
// knows them, and the choice of who gets a message. Every worker has a copy, kept equal by what workers announce
// (service/broker/docs/shared.md); it hangs on the filter's node in the filter index.
//
// Members that are online come first: one that is offline is chosen only if all are. A choice costs a step for
// round_robin, random and sticky, and one look at each member for the others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"

namespace ph::routing {

enum class SharedStrategy : uint8_t {
  round_robin,    // in turns, of each worker that routes
  random,         //
  sticky,         // the same one until it goes
  hash_clientid,  // by the publisher's client id; moves only what has to move when members change
  hash_topic,     // by the topic, likewise
  local,          // in turns among those on the routing worker, if there are any
};

/// The filter as it was subscribed, with its group: what names a shared subscription everywhere.
using SharedKey = std::shared_ptr<const std::string>;

struct SharedMember {
  uint64_t uid = 0;  // of the session
  uint32_t worker = 0;
};

class SharedGroup {
 public:
  struct Circumstances {
    uint32_t worker = 0;  // that chooses
    ByteView client_id;   // of the publisher; empty if there is none
    ByteView topic;
  };

  /// `turn`: where turns begin; differs from worker to worker, so that all together are even.
  explicit SharedGroup(SharedKey key, uint64_t turn = 0) : key_(std::move(key)), turn_(turn) {}
  const SharedKey& key() const { return key_; }

  /// Adds the member or changes what is known of it.
  void set(SharedMember member, bool online);
  void remove(uint64_t uid);
  const SharedMember* find(uint64_t uid) const;
  bool empty() const { return members_.empty(); }
  size_t size() const { return members_.size(); }
  size_t online() const { return online_; }

  /// Who gets the next message; null without members. Valid until the next change.
  const SharedMember* choose(SharedStrategy strategy, const Circumstances& at, Random& random);

 private:
  void swap(size_t a, size_t b);
  const SharedMember& by_hash(ByteView of, size_t candidates) const;
  const SharedMember& by_turn(size_t candidates);

  SharedKey key_;
  std::vector<SharedMember> members_;  // [0, online_): online
  std::unordered_map<uint64_t, size_t> at_;
  size_t online_ = 0;
  uint64_t turn_;
  uint64_t stuck_to_ = 0;
};

}  // namespace ph::routing
