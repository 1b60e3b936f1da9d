#include "service/broker/broker.h"

#include <functional>

#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {

bool BrokerOptions::anonymous_allowed(size_t listener, ByteView peer) const {
  switch (listeners[listener].allow_anonymous) {
    case Anonymous::always:
      return true;
    case Anonymous::never:
      return false;
    case Anonymous::loopback:
      break;
  }
  const auto address = security::address_of_peer(peer);
  return address && address->is_loopback();
}

Broker::Broker(BrokerOptions options, const std::vector<WorkerPlace>& places, port::MessageTap* tap,
               port::Loop* event_loop)
    : options_(std::move(options)), rates_(options_.listeners.size()), event_loop_(event_loop) {
  PH_ASSERT(!places.empty() && places.size() <= 64, "1 to 64 workers");
  std::vector<Worker*> all;
  for (uint32_t i = 0; i < places.size(); ++i) {
    workers_.push_back(std::make_unique<Worker>(i, options_, rates_, *places[i].loop, *places[i].network, tap));
    all.push_back(workers_.back().get());
  }
  for (auto& w : workers_) w->set_peers(all);
}

Broker::~Broker() = default;

Result<> Broker::start() {
  for (const auto& listener : options_.listeners) endpoints_.push_back(listener.endpoint);
  // The first worker learns the ports that the kernel chose, the others join them.
  for (auto& w : workers_) {
    PH_ASSIGN(endpoints_, w->listen(endpoints_));
  }
  for (auto& w : workers_) w->start_ticking();
  return {};
}

void Broker::stop() {
  for (auto& w : workers_) w->loop().post([worker = w.get()] { worker->stop(); });
}

void Broker::set_policy(const security::PolicyPtr& policy) {
  for (auto& w : workers_) w->loop().post([worker = w.get(), policy] { worker->set_policy(policy); });
}

BrokerStats Broker::stats() const {
  BrokerStats s;
  for (const auto& w : workers_) {
    const session::Counters& c = w->counters();
    s.connections += c.connections.get();
    s.sessions += c.sessions.get();
    s.subscriptions += c.subscriptions.get();
    s.connections_in += c.connections_in.get();
    s.messages_in += c.messages_in.get();
    s.messages_out += c.messages_out.get();
    s.bytes_in += c.bytes_in.get();
    s.bytes_out += c.bytes_out.get();
    s.malformed += c.malformed.get();
    s.refused += c.refused.get();
    s.takeovers += c.takeovers.get();
    s.keep_alive_timeouts += c.keep_alive_timeouts.get();
    s.slow_consumers += c.slow_consumers.get();
    s.moves += c.moves.get();
    s.logins_failed += c.logins_failed.get();
    s.connects_shed += c.connects_shed.get();
    s.banned += c.banned.get();
    s.publish_denied += c.publish_denied.get();
    s.subscribe_denied += c.subscribe_denied.get();
    s.logins_expired += c.logins_expired.get();
    s.http_unreachable += c.http_unreachable.get();
    s.flapping += c.flapping.get();
    s.connections_over_rate += c.connections_over_rate.get();
    s.throttled += c.throttled.get();
    s.overloads += c.overloads.get();
    for (size_t i = 0; i < s.drops.size(); ++i) s.drops[i] += c.drops[i].get();
  }
  s.retained = workers_.front()->counters().retained.get();  // every worker has all of them
  return s;
}

void Broker::publish(port::Message message, std::move_only_function<void(Result<>)> done) {
  auto answer = [loop = event_loop_, done = std::move(done)](Result<> result) mutable {
    loop->post([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  };
  if (!mqtt::topic_valid(message.topic) || !mqtt::utf8_valid(message.topic) || message.topic.size() > UINT16_MAX ||
      message.qos > 2)
    return answer(fail(errors::bad_topic, message.topic));
  Worker& worker = *workers_[std::hash<std::string>{}(message.topic) % workers_.size()];
  if (worker.overloaded()) return answer(fail(errors::busy, "worker mailbox over its bound"));
  auto m = std::make_shared<session::Message>();
  m->topic = std::move(message.topic);
  m->payload = std::move(message.payload);
  m->properties = std::move(message.properties);
  m->qos = message.qos;
  m->retain = message.retain;
  if (message.expiry_seconds_plus_one)
    m->expiry = static_cast<uint32_t>(std::min<uint64_t>(message.expiry_seconds_plus_one - 1, UINT32_MAX));
  worker.loop().post([&worker, m = std::move(m), answer = std::move(answer)]() mutable {
    worker.publish_from_sink(std::move(m), [answer = std::move(answer)]() mutable { answer({}); });
  });
}

}  // namespace ph::broker
