// The worker's subscriptions: SUBSCRIBE and UNSUBSCRIBE, retained messages for who subscribes, and what workers tell
// each other about their filters. See docs/routes.md.
#include <algorithm>
#include <map>

#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {

using mqtt::ReasonCode;

// --- SUBSCRIBE

/// A filter that only one session may have is asked for first, at the filter's home worker; then all of the packet's
/// filters are entered together.
void Worker::on_subscribe(ClientConnection& connection, const mqtt::Subscribe& subscribe) {
  auto asked = std::make_shared<Asked>();
  asked->connection = connection.id();
  asked->packet_id = subscribe.packet_id;
  mqtt::for_each_subscription_id(subscribe.properties.raw, [&](uint32_t i) { asked->id = i; });
  asked->rows.reserve(subscribe.filters.size());
  for (const mqtt::Filter& f : subscribe.filters) {
    Asked::Row row;
    row.options = f;
    row.filter = name_filter(connection, f.filter);
    if (exclusive_filter(row.filter)) row.held = connection.client->session->subscriptions().contains(row.filter);
    const bool may = connection.mountpoint.empty()
                         ? may_subscribe(connection, row.filter, f.qos)
                         : may_subscribe(connection, unmounted(connection.mountpoint, row.filter), f.qos);
    if (!may) row.refused = ReasonCode::not_authorized;
    asked->rows.push_back(std::move(row));
  }
  const uint64_t uid = connection.client->uid;
  asked->missing = 1;  // until all are asked: some answers come at once
  for (size_t i = 0; i < asked->rows.size(); ++i) {
    const auto exclusive = exclusive_filter(asked->rows[i].filter);
    if (!exclusive || asked->rows[i].refused) continue;
    ++asked->missing;
    auto answer = [this, asked, i, uid](bool granted) {
      if (!granted) asked->rows[i].refused = ReasonCode::quota_exceeded;
      if (--asked->missing == 0) subscribe_all(*asked, uid);
    };
    ask_exclusive(std::string(*exclusive), uid, std::move(answer));
  }
  if (--asked->missing == 0) subscribe_all(*asked, uid);
}

/// What was granted and is not subscribed to after all.
void Worker::give_back(const Asked::Row& row, uint64_t uid) {
  const auto exclusive = exclusive_filter(row.filter);
  if (exclusive && !row.refused && !row.held) release_exclusive(std::string(*exclusive), uid);
}

void Worker::subscribe_all(Asked& asked, uint64_t uid) {
  auto at = connections_.find(asked.connection);
  if (at == connections_.end() || !at->second->client || at->second->client->uid != uid) {
    for (const Asked::Row& row : asked.rows) give_back(row, uid);  // it did not wait for the answer
    return;
  }
  std::vector<ReasonCode> reasons;
  std::vector<std::string> retained;
  reasons.reserve(asked.rows.size());
  // One packet may name a filter a hundred thousand times: it is kept once, as it was named last.
  std::map<ByteView, SubscriptionMap::const_iterator> entered;
  for (Asked::Row& row : asked.rows) {
    bool fresh = false;
    SubscriptionMap::const_iterator place;
    mqtt::Filter f = row.options;
    f.filter = row.filter;
    reasons.push_back(row.refused ? *row.refused : subscribe(*at->second->client, f, asked.id, fresh, place));
    if (is_error(reasons.back()))
      give_back(row, uid);
    else
      entered.emplace(place->first, place);
    const bool shared = mqtt::shared_filter(row.filter).has_value();                  // gets no retained messages
    const bool wanted = f.retain_handling == 0 || (f.retain_handling == 1 && fresh);  // [MQTT-3.3.1-9 .. 11]
    if (!is_error(reasons.back()) && wanted && !shared && retained.size() < options_.subscriptions_max)
      retained.push_back(std::move(row.filter));
  }
  for (const auto& [filter, place] : entered) keep_subscription(*at->second->client, *place);
  // SUBACK promises that from now on nothing is missed, whichever worker it is published on.
  settle_and_keep(*at->second->client, [this, connection = asked.connection, packet_id = asked.packet_id,
                                        reasons = std::move(reasons), retained = std::move(retained)]() mutable {
    auto it = connections_.find(connection);
    if (it == connections_.end() || !it->second->client) return;
    it->second->channel().suback(packet_id, std::move(reasons));
    offer_retained(*it->second->client, std::move(retained));
  });
}

/// What every client gets without asking. Returns the filters whose retained messages it gets.
std::vector<std::string> Worker::auto_subscribe(ClientConnection& connection) {
  std::vector<std::string> retained;
  for (const AutoSubscription& a : options_.auto_subscribe) {
    const std::string filter =
        auto_filter(a, connection.mountpoint, connection.client->session->client_id(), username_of(connection));
    if (!mqtt::filter_valid(filter)) continue;  // a client without a name, say
    bool fresh = false;
    const mqtt::Filter f{filter, a.qos, a.no_local, a.retain_as_published, a.retain_handling};
    SubscriptionMap::const_iterator place;
    const bool granted = !is_error(subscribe(*connection.client, f, 0, fresh, place));
    if (granted) keep_subscription(*connection.client, *place);
    const bool wanted = a.retain_handling == 0 || (a.retain_handling == 1 && fresh);
    if (granted && wanted && !mqtt::shared_filter(filter)) retained.push_back(filter);
  }
  return retained;
}

