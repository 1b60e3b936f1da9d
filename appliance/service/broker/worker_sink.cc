// What the worker publishes for the event plane, and how that waits for clients that read. A message for a connected
// client whose queue is over half full is parked with the client instead, and holds the publish's ticket; the event
// plane has little outstanding, so that is little. Parked messages go on as the queue empties. If the client goes, or
// its queue does not move for the stall timeout, they go to the queue, whose own bounds then apply and count. The
// ticket goes when a durable session's entry is on disk.
#include "base/log.h"
#include "service/broker/worker.h"

namespace ph::broker {

void Worker::publish_from_sink(session::MessagePtr message, port::Task done) {
  auto stamped = std::make_shared<session::Message>(*message);
  stamped->received = loop_.now();
  if (durable_) stamped->number = durable_->next();
  outgoing_.reset(std::move(stamped));
  ticket_ = std::make_shared<SinkTicket>(std::move(done));
  route(outgoing_, nullptr);
  pressed_ = false;
  settle([this, wanted = wanted_,
          ticket = std::exchange(ticket_, nullptr)] { when_taken(wanted, [ticket] { ticket->release(); }); },
         true);
}

/// Whether the message was published before a restart, and the session has it from then. uid 0: anybody of the group.
bool Worker::got_before(const session::Message& message, uint64_t uid, const session::SharedKey& shared) const {
  return message.origin.again && durable_ && durable_->got(message.origin, uid, shared);
}

void Worker::deliver_from_sink(Client& client, session::Outgoing& message, const session::Copy& copy) {
  if (got_before(*message.share(), client.uid, copy.shared ? *copy.shared : nullptr)) return;
  const bool crowded = client.session->attached() && client.session->over_half_full();
  if (!crowded) client.stalled = false;
  if (!client.parked && (!crowded || client.stalled)) return client.session->deliver(message, copy, loop_.now(), true);
  if (!client.parked) {
    client.parked = std::make_unique<Parked>();
    client.parked->moved = loop_.now();
    client.parked->acked = client.connection->bytes_acked();
    parked_.insert(&client);
  }
  ticket_->hold();
  client.parked->messages.push_back({message.share(),
                                     copy.qos,
                                     copy.retain,
                                     {copy.subscription_ids.begin(), copy.subscription_ids.end()},
                                     copy.shared ? *copy.shared : nullptr,
                                     ticket_});
}

/// After anything that may have made room in the client's queue. `all`: whether there is room or not.
void Worker::unpark(Client& client, bool all) {
  if (!client.parked) return;
  auto& messages = client.parked->messages;
  while (!messages.empty() && (all || !client.session->over_half_full())) {
    ParkedMessage m = std::move(messages.front());
    messages.pop_front();
    client.parked->moved = loop_.now();
    session::Copy copy;
    copy.qos = m.qos;
    copy.retain = m.retain;
    copy.subscription_ids = m.subscription_ids;
    copy.shared = &m.shared;
    outgoing_.reset(std::move(m.message));
    client.session->deliver(outgoing_, copy, loop_.now(), true);
    when_kept(client, [ticket = std::move(m.ticket)] { ticket->release(); });
  }
  if (!messages.empty()) return;
  client.parked.reset();
  parked_.erase(&client);
}

void Worker::check_parked(Instant now) {
  std::vector<Client*> stalled;
  for (Client* client : parked_) {
    Parked& parked = *client->parked;
    const uint64_t acked = client->connection->bytes_acked();
    if (acked != parked.acked) parked.moved = now;
    parked.acked = acked;
    if (now - parked.moved >= options_.stall_timeout) stalled.push_back(client);
  }
  for (Client* client : stalled) {
    log_warn("subscriber_stalled", {{"client_id", client->session->client_id()}});
    client->stalled = true;
    unpark(*client, true);
  }
}

}  // namespace ph::broker
