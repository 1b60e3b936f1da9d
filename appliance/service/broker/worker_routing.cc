// The worker's routing: PUBLISH in, through the tap and the filter index, to sessions and other workers; SUBSCRIBE;
// what workers tell each other about their filters. See docs/routes.md.
#include <algorithm>

#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {

using mqtt::ReasonCode;

// --- PUBLISH

std::optional<ReasonCode> Worker::on_publish(ClientConnection& connection, const mqtt::Publish& publish) {
  if (connection.access)
    if (const auto refused = denied(connection, publish.topic)) return refused;
  if (publish.qos == 0 && load_.overloaded()) {
    context_.counters.drop(session::Drop::overload);
    return ReasonCode::success;
  }
  session::MessageView view;
  view.topic = publish.topic;
  view.payload = publish.payload;
  view.properties = mqtt::forwarded(publish.properties, scratch_);
  view.qos = publish.qos;
  view.retain = publish.retain;
  view.expiry = publish.properties.message_expiry;
  view.received = loop_.now();
  if (tap_ && tap_->wants(view.topic)) {
    take(connection, publish.packet_id, view);
    if (publish.qos > 0) return std::nullopt;
    return ReasonCode::success;
  }
  outgoing_.reset(view);
  const bool any = route(outgoing_, connection.client);
  if (pressed_) hold_back(connection);
  pressed_ = false;
  return any || connection.channel().version() != mqtt::Version::v5 ? ReasonCode::success
                                                                    : ReasonCode::no_matching_subscribers;
}

namespace {

port::Message for_tap(const session::Message& m) {
  port::Message out;
  out.topic = m.topic;
  out.payload = m.payload;
  out.qos = m.qos;
  out.retain = m.retain;
  out.expiry_seconds_plus_one = m.expiry ? uint64_t{*m.expiry} + 1 : 0;
  out.properties = m.properties;
  return out;
}

}  // namespace

/// Hands a message to the event plane first. QoS 1 and 2 reach subscribers only once it is durable there, so that a
/// refused one, which the client repeats, is not delivered twice (amendment 21). QoS 0 is best effort on both ways.
void Worker::take(ClientConnection& connection, uint16_t packet_id, const session::MessageView& view) {
  outgoing_.reset(view);
  session::MessagePtr message = outgoing_.share();
  if (view.qos == 0) {
    route(outgoing_, connection.client);
    return tap_->take(for_tap(*message), [this](Result<> result) {
      if (!result) loop_.post([this] { context_.counters.drop(session::Drop::tap_failed); });
    });
  }
  auto done = [this, message, id = connection.client->session->client_id(), uid = connection.client->uid,
               packet_id](Result<> result) {
    loop_.post([this, message, id, uid, packet_id, accepted = result.has_value()] {
      if (accepted) {
        Client* publisher = find_client(id);
        outgoing_.reset(message);
        route(outgoing_, publisher && publisher->uid == uid ? publisher : nullptr);
      }
      on_taken(id, {uid, packet_id, message->qos, accepted}, false);
    });
  };
  tap_->take(for_tap(*message), std::move(done));
}

/// The session may have moved while the tap was writing: then whoever has it is told.
void Worker::on_taken(const std::string& client_id, const Taken& taken, bool asked_all) {
  Client* client = find_client(client_id);
  if (client && client->arriving) client->taken.push_back(taken);
  if (client && client->uid == taken.uid) {
    if (client->session->taken(taken.packet_id, taken.qos, taken.accepted) && client->connection)
      client->connection->channel().answer(taken.packet_id, taken.qos,
                                           taken.accepted ? ReasonCode::success : ReasonCode::quota_exceeded);
    return;
  }
  if (asked_all) return;
  for (uint32_t w = 0; w < workers_.size(); ++w)
    if (w != index_) send_task(w, [client_id, taken](Worker* worker) { worker->on_taken(client_id, taken, true); });
}

/// Wills: nobody waits for an answer. What the event plane refuses still reaches local subscribers.
void Worker::publish_unacknowledged(const session::MessagePtr& message) {
  auto go = [this, message] {
    outgoing_.reset(message);
    route(outgoing_, nullptr);
  };
  if (!tap_ || !tap_->wants(message->topic)) return go();
  tap_->take(for_tap(*message), [this, go](Result<> result) {
    loop_.post([this, go, failed = !result] {
      if (failed) context_.counters.drop(session::Drop::tap_failed);
      go();
    });
  });
}

