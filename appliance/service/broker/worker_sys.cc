// $SYS: what the broker says of itself, as retained messages, every sys_interval, from the first worker: under
// $SYS/brokers/<node>/ one level a name, and under $SYS/broker/ the names that Mosquitto's tools read. A value that has
// not changed is not sent again. They lie in a store of their own: no client's bound counts them and no disk sees them.
#include <array>
#include <cmath>

#include "base/log.h"
#include "service/broker/sys_topics.h"
#include "service/broker/worker.h"

namespace ph::broker {

BrokerStats sum(const std::vector<Worker*>& workers) {
  BrokerStats s;
  for (const Worker* w : workers) {
    const session::Counters& c = w->counters();
    s.connections += c.connections.get();
    s.clients += c.clients.get();
    s.packets_in += c.packets_in.get();
    s.packets_out += c.packets_out.get();
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
    s.abandoned += c.abandoned.get();
    s.flapping += c.flapping.get();
    s.connections_over_rate += c.connections_over_rate.get();
    s.throttled += c.throttled.get();
    s.overloads += c.overloads.get();
    s.delayed += c.delayed.get();
    for (size_t i = 0; i < s.limits.size(); ++i) s.limits[i] += c.limits[i].get();
    for (size_t i = 0; i < s.drops.size(); ++i) s.drops[i] += c.drops[i].get();
  }
  s.retained = workers.front()->counters().retained.get();  // every worker has all of them
  return s;
}

RetainedStore& Worker::retained_for(ByteView topic) {
  return topic.starts_with("$SYS/") ? sys_retained_ : retained_;
}

/// What a topic's retained message is from now on; of clients' also on disk.
void Worker::keep_if_newer(session::Outgoing& message, RetainedVersion version) {
  const ByteView topic = message.view().topic;
  RetainedStore& store = retained_for(topic);
  if (store.set(message, version, loop_.now()) && &store == &retained_) keep_retained(message, version.number);
}

void Worker::start_sys() {
  if (index_ != 0 || options_.sys_interval <= Duration::zero()) return;
  sys_ = std::make_unique<SysTopics>(options_.node_name, options_.version, loop_.now());
  sys_timer_->start(Duration::zero(), [this] { publish_sys(); });
}

void Worker::publish_sys() {
  if (stopping_) return;
  sys_->update(sum(workers_), loop_.now(), loop_.wall_now(),
               [this](const std::string& topic, const std::string& value) {
                 session::MessageView view;
                 view.topic = topic;
                 view.payload = value;
                 view.retain = true;
                 view.received = loop_.now();
                 outgoing_.reset(view);
                 route(outgoing_, nullptr);
               });
  pressed_ = false;
  sys_timer_->start(options_.sys_interval, [this] { publish_sys(); });
}

}  // namespace ph::broker
