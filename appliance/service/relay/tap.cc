#include "service/relay/tap.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/log.h"
#include "codec/event/block.h"

namespace ph::relay {
namespace {

constexpr size_t kMessageCost = 512;  // of one that waits, beside its own bytes: block, record, who waits

using FarParts = std::vector<std::pair<const std::string*, uint64_t>>;

std::string encode(const FarParts& far) {
  std::string out;
  put_varint(out, far.size());
  for (const auto& [route, sequence] : far) {
    put_sized(out, *route);
    put_varint(out, sequence);
  }
  return out;
}

}  // namespace

Tap::Tap(NodeId self, std::vector<TapRoute> routes, Match match, port::Loop& loop, commit::Committer& committer,
         SeenEvents* seen)
    : self_(self),
      ingress_(loop.random().stream_id()),
      routes_(std::move(routes)),
      match_(std::move(match)),
      loop_(loop),
      committer_(committer),
      seen_(seen) {}

Tap::~Tap() {
  *alive_ = false;
}

void Tap::Waiting::part_done(const Result<>& part) {
  if (!part) outcome = part;
  if (--parts == 0) done(outcome);
}

void Tap::take(port::Message message, port::WriteBatch with, std::move_only_function<void(Result<>)> done) {
  loop_.post(
      [this, alive = alive_, message = std::move(message), with = std::move(with), done = std::move(done)]() mutable {
        if (*alive) accept(std::move(message), std::move(with), std::move(done));
      });
}

void Tap::accept(port::Message message, port::WriteBatch with, std::move_only_function<void(Result<>)> done) {
  std::vector<size_t> matching = match_(message.topic);
  for (size_t i : matching)
    if (routes_[i].full() || !routes_[i].room()) {
      ++counters_.refused;
      return done(fail(spool::errors::full, routes_[i].name));
    }
  if (message.qos == 0 && waiting_bytes_ > limits::kTapBytesMax) {
    ++counters_.refused;
    ++counters_.shed;
    return done(fail(spool::errors::full, "the disk does not keep up"));
  }
  // What cannot cross a link in one frame is refused here, while its publisher still hears of it.
  if (message.topic.size() + message.properties.size() + message.payload.size() > kMessageMax) {
    ++counters_.refused;
    return done(fail(port::errors::never_taken, message.topic));
  }
  const std::string far_key = std::move(message.far_key);
  event::Block block;
  block.kind = event::BlockKind::message;
  block.id = {self_, ingress_, next_number_, next_number_ + 1};
  ++next_number_;
  block.events = 1;
  block.accepted_at = loop_.wall_now();
  block.topic = std::move(message.topic);
  block.qos = message.qos;
  block.retain = message.retain;
  block.expiry_seconds_plus_one = message.expiry_seconds_plus_one;
  block.properties = std::move(message.properties);
  block.payload = std::move(message.payload);

  auto waiting = std::make_shared<Waiting>();
  waiting->done = std::move(done);
  waiting->parts = 1;  // the commit; one more for each far route
  std::vector<commit::Participant*> needs;
  FarParts far;
  for (size_t i : matching) {
    TapRoute& route = routes_[i];
    block.category = route.category;
    uint64_t sequence = route.log->append(Slice(event::encode(block)), 1, block.accepted_at);
    needs.push_back(route.log);
    if (!route.far) continue;
    ++waiting->parts;
    far_[route.name].emplace(sequence, waiting);
    far.emplace_back(&route.name, sequence);
  }
  if (!far.empty() && !far_key.empty()) with.put(far_key, encode(far));
  const size_t bytes =
      matching.size() * (kMessageCost + block.topic.size() + block.properties.size() + block.payload.size());
  waiting_bytes_ += bytes;
  committer_.request(std::move(needs), std::move(with),
                     [this, alive = alive_, waiting, bytes, far = std::move(far)](const Result<>& outcome) {
                       if (!*alive) return;
                       waiting_bytes_ -= bytes;
                       ++(outcome ? counters_.events : counters_.refused);
                       if (!outcome)
                         for (const auto& [route, sequence] : far) forget_far(*route, sequence, waiting, outcome);
                       waiting->part_done(outcome);
                     });
}

bool Tap::pass_on(event::Block block, const std::string& topic, const std::string& route,
                  std::move_only_function<void(Result<>)> done) {
  std::vector<size_t> takers = match_(topic);
  if (takers.empty()) return false;
  PH_ASSERT(seen_, "a tap that passes events on knows what was taken");
  // Lines keep the positions of their file, which are bytes.
  const auto kind = block.id.last - block.id.first == 1 ? event::BlockKind::message : event::BlockKind::lines;
  const auto scope = [](const std::string& name) { return "t/" + name; };
  std::vector<size_t> had;  // at its ingress here
  if (block.id.origin == self_ && block.kind == event::BlockKind::message) had = match_(block.topic);
  std::erase_if(takers, [&](size_t i) {
    return routes_[i].name == route || std::ranges::find(had, i) != had.end() ||
           seen_->unseen(scope(routes_[i].name), kind, block.id).empty();
  });
  if (takers.empty()) return false;
  for (size_t i : takers)
    if (routes_[i].full()) {
      done(fail(spool::errors::full, routes_[i].name));
      return true;
    }
  auto marks = std::make_shared<SeenEvents::Marks>();
  seen_->mark(scope(route), kind, block.id, *marks);  // it does not come back to where it came from
  block.kind = event::BlockKind::message;
  block.topic = topic;
  std::vector<commit::Participant*> needs;
  for (size_t i : takers) {
    seen_->mark(scope(routes_[i].name), kind, block.id, *marks);
    block.category = routes_[i].category;
    routes_[i].log->append(Slice(event::encode(block)), 1, block.accepted_at);
    needs.push_back(routes_[i].log);
  }
  port::WriteBatch entries;
  seen_->put(*marks, entries);
  committer_.request(
      std::move(needs), std::move(entries),
      [this, alive = alive_, marks, count = takers.size(), done = std::move(done)](const Result<>& outcome) mutable {
        if (!*alive) return;
        if (outcome) {
          seen_->durable(*marks);
          counters_.passed_on += count;
        } else {
          seen_->undo(*marks);
        }
        done(outcome);
      });
  return true;
}

void Tap::forget_far(const std::string& route, uint64_t sequence, const std::shared_ptr<Waiting>& waiting,
                     const Result<>& why) {
  auto [from, to] = far_[route].equal_range(sequence);
  for (auto it = from; it != to; ++it) {
    if (it->second != waiting) continue;
    far_[route].erase(it);
    waiting->part_done(why);
    return;
  }
}

void Tap::resume_far(std::string waits_for, port::Task done) {
  loop_.post([this, alive = alive_, waits_for = std::move(waits_for), done = std::move(done)]() mutable {
    if (*alive) await_far(waits_for, std::move(done));
  });
}

void Tap::await_far(const std::string& waits_for, port::Task done) {
  auto waiting = std::make_shared<Waiting>();
  waiting->done = [done = std::move(done)](const Result<>&) mutable { done(); };
  waiting->parts = 1;
  Reader in(waits_for);
  for (uint64_t left = in.varint(); left > 0 && in.ok(); --left) {
    const std::string route(in.sized());
    const uint64_t sequence = in.varint();
    const auto known = std::ranges::find(routes_, route, &TapRoute::name);
    if (!in.ok() || known == routes_.end() || !known->far || sequence >= known->log->durable_end()) continue;
    if (sequence < far_done_[route]) continue;
    ++waiting->parts;
    far_[route].emplace(sequence, waiting);
  }
  if (!in.ok() || !in.at_end()) log_error("far_record_damaged", {{"bytes", waits_for.size()}});
  waiting->part_done({});
}

void Tap::far_reached(const std::string& route, uint64_t sequence) {
  far_done_[route] = std::max(far_done_[route], sequence);
  auto it = far_.find(route);
  if (it == far_.end()) return;
  auto& waiting = it->second;
  while (!waiting.empty() && waiting.begin()->first < sequence) {
    auto who = waiting.begin()->second;
    waiting.erase(waiting.begin());
    who->part_done({});
  }
}

}  // namespace ph::relay
