// AgentSource: what its target holds. A category that a receiver does not take now (its quota, its spool, its files are
// in the way) is handed out no further; what was handed out and is nowhere is read again later. So it takes no room
// from the other categories, whatever the window is. What can't be read again stays with who pulled it.
#include <algorithm>

#include "service/agent/agent_source.h"

namespace ph::agent {

bool AgentSource::take_back(StreamId stream, uint64_t from) {
  Cursor* c = find(stream);
  if (!c || c->end || !c->generation->verified || from < c->settled || from > c->read) return false;
  const bool dead = std::ranges::any_of(c->dead, [from](const DeadRange& d) { return d.last > from; });
  const bool ends_there =
      from == c->settled || std::ranges::any_of(c->handed, [from](const Handed& h) { return h.last == from; });
  if (dead || !ends_there) return false;
  held_[c->generation->lane].insert(stream);
  taken_back_bytes_ += c->read - from;
  uint64_t events = 0;
  while (!c->handed.empty() && c->handed.back().last > from) {
    events += c->handed.back().events;
    c->handed.pop_back();
  }
  events = std::min(events, c->queued_events);
  c->queued_events -= events;
  queued_events_ -= std::min(events, queued_events_);
  if (from < c->read) {
    c->read = from;
    c->read_window = !c->handed.empty() ? c->handed.back().window : c->window.end == from ? c->window : Window{};
    c->in_oversize.reset();
    c->stalled = 0;
  }
  if (has_data(*c)) ready(*c);
  return true;
}

void AgentSource::resume(StreamId stream) {
  if (Cursor* c = find(stream)) let_go(*c);
}

void AgentSource::let_go(const Cursor& c) {
  auto held = held_.find(c.generation->lane);
  if (held == held_.end() || held->second.erase(c.stream) == 0 || !held->second.empty()) return;
  held_.erase(held);
  auto lane = lanes_.find(c.generation->lane);
  if (lane == lanes_.end() || lane->second.queued || lane->second.with_data.empty()) return;
  lane->second.queued = true;
  turns_.push_back(&lane->second);
  wake();
}

}  // namespace ph::agent
