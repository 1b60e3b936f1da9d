// FilterIndex: from topic filters to whatever hangs on them; answers which filters a topic matches. Each broker worker
// has one: its own sessions' subscriptions and the mask of other workers hang on the same node, so a PUBLISH walks
// once.
//
// Matching takes, per topic level, one look-up on each path that is still alive: its cost
// depends on levels and matches, never on how many filters there are. '#' and '+' at the first level do not match
// topics that begin with '$' [MQTT-4.7.2-1]. Filters are stored as given: who uses "$share/..." strips the group.
//
// T has a default constructor and empty(); an empty T is dropped by release().
#pragma once

#include <utility>
#include <vector>

#include "core/routing/level_tree.h"

namespace ph::routing {

template <class T>
class FilterIndex {
 public:
  struct Place {
    NodeIndex node;
    T& value;
  };

  /// What hangs on the filter, made where missing. The reference lives until the next insert(); the node until a
  /// release() that finds it empty.
  Place insert(ByteView filter) {
    const NodeIndex node = tree_.insert(filter);
    if (tree_.payload(node) == kNone) {
      if (free_.empty()) {
        tree_.set_payload(node, static_cast<uint32_t>(values_.size()));
        values_.emplace_back();
      } else {
        tree_.set_payload(node, free_.back());
        free_.pop_back();
      }
      ++filters_;
    }
    return {node, values_[tree_.payload(node)]};
  }

  T* find(ByteView filter) {
    const NodeIndex node = tree_.find(filter);
    return node == kNone ? nullptr : at(node);
  }
  NodeIndex node_of(ByteView filter) const { return tree_.find(filter); }

  /// What hangs on a node from insert(); null if nothing does.
  T* at(NodeIndex node) {
    const uint32_t payload = tree_.payload(node);
    return payload == kNone ? nullptr : &values_[payload];
  }

  /// To be called after something was taken away from a node: drops the node if nothing is left there.
  void release(NodeIndex node) {
    const uint32_t payload = tree_.payload(node);
    if (payload == kNone || !values_[payload].empty()) return;
    values_[payload] = T();
    free_.push_back(payload);
    tree_.set_payload(node, kNone);
    tree_.prune(node);
    --filters_;
  }

  std::string filter(NodeIndex node) const { return tree_.path(node); }
  size_t size() const { return filters_; }

  /// Calls visit(filter) for each filter, in no promised order, until it returns false.
  template <class Visit>
  void for_each_filter(Visit&& visit) const {
    walk_all(kRoot, visit);
  }

  /// Calls visit(T&) once for each filter that the topic matches, in no promised order. `visit` must not change the
  /// index.
  template <class Visit>
  void match(ByteView topic, Visit&& visit) {
    if (filters_ == 0) return;
    walk(kRoot, topic, topic.starts_with('$'), visit);
  }

 private:
  template <class Visit>
  bool walk_all(NodeIndex node, Visit& visit) const {
    if (tree_.payload(node) != kNone && !visit(tree_.path(node))) return false;
    for (NodeIndex child = tree_.first_child(node); child != kNone; child = tree_.next_sibling(child))
      if (!walk_all(child, visit)) return false;
    return true;
  }

  /// Depth is bounded by the deepest filter that was inserted.
  template <class Visit>
  void walk(NodeIndex node, ByteView rest, bool reserved, Visit& visit) {
    for (;;) {
      if (tree_.first_child(node) == kNone) return;
      if (!reserved) visit_node(tree_.hash_sign(node), visit);
      bool more;
      const ByteView level = take_level(rest, more);
      const NodeIndex plus = reserved ? kNone : tree_.plus(node);
      const NodeIndex exact = tree_.child(node, level);
      reserved = false;
      if (!more) {
        finish(plus, visit);
        finish(exact, visit);
        return;
      }
      if (plus != kNone && exact != kNone) {
        walk(plus, rest, false, visit);
        node = exact;
      } else if (plus != kNone) {
        node = plus;
      } else if (exact != kNone) {
        node = exact;
      } else {
        return;
      }
    }
  }

  /// The topic ends at this node: its own filter, and "#" below it, which covers its parent too.
  template <class Visit>
  void finish(NodeIndex node, Visit& visit) {
    if (node == kNone) return;
    visit_node(node, visit);
    visit_node(tree_.hash_sign(node), visit);
  }

  template <class Visit>
  void visit_node(NodeIndex node, Visit& visit) {
    if (node == kNone) return;
    const uint32_t payload = tree_.payload(node);
    if (payload != kNone) visit(values_[payload]);
  }

  LevelTree tree_;
  std::vector<T> values_;
  std::vector<uint32_t> free_;
  size_t filters_ = 0;
};

}  // namespace ph::routing
