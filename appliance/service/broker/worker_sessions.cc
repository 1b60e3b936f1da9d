// The worker's sessions: CONNECT, takeover, moves between workers, wills, the end. See docs/sessions_move.md.
#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {
namespace {

session::MessagePtr will_message(const mqtt::Will& will) {
  std::string scratch;
  auto m = std::make_shared<session::Message>();
  m->topic = will.topic;
  m->payload = Slice(std::string(will.payload));
  m->properties = mqtt::forwarded(will.properties, scratch);
  m->qos = will.qos;
  m->retain = will.retain;
  m->expiry = will.properties.message_expiry;
  return m;
}

}  // namespace

// --- CONNECT

void Worker::on_connect(ClientConnection& connection, const mqtt::Connect& connect) {
  if (stopping_) return connection.channel().refuse(mqtt::ReasonCode::server_unavailable);
  if (load_.overloaded()) {
    context_.counters.connects_shed.add();
    return connection.channel().refuse(mqtt::ReasonCode::server_busy);
  }
  Opening opening;
  opening.client_id = connect.client_id;
  if (connect.client_id.empty()) {
    opening.assigned = true;
    std::string random;
    put_key(random, loop_.random().next());
    put_key(random, loop_.random().next());
    opening.client_id = "auto-" + to_hex(random);
  }
  opening.clean_start = connect.clean_start;
  if (connect.version == mqtt::Version::v5) {
    const uint32_t asked = connect.properties.session_expiry.value_or(0);
    opening.expiry = std::min(asked, options_.session_expiry_max);
    if (opening.expiry != asked) opening.expiry_told = opening.expiry;
  } else if (!connect.clean_start) {
    opening.expiry = static_cast<uint32_t>(options_.v3_session_expiry / 1s);
  }
  if (opening.expiry > 0 && durable_ && durable_->far_behind()) {  // each would leave a will's size there, say
    context_.counters.connects_shed.add();
    return connection.channel().refuse(mqtt::ReasonCode::server_busy);
  }
  if (connect.will)
    opening.will = session::SessionWill{will_message(*connect.will), connect.will->properties.will_delay.value_or(0)};

  authenticate(connection, connect, std::move(opening));
}

/// The client may come in: to its session.
void Worker::enter(uint64_t ticket, Opening opening) {
  const std::string client_id = opening.client_id;
  openings_.emplace(ticket, std::move(opening));
  const Claim mine{index_, ticket};
  const uint32_t home = home_of(client_id);
  if (home == index_) return claim(client_id, mine);
  send_task(home, [client_id, mine](Worker* w) { w->claim(client_id, mine); });
}

void Worker::claim(const std::string& client_id, Claim claim) {
  const auto granted = directory_.claim(client_id, claim);
  if (!granted) return;
  if (granted->claim.worker == index_) return on_granted(client_id, granted->claim.ticket, granted->holder);
  forward_grant(client_id, *granted);
}

void Worker::forward_grant(const std::string& client_id, const Granted& granted) {
  send_task(granted.claim.worker,
            [client_id, granted](Worker* w) { w->on_granted(client_id, granted.claim.ticket, granted.holder); });
}

/// The session of a client id is open, has moved, or is gone: the next claim may go on.
void Worker::settle_claim(const std::string& client_id, uint32_t holder) {
  const uint32_t home = home_of(client_id);
  if (home != index_) return send_task(home, [client_id, holder](Worker* w) { w->settle_claim(client_id, holder); });
  if (const auto next = directory_.settle(client_id, holder)) forward_grant(client_id, *next);
}

void Worker::on_granted(const std::string& client_id, uint64_t ticket, uint32_t holder) {
  if (holder == kNobody || holder == index_) return open_session(ticket);
  const bool clean_start = openings_.at(ticket).clean_start;
  send_task(holder, [client_id, to = index_, ticket, clean_start](Worker* w) {
    w->give_up(client_id, to, ticket, clean_start);
  });
}

