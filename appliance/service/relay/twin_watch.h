// TwinWatch: notices that two nodes go by one node id, as after a data_dir was copied. Each start of a node has a new
// incarnation, and none comes back: one that does belongs to another process that is alive as well. Owned by
// LinkServer.
//
// Bounds: kNodesMax ids, the one heard of longest ago goes first; kIncarnations of each.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace ph::relay {

struct Twins {
  NodeId node;
  std::string one, other;  // "name at address"
};

class TwinWatch {
 public:
  static constexpr size_t kNodesMax = 10'000;
  static constexpr size_t kIncarnations = 4;
  static constexpr Duration kRemembered = std::chrono::minutes(2);  // after the last time that they took turns

  /// A node has introduced itself. True: another one of this id is alive, for the first time in a while.
  bool note(const NodeId& node, uint64_t incarnation, std::string who, Instant now) {
    if (nodes_.size() >= kNodesMax && !nodes_.contains(node)) forget_oldest();
    Heard& heard = nodes_[node];
    heard.at = now;
    auto& known = heard.known;
    const auto found = std::ranges::find(known, incarnation, &Process::incarnation);
    const bool back = found != known.end() && found != known.begin();
    const bool news = back && (heard.twin_at == Instant{} || now - heard.twin_at > kRemembered);
    if (back) heard.twin_at = now;
    if (found != known.end()) known.erase(found);
    known.insert(known.begin(), {incarnation, std::move(who)});
    if (known.size() > kIncarnations) known.pop_back();
    return news;
  }

  std::vector<Twins> twins(Instant now) const {
    std::vector<Twins> out;
    for (const auto& [node, heard] : nodes_)
      if (heard.twin_at != Instant{} && now - heard.twin_at <= kRemembered)
        out.push_back({node, heard.known[0].who, heard.known[1].who});
    return out;
  }

 private:
  struct Process {
    uint64_t incarnation;
    std::string who;
  };
  struct Heard {
    std::vector<Process> known;  // the last one that spoke first
    Instant at{};
    Instant twin_at{};
  };
  void forget_oldest() {
    const auto oldest = std::ranges::min_element(nodes_, {}, [](const auto& entry) { return entry.second.at; });
    if (oldest != nodes_.end()) nodes_.erase(oldest);
  }
  std::map<NodeId, Heard> nodes_;
};

}  // namespace ph::relay