/// True if anyone may get it. Sets pressed_ if a worker that has to get it does not keep up.
bool Worker::route(session::Outgoing& message, const Client* publisher) {
  const session::MessageView& view = message.view();
  ++sequence_;
  uint64_t remote = 0;
  const size_t receivers = collect(view.topic, publisher, remote);
  deliver_collected(message, receivers, index_, sequence_);
  const bool any = receivers > 0 || remote != 0;
  uint64_t version = 0;
  if (view.retain) {
    version = ++retained_version_;
    retained_.set(message, {version, index_}, loop_.now());
    remote = ~uint64_t{0};  // every worker keeps retained messages
  }
  for (uint32_t w = 0; remote != 0 && w < workers_.size(); ++w)
    if (w != index_ && (remote >> w & 1)) send_message(w, message, version);
  return any;
}

void Worker::send_message(uint32_t worker, session::Outgoing& message, uint64_t retained_version) {
  const session::MessageView& view = message.view();
  if (pressed(worker)) {
    if (view.qos == 0 && retained_version == 0) return context_.counters.drop(session::Drop::mailbox_full);
    pressed_ = true;
  }
  Batch& batch = outbox(worker);
  Letter& letter = batch.letters.emplace_back();
  letter.sequence = sequence_;
  letter.retained_version = retained_version;
  letter.ticket = ticket_;
  if (message.shared() || retained_version || view.payload.size() > session::Outgoing::kInlinePayload) {
    letter.message = message.share();
  } else {
    letter.view = view;
    letter.offset = batch.bytes.size();
    batch.bytes.append(view.topic).append(view.properties).append(view.payload);
  }
  batch.weight += sizeof(Letter) + view.topic.size() + view.properties.size() + view.payload.size();
}

void Worker::receive(const Batch& batch, const Letter& letter) {
  if (letter.message)
    outgoing_.reset(letter.message);
  else
    outgoing_.reset(batch.view(letter));
  seen_[batch.from] = letter.sequence;
  if (letter.retained_version) {
    retained_version_ = std::max(retained_version_, letter.retained_version);
    retained_.set(outgoing_, {letter.retained_version, batch.from}, loop_.now());
  }
  uint64_t ignored = 0;
  const size_t receivers = collect(outgoing_.view().topic, nullptr, ignored);
  ticket_ = letter.ticket;
  deliver_collected(outgoing_, receivers, batch.from, letter.sequence);
  ticket_.reset();
}

/// Gathers the sessions that a topic reaches, each once, in receivers_[0, returned).
size_t Worker::collect(ByteView topic, const Client* publisher, uint64_t& remote) {
  ++mark_;
  size_t count = 0;
  index_of_filters_.match(topic, [&](RouteNode& node) {
    remote |= node.remote;
    for (const Subscriber& s : node.local) {
      const session::Subscription& subscription = *s.subscription;
      if (subscription.no_local && s.client == publisher) continue;  // [MQTT-3.8.3-3]
      if (s.client->mark != mark_) {
        s.client->mark = mark_;
        s.client->slot = static_cast<uint32_t>(count);
        if (count == receivers_.size()) receivers_.emplace_back();
        Receiver& fresh = receivers_[count++];
        fresh.client = s.client;
        fresh.qos = 0;
        fresh.retain_as_published = false;
        fresh.ids.clear();
      }
      Receiver& r = receivers_[s.client->slot];
      r.qos = std::max(r.qos, subscription.qos);
      r.retain_as_published |= subscription.retain_as_published;
      if (subscription.id) r.ids.push_back(subscription.id);
    }
  });
  return count;
}

void Worker::deliver_collected(session::Outgoing& message, size_t receivers, uint32_t source, uint64_t sequence) {
  const Instant now = loop_.now();
  for (size_t i = 0; i < receivers; ++i) {
    Receiver& r = receivers_[i];
    session::Copy copy;
    copy.qos = r.qos;
    copy.retain = r.retain_as_published && message.view().retain;
    copy.subscription_ids = r.ids;
    if (!r.client->arriving) {
      if (ticket_) {
        deliver_from_sink(*r.client, message, copy);
        continue;
      }
      r.client->session->deliver(message, copy, now);
    } else if (r.client->shadow.size() < 2 * options_.session.mqueue_messages_max) {
      copy.subscription_ids = {};
      r.client->shadow.push_back({source, sequence, message.share(), copy, r.ids});
    } else {
      context_.counters.drop(session::Drop::queue_full);
    }
  }
}

// --- SUBSCRIBE