/// A session was to be continued and is not. Told with both mountpoints: they also differ when the configuration has
/// another one now, or the client's name is written in it in another way.
void Worker::tell_of_other_owner(const std::string& before, const Opening& opening) {
  const session::Owner had = session::owner_parts(before), has = session::owner_parts(opening.owner);
  log_warn("session_not_continued", {{"client_id", opening.client_id},
                                     {"user_before", had.username},
                                     {"user", has.username},
                                     {"mountpoint_before", had.mountpoint},
                                     {"mountpoint", has.mountpoint}});
}

/// The claim is ours and whatever session there is, is here.
void Worker::open_session(uint64_t ticket, bool ended_durable) {
  auto node = openings_.extract(ticket);
  PH_ASSERT(!node.empty(), "each claim is opened once");
  Opening& opening = node.mapped();
  const std::string& id = opening.client_id;
  Client* client = find_offline(id);
  // [MQTT-3.1.2-4]; and another user gets nothing of what waits in a session, nor who comes through another mountpoint.
  const bool others = client && client->session->owner() != opening.owner;
  if (others && !opening.clean_start) tell_of_other_owner(client->session->owner(), opening);
  if (others || (client && opening.clean_start)) {
    ended_durable = client->session->durable();
    end_session(*client);
    client = nullptr;
  }
  auto it = connections_.find(ticket);
  if (it == connections_.end() || !it->second->channel().opening())  // gone meanwhile; the session stays as it was
    return settle_claim(id, client ? index_ : kNobody);

  if (client) return attach(std::move(opening), *it->second, *client, true);
  if (sessions_full()) {
    context_.counters.limit(session::Limit::sessions);
    it->second->channel().refuse(mqtt::ReasonCode::quota_exceeded);
    return settle_claim(id, kNobody);
  }
  const uint64_t uid = new_uid();
  client = &add_client(std::make_unique<session::Session>(id, context_), uid);
  client->session->set_owner(opening.owner);
  const bool keep = durable_ && opening.expiry > 0;
  if (!keep && !ended_durable) return attach(std::move(opening), *it->second, *client, false);
  // CONNACK promises a session, or that an old one is gone: on disk first. The claim is held meanwhile, so nobody else
  // touches it.
  client->session->set_expiry(opening.expiry);
  client->durable = keep;
  if (keep) {
    client->session->keep(uid);
    client->session->detach(loop_.now());  // until attach(): a restart in between must not find it long gone
  }
  durable_->mark_dirty();
  openings_.insert(std::move(node));  // where remove() finds it
  durable_->after(durable_->turn(), [this, ticket] {
    Opening waited = std::move(openings_.extract(ticket).mapped());
    Client& made = *find_client(waited.client_id);
    auto at = connections_.find(ticket);
    if (at != connections_.end() && at->second->channel().opening())
      return attach(std::move(waited), *at->second, made, false);
    made.session->detach(loop_.now());
    settle_claim(waited.client_id, index_);
    schedule_due(made);
  });
}

/// The last step of CONNECT.
void Worker::attach(Opening opening, ClientConnection& connection, Client& attached, bool present) {
  Client* client = &attached;
  const std::string& id = opening.client_id;
  unschedule_due(*client);
  client->will_due.reset();
  client->will_access.reset();
  client->session->set_expiry(opening.expiry);
  client->session->set_will(std::move(opening.will));  // a delayed one of before is not sent [MQTT-3.1.3-9]
  keep_will(*client);
  client->connection = &connection;
  connection.client = client;
  context_.counters.clients.add();
  announce_online(*client);
  settle_claim(id, index_);
  drop_foreign_subscriptions(*client);
  if (connection.access) drop_denied_subscriptions(*client, *connection.access);
  std::vector<std::string> retained = auto_subscribe(connection);
  session::Acceptance acceptance;
  acceptance.session_present = present;
  if (opening.assigned) acceptance.assigned_client_id = id;
  acceptance.session_expiry = opening.expiry_told;
  acceptance.authentication_data = opening.auth_data;
  const std::string response = routing::fill_client(options_.response_information, id, username_of(connection));
  acceptance.response_information = response;
  acceptance.mountpoint = connection.mountpoint;
  schedule_check(connection, loop_.now());  // keep-alive may be due before what was planned for CONNECT
  // The last step: packets that came behind CONNECT are handled in there, and may end the session again.
  connection.channel().accept(*client->session, acceptance, loop_.now());
  if (!retained.empty())
    settle([this, at = connection.id(), retained = std::move(retained)]() mutable {
      auto found = connections_.find(at);
      if (found != connections_.end() && found->second->client)
        offer_retained(*found->second->client, std::move(retained));
    });
}

