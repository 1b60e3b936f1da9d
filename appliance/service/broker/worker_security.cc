// The worker's door: bans and credentials at CONNECT, rules at PUBLISH and SUBSCRIBE, and what a new policy means for
// those who are in already.
#include <utility>

#include "base/log.h"
#include "service/broker/worker.h"

namespace ph::broker {

using mqtt::ReasonCode;

// --- CONNECT

void Worker::authenticate(ClientConnection& connection, const mqtt::Connect& connect, Opening opening) {
  Login login;
  login.client_id = opening.client_id;
  if (connect.username) login.username = *connect.username;
  if (connect.password) login.password = *connect.password;
  login.peer = connection.peer().address;
  login.certificate_name = connection.peer().certificate_name;
  login.psk_identity = connection.peer().psk_identity;
  login.listener = connection.listener;
  const security::Identity claimed{login.client_id, std::nullopt, security::address_of_peer(login.peer)};
  if (ban_of(claimed, login.username)) {
    context_.counters.banned.add();
    return connection.channel().refuse(ReasonCode::banned);
  }
  if (connect.properties.authentication_method)
    return begin_scram(connection, connect.properties, std::move(opening), std::move(login));
  Login kept = login;
  kept.password.reset();
  authenticator_.check(
      connection.id(), std::move(login),
      [this, ticket = connection.id(), opening = std::move(opening), kept = std::move(kept)](Verdict verdict) mutable {
        admit(ticket, std::move(opening), std::move(kept), std::move(verdict));
      });
}

void Worker::admit(uint64_t ticket, Opening opening, Login login, Verdict verdict) {
  const auto it = connections_.find(ticket);
  if (it == connections_.end() || !it->second->channel().opening()) return;  // gone while its password was hashed
  ClientConnection& connection = *it->second;
  if (is_error(verdict.reason)) {
    log_debug("login_refused", {{"client_id", login.client_id},
                                {"username", login.username.value_or("")},
                                {"address", login.peer},
                                {"reason", name(verdict.reason)}});
    return connection.channel().refuse(verdict.reason);
  }
  if (verdict.client_id) {
    opening.assigned = *verdict.client_id != opening.client_id;
    opening.client_id = *verdict.client_id;
  }
  if (verdict.expires) connection.expires = loop_.now() + (*verdict.expires - loop_.wall_now());
  connection.local_user = verdict.local_user;
  if (opening.will && wills_full(*opening.will->message)) {
    context_.counters.limit(session::Limit::wills);
    return connection.channel().refuse(ReasonCode::quota_exceeded);
  }
  if (!policy_) {
    if (!name_will(connection, opening)) return connection.channel().refuse(ReasonCode::not_authorized);
    return enter(ticket, std::move(opening));
  }
  security::Identity who{opening.client_id, std::move(verdict.username), security::address_of_peer(login.peer)};
  // Bans may be new, and the names are certain only now.
  if (ban_of(who, login.username)) {
    context_.counters.banned.add();
    return connection.channel().refuse(ReasonCode::banned);
  }
  connection.access =
      std::make_unique<security::Access>(policy_, std::move(who), verdict.superuser, std::move(verdict.claims));
  // As for a PUBLISH, the rules see the topic as it is after rewriting.
  const bool named = name_will(connection, opening);
  if (named && !opening.will) return enter(ticket, std::move(opening));
  auto refuse = [this](ClientConnection& who_is_not_in) {
    context_.counters.publish_denied.add();
    who_is_not_in.channel().refuse(ReasonCode::not_authorized);
  };
  if (!named) return refuse(connection);
  const session::Message& will = *opening.will->message;
  security::AccessQuestion question{security::Action::publish, will.topic.substr(connection.mountpoint.size()),
                                    will.qos, will.retain};
  when_will_decided(connection, std::move(question),
                    [this, ticket, refuse, opening = std::move(opening)](ClientConnection& client, bool may) mutable {
                      if (!may) return refuse(client);
                      enter(ticket, std::move(opening));
                    });
}

const security::Ban* Worker::ban_of(const security::Identity& who, std::optional<ByteView> claimed) const {
  return policy_ ? policy_->bans().find(who, claimed, loop_.wall_now()) : nullptr;
}

// --- PUBLISH and SUBSCRIBE

std::optional<ReasonCode> Worker::denied(ClientConnection& connection, ByteView topic, uint8_t qos, bool retain) {
  const bool may = authorizer_.on() ? allowed(connection, {security::Action::publish, std::string(topic), qos, retain})
                                    : connection.access->may_publish(topic);
  if (may) return std::nullopt;
  context_.counters.publish_denied.add();
  log_debug("publish_denied", {{"client_id", connection.access->who().client_id}, {"topic", topic}});
  if (policy_->deny_action() == security::DenyAction::disconnect) {
    connection.channel().kick(ReasonCode::not_authorized);
    return ReasonCode::not_authorized;
  }
  // Version 3.x has no way to say no but to close: it is told yes, and nobody gets the message [MQTT-3.3.5-2].
  return connection.channel().version() == mqtt::Version::v5 ? ReasonCode::not_authorized : ReasonCode::success;
}

bool Worker::may_subscribe(const ClientConnection& connection, ByteView filter, uint8_t qos) {
  if (!connection.access || allowed(connection, {security::Action::subscribe, std::string(filter), qos, false}))
    return true;
  context_.counters.subscribe_denied.add();
  log_debug("subscribe_denied", {{"client_id", connection.access->who().client_id}, {"filter", filter}});
  return false;
}

/// What the HTTP server once allowed, and no rule forbids, is not asked again.
bool Worker::may_keep(const ClientConnection& connection, const security::Access& access, ByteView filter) const {
  if (auto_subscribed(*connection.client->session, filter)) return true;
  const std::string inner = unmounted(connection.mountpoint, filter);
  if (!authorizer_.on()) return access.may_subscribe(inner);
  return access.ruling(inner, security::Action::subscribe) != security::Ruling::deny;
}

/// A session may be continued by somebody else, or under other rules than when it subscribed.
void Worker::drop_denied_subscriptions(Client& client, const security::Access& access) {
  auto& subscriptions = client.session->subscriptions();
  for (auto it = subscriptions.begin(); it != subscriptions.end();) {
    if (may_keep(*client.connection, access, it->first)) {
      ++it;
      continue;
    }
    context_.counters.subscribe_denied.add();
    it = drop_subscription(client, it);
  }
}

// --- credentials that end

bool Worker::put_out_expired(ClientConnection& connection, Instant now) {
  if (now < connection.expires || !connection.channel().open()) return false;
  context_.counters.logins_expired.add();
  connection.channel().kick(ReasonCode::not_authorized);
  return true;
}

// --- another policy

/// Whether who came in under the old policy would still come in.
bool Worker::still_welcome(ClientConnection& connection) const {
  const security::Access& access = *connection.access;
  if (ban_of(access.who(), std::nullopt)) return false;
  if (!connection.local_user) return true;
  const security::User* before = access.policy()->user(*access.who().username);
  const security::User* after = policy_->user(*access.who().username);
  return !before || (after && after->hash == before->hash);
}

void Worker::set_policy(const security::PolicyPtr& policy) {
  const security::PolicyPtr before = std::exchange(policy_, policy);
  authenticator_.set_policy(policy);
  std::vector<uint64_t> unwelcome;
  for (auto& [id, connection] : connections_) {
    if (!connection->access) continue;
    if (!still_welcome(*connection)) {
      unwelcome.push_back(id);
      continue;
    }
    security::Access& access = *connection->access;
    access.follow(policy_, superuser_now(access, connection->local_user).value_or(access.superuser()));
    if (!connection->client) continue;
    drop_denied_subscriptions(*connection->client, access);
    // Its will was allowed by the rules of before.
    session::Session& session = *connection->client->session;
    if (!session.will()) continue;
    const ByteView topic = ByteView(session.will()->message->topic).substr(connection->mountpoint.size());
    const bool may = authorizer_.on() ? access.ruling(topic, security::Action::publish) != security::Ruling::deny
                                      : access.may_publish(topic);
    if (may) continue;
    context_.counters.publish_denied.add();
    session.set_will(std::nullopt);
    keep_will(*connection->client);
  }
  if (!before || before->data().users != policy->data().users || !before->same_rules(*policy)) review_absent();
  for (uint64_t id : unwelcome) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) continue;
    ClientConnection& connection = *it->second;
    const bool banned = ban_of(connection.access->who(), std::nullopt) != nullptr;
    if (banned) context_.counters.banned.add();
    log_info("client_put_out", {{"client_id", connection.access->who().client_id}, {"banned", banned}});
    connection.channel().kick(banned ? ReasonCode::administrative_action : ReasonCode::not_authorized);
  }
}

}  // namespace ph::broker
