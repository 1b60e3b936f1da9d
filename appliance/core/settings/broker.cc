#include "core/settings/broker.h"

#include "codec/mqtt/text.h"
#include "core/settings/access.h"
#include "core/settings/key.h"
#include "core/settings/rows.h"
#include "core/settings/settings.h"

namespace ph::settings {
namespace {

constexpr Bytes kTiB{1ull << 40};
constexpr Duration kDay = std::chrono::hours(24);

std::vector<std::string_view> inner() {
  std::vector<std::string_view> out = {"rewrite", "auto_subscribe"};
  out.insert(out.end(), std::begin(kAccessInner), std::end(kAccessInner));
  return out;
}

/// A key that holds a topic filter, checked as one once its placeholders are out of the way.
template <class Row>
Key<Row> filter_text(std::string_view name, std::string Row::* member, std::string_view doc) {
  Key<Row> key = text(name, member, doc);
  key.read = [member](Row& row, const Value& v, const Field& f) {
    if (!f.expect(v, Value::Kind::string, "a topic filter")) return;
    row.*member = v.text;
    if (!mqtt::filter_valid(v.text) || v.text.starts_with("$exclusive/") || v.text.starts_with("$delayed/"))
      f.error(v.place, f.name() + " is no topic filter: \"" + v.text + "\"",
              "+ and # stand for whole levels, # for the last one");
  };
  return key;
}

const Table<Rewrite>& rewrite_table() {
  static const Table<Rewrite> table(
      "broker.rewrite", true,
      "Other names for topics, before anything else sees them. The first rule that matches counts.",
      {
          choice<Rewrite, Rewrite::On, Rewrite::On>(
              "on", &Rewrite::on,
              {{"publish", Rewrite::On::publish}, {"subscribe", Rewrite::On::subscribe}, {"both", Rewrite::On::both}},
              "Whether it is for what clients publish, for what they subscribe to, or for both."),
          filter_text("from", &Rewrite::from, "Topic filter; its levels are compared one by one.")
              .needed()
              .like("\"old/+/#\""),
          text("to", &Rewrite::to,
               "The new name: {1} to {9} are what the wildcards stood for, %c is the client id, %u the user name.")
              .needed()
              .like("\"new/{1}/{2}\""),
      });
  return table;
}

const Table<AutoSubscribe>& auto_subscribe_table() {
  static const Table<AutoSubscribe> table(
      "broker.auto_subscribe", true, "What every client is subscribed to when it connects.",
      {
          filter_text("filter", &AutoSubscribe::filter, "Topic filter; %c is the client id, %u the user name.")
              .needed()
              .like("\"inbox/%c\""),
          integer("qos", &AutoSubscribe::qos, 0, 2, "QoS."),
          flag("no_local", &AutoSubscribe::no_local, "The client does not get what it publishes itself."),
          flag("retain_as_published", &AutoSubscribe::retain_as_published, "Messages keep their retain flag."),
          integer("retain_handling", &AutoSubscribe::retain_handling, 0, 2,
                  "Retained messages are sent 0: at each connection, 1: when the subscription is new, 2: never."),
      });
  return table;
}

const Table<Broker>& broker_table() {
  static const Table<Broker> table(
      "broker", false, "Limits of the MQTT broker.",
      {
          integer("workers", &Broker::workers, 0, 256, "Threads; 0: one per core."),
          size("packet_max", &Broker::packet_max, 1_KiB, 256_MiB, "Longest packet."),
          duration("connect_timeout", &Broker::connect_timeout, 1s, 600s, "From the connection to CONNECT."),
          duration("keep_alive_max", &Broker::keep_alive_max, 1s, 65'535s,
                   "A version 5 client that asks for a longer keep-alive, or for none, is given this one."),
          integer("inflight_max", &Broker::inflight_max, 1, 65'535, "Unacknowledged QoS 1 and 2 messages to a client."),
          integer("mqueue_messages_max", &Broker::mqueue_messages_max, 0, 10'000'000,
                  "Messages that wait for a client; then QoS 0, then the oldest, are dropped and counted."),
          size("mqueue_bytes_max", &Broker::mqueue_bytes_max, 64_KiB, {kTiB.value}, "Bytes that wait for a client."),
          integer("topic_levels_max", &Broker::topic_levels_max, 1, 65'535, "Levels of a topic or filter."),
          integer("topic_alias_max", &Broker::topic_alias_max, 0, 65'535, "Topic aliases of a connection."),
          integer("client_id_max", &Broker::client_id_max, 23, 65'535, "Bytes of a client id."),
          integer("awaiting_rel_max", &Broker::awaiting_rel_max, 1, 65'535,
                  "QoS 2 messages of a client that await PUBREL."),
          duration("session_expiry", &Broker::session_expiry, 0s, 3650 * kDay,
                   "Life of an offline session of a client of version 3."),
          choice<Broker, Durability, Durability>(
              "durability", &Broker::durability, {{"fsync", Durability::fsync}, {"lazy", Durability::lazy}},
              "fsync: QoS 1 and 2 to sessions that outlive their connection, their subscriptions and retained messages "
              "are acknowledged once they are on disk. lazy: at once, and written within a second."),
          integer("sessions_max", &Broker::sessions_max, 1, 100'000'000, "Sessions, online and offline."),
          integer("subscriptions_max", &Broker::subscriptions_max, 1, 10'000'000, "Subscriptions of a client."),
          integer("qos_max", &Broker::qos_max, 0, 2, "Highest QoS that is offered."),
          flag("retain_available", &Broker::retain_available, "Whether clients may publish retained messages."),
          flag("payload_format_check", &Broker::payload_format_check,
               "Whether payloads that claim to be UTF-8 are checked, and refused where they are not."),
          text("response_information", &Broker::response_information,
               "Told to clients that ask for it: where answers to them are to be published. %c: client id, %u: user "
               "name.")
              .like("\"answers/%c/\""),
          choice<Broker, Overlapping, Overlapping>(
              "overlapping", &Broker::overlapping, {{"once", Overlapping::once}, {"each", Overlapping::each}},
              "A message that matches several subscriptions of a client comes once, or once for each."),
          integer("delayed_max", &Broker::delayed_max, 0, 10'000'000,
                  "Messages that wait for their time: published to $delayed/<seconds>/<topic>."),
          duration("sys_interval", &Broker::sys_interval, 0s, kDay,
                   "How often the broker's figures are published below $SYS; 0s: not at all."),
          integer("retained_max", &Broker::retained_max, 0, 100'000'000, "Retained messages."),
          choice<Broker, SharedStrategy, SharedStrategy>("shared_strategy", &Broker::shared_strategy,
                                                         {{"round_robin", SharedStrategy::round_robin},
                                                          {"random", SharedStrategy::random},
                                                          {"sticky", SharedStrategy::sticky},
                                                          {"hash_clientid", SharedStrategy::hash_clientid},
                                                          {"hash_topic", SharedStrategy::hash_topic},
                                                          {"local", SharedStrategy::local}},
                                                         "Which member of a shared subscription gets a message; those "
                                                         "that are connected come first. local: of those on the "
                                                         "thread that has the publisher."),
      },
      inner());
  return table;
}

}  // namespace

namespace {

/// A name that clients' names are filled into; "x" stands for one that is like others.
bool template_valid(std::string_view text) {
  return mqtt::utf8_valid(text) && mqtt::topic_valid(text) && text.size() <= UINT16_MAX;
}

void check_rewrite(const Rewrite& row, const Value& table, Diagnostics& out) {
  const Entry* to = table.find("to");
  if (!to || !to->value.is(Value::Kind::string) || row.from.empty()) return;
  if (!template_valid(row.to))
    return out.error(to->value.place, "`to` is " + in_quotes(row.to.substr(0, 80)) + ", which is no topic",
                     "at least one character, and no + and #: wildcards come in by {1} to {9}");
  size_t wildcards = 0;
  for (size_t i = 0; i < row.from.size(); ++i) wildcards += row.from[i] == '+' || row.from[i] == '#';
  for (size_t i = row.to.find('{'); i != row.to.npos; i = row.to.find('{', i + 1)) {
    const std::string_view word = std::string_view(row.to).substr(i, 3);
    if (word.size() < 3 || word[2] != '}' || word[1] < '0' || word[1] > '9') continue;
    if (static_cast<size_t>(word[1] - '0') > wildcards || word[1] == '0')
      out.error(to->value.place, "`to` has " + std::string(word) + ", but `from` has " + std::to_string(wildcards) +
                                     (wildcards == 1 ? " wildcard" : " wildcards"));
  }
}

void check_auto_subscribe(const AutoSubscribe& row, const Value& table, Diagnostics& out) {
  const Entry* no_local = table.find("no_local");
  if (no_local && row.no_local && mqtt::shared_filter(row.filter))
    out.error(no_local->value.place,
              "`no_local` and the shared filter " + in_quotes(row.filter.substr(0, 80)) + " exclude each other",
              "whose messages a group gets does not depend on who of it sent them");
}

template <class Row>
void check_rows(const Value& broker, std::string_view key, const std::vector<Row>& rows,
                void (*check)(const Row&, const Value&, Diagnostics&), Diagnostics& out) {
  const Entry* written = broker.find(key);
  for (size_t i = 0; i < rows.size(); ++i) check(rows[i], written->value.items[i], out);
}

}  // namespace

std::vector<TableInfo> broker_tables() {
  return {broker_table().info(), rewrite_table().info(), auto_subscribe_table().info()};
}

void read_broker(const Value& broker, Broker& into, Diagnostics& out) {
  broker_table().read(broker, into, out);
  read_rows(broker, "rewrite", rewrite_table(), into.rewrites, out);
  read_rows(broker, "auto_subscribe", auto_subscribe_table(), into.auto_subscriptions, out);
  check_rows(broker, "rewrite", into.rewrites, check_rewrite, out);
  check_rows(broker, "auto_subscribe", into.auto_subscriptions, check_auto_subscribe, out);
  if (const Entry* e = broker.find("response_information");
      e && e->value.is(Value::Kind::string) && !template_valid(into.response_information))
    out.error(e->value.place,
              "`response_information` is " + in_quotes(into.response_information.substr(0, 80)) +
                  ", which no client can publish below",
              "no wildcards, and not empty");
}

}  // namespace ph::settings
