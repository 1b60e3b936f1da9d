// LevelTree: topic levels as a tree, shared by the filter index and the retained index. A worker owns each one.
//
// One hash table holds all edges, keyed by (parent, level), so a node with a million children costs a step like any
// other, and a node is 64 bytes without a map of its own. Children are also linked, for the walk that a wildcard makes
// over stored topics. Nodes are numbers, so they stay valid while others come and go; node 0 is the root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace ph::routing {

using NodeIndex = uint32_t;
inline constexpr NodeIndex kNone = 0xFFFFFFFF;
inline constexpr NodeIndex kRoot = 0;

/// Takes the first level off `rest`; `more` says whether another follows, also an empty one.
inline ByteView take_level(ByteView& rest, bool& more) {
  const size_t slash = rest.find('/');
  more = slash != ByteView::npos;
  ByteView level = rest.substr(0, slash);
  rest = more ? rest.substr(slash + 1) : ByteView{};
  return level;
}

class LevelTree {
 public:
  LevelTree();

  /// The children "+" and "#", or kNone: without a look-up.
  NodeIndex plus(NodeIndex parent) const { return nodes_[parent].plus; }
  NodeIndex hash_sign(NodeIndex parent) const { return nodes_[parent].hash_sign; }
  /// The child of that name, or kNone.
  NodeIndex child(NodeIndex parent, ByteView level) const;
  /// The node of a path, or kNone.
  NodeIndex find(ByteView path) const;
  /// The node of a path, made with all its parents where missing.
  NodeIndex insert(ByteView path);
  /// Removes the node and then its parents, as long as they have neither children nor a payload (payload() is kNone).
  void prune(NodeIndex node);

  ByteView level(NodeIndex node) const { return nodes_[node].level; }
  NodeIndex first_child(NodeIndex node) const { return nodes_[node].first_child; }
  NodeIndex next_sibling(NodeIndex node) const { return nodes_[node].next; }
  /// What the owner keeps for a node: an index of its own, kNone for nothing.
  uint32_t payload(NodeIndex node) const { return nodes_[node].payload; }
  void set_payload(NodeIndex node, uint32_t payload) { nodes_[node].payload = payload; }
  /// Levels from the root joined by '/'.
  std::string path(NodeIndex node) const;

  size_t size() const { return used_; }  // nodes, without the root

 private:
  struct Node {
    std::string level;
    NodeIndex parent = kNone;  // of a free node: the next free one
    NodeIndex first_child = kNone;
    NodeIndex next = kNone;
    NodeIndex previous = kNone;
    uint32_t hash = 0;
    uint32_t payload = kNone;
    NodeIndex plus = kNone;
    NodeIndex hash_sign = kNone;
  };
  NodeIndex* wildcard_child(NodeIndex parent, ByteView level);

  static uint32_t hash(NodeIndex parent, ByteView level);
  NodeIndex add(NodeIndex parent, ByteView level, uint32_t hash);
  void remove(NodeIndex node);
  void table_insert(NodeIndex node);
  void table_erase(NodeIndex node);
  void grow();

  std::vector<Node> nodes_;
  NodeIndex free_ = kNone;
  size_t used_ = 0;
  std::vector<NodeIndex> table_;  // open addressing, linear probing, at most three quarters full
};

}  // namespace ph::routing