/// Counted over all workers, each as it sees the others: a burst may go over by what is under way.
bool Worker::sessions_full() const {
  uint64_t sessions = 0;
  for (const Worker* w : workers_) sessions += w->counters().sessions.get();
  return sessions >= options_.sessions_max;
}

/// A will may be as large as a packet and waits as long as its client is there, and then as long as it says.
bool Worker::wills_full(const session::Message& will) const {
  uint64_t bytes = will.bytes();
  for (const Worker* w : workers_) bytes += w->counters().will_bytes.get();
  return bytes > options_.wills_bytes_max;
}

void Worker::count_will(Client& client) {
  const auto& will = client.session->will();
  context_.counters.will_bytes.subtract(client.will_bytes);
  client.will_bytes = will ? will->message->bytes() : 0;
  context_.counters.will_bytes.add(client.will_bytes);
}

Client* Worker::find_client(const std::string& client_id) {
  auto it = clients_.find(client_id);
  return it == clients_.end() ? nullptr : it->second.get();
}

Client* Worker::find_offline(const std::string& client_id) {
  Client* client = find_client(client_id);
  if (client && client->connection) {
    context_.counters.takeovers.add();
    client->connection->channel().kick(mqtt::ReasonCode::session_taken_over);  // [MQTT-3.1.4-3]
    client = find_client(client_id);  // a session without expiry ended with its connection
  }
  if (!client) return nullptr;
  const auto ends_at = client->session->ends_at();
  if (!ends_at || loop_.now() < *ends_at) return client;
  end_session(*client);
  return nullptr;
}

uint64_t Worker::new_uid() {
  return durable_ ? durable_->next() : static_cast<uint64_t>(index_) << 48 | ++last_uid_;
}

Client& Worker::add_client(std::unique_ptr<session::Session> session, uint64_t uid) {
  auto client = std::make_unique<Client>();
  client->session = std::move(session);
  client->uid = uid;
  client->durable = client->session->durable();
  Client& out = *client;
  clients_[out.session->client_id()] = std::move(client);
  context_.counters.sessions.add();
  return out;
}

// --- moves

/// Another worker's connection has claimed the session that is here.
void Worker::give_up(const std::string& client_id, uint32_t to, uint64_t ticket, bool clean_start) {
  Client* client = find_offline(client_id);
  bool ended_durable = false;
  if (client && clean_start) {
    ended_durable = client->session->durable();
    end_session(*client);
    client = nullptr;
  }
  if (!client) return send_task(to, [ticket, ended_durable](Worker* w) { w->open_session(ticket, ended_durable); });
  if (client->session->subscriptions().empty()) return hand_over(client_id, to, ticket);
  send_task(to, [ticket, from = index_, subscriptions = client->session->subscriptions(), durable = client->durable](
                    Worker* w) mutable { w->prepare_arrival(ticket, from, std::move(subscriptions), durable); });
}

