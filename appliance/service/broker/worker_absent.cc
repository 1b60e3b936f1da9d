// The worker's door for those who are not here any more: wills and messages for later are published by the rules of
// that time, and what offline sessions are subscribed to follows the rules as well, so that nothing gathers for them
// which they may not have.
//
// Of who left a will while this process runs everything is known (its Access). Of all others there is what is on disk:
// client id, user name, mountpoint, of a message's publisher the address. Where that does not say what the rules would
// (an address that is not known, rights that came with a token or are an HTTP server's word), what was allowed before
// stays allowed, unless a rule forbids it.
#include "base/log.h"
#include "service/broker/worker.h"

namespace ph::broker {

using security::Action;
using security::Ruling;

namespace {

constexpr size_t kReviewsPerTurn = 256;  // sessions

ByteView without(ByteView mountpoint, ByteView topic) {
  return topic.starts_with(mountpoint) ? topic.substr(mountpoint.size()) : topic;
}

}  // namespace

/// What the rules say of that name now; null: it is banned. Good until the next call.
security::Access* Worker::access_of(const session::Publisher& who) {
  const session::Owner owner = session::owner_parts(who.owner);
  if (!named_access_ || named_ != who) {
    security::Identity identity{who.client_id, std::nullopt, security::address_of_peer(who.address)};
    if (!owner.username.empty()) identity.username = owner.username;
    named_ = who;
    named_access_ = std::make_unique<security::Access>(policy_, std::move(identity), false);
  }
  if (ban_of(named_access_->who(), std::nullopt)) return nullptr;
  const security::User* user = policy_->user(owner.username);
  named_access_->follow(policy_, user && user->superuser);
  return named_access_.get();
}

/// Whether what no rule decides may be allowed by something that is not at hand.
bool Worker::others_decide() const {
  return authorizer_.on() || authenticator_.rights_from_others();
}

bool Worker::may_publish_absent(const session::Publisher& who, ByteView topic) {
  if (!policy_ || who.client_id.empty()) return true;
  security::Access* access = access_of(who);
  if (!access) return false;
  if (policy_->asks_addresses() && !access->who().address) return true;
  topic = without(session::owner_parts(who.owner).mountpoint, topic);
  const Ruling ruling = access->ruling(topic, Action::publish);
  if (ruling != Ruling::open) return ruling == Ruling::allow;
  return others_decide() || access->may_publish(topic);
}

/// Nobody's will is published for him who is banned, or whose user was deleted.
bool Worker::may_publish_will(Client& client, const session::Message& will) {
  if (!policy_) return true;
  const session::Session& session = *client.session;
  const std::shared_ptr<security::Access> access = std::exchange(client.will_access, nullptr);
  if (!access) return may_publish_absent({session.client_id(), session.owner(), {}}, will.topic);
  if (ban_of(access->who(), std::nullopt)) return false;
  const auto superuser = superuser_now(*access, client.local_user);
  if (!superuser) return false;
  access->follow(policy_, *superuser);
  const ByteView topic = without(session::owner_parts(session.owner()).mountpoint, will.topic);
  return authorizer_.on() ? access->ruling(topic, Action::publish) != Ruling::deny : access->may_publish(topic);
}

/// nullopt: a user of the policy that is there no more.
std::optional<bool> Worker::superuser_now(const security::Access& access, bool local_user) const {
  if (!local_user) return access.superuser();
  const security::User* user = policy_->user(*access.who().username);
  return user ? std::optional(user->superuser) : std::nullopt;
}

bool Worker::absent_may_keep(const Client& client, ByteView filter) {
  const session::Session& session = *client.session;
  const security::Access* access = access_of({session.client_id(), session.owner(), {}});
  if (!access || auto_subscribed(session, filter)) return true;  // a ban ends; until then nobody comes for it
  const std::string inner = unmounted(session::owner_parts(session.owner()).mountpoint, filter);
  const Ruling ruling = access->ruling(inner, Action::subscribe);
  if (ruling != Ruling::open) return ruling == Ruling::allow;
  return others_decide() || access->may_subscribe(inner);
}

/// The rules are others than when offline sessions subscribed, or may be. Some sessions a turn.
void Worker::review_absent() {
  to_review_.clear();
  if (!policy_ || policy_->asks_addresses()) return;
  for (const auto& [client_id, client] : clients_)
    if (!client->connection && !client->arriving && !client->session->subscriptions().empty())
      to_review_.push_back(client_id);
  go_on_reviewing();
}

void Worker::go_on_reviewing() {
  for (size_t left = kReviewsPerTurn; left > 0 && !to_review_.empty(); --left) {
    Client* client = find_client(to_review_.back());
    to_review_.pop_back();
    if (!client || client->connection || client->arriving) continue;  // looked at when it attaches
    auto& subscriptions = client->session->subscriptions();
    for (auto it = subscriptions.begin(); it != subscriptions.end();) {
      if (absent_may_keep(*client, it->first)) {
        ++it;
        continue;
      }
      context_.counters.subscribe_denied.add();
      log_info("subscription_denied", {{"client_id", client->session->client_id()}, {"filter", it->first}});
      it = drop_subscription(*client, it);
    }
  }
  if (to_review_.empty() || std::exchange(review_posted_, true)) return;
  loop_.post([this] {
    review_posted_ = false;
    if (!stopping_) go_on_reviewing();
  });
}

}  // namespace ph::broker