ReasonCode Worker::subscribe(Client& client, const mqtt::Filter& filter, uint32_t id, bool& fresh,
                             SubscriptionMap::const_iterator& at) {
  if (exclusive_filter(filter.filter) == ByteView()) return ReasonCode::topic_filter_invalid;
  if (filter.filter.size() > UINT16_MAX) return ReasonCode::topic_filter_invalid;  // with its mountpoint
  if (mqtt::topic_levels(filter.filter) > options_.channel.topic_levels_max) {
    context_.counters.limit(session::Limit::topic_levels);
    return ReasonCode::topic_filter_invalid;
  }
  auto& subscriptions = client.session->subscriptions();
  auto it = subscriptions.lower_bound(filter.filter);
  fresh = it == subscriptions.end() || it->first != filter.filter;
  if (fresh) {
    if (subscriptions.size() >= options_.subscriptions_max) {
      context_.counters.limit(session::Limit::subscriptions);
      return ReasonCode::quota_exceeded;
    }
    it = subscriptions.emplace_hint(it, std::string(filter.filter), session::Subscription{});
    add_route(client, it->first, it->second);
  }
  session::Subscription& s = it->second;
  s.qos = std::min(filter.qos, options_.channel.qos_max);
  s.no_local = filter.no_local;
  s.retain_as_published = filter.retain_as_published;
  s.id = id;
  at = it;
  return static_cast<ReasonCode>(s.qos);
}

void Worker::keep_subscription(const Client& client, const SubscriptionMap::value_type& subscription) {
  if (client.session->durable()) durable_->subscribed(client.uid, subscription.first, subscription.second);
}

void Worker::on_unsubscribe(ClientConnection& connection, const mqtt::Unsubscribe& unsubscribe) {
  auto& subscriptions = connection.client->session->subscriptions();
  std::vector<ReasonCode> reasons;
  for (ByteView given : unsubscribe.filters) {
    const std::string filter = name_filter(connection, given);
    auto it = subscriptions.find(filter);
    if (it == subscriptions.end()) {
      reasons.push_back(ReasonCode::no_subscription_existed);
      continue;
    }
    drop_subscription(*connection.client, it);
    reasons.push_back(ReasonCode::success);
  }
  when_kept(*connection.client,
            [this, at = connection.id(), packet_id = unsubscribe.packet_id, reasons = std::move(reasons)]() mutable {
              auto it = connections_.find(at);
              if (it != connections_.end()) it->second->channel().unsuback(packet_id, std::move(reasons));
            });
}

SubscriptionMap::iterator Worker::drop_subscription(Client& client, SubscriptionMap::iterator it) {
  remove_route(client, it->second);
  if (client.session->durable()) durable_->unsubscribed(client.uid, it->first);
  return client.session->subscriptions().erase(it);
}

// --- routes

void Worker::add_route(Client& client, const std::string& filter, session::Subscription& subscription) {
  if (mqtt::shared_filter(filter)) return join_group(client, filter, subscription);
  const auto exclusive = exclusive_filter(filter);
  const ByteView topics = exclusive.value_or(filter);
  subscription.exclusive = exclusive.has_value();
  // Known already after a SUBSCRIBE; not when the session was not made here.
  if (exclusive && client.uid) ask_exclusive(std::string(topics), client.uid, [](bool) {});
  auto place = index_of_filters_.insert(topics);
  subscription.place = place.node;
  subscription.slot = static_cast<uint32_t>(place.value.local.size());
  place.value.local.push_back({&client, &subscription});
  context_.counters.subscriptions.add();
  if (place.value.local.size() == 1) announce(std::string(topics), true);
  if (client.durable && ++place.value.durable == 1) announce_durable(std::string(topics), true);
  note_filters();
}

void Worker::remove_route(Client& client, session::Subscription& subscription) {
  if (subscription.shared) return leave_group(client, subscription, kNobody);
  const routing::NodeIndex node = subscription.place;
  if (subscription.exclusive) release_exclusive(index_of_filters_.filter(node), client.uid);
  RouteNode& at = *index_of_filters_.at(node);
  if (client.durable && --at.durable == 0) announce_durable(index_of_filters_.filter(node), false);
  auto& local = at.local;
  local[subscription.slot] = local.back();
  local[subscription.slot].subscription->slot = subscription.slot;
  local.pop_back();
  context_.counters.subscriptions.subtract();
  if (local.empty()) announce(index_of_filters_.filter(node), false);
  index_of_filters_.release(node);
  note_filters();
}

void Worker::announce(const std::string& filter, bool present) {
  if (present) ++announced_;
  for (uint32_t w = 0; w < workers_.size(); ++w)
    if (w != index_)
      send_task(w, [filter, from = index_, present](Worker* worker) { worker->on_announced(from, filter, present); });
}

/// The filters here are those of all workers, but what is only a node's name is none.
std::vector<std::string> Worker::filters(size_t max, bool& rest) {
  filters_noted_ = false;
  std::vector<std::string> out;
  index_of_filters_.for_each_filter([&](std::string filter) {
    if (filter.starts_with("$SYS/")) return true;
    rest = out.size() == max;
    if (!rest) out.push_back(std::move(filter));
    return !rest;
  });
  return out;
}

/// One worker tells for all.
void Worker::note_filters() {
  if (index_ != 0 || filters_noted_ || !options_.on_filters) return;
  filters_noted_ = true;
  options_.on_filters();
}

void Worker::on_announced(uint32_t worker, const std::string& filter, bool present) {
  note_filters();
  const uint64_t bit = uint64_t{1} << worker;
  if (present) {
    index_of_filters_.insert(filter).value.remote |= bit;
    return;
  }
  const routing::NodeIndex node = index_of_filters_.node_of(filter);
  if (node == routing::kNone) return;
  if (RouteNode* at = index_of_filters_.at(node)) {
    at->remote &= ~bit;
    at->remote_durable &= ~bit;
  }
  index_of_filters_.release(node);
}

}  // namespace ph::broker
