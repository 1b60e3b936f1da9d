// The worker's routing: PUBLISH in, through the tap and the filter index, to sessions and other workers. See
// docs/routes.md.
#include <algorithm>

#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {

using mqtt::ReasonCode;

// --- PUBLISH

std::optional<ReasonCode> Worker::on_publish(ClientConnection& connection, const mqtt::Publish& publish) {
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
  std::optional<uint32_t> delay;
  if (connection.renames || view.topic.starts_with('$'))
    if (const auto refused = rename(connection, view, delay)) return refused;
  if (connection.access)
    if (const auto refused = denied(connection, view.topic.substr(connection.mountpoint.size()), view.qos, view.retain))
      return refused;
  if (delay) return put_off(connection, publish.packet_id, view, *delay);
  if (tap_ && tap_->wants(view.topic)) {
    take(connection, publish.packet_id, view);
    if (publish.qos > 0) return std::nullopt;
    return ReasonCode::success;
  }
  outgoing_.reset(view);
  if (needs_record(connection, view)) {
    record_and_route(connection, publish.packet_id);
    return std::nullopt;
  }
  const bool any = route(outgoing_, connection.client);
  if (pressed_) hold_back(connection);
  pressed_ = false;
  if (publish.qos > 0 && must_wait(connection, publish)) {
    acknowledge_later(connection, publish.packet_id, publish.qos);
    return std::nullopt;
  }
  return any || connection.channel().version() != mqtt::Version::v5 ? ReasonCode::success
                                                                    : ReasonCode::no_matching_subscribers;
}

port::Message Worker::for_tap(const session::Message& m) {
  port::Message out;
  out.topic = m.topic;
  out.payload = m.payload;
  out.qos = m.qos;
  out.retain = m.retain;
  out.expiry_seconds_plus_one = m.expiry ? uint64_t{*m.expiry} + 1 : 0;
  out.properties = m.properties;
  return out;
}

/// Hands a message to the event plane first. QoS 1 and 2 reach subscribers only once it is durable there, so that a
/// refused one, which the client repeats, is not delivered twice (amendment 21). QoS 0 is best effort on both ways.
void Worker::take(ClientConnection& connection, uint16_t packet_id, const session::MessageView& view) {
  outgoing_.reset(view);
  const bool recorded = view.qos == 2 && connection.client->durable;
  session::MessagePtr message = recorded ? recordable() : outgoing_.share();
  if (view.qos == 0) {
    route(outgoing_, connection.client);
    return tap_->take(for_tap(*message), {}, [this](Result<> result) {
      if (!result) loop_.post([this] { context_.counters.drop(session::Drop::tap_failed); });
    });
  }
  auto done = [this, message, recorded, id = connection.client->session->client_id(), uid = connection.client->uid,
               packet_id](Result<> result) {
    loop_.post([this, message, recorded, id, uid, packet_id, accepted = result.has_value()] {
      const Taken taken{uid, packet_id, message->qos, accepted, recorded ? message->number : 0, recorded};
      if (!accepted) return on_taken(id, taken, false);
      if (recorded) durable_->record(uid, packet_id, message);
      Client* publisher = find_client(id);
      outgoing_.reset(message);
      route(outgoing_, publisher && publisher->uid == uid ? publisher : nullptr);
      when_taken(wanted_, [this, id, taken] { on_taken(id, taken, false); });
    });
  };
  port::WriteBatch with;
  port::Message event = for_tap(*message);
  if (recorded) {
    with = durable_->recording(connection.client->uid, packet_id, *message);
    event.far_key = session::keys::far(connection.client->uid, packet_id);
  }
  tap_->take(std::move(event), std::move(with), std::move(done));
}

