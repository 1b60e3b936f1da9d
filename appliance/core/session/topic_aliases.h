// TopicAliases: the topic aliases of one connection towards its client (section 3.3.2.3.4). The first topics that come
// get one each; when all are given out, a topic takes the one that has not been used for longest, if that was long ago:
// a client with more topics than aliases must not get a new alias with every message.
//
// Lives in the session while a client is attached; the steady state allocates nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace ph::session {

class TopicAliases {
 public:
  static constexpr size_t kMax = 256;       // a look at each per message: more would cost more than they save
  static constexpr size_t kTopicMin = 6;    // a shorter topic costs less than its alias
  static constexpr uint64_t kIdleUses = 8;  // times the number of aliases: how many messages make an alias free

  explicit TopicAliases(uint16_t max) : max_(std::min<size_t>(max, kMax)) {}

  struct Use {
    uint16_t alias = 0;  // 0: none
    bool known = false;  // the client has it: the topic may be left out
  };
  Use use(ByteView topic) {
    if (topic.size() < kTopicMin) return {};
    ++uses_;
    size_t oldest = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].topic == topic) {
        slots_[i].used = uses_;
        return {static_cast<uint16_t>(i + 1), true};
      }
      if (slots_[i].used < slots_[oldest].used) oldest = i;
    }
    if (slots_.size() < max_) {
      slots_.push_back({std::string(topic), uses_});
      return {static_cast<uint16_t>(slots_.size()), false};
    }
    if (slots_.empty() || uses_ - slots_[oldest].used < kIdleUses * max_) return {};
    slots_[oldest].topic = topic;
    slots_[oldest].used = uses_;
    return {static_cast<uint16_t>(oldest + 1), false};
  }

 private:
  struct Slot {
    std::string topic;
    uint64_t used = 0;
  };
  size_t max_;
  uint64_t uses_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace ph::session
