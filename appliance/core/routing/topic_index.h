// TopicIndex: values by topic name, found again by topic filter: the retained messages. Owned by a broker worker.
//
// A filter without wildcards costs one look-up per level; '+' walks the children of a level, '#' everything below it.
// First-level wildcards pass by topics that begin with '$' [MQTT-4.7.2-1].
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/routing/level_tree.h"

namespace ph::routing {

template <class T>
class TopicIndex {
 public:
  T* find(ByteView topic) {
    const NodeIndex node = tree_.find(topic);
    if (node == kNone || tree_.payload(node) == kNone) return nullptr;
    return &*values_[tree_.payload(node)];
  }

  /// Sets or replaces the topic's value.
  void set(ByteView topic, T value) {
    const NodeIndex node = tree_.insert(topic);
    if (tree_.payload(node) != kNone) {
      values_[tree_.payload(node)] = std::move(value);
      return;
    }
    if (free_.empty()) {
      tree_.set_payload(node, static_cast<uint32_t>(values_.size()));
      values_.emplace_back(std::move(value));
    } else {
      tree_.set_payload(node, free_.back());
      values_[free_.back()] = std::move(value);
      free_.pop_back();
    }
    ++topics_;
  }

  bool erase(ByteView topic) {
    const NodeIndex node = tree_.find(topic);
    if (node == kNone || tree_.payload(node) == kNone) return false;
    values_[tree_.payload(node)].reset();
    free_.push_back(tree_.payload(node));
    tree_.set_payload(node, kNone);
    tree_.prune(node);
    --topics_;
    return true;
  }

  size_t size() const { return topics_; }

  /// Calls visit(T&) for each topic that the filter matches. `visit` must not change the index.
  template <class Visit>
  void match(ByteView filter, Visit&& visit) {
    if (topics_ == 0) return;
    walk(kRoot, filter, visit);
  }

 private:
  template <class Visit>
  void walk(NodeIndex node, ByteView rest, Visit& visit) {
    for (;;) {
      bool more;
      const ByteView level = take_level(rest, more);
      if (level == "#") {
        visit_node(node, visit);  // "a/#" covers "a"; the root holds nothing
        return below(node, node == kRoot, visit);
      }
      if (level == "+") {
        for (NodeIndex c = tree_.first_child(node); c != kNone; c = tree_.next_sibling(c)) {
          if (node == kRoot && tree_.level(c).starts_with('$')) continue;
          if (more)
            walk(c, rest, visit);
          else
            visit_node(c, visit);
        }
        return;
      }
      node = tree_.child(node, level);
      if (node == kNone) return;
      if (!more) return visit_node(node, visit);
    }
  }

  /// Everything below a node, without the node. Not by recursion: how deep topics go is the clients' choice.
  template <class Visit>
  void below(NodeIndex node, bool at_root, Visit& visit) {
    std::vector<NodeIndex> open;
    for (NodeIndex c = tree_.first_child(node); c != kNone; c = tree_.next_sibling(c))
      if (!at_root || !tree_.level(c).starts_with('$')) open.push_back(c);
    while (!open.empty()) {
      const NodeIndex n = open.back();
      open.pop_back();
      visit_node(n, visit);
      for (NodeIndex c = tree_.first_child(n); c != kNone; c = tree_.next_sibling(c)) open.push_back(c);
    }
  }

  template <class Visit>
  void visit_node(NodeIndex node, Visit& visit) {
    const uint32_t payload = tree_.payload(node);
    if (payload != kNone) visit(*values_[payload]);
  }

  LevelTree tree_;
  std::vector<std::optional<T>> values_;
  std::vector<uint32_t> free_;
  size_t topics_ = 0;
};

}  // namespace ph::routing