/// The session may have moved while the tap was writing: then whoever has it is told.
void Worker::on_taken(const std::string& client_id, const Taken& taken, bool asked_all) {
  Client* client = find_client(client_id);
  if (client && client->arriving) client->taken.push_back(taken);
  if (client && client->uid == taken.uid) {
    if (!client->session->taken(taken.packet_id, taken.qos, taken.accepted)) return;
    if (taken.accepted && taken.number) durable_->routed(taken.uid, taken.packet_id, taken.number);
    if (taken.accepted && taken.tapped) durable_->far_reached(taken.uid, taken.packet_id);
    if (client->connection)
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
  tap_->take(for_tap(*message), {}, [this, go](Result<> result) {
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
  const uint64_t before = durable_ ? durable_->added() : 0;
  const size_t receivers = collect(view.topic, publisher, remote, true);
  deliver_collected(message, receivers, index_, sequence_);
  bool any = receivers > 0 || remote != 0;
  wanted_ = {sequence_, view.qos > 0 ? remote_durable_ : 0};
  for (routing::SharedGroup* group : shared_hits_) any |= dispatch_shared(message, *group, publisher);
  uint64_t version = 0;
  if (view.retain) {
    version = ++retained_version_;
    keep_if_newer(message, {version, index_});
    remote = ~uint64_t{0};  // every worker keeps retained messages
    if (durable_ && view.qos > 0 && !view.topic.starts_with("$SYS/"))
      wanted_.workers |= uint64_t{1} << home_of_topic(view.topic);
  }
  if (durable_ && view.qos > 0 && (durable_->added() != before || !arriving_.empty()))
    wanted_.workers |= uint64_t{1} << index_;
  if (wanted_.workers >> index_ & 1) want_cover(index_, sequence_);
  for (uint32_t w = 0; remote != 0 && w < workers_.size(); ++w)
    if (w != index_ && (remote >> w & 1)) send_message(w, message, version);
  return any;
}

/// Null if it was dropped. The letter may be added to until the next one.
Letter* Worker::send_message(uint32_t worker, session::Outgoing& message, uint64_t retained_version) {
  const session::MessageView& view = message.view();
  if (pressed(worker)) {
    if (view.qos == 0 && retained_version == 0) {
      context_.counters.drop(session::Drop::mailbox_full);
      return nullptr;
    }
    pressed_ = true;
  }
  Batch& batch = outbox(worker);
  Letter& letter = batch.letters.emplace_back();
  letter.sequence = sequence_;
  letter.retained_version = retained_version;
  letter.ticket = ticket_;
  letter.cover = (wanted_.workers >> worker & 1) != 0;
  if (message.shared() || retained_version || view.payload.size() > session::Outgoing::kInlinePayload) {
    letter.message = message.share();
  } else {
    letter.view = view;
    letter.offset = batch.bytes.size();
    batch.bytes.append(view.topic).append(view.properties).append(view.payload);
  }
  batch.weight += sizeof(Letter) + view.topic.size() + view.properties.size() + view.payload.size();
  return &letter;
}

void Worker::receive(const Batch& batch, const Letter& letter) {
  if (letter.message)
    outgoing_.reset(letter.message);
  else
    outgoing_.reset(batch.view(letter));
  if (letter.shared) return receive_shared(letter, batch.from);
  seen_[batch.from] = letter.sequence;
  if (letter.retained_version) {
    retained_version_ = std::max(retained_version_, letter.retained_version);
    keep_if_newer(outgoing_, {letter.retained_version, batch.from});
  }
  if (letter.cover) want_cover(batch.from, letter.sequence);
  uint64_t ignored = 0;
  const size_t receivers = collect(outgoing_.view().topic, nullptr, ignored, false);
  ticket_ = letter.ticket;
  deliver_collected(outgoing_, receivers, batch.from, letter.sequence);
  ticket_.reset();
}

/// Gathers the sessions that a topic reaches, each once, in receivers_[0, returned), and shared subscriptions if asked.
size_t Worker::collect(ByteView topic, const Client* publisher, uint64_t& remote, bool route_shared) {
  ++mark_;
  remote_durable_ = 0;
  shared_hits_.clear();
  size_t count = 0;
  index_of_filters_.match(topic, [&](RouteNode& node) {
    remote |= node.remote;
    remote_durable_ |= node.remote_durable;
    if (node.shared && route_shared)
      for (const auto& group : *node.shared) shared_hits_.push_back(group.get());
    for (const Subscriber& s : node.local) {
      const session::Subscription& subscription = *s.subscription;
      if (subscription.no_local && s.client == publisher) continue;  // [MQTT-3.8.3-3]
      if (s.client->mark != mark_ || options_.overlapping_each) {
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

}  // namespace ph::broker