/// Routes lead here before the session does: what is published meanwhile waits as a shadow.
void Worker::prepare_arrival(uint64_t ticket, uint32_t from, SubscriptionMap subscriptions, bool durable) {
  const std::string client_id = openings_.at(ticket).client_id;
  Client& client = add_client(std::make_unique<session::Session>(client_id, context_), 0);
  client.arriving = true;
  client.durable = durable;
  if (durable) arriving_.insert(&client);
  client.session->subscriptions() = std::move(subscriptions);
  for (auto& [filter, subscription] : client.session->subscriptions()) {
    // A shared one has no shadows: messages for the member follow the session from where it was (docs/shared.md).
    subscription.shared = nullptr;
    if (!mqtt::shared_filter(filter)) add_route(client, filter, subscription);
  }
  settle([this, client_id, ticket, from] {
    send_task(from, [client_id, to = index_, ticket](Worker* w) { w->hand_over(client_id, to, ticket); });
  });
}

void Worker::hand_over(const std::string& client_id, uint32_t to, uint64_t ticket) {
  Client* client = find_client(client_id);
  // What it published and is still being written down is routed here: before anything that comes from there.
  if (client && client->recording > 0)
    return durable_->after(durable_->turn(), [this, client_id, to, ticket] { hand_over(client_id, to, ticket); });
  if (client && client->offer)  // goes into the session first
    return loop_.post([this, client_id, to, ticket] { hand_over(client_id, to, ticket); });
  std::unique_ptr<session::Session> session;
  uint64_t uid = 0;
  push_outboxes();  // what was said of it here is older than what will be said there
  if (client) {
    uid = client->uid;
    session = extract(*client, to);
  }
  std::vector<uint64_t> seen = seen_;
  seen[index_] = sequence_;
  send_task(to, [ticket, uid, session = std::move(session), seen = std::move(seen)](Worker* w) mutable {
    w->on_arrival(ticket, std::move(session), uid, seen);
  });
}

void Worker::on_arrival(uint64_t ticket, std::unique_ptr<session::Session> session, uint64_t uid,
                        const std::vector<uint64_t>& seen) {
  Client* client = find_client(openings_.at(ticket).client_id);
  if (!session) {  // it ended on the way
    if (client) {
      context_.counters.drop(session::Drop::session_ended, client->shadow.size());
      extract(*client);
    }
    return open_session(ticket);
  }
  context_.counters.moves.add();
  session->set_context(context_);
  if (!client) {
    client = &add_client(std::move(session), uid);
  } else {
    session->subscriptions() = std::move(client->session->subscriptions());  // with their places in this index
    client->session = std::move(session);
    client->uid = uid;
    client->arriving = false;
    for (auto& [filter, s] : client->session->subscriptions())
      if (mqtt::shared_filter(filter)) join_group(*client, filter, s);
    arriving_.erase(client);
    if (durable_) durable_->mark_dirty();  // covers that waited for the shadows
    for (Shadow& s : std::exchange(client->shadow, {})) {
      if (s.sequence <= seen[s.source] || got_before(*s.message, uid, nullptr)) continue;  // it has that one
      outgoing_.reset(s.message);
      s.copy.subscription_ids = s.subscription_ids;
      client->session->deliver(outgoing_, s.copy, loop_.now());
    }
    for (const Taken& t : std::exchange(client->taken, {}))
      if (t.uid == uid) on_taken(client->session->client_id(), t, true);
  }
  count_will(*client);
  if (const auto& will = client->session->will()) client->will_due = loop_.now() + std::chrono::seconds(will->delay);
  schedule_due(*client);
  open_session(ticket);
}

/// Takes the session out of everything that this worker knows.
std::unique_ptr<session::Session> Worker::extract(Client& client, uint32_t to) {
  unschedule_due(client);
  for (auto& [filter, subscription] : client.session->subscriptions()) {
    if (to != kNobody) subscription.exclusive = false;  // it stays the session's
    if (subscription.shared)
      leave_group(client, subscription, to);
    else if (!mqtt::shared_filter(filter))  // one of an arriving session was not entered
      remove_route(client, subscription);
  }
  if (client.session->durable()) durable_->leave(*client.session);
  arriving_.erase(&client);
  context_.counters.will_bytes.subtract(client.will_bytes);
  auto session = std::move(client.session);
  context_.counters.sessions.subtract();
  clients_.erase(session->client_id());
  return session;
}

