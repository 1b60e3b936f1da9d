#include "core/routing/level_tree.h"

#include <cstring>

namespace ph::routing {

LevelTree::LevelTree() : nodes_(1), table_(16, kNone) {}

uint32_t LevelTree::hash(NodeIndex parent, ByteView level) {
  // Levels are short: eight bytes a step, and no call.
  uint64_t h = (static_cast<uint64_t>(parent) + 1) * 0x9E3779B97F4A7C15 ^ level.size();
  auto mix = [&h](uint64_t word) {
    h = (h ^ word) * 0x94D049BB133111EB;
    h ^= h >> 29;
  };
  const char* at = level.data();
  size_t left = level.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= static_cast<uint64_t>(static_cast<uint8_t>(at[i])) << (8 * i);
  mix(tail);
  return static_cast<uint32_t>(h >> 32);
}

/// Where a parent keeps that child's number a second time; null for other names.
NodeIndex* LevelTree::wildcard_child(NodeIndex parent, ByteView level) {
  if (level == "+") return &nodes_[parent].plus;
  return level == "#" ? &nodes_[parent].hash_sign : nullptr;
}

NodeIndex LevelTree::child(NodeIndex parent, ByteView level) const {
  if (nodes_[parent].first_child == kNone) return kNone;
  const uint32_t h = hash(parent, level);
  const size_t mask = table_.size() - 1;
  for (size_t i = h & mask; table_[i] != kNone; i = (i + 1) & mask) {
    const Node& n = nodes_[table_[i]];
    if (n.hash == h && n.parent == parent && n.level == level) return table_[i];
  }
  return kNone;
}

NodeIndex LevelTree::find(ByteView path) const {
  NodeIndex node = kRoot;
  bool more = true;
  while (more && node != kNone) node = child(node, take_level(path, more));
  return node;
}

NodeIndex LevelTree::insert(ByteView path) {
  NodeIndex node = kRoot;
  bool more = true;
  while (more) {
    const ByteView level = take_level(path, more);
    const NodeIndex next = child(node, level);
    node = next != kNone ? next : add(node, level, hash(node, level));
  }
  return node;
}

NodeIndex LevelTree::add(NodeIndex parent, ByteView level, uint32_t h) {
  NodeIndex at;
  if (free_ != kNone) {
    at = free_;
    free_ = nodes_[at].parent;
  } else {
    at = static_cast<NodeIndex>(nodes_.size());
    nodes_.emplace_back();
  }
  Node& n = nodes_[at];
  n.level = level;
  n.parent = parent;
  n.first_child = kNone;
  n.previous = kNone;
  n.next = nodes_[parent].first_child;
  n.hash = h;
  n.payload = n.plus = n.hash_sign = kNone;
  if (n.next != kNone) nodes_[n.next].previous = at;
  nodes_[parent].first_child = at;
  if (NodeIndex* known = wildcard_child(parent, level)) *known = at;
  ++used_;
  if (used_ * 4 > table_.size() * 3) grow();
  table_insert(at);
  return at;
}

void LevelTree::prune(NodeIndex node) {
  while (node != kRoot && nodes_[node].first_child == kNone && nodes_[node].payload == kNone) {
    const NodeIndex parent = nodes_[node].parent;
    remove(node);
    node = parent;
  }
}

void LevelTree::remove(NodeIndex node) {
  table_erase(node);
  Node& n = nodes_[node];
  if (n.previous != kNone)
    nodes_[n.previous].next = n.next;
  else
    nodes_[n.parent].first_child = n.next;
  if (n.next != kNone) nodes_[n.next].previous = n.previous;
  if (NodeIndex* known = wildcard_child(n.parent, n.level)) *known = kNone;
  n.level = std::string();
  n.parent = free_;
  free_ = node;
  --used_;
}

void LevelTree::table_insert(NodeIndex node) {
  const size_t mask = table_.size() - 1;
  size_t i = nodes_[node].hash & mask;
  while (table_[i] != kNone) i = (i + 1) & mask;
  table_[i] = node;
}

void LevelTree::table_erase(NodeIndex node) {
  const size_t mask = table_.size() - 1;
  size_t hole = nodes_[node].hash & mask;
  while (table_[hole] != node) hole = (hole + 1) & mask;
  // Close the hole: an entry further on moves back unless its home lies after the hole.
  for (size_t i = (hole + 1) & mask; table_[i] != kNone; i = (i + 1) & mask) {
    const size_t home = nodes_[table_[i]].hash & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    table_[hole] = table_[i];
    hole = i;
  }
  table_[hole] = kNone;
}

void LevelTree::grow() {
  const std::vector<NodeIndex> old = std::move(table_);
  table_.assign(old.size() * 2, kNone);
  for (NodeIndex n : old)
    if (n != kNone) table_insert(n);
}

std::string LevelTree::path(NodeIndex node) const {
  std::vector<NodeIndex> way;
  for (NodeIndex n = node; n != kRoot; n = nodes_[n].parent) way.push_back(n);
  std::string out;
  for (size_t i = way.size(); i-- > 0;) {
    out += nodes_[way[i]].level;
    if (i > 0) out += '/';
  }
  return out;
}

}  // namespace ph::routing
