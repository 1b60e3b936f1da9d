// The worker's retained messages on their way to new subscriptions. There may be far more of them than a client's queue
// or its output may hold, so they are not sent at once: the worker offers one after the other as long as nothing waits
// in the session, and goes on when the client has read or acknowledged. What changed meanwhile came live, or is gone;
// the older value is passed over.
//
// Bounds: a pointer per message that one filter matches, and the filters of one SUBSCRIBE after another, which are at
// most the session's subscriptions. Filters are looked up a few a turn: a thousand that match nothing cost a walk each.
#include <utility>

#include "service/broker/worker.h"

namespace ph::broker {
namespace {

constexpr size_t kLookupsPerTurn = 8;

}  // namespace

void Worker::offer_retained(Client& client, std::vector<std::string> filters) {
  // Where nothing is retained, nothing has to be looked for.
  std::erase_if(filters, [this](const std::string& filter) {
    return retained_for(exclusive_filter(filter).value_or(filter)).messages() == 0;
  });
  if (filters.empty()) return;
  if (!client.offer) client.offer = std::make_unique<RetainedOffer>();
  RetainedOffer& offer = *client.offer;
  for (std::string& filter : filters)
    if (offer.filters.size() < options_.subscriptions_max) offer.filters.push_back(std::move(filter));
  continue_offer(client);
}

void Worker::find_offered(RetainedOffer& offer, Instant now) {
  const ByteView topics = exclusive_filter(offer.filter).value_or(offer.filter);
  retained_for(topics).match(topics, now, [&](const session::MessagePtr& m) { offer.messages.push_back(m); });
}

void Worker::continue_offer(Client& client) {
  RetainedOffer& offer = *client.offer;
  session::Session& session = *client.session;
  const Instant now = loop_.now();
  for (size_t lookups = 0;;) {
    const auto s = session.subscriptions().find(offer.filter);
    if (s == session.subscriptions().end()) offer.next = offer.messages.size();
    while (offer.next < offer.messages.size()) {
      if (session.queued() > 0) return;
      const session::MessagePtr message = std::move(offer.messages[offer.next++]);
      if (retained_for(message->topic).find(message->topic) != message || session::expired(message->view(), now))
        continue;
      session::Copy copy;
      copy.qos = s->second.qos;
      copy.retain = true;
      if (s->second.id) copy.subscription_ids = {&s->second.id, 1};
      outgoing_.reset(message);
      session.deliver(outgoing_, copy, now, true);
    }
    offer.messages.clear();
    offer.next = 0;
    if (offer.filters.empty()) return client.offer.reset();
    if (lookups++ == kLookupsPerTurn) break;
    offer.filter = std::move(offer.filters.front());
    offer.filters.pop_front();
    find_offered(offer, now);
  }
  loop_.post([this, at = client.connection->id()] {
    auto it = connections_.find(at);
    if (it != connections_.end() && it->second->client && it->second->client->offer)
      continue_offer(*it->second->client);
  });
}

/// The connection has ended: what is still offered waits in the session like messages that come while it is offline, as
/// far as there is room; those that are there already are not displaced. A few filters a turn, as above: who comes and
/// goes all the time is not to stop the others. Should the client come back meanwhile, the rest is offered to it.
void Worker::queue_offered(Client& client) {
  session::Session& session = *client.session;
  if (session.expiry() == 0) return client.offer.reset();
  RetainedOffer& offer = *client.offer;
  const Instant now = loop_.now();
  for (size_t lookups = 0;;) {
    const auto s = session.subscriptions().find(offer.filter);
    for (; s != session.subscriptions().end() && offer.next < offer.messages.size(); ++offer.next) {
      if (session.queued() >= options_.session.mqueue_messages_max) {
        context_.counters.drop(session::Drop::queue_full, offer.messages.size() - offer.next);
        return client.offer.reset();
      }
      session::Copy copy;
      copy.qos = s->second.qos;
      copy.retain = true;
      if (s->second.id) copy.subscription_ids = {&s->second.id, 1};
      outgoing_.reset(offer.messages[offer.next]);
      session.deliver(outgoing_, copy, now);
    }
    offer.messages.clear();
    offer.next = 0;
    if (offer.filters.empty()) return client.offer.reset();
    if (lookups++ == kLookupsPerTurn && !stopping_) break;
    offer.filter = std::move(offer.filters.front());
    offer.filters.pop_front();
    find_offered(offer, now);
  }
  loop_.post([this, id = session.client_id(), uid = client.uid] {
    Client* const found = find_client(id);
    if (!found || found->uid != uid || !found->offer) return;
    if (found->connection)
      continue_offer(*found);
    else
      queue_offered(*found);
  });
}

}  // namespace ph::broker