// --- the end

void Worker::on_end(ClientConnection& connection, const session::ChannelEnd& end) {
  Client& client = *std::exchange(connection.client, nullptr);
  client.connection = nullptr;
  context_.counters.clients.subtract();
  session::Session& session = *client.session;
  session.detach(loop_.now());
  if (client.offer) queue_offered(client);
  unpark(client, true);
  if (end.reason != mqtt::ReasonCode::session_taken_over && !stopping_) note_end(session.client_id());
  if (end.session_expiry) session.set_expiry(std::min(*end.session_expiry, options_.session_expiry_max));
  if (!end.publish_will) {
    if (session.durable() && (client.will_kept || end.session_expiry)) linger(connection);
    session.set_will(std::nullopt);
    keep_will(client);
  }
  if (stopping_ && !session.durable()) session.set_will(std::nullopt);
  if (session.will() && !stopping_) {
    client.will_access = connection.access;
    client.local_user = connection.local_user;
    const uint32_t delay = session.will()->delay;
    if (delay == 0 || session.expiry() == 0)
      publish_will(client);
    else
      client.will_due = loop_.now() + std::chrono::seconds(delay);
  }
  if (session.expiry() == 0) return end_session(client);
  announce_online(client);
  schedule_due(client);
}

/// DISCONNECT has no answer but that the connection closes: what it changed is on disk by then.
void Worker::linger(ClientConnection& connection) {
  connection.lingers = true;
  durable_->once_durable(durable_->turn(), [this, at = connection.id()] {
    auto it = connections_.find(at);
    if (it != connections_.end()) it->second->close();
  });
}

void Worker::publish_will(Client& client) {
  client.will_due.reset();
  auto will = client.session->take_will();
  if (!will) return;
  keep_will(client);
  if (!may_publish_will(client, *will->message)) {
    context_.counters.publish_denied.add();
    return log_info("will_denied", {{"client_id", client.session->client_id()}, {"topic", will->message->topic}});
  }
  auto message = std::make_shared<session::Message>(*will->message);
  if (durable_) message->number = durable_->next();
  message->received = loop_.now();
  publish_unacknowledged(message);
}

void Worker::end_session(Client& client) {
  publish_will(client);  // a delay ends with the session [MQTT-3.1.2-8]
  const std::shared_ptr<session::Session> session = extract(client);
  if (session->durable()) durable_->ending(*session);
  auto finish = [this, session] {
    hand_on(*session);
    session->end();
  };
  // What shared subscriptions brought may still be on its way to the disk, from where it is handed on.
  if (session->durable() && session->queued() > session->resident()) {
    durable_->once_durable(durable_->turn(), std::move(finish));
  } else {
    finish();
  }
  const std::string& id = session->client_id();
  const uint32_t home = home_of(id);
  if (home == index_) return directory_.released(id, index_);
  send_task(home, [id, from = index_](Worker* w) { w->directory_.released(id, from); });
}

void Worker::schedule_due(Client& client) {
  unschedule_due(client);
  client.due = client.will_due;
  const auto ends_at = client.session->ends_at();
  if (ends_at && (!client.due || *ends_at < *client.due)) client.due = ends_at;
  if (client.due) due_.emplace(*client.due, &client);
}

void Worker::unschedule_due(Client& client) {
  if (!client.due) return;
  due_.erase({*client.due, &client});
  client.due.reset();
}

void Worker::on_due(Instant now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    Client& client = *due_.begin()->second;
    unschedule_due(client);
    if (client.will_due && *client.will_due <= now) publish_will(client);
    const auto ends_at = client.session->ends_at();
    if (ends_at && *ends_at <= now)
      end_session(client);
    else
      schedule_due(client);
  }
}

}  // namespace ph::broker
