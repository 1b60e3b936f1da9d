// The worker's bounds on what clients do in a time: rates, flapping, overload.
#include "base/log.h"
#include "service/broker/worker.h"

namespace ph::broker {

/// What has come is handled in any case; when it was too much, what comes next stays in the socket for a while, and TCP
/// slows the sender down.
void Worker::on_received(ClientConnection& connection, uint64_t messages, uint64_t bytes, bool changed) {
  // Most wait for the disk by themselves; not who sends retained messages at QoS 0, or where nobody waits (lazy). Who
  // only listens is not to lose its connection because nobody answers its pings.
  if (durable_ && (messages > 0 || changed) && durable_->behind() && connection.channel().open() &&
      !connection.channel().held_back()) {
    context_.counters.limit(session::Limit::journal);
    hold_back(connection);
  }
  const ListenerOptions& limits = options_.listeners[connection.listener];
  if (limits.messages_rate + limits.bytes_rate + limits.messages_rate_total + limits.bytes_rate_total == 0) return;
  const Instant now = loop_.now();
  ListenerRates& all = rates_[connection.listener];
  Duration wait = connection.rates.messages.take(messages, limits.messages_rate, now);
  wait = std::max(wait, connection.rates.bytes.take(bytes, limits.bytes_rate, now));
  wait = std::max(wait, all.messages.take(messages, limits.messages_rate_total, now));
  wait = std::max(wait, all.bytes.take(bytes, limits.bytes_rate_total, now));
  if (wait == Duration::zero() || connection.rates.waiting || !connection.channel().open()) return;
  connection.rates.waiting = true;
  connection.channel().throttle(true);
  context_.counters.throttled.add();
  throttled_.emplace(now + wait, connection.id());
  if (throttled_.begin()->first == now + wait) throttle_timer_->start(wait, [this] { release_throttled(); });
}

void Worker::release_throttled() {
  const Instant now = loop_.now();
  while (!throttled_.empty() && throttled_.begin()->first <= now) {
    const auto it = connections_.find(throttled_.begin()->second);
    throttled_.erase(throttled_.begin());
    if (it == connections_.end()) continue;
    it->second->rates.waiting = false;
    it->second->channel().throttle(false);
  }
  if (!throttled_.empty()) throttle_timer_->start(throttled_.begin()->first - now, [this] { release_throttled(); });
}

/// Told to the worker that is the client id's home, wherever its connections come to.
void Worker::note_end(const std::string& client_id) {
  if (!options_.security.flapping.enabled) return;
  const uint32_t home = home_of(client_id);
  if (home != index_) return send_task(home, [client_id](Worker* w) { w->note_end(client_id); });
  if (!flapping_.ended(client_id, options_.security.flapping, loop_.now())) return;
  context_.counters.flapping.add();
  log_info("client_flapped", {{"client_id", client_id}});
  if (options_.security.on_flapping) options_.security.on_flapping(client_id);
}

void Worker::probe_load() {
  const auto& memory = options_.overload.memory_short;
  if (!memory && options_.overload.lag_max == Duration::zero()) return;
  const bool memory_short = memory && memory->load(std::memory_order_relaxed);
  if (load_.look(loop_.now(), options_.overload.lag_max, memory_short)) {
    context_.counters.overloads.add();
    log_warn("broker_overloaded", {{"worker", index_}, {"memory_short", memory_short}});
  }
  load_timer_->start(LoadProbe::kStep, [this] { probe_load(); });
}

}  // namespace ph::broker
