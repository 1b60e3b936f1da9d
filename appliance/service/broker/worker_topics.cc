// What clients call a topic and what the broker does: $delayed, rewrite rules, mountpoints, exclusive subscriptions. A
// topic is first taken out of its $-prefix, then rewritten, then mounted;
// access rules see it rewritten and without the mountpoint.
#include <algorithm>

#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {

using mqtt::ReasonCode;
using routing::RewriteRule;

namespace {

constexpr ByteView kExclusive = "$exclusive/";

/// Length of what stands in front of the filter proper: "$share/<group>/", "$queue/" or "$exclusive/".
size_t prefix_of(ByteView filter) {
  if (const auto shared = mqtt::shared_filter(filter)) return filter.size() - shared->filter.size();
  return filter.starts_with(kExclusive) ? kExclusive.size() : 0;
}

}  // namespace

/// The filter in "$exclusive/<filter>", maybe empty; nullopt for all others.
std::optional<ByteView> Worker::exclusive_filter(ByteView filter) {
  if (!filter.starts_with(kExclusive)) return std::nullopt;
  return filter.substr(kExclusive.size());
}

/// A name that was verified; a claimed one names no topics.
ByteView Worker::username_of(const ClientConnection& connection) {
  return connection.access && connection.access->who().username ? ByteView(*connection.access->who().username)
                                                                : ByteView();
}

void Worker::mount(ClientConnection& connection, const std::string& client_id) {
  connection.mountpoint =
      routing::fill_client(options_.listeners[connection.listener].mountpoint, client_id, username_of(connection));
  connection.renames = !connection.mountpoint.empty() || !rewrite_.empty();
}

/// Mounts the connection and gives its will the broker's name for its topic. False: it may not have that one.
bool Worker::name_will(ClientConnection& connection, Opening& opening) {
  mount(connection, opening.client_id);
  opening.owner = session::owner_of(username_of(connection), connection.mountpoint);
  if (!opening.will) return true;
  std::string topic = name_topic(connection, opening.will->message->topic, opening.client_id);
  const ByteView inner = ByteView(topic).substr(connection.mountpoint.size());
  if (inner.starts_with("$SYS/") || topic.size() > UINT16_MAX) return false;  // the broker's own
  if (topic == opening.will->message->topic) return true;
  auto named = std::make_shared<session::Message>(*opening.will->message);
  named->topic = std::move(topic);
  opening.will->message = std::move(named);
  return true;
}

/// Gives a client's message the broker's name for its topic. A reason is the answer to the PUBLISH.
std::optional<ReasonCode> Worker::rename(ClientConnection& connection, session::MessageView& view,
                                         std::optional<uint32_t>& delay) {
  const bool v5 = connection.channel().version() == mqtt::Version::v5;
  auto own = [&](ByteView topic) -> std::optional<ReasonCode> {  // the broker's
    if (!topic.starts_with("$SYS/")) return std::nullopt;
    context_.counters.publish_denied.add();
    return v5 ? ReasonCode::not_authorized : ReasonCode::success;
  };
  if (const auto refused = own(view.topic)) return refused;
  if (view.topic.starts_with(kDelayedPrefix)) {
    const auto delayed = delayed_topic(view.topic);
    if (!delayed || delayed->topic.starts_with('$')) return ReasonCode::topic_name_invalid;
    view.topic = delayed->topic;
    delay = delayed->seconds;
  }
  if (!connection.renames) return std::nullopt;
  topic_ = name_topic(connection, view.topic, connection.client->session->client_id());
  if (topic_.size() > UINT16_MAX) return ReasonCode::topic_name_invalid;
  // A rule's wildcard may have caught the name: "old/$SYS/..." that becomes "{1}/...".
  if (const auto refused = own(ByteView(topic_).substr(connection.mountpoint.size()))) return refused;
  view.topic = topic_;
  return std::nullopt;
}

std::string Worker::name_topic(const ClientConnection& connection, ByteView topic, ByteView client_id) const {
  const auto rewritten = rewrite_.apply(RewriteRule::On::publish, topic, client_id, username_of(connection));
  return connection.mountpoint + (rewritten ? *rewritten : std::string(topic));
}

/// The same for a filter; what makes it shared or exclusive stays in front.
std::string Worker::name_filter(const ClientConnection& connection, ByteView filter) const {
  if (!connection.renames) return std::string(filter);
  return name_filter(connection.mountpoint, connection.client->session->client_id(), username_of(connection), filter);
}

std::string Worker::name_filter(ByteView mountpoint, ByteView client_id, ByteView username, ByteView filter) const {
  const size_t prefix = prefix_of(filter);
  const ByteView inner = filter.substr(prefix);
  const auto rewritten = rewrite_.apply(RewriteRule::On::subscribe, inner, client_id, username);
  std::string out(filter.substr(0, prefix));
  out += mountpoint;
  out += rewritten ? ByteView(*rewritten) : inner;
  return out;
}

/// A filter of name_filter() without the mountpoint.
std::string Worker::unmounted(ByteView mountpoint, ByteView filter) {
  const size_t prefix = prefix_of(filter);
  ByteView inner = filter.substr(prefix);
  if (inner.starts_with(mountpoint)) inner.remove_prefix(mountpoint.size());
  return std::string(filter.substr(0, prefix)).append(inner);
}

std::string Worker::auto_filter(const AutoSubscription& wanted, ByteView mountpoint, ByteView client_id,
                                ByteView username) const {
  return name_filter(mountpoint, client_id, username, routing::fill_client(wanted.filter, client_id, username));
}

/// Whether the configuration subscribes the client to this filter. No rule is asked about that, now or later.
bool Worker::auto_subscribed(const session::Session& session, ByteView filter) const {
  if (options_.auto_subscribe.empty()) return false;
  const session::Owner owner = session::owner_parts(session.owner());
  return std::ranges::any_of(options_.auto_subscribe, [&](const AutoSubscription& a) {
    return auto_filter(a, owner.mountpoint, session.client_id(), owner.username) == filter;
  });
}

/// A session that was made under another mountpoint must not bring messages from there.
void Worker::drop_foreign_subscriptions(Client& client) {
  const std::string& mountpoint = client.connection->mountpoint;
  if (mountpoint.empty()) return;
  auto& subscriptions = client.session->subscriptions();
  for (auto it = subscriptions.begin(); it != subscriptions.end();) {
    if (ByteView(it->first).substr(prefix_of(it->first)).starts_with(mountpoint)) {
      ++it;
      continue;
    }
    it = drop_subscription(client, it);
  }
}

// --- exclusive subscriptions: each filter has a home worker, which knows who has it

void Worker::ask_exclusive(const std::string& filter, uint64_t uid, std::move_only_function<void(bool)> answer) {
  const uint32_t home = home_of(filter);
  if (home == index_) return answer(exclusive_.try_emplace(filter, uid).first->second == uid);
  send_task(home, [filter, uid, from = index_, answer = std::move(answer)](Worker* w) mutable {
    const bool granted = w->exclusive_.try_emplace(filter, uid).first->second == uid;
    w->send_task(from, [granted, answer = std::move(answer)](Worker*) mutable { answer(granted); });
  });
}

void Worker::release_exclusive(const std::string& filter, uint64_t uid) {
  const uint32_t home = home_of(filter);
  if (home != index_) return send_task(home, [filter, uid](Worker* w) { w->release_exclusive(filter, uid); });
  auto it = exclusive_.find(filter);
  if (it != exclusive_.end() && it->second == uid) exclusive_.erase(it);
}

}  // namespace ph::broker
