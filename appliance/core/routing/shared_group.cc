#include "core/routing/shared_group.h"

#include <algorithm>
#include <utility>

namespace ph::routing {

void SharedGroup::swap(size_t a, size_t b) {
  if (a == b) return;
  std::swap(members_[a], members_[b]);
  at_[members_[a].uid] = a;
  at_[members_[b].uid] = b;
}

void SharedGroup::set(SharedMember member, bool online) {
  auto [it, fresh] = at_.try_emplace(member.uid, members_.size());
  if (fresh)
    members_.push_back(member);
  else
    members_[it->second] = member;
  const size_t i = it->second;
  if (online && i >= online_) swap(i, online_++);
  if (!online && i < online_) swap(i, --online_);
}

void SharedGroup::remove(uint64_t uid) {
  auto it = at_.find(uid);
  if (it == at_.end()) return;
  size_t i = it->second;
  if (i < online_) {
    swap(i, --online_);
    i = online_;
  }
  swap(i, members_.size() - 1);
  members_.pop_back();
  at_.erase(uid);
}

const SharedMember* SharedGroup::find(uint64_t uid) const {
  auto it = at_.find(uid);
  return it == at_.end() ? nullptr : &members_[it->second];
}

/// The candidate with the highest mix of both hashes: when members change, only what they get or had moves.
const SharedMember& SharedGroup::by_hash(ByteView of, size_t candidates) const {
  const uint64_t wanted = std::hash<ByteView>{}(of);
  const auto weight = [wanted](const SharedMember& m) { return Random(wanted ^ m.uid).next(); };
  return *std::max_element(members_.begin(), members_.begin() + static_cast<std::ptrdiff_t>(candidates),
                           [&](const SharedMember& a, const SharedMember& b) { return weight(a) < weight(b); });
}

const SharedMember& SharedGroup::by_turn(size_t candidates) {
  return members_[turn_++ % candidates];
}

const SharedMember* SharedGroup::choose(SharedStrategy strategy, const Circumstances& at, Random& random) {
  if (members_.empty()) return nullptr;
  const size_t candidates = online_ > 0 ? online_ : members_.size();
  switch (strategy) {
    case SharedStrategy::round_robin:
      break;
    case SharedStrategy::random:
      return &members_[random.below(candidates)];
    case SharedStrategy::sticky: {
      auto stuck = at_.find(stuck_to_);
      if (stuck != at_.end() && stuck->second < candidates) return &members_[stuck->second];
      // Workers that choose anew choose the same one, as far as they know the same members.
      const SharedMember& oldest =
          *std::min_element(members_.begin(), members_.begin() + static_cast<std::ptrdiff_t>(candidates),
                            [](const SharedMember& a, const SharedMember& b) { return a.uid < b.uid; });
      stuck_to_ = oldest.uid;
      return &oldest;
    }
    case SharedStrategy::hash_clientid:
      return &by_hash(at.client_id, candidates);
    case SharedStrategy::hash_topic:
      return &by_hash(at.topic, candidates);
    case SharedStrategy::local:
      for (size_t i = 0; i < candidates; ++i)
        if (const SharedMember& m = by_turn(candidates); m.worker == at.worker) return &m;
      break;
  }
  return &by_turn(candidates);
}

}  // namespace ph::routing