void Worker::on_subscribe(ClientConnection& connection, const mqtt::Subscribe& subscribe) {
  Client& client = *connection.client;
  uint32_t id = 0;
  mqtt::for_each_subscription_id(subscribe.properties.raw, [&](uint32_t i) { id = i; });
  std::vector<ReasonCode> reasons;
  std::vector<std::string> retained;
  for (const mqtt::Filter& f : subscribe.filters) {
    bool fresh = false;
    const ReasonCode reason =
        may_subscribe(connection, f.filter) ? this->subscribe(client, f, id, fresh) : ReasonCode::not_authorized;
    reasons.push_back(reason);
    const bool wanted = f.retain_handling == 0 || (f.retain_handling == 1 && fresh);  // [MQTT-3.3.1-9 .. 11]
    if (!is_error(reason) && wanted) retained.emplace_back(f.filter);
  }
  // SUBACK promises that from now on nothing is missed, whichever worker it is published on.
  settle([this, at = connection.id(), packet_id = subscribe.packet_id, reasons = std::move(reasons),
          retained = std::move(retained)]() mutable {
    auto it = connections_.find(at);
    if (it == connections_.end() || !it->second->client) return;
    it->second->channel().suback(packet_id, std::move(reasons));
    Client& subscriber = *it->second->client;
    for (const std::string& filter : retained) {
      auto s = subscriber.session->subscriptions().find(filter);
      if (s != subscriber.session->subscriptions().end()) send_retained(subscriber, filter, s->second);
    }
  });
}

ReasonCode Worker::subscribe(Client& client, const mqtt::Filter& filter, uint32_t id, bool& fresh) {
  if (filter.filter.starts_with("$share/")) return ReasonCode::shared_subscriptions_not_supported;
  if (mqtt::topic_levels(filter.filter) > options_.channel.topic_levels_max) return ReasonCode::topic_filter_invalid;
  auto& subscriptions = client.session->subscriptions();
  auto it = subscriptions.find(filter.filter);
  fresh = it == subscriptions.end();
  if (fresh) {
    if (subscriptions.size() >= options_.subscriptions_max) return ReasonCode::quota_exceeded;
    it = subscriptions.emplace(std::string(filter.filter), session::Subscription{}).first;
    add_route(client, it->first, it->second);
  }
  session::Subscription& s = it->second;
  s.qos = filter.qos;
  s.no_local = filter.no_local;
  s.retain_as_published = filter.retain_as_published;
  s.id = id;
  return static_cast<ReasonCode>(filter.qos);
}

void Worker::send_retained(Client& client, const std::string& filter, const session::Subscription& subscription) {
  const Instant now = loop_.now();
  retained_.match(filter, now, [&](const session::MessagePtr& message) {
    session::Copy copy;
    copy.qos = subscription.qos;
    copy.retain = true;
    if (subscription.id) copy.subscription_ids = {&subscription.id, 1};
    outgoing_.reset(message);
    client.session->deliver(outgoing_, copy, now, true);
  });
}

void Worker::on_unsubscribe(ClientConnection& connection, const mqtt::Unsubscribe& unsubscribe) {
  auto& subscriptions = connection.client->session->subscriptions();
  std::vector<ReasonCode> reasons;
  for (ByteView filter : unsubscribe.filters) {
    auto it = subscriptions.find(filter);
    if (it == subscriptions.end()) {
      reasons.push_back(ReasonCode::no_subscription_existed);
      continue;
    }
    remove_route(it->second);
    subscriptions.erase(it);
    reasons.push_back(ReasonCode::success);
  }
  connection.channel().unsuback(unsubscribe.packet_id, std::move(reasons));
}

// --- routes

void Worker::add_route(Client& client, const std::string& filter, session::Subscription& subscription) {
  auto place = index_of_filters_.insert(filter);
  subscription.place = place.node;
  subscription.slot = static_cast<uint32_t>(place.value.local.size());
  place.value.local.push_back({&client, &subscription});
  context_.counters.subscriptions.add();
  if (place.value.local.size() == 1) announce(filter, true);
}

void Worker::remove_route(session::Subscription& subscription) {
  const routing::NodeIndex node = subscription.place;
  auto& local = index_of_filters_.at(node)->local;
  local[subscription.slot] = local.back();
  local[subscription.slot].subscription->slot = subscription.slot;
  local.pop_back();
  context_.counters.subscriptions.subtract();
  if (local.empty()) announce(index_of_filters_.filter(node), false);
  index_of_filters_.release(node);
}

void Worker::announce(const std::string& filter, bool present) {
  if (present) ++announced_;
  for (uint32_t w = 0; w < workers_.size(); ++w)
    if (w != index_)
      send_task(w, [filter, from = index_, present](Worker* worker) { worker->on_announced(from, filter, present); });
}

void Worker::on_announced(uint32_t worker, const std::string& filter, bool present) {
  const uint64_t bit = uint64_t{1} << worker;
  if (present) {
    index_of_filters_.insert(filter).value.remote |= bit;
    return;
  }
  const routing::NodeIndex node = index_of_filters_.node_of(filter);
  if (node == routing::kNone) return;
  if (RouteNode* at = index_of_filters_.at(node)) at->remote &= ~bit;
  index_of_filters_.release(node);
}

}  // namespace ph::broker
