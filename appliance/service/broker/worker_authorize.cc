// The worker's questions to an HTTP server about what no rule decides: asked before a packet is taken, so that PUBLISH
// and SUBSCRIBE themselves find their answers there. See http_authorizer.h.
#include <utility>

#include "service/broker/worker.h"

namespace ph::broker {

using security::Action;
using security::HttpVerdict;
using security::Ruling;

namespace {

/// The topic that rules see, of a client's PUBLISH; nullopt: it is refused without them.
std::optional<ByteView> without_delay(ByteView topic) {
  if (topic.starts_with("$SYS/")) return std::nullopt;
  if (!topic.starts_with(kDelayedPrefix)) return topic;
  const auto delayed = delayed_topic(topic);
  return delayed ? std::optional(delayed->topic) : std::nullopt;
}

}  // namespace

/// What the server said about it, if it was asked.
std::optional<HttpVerdict::Result> Worker::decision(const ClientConnection& connection,
                                                    const security::AccessQuestion& question) const {
  if (!connection.decisions) return std::nullopt;
  const auto row = connection.decisions->rows.find(question.key());
  return row == connection.decisions->rows.end() ? std::nullopt : std::optional(row->second.result);
}

/// Whether a client may: its rules, then the server, then what holds where neither says anything.
bool Worker::allowed(const ClientConnection& connection, const security::AccessQuestion& question) const {
  security::Access& access = *connection.access;
  const bool publish = question.action == Action::publish;
  auto otherwise = [&] { return publish ? access.may_publish(question.topic) : access.may_subscribe(question.topic); };
  if (!authorizer_.on()) return otherwise();
  const Ruling ruling = access.ruling(question.topic, question.action);
  if (ruling != Ruling::open) return ruling == Ruling::allow;
  const auto answer = decision(connection, question);
  if (answer == HttpVerdict::Result::allow) return true;
  if (answer == HttpVerdict::Result::deny) return false;
  return otherwise();
}

bool Worker::ready_for(ClientConnection& connection, const mqtt::Publish& publish) {
  if (!connection.access) return true;
  const auto topic = without_delay(publish.topic);
  if (!topic) return true;
  std::string named(*topic);
  if (connection.renames)
    named =
        name_topic(connection, *topic, connection.client->session->client_id()).substr(connection.mountpoint.size());
  std::vector<security::AccessQuestion> questions;
  questions.push_back({Action::publish, std::move(named), publish.qos, publish.retain});
  return ask_first(connection, std::move(questions));
}

bool Worker::ready_for(ClientConnection& connection, const mqtt::Subscribe& subscribe) {
  if (!connection.access) return true;
  std::vector<security::AccessQuestion> questions;
  for (const mqtt::Filter& f : subscribe.filters)
    questions.push_back(
        {Action::subscribe, unmounted(connection.mountpoint, name_filter(connection, f.filter)), f.qos, false});
  return ask_first(connection, std::move(questions));
}

/// True: every answer is there, or none is needed.
bool Worker::ask_first(ClientConnection& connection, std::vector<security::AccessQuestion> questions) {
  if (!connection.decisions) connection.decisions = std::make_unique<Decisions>();
  Decisions& known = *connection.decisions;
  if (std::exchange(known.resuming, false)) return true;
  authorizer_.trim(known);
  std::erase_if(questions, [&](const security::AccessQuestion& q) {
    return connection.access->ruling(q.topic, q.action) != Ruling::open || decision(connection, q);
  });
  if (questions.empty()) return true;
  ask_one(connection, std::make_shared<std::vector<security::AccessQuestion>>(std::move(questions)), 0);
  return false;
}

void Worker::ask_one(ClientConnection& connection, std::shared_ptr<std::vector<security::AccessQuestion>> questions,
                     size_t next) {
  const security::AccessQuestion& question = (*questions)[next];
  authorizer_.ask(connection.id(), security::authorization_question(connection.access->who(), question),
                  [this, id = connection.id(), questions, next](Decisions::Row row) {
                    const auto it = connections_.find(id);
                    if (it == connections_.end() || !it->second->channel().open()) return;
                    ClientConnection& client = *it->second;
                    client.decisions->rows.insert_or_assign((*questions)[next].key(), row);
                    if (next + 1 < questions->size() && !row.failed) return ask_one(client, questions, next + 1);
                    // Ten thousand filters are not ten thousand times the time of an answer.
                    for (size_t i = next + 1; i < questions->size(); ++i)
                      client.decisions->rows.insert_or_assign((*questions)[i].key(), row);
                    client.decisions->resuming = true;
                    client.go_on();
                  });
}

/// A client that is not in yet wants a will. `then` runs with whether it may.
void Worker::when_will_decided(ClientConnection& connection, security::AccessQuestion question,
                               std::move_only_function<void(ClientConnection&, bool)> then) {
  const bool open = authorizer_.on() && connection.access->ruling(question.topic, Action::publish) == Ruling::open;
  if (!open) return then(connection, allowed(connection, question));
  std::string text = security::authorization_question(connection.access->who(), question);
  authorizer_.ask(
      connection.id(), std::move(text),
      [this, id = connection.id(), question = std::move(question), then = std::move(then)](Decisions::Row row) mutable {
        const auto it = connections_.find(id);
        if (it == connections_.end() || !it->second->channel().opening()) return;
        ClientConnection& client = *it->second;
        client.decisions = std::make_unique<Decisions>();
        client.decisions->rows.insert_or_assign(question.key(), row);
        then(client, allowed(client, question));
      });
}

}  // namespace ph::broker
