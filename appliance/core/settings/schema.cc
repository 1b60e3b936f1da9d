// The tables of keys, in the order of config/posthouse.toml. Rooms that get a new key add it here and to settings.h.
#include "core/settings/schema.h"

#include <re2/re2.h>

#include <limits>

#include "core/settings/auth_methods.h"
#include "core/settings/broker.h"
#include "core/settings/key.h"
#include "core/settings/rows.h"

namespace ph::settings {
namespace {

constexpr Bytes kTiB{1ull << 40};
constexpr Duration kDay = std::chrono::hours(24);

const Table<Node>& node_table() {
  static const Table<Node> table(
      "node", false, "Who this node is.",
      {
          text("name", &Node::name,
               "Name of the node, unique in the whole installation; under TLS equal to the CN of its certificate. "
               "Default: the host's name.")
              .like("\"gw-17\""),
          text("site", &Node::site,
               "Datacenter. Events that already passed a site are not sent there again. Default: the node's name.")
              .like("\"ams\""),
          text("data_dir", &Node::data_dir, "Everything the node must not lose lives below it."),
          size("disk_reserve", &Node::disk_reserve, 1_MiB, kTiB,
               "What is kept free on the disks of data_dir and receiver.dir, for cursors and for a start on a full "
               "disk; "
               "at most a quarter of a disk. Intake stops before it is touched, and goes on when there is room again."),
      });
  return table;
}

const Table<Agent>& agent_table() {
  static const Table<Agent> table(
      "agent", false, "Reads producers' files: <dir>/<category>/<anything> and <dir>/<category>[.log].",
      {
          text("dir", &Agent::dir,
               "Absolute path of the source directory. Its files belong to the agent, which rotates "
               "and deletes them once they are delivered.")
              .needed()
              .like("\"/var/spool/posthouse\""),
          size("line_max", &Agent::line_max, 1_KiB, 4_MiB, "Longest line; for longer ones see line_oversize."),
          choice<Agent, Oversize, Oversize>(
              "line_oversize", &Agent::line_oversize,
              {{"split", Oversize::split}, {"truncate", Oversize::truncate}, {"dead_letter", Oversize::dead_letter}},
              "What becomes of a longer line: delivered in pieces, cut, or put to the dead letters."),
          size("rotate_size", &Agent::rotate_size, 64_KiB, kTiB, "A file that is larger is rotated away."),
          duration("rotate_age", &Agent::rotate_age, 1s, 30 * kDay, "A file that is older is rotated away."),
          duration("rescan_interval", &Agent::rescan_interval, 1s, kDay,
                   "How often the directory is read through, for what change notifications missed."),
          duration("delete_grace", &Agent::delete_grace, 1s, kDay,
                   "Time between rotation and the first attempt to delete."),
          choice<Agent, AgentMode, AgentMode>(
              "mode", &Agent::mode, {{"spool", AgentMode::spool}, {"tail", AgentMode::tail}},
              "spool: the agent rotates and deletes the files. tail: somebody else does, by renaming or by copying and "
              "truncating; the agent reads on and touches nothing."),
          texts("include", &Agent::include,
                "Masks of files to read, by name or by path below dir; * stands for anything, also a slash. Default: "
                "all.")
              .like("[\"*.log\"]"),
          texts("exclude", &Agent::exclude, "Masks of files not to begin with; stronger than include.")
              .like("[\"debug/*\"]"),
      },
      {"category"});
  return table;
}

const Table<AgentCategory>& agent_category_table() {
  static const Table<AgentCategory> table(
      "agent.category", true, "How the files of categories are read; the first table with a matching mask counts.",
      {
          texts("match", &AgentCategory::match, "Masks of categories; * stands for anything.")
              .needed()
              .like("[\"app_*\"]"),
          choice<AgentCategory, std::optional<AgentMode>, AgentMode>(
              "mode", &AgentCategory::mode, {{"spool", AgentMode::spool}, {"tail", AgentMode::tail}},
              "Instead of agent.mode.")
              .like("\"tail\""),
          text("multiline_start", &AgentCategory::multiline_start,
               "Regular expression (RE2, over bytes) that the first line of an event matches at its beginning; lines "
               "that do "
               "not belong to the event before. It becomes one line, with newlines as \\n and backslashes as \\\\. "
               "Default: every line is an event.")
              .like("'\\d{4}-\\d\\d-\\d\\d '"),
          integer("multiline_lines", &AgentCategory::multiline_lines, 1, 100'000, "Longest event, in lines."),
          size("multiline_bytes", &AgentCategory::multiline_bytes, 1_KiB, 256_KiB, "Longest event, in bytes."),
          duration("multiline_timeout", &AgentCategory::multiline_timeout, 100ms, std::chrono::hours(1),
                   "An event at the end of a file is whole when nothing was added for so long."),
      });
  return table;
}

const Table<Category>& category_table() {
  static const Table<Category> table(
      "receiver.category", true, "How categories are written; the first table with a matching mask counts.",
      {
          texts("match", &Category::match, "Masks of categories; * stands for anything.")
              .needed()
              .like("[\"error_log\"]"),
          choice<Category, FileMode, FileMode>(
              "mode", &Category::mode, {{"chunks", FileMode::chunks}, {"plain", FileMode::plain}},
              "chunks: <dir>/<category>/<category>-YYYY-MM-DD_NNNNNN and a link <category>_current; plain: one file "
              "<dir>/<category>."),
          size("chunk_max", &Category::chunk_max, 4_KiB, kTiB,
               "A chunk that holds more, before compression, is closed."),
          duration("chunk_interval", &Category::chunk_interval, 100ms, kDay, "A chunk that is older is closed."),
          choice<Category, Compress, Compress>(
              "compress", &Category::compress,
              {{"none", Compress::none}, {"gzip", Compress::gzip}, {"zstd", Compress::zstd}},
              "Compression of the files, whose names then end with .gz or .zst; each commit is a member or frame of "
              "its "
              "own."),
          choice<Category, MessageFormat, MessageFormat>(
              "format", &Category::format, {{"raw", MessageFormat::raw}, {"json", MessageFormat::json}},
              "How MQTT messages become lines: the payload with newline and backslash escaped, or one JSON object."),
          duration("keep", &Category::keep, 1s, 3650 * kDay,
                   "Closed chunks that are older are deleted. Default: receiver.keep.")
              .like("\"7d\""),
          size("max", &Category::max, 4_KiB, kTiB, "Oldest closed chunks of the category are deleted beyond this size.")
              .like("\"1GiB\""),
          size("quota", &Category::quota, 4_KiB, kTiB,
               "When the category's files have this size, receiver.over_quota applies to its events.")
              .like("\"2GiB\""),
      });
  return table;
}

const Table<Receiver>& receiver_table() {
  static const Table<Receiver> table(
      "receiver", false, "Takes events from other nodes, and writes files.",
      {
          text("link", &Receiver::link, "Address to listen at for other nodes: \"host:port\", \"[::]:port\".")
              .like("\"[::]:3706\""),
          text("lsd", &Receiver::lsd,
               "Address to listen at for clients of LSD's protocol, which has neither TLS nor authentication.")
              .like("\"127.0.0.1:3701\""),
          text("dir", &Receiver::dir,
               "Directory of the received files. Without it no route may say \"files\": the node only passes on.")
              .like("\"/var/lib/posthouse/events\""),
          flag("tls", &Receiver::tls, "Default: true if there is a [tls] table.").like("true"),
          flag("insecure_plain", &Receiver::insecure_plain, "Allows to listen without TLS on other than loopback."),
          integer("connections_max", &Receiver::connections_max, 1, 100'000, "More are refused."),
          integer("categories_max", &Receiver::categories_max, 1, 1'000'000, "Events of further ones are refused."),
          size("memory", &Receiver::memory, 1_MiB, 64_GiB,
               "Of events from other nodes that are not on disk yet, over all connections; then their senders wait in "
               "turn."),
          size("staging_max", &Receiver::staging_max, 1_MiB, 1024_GiB,
               "Disk for what senders with dedup = \"strict\" have brought and not decided on yet; then they wait."),
          duration("stream_ttl", &Receiver::stream_ttl, std::chrono::hours(1), 365 * kDay,
                   "Silence after which a sender's stream is forgotten."),
          duration("keep", &Receiver::keep, 1s, 3650 * kDay,
                   "Closed chunks that are older are deleted, whether anybody has read them or not.")
              .like("\"7d\""),
          size("max", &Receiver::max, 1_MiB, {kTiB.value * 1024},
               "Oldest closed chunks of all categories are deleted beyond this size.")
              .like("\"50GiB\""),
          size("quota", &Receiver::quota, 1_MiB, {kTiB.value * 1024},
               "When the files of all categories have this size, over_quota applies to all events.")
              .like("\"80GiB\""),
          choice<Receiver, OverQuota, OverQuota>(
              "over_quota", &Receiver::over_quota,
              {{"block", OverQuota::block}, {"dead_letter", OverQuota::dead_letter}},
              "What becomes of events over a quota, the receiver's or the category's: they wait at their senders until "
              "somebody has made room, or go to the senders' dead letters."),
      },
      {"category"});
  return table;
}

void read_address(const Value& value, const Field& field, Upstream& row) {
  static const Table<Address> table(
      "upstream.addresses", false, "",
      {text("address", &Address::address, "").needed(), integer("weight", &Address::weight, 1, 1000, "")});
  Address address;
  if (value.is(Value::Kind::table))
    table.read(value, address, field.out);
  else if (field.expect(value, Value::Kind::string, "an array of \"host:port\" or { address = ..., weight = ... }"))
    address.address = value.text;
  row.addresses.push_back(std::move(address));
}

Key<Upstream> addresses_key() {
  return Key<Upstream>{"addresses",
                       "array",
                       "",
                       "Receivers: \"host:port\" or { address = \"host:port\", weight = n }.",
                       [](Upstream& row, const Value& v, const Field& f) {
                         if (!f.expect(v, Value::Kind::array, "an array of addresses")) return;
                         for (const Value& item : v.items) read_address(item, f, row);
                       },
                       nullptr,
                       "[\"fra-1:3706\", { address = \"fra-2:3706\", weight = 2 }]",
                       true};
}

void read_hash(const Value& value, const Field& field, Balance& balance) {
  static constexpr std::string_view kShape =
      "{ hash = { prefix = \":\" } }, { hash = { regex = \"...\" } } or "
      "{ hash = { topic_level = n } }";
  const Entry* hash = value.entries.size() == 1 ? value.find("hash") : nullptr;
  if (!hash || !hash->value.is(Value::Kind::table) || hash->value.entries.size() != 1) {
    field.error(value.place, field.name() + " must be \"round_robin\", " + std::string(kShape));
    return;
  }
  const Entry& by = hash->value.entries.front();
  if (by.key == "topic_level") {
    balance.by = Balance::By::hash_topic_level;
    if (auto n = read_integer(by.value, field, 1, limits::kTopicLevelsMax)) balance.level = static_cast<uint32_t>(*n);
  } else if (by.key == "prefix" || by.key == "regex") {
    balance.by = by.key == "prefix" ? Balance::By::hash_prefix : Balance::By::hash_regex;
    if (field.expect(by.value, Value::Kind::string, "a string")) balance.text = by.value.text;
  } else {
    field.error(by.place, "unknown key `" + by.key + "` in a hash", "write " + std::string(kShape));
    return;
  }
  if (balance.by == Balance::By::hash_prefix && balance.text.empty() && by.value.is(Value::Kind::string))
    field.error(by.value.place, "a prefix ends at something: it cannot be empty");
  if (balance.by != Balance::By::hash_regex) return;
  const RE2 pattern(balance.text, RE2::Quiet);
  if (!pattern.ok()) field.error(by.value.place, "the regular expression is wrong: " + pattern.error());
}

Key<Upstream> balance_key() {
  return {"balance",
          "string or table",
          "\"round_robin\", { hash = { prefix | regex | topic_level } }",
          "Which receiver gets what: turns by weight (a slow one gets what it can take), or by a hash of each event.",
          [](Upstream& row, const Value& v, const Field& f) {
            if (v.is(Value::Kind::table))
              read_hash(v, f, row.balance);
            else
              read_choice(v, f, {"round_robin"});
          },
          [](const Upstream&) { return in_quotes("round_robin"); },
          "",
          false};
}

Key<Upstream> rate_key() {
  return {"rate",
          "rate or table",
          "\"8MiB/s\", { \"HH:MM-HH:MM\" = \"1MiB/s\", default = \"unlimited\" }",
          "Bytes per second at most, over all receivers; by the hour of the node's local day, \"off\" for nothing.",
          [](Upstream& row, const Value& v, const Field& f) { read_rate_schedule(v, f, row.rate); },
          nullptr,
          "\"8MiB/s\"",
          false};
}

const Table<Upstream>& upstream_table() {
  static const Table<Upstream> table(
      "upstream", true, "Where events can be sent: one name for receivers that serve the same purpose.",
      {
          text("name", &Upstream::name, "What routes call it. \"files\" is taken.").needed().like("\"fra\""),
          addresses_key(),
          choice<Upstream, Protocol, Protocol>(
              "protocol", &Upstream::protocol, {{"link", Protocol::link}, {"lsd", Protocol::lsd}},
              "Our link protocol, or LSD's, which has no TLS and delivers at least once."),
          balance_key(),
          size("window", &Upstream::window, 256_KiB, 1_GiB,
               "Bytes on their way and not yet acknowledged, over all receivers; they are held in memory."),
          rate_key(),
          integer("connections", &Upstream::connections, 1, 16,
                  "Connections to each address. With more than one, a stream's lines may stand in another order at a "
                  "receiver. Default with protocol = \"lsd\": 4, each with one request on its way."),
          choice<Upstream, LinkCompress, LinkCompress>("compress", &Upstream::compress,
                                                       {{"none", LinkCompress::none},
                                                        {"zstd", LinkCompress::zstd},
                                                        {"auto", LinkCompress::automatic},
                                                        {"gzip", LinkCompress::gzip}},
                                                       "Compression on the way; auto: zstd while a receiver takes less "
                                                       "than 32 MiB/s and something waits for it. With protocol = "
                                                       "\"lsd\": gzip, or else none."),
          integer("live_share", &Upstream::live_share, 0, 100,
                  "Of a category's files with an old backlog: so many batches of its youngest file are sent for each "
                  "one of older files. 0: oldest first, whatever waits behind it."),
          duration("connect_timeout", &Upstream::connect_timeout, 100ms, 60s, "For a connection to be made."),
          duration("request_timeout", &Upstream::request_timeout, 1s, std::chrono::hours(1),
                   "Without any progress for so long a receiver's events go to another one."),
          duration("resume_timeout", &Upstream::resume_timeout, 100ms, std::chrono::hours(1),
                   "How long a lost receiver is waited for before what it may hold goes to another one."),
          choice<Upstream, Dedup, Dedup>(
              "dedup", &Upstream::dedup, {{"fast", Dedup::fast}, {"strict", Dedup::strict}},
              "fast: events that go to another receiver after resume_timeout may be there "
              "twice, and are counted; strict: never twice, for a round trip and a sync "
              "more: receivers stage, and one of them alone is told to publish. But an event that is cut "
              "another way after a crash, since its lines went on or line_max is another "
              "one, is there as it was and as it is; counted as recut."),
          duration(
              "strict_give_up", &Upstream::strict_give_up, 1s, std::chrono::hours(24 * 365),
              "With dedup = \"strict\": a receiver that may have published something and is not reached for so long "
              "is waited for no more; that goes elsewhere and is counted as maybe_duplicate. Default: never.")
              .like("\"24h\""),
          flag("tls", &Upstream::tls, "Default: true if there is a [tls] table.").like("true"),
          flag("insecure_plain", &Upstream::insecure_plain, "Allows to connect without TLS to other than loopback."),
          text("server_name", &Upstream::server_name,
               "Name that the receivers' certificates must have. Default: the host in the address.")
              .like("\"fra-1\""),
      });
  return table;
}

void read_target(const Value& value, const Field& field, Route& row) {
  if (value.is(Value::Kind::table)) {
    const Entry* mqtt = value.find("mqtt");
    if (!mqtt || value.entries.size() != 1) {
      field.error(value.place, "a target is an upstream's name, \"files\" or { mqtt = \"topic template\" }");
      row.to.push_back({Target::Kind::mqtt, ""});
      return;
    }
    std::string text;
    if (Field{field.table, "to", field.out}.expect(mqtt->value, Value::Kind::string, "a topic template"))
      text = mqtt->value.text;
    row.to.push_back({Target::Kind::mqtt, text});
    return;
  }
  std::string text;
  if (field.expect(value, Value::Kind::string, "an array of upstream names, \"files\" or { mqtt = ... }"))
    text = value.text;
  row.to.push_back({text == "files" ? Target::Kind::files : Target::Kind::upstream, text});
}

Key<Route> to_key() {
  return Key<Route>{"to",
                    "array",
                    "",
                    "Targets: names of upstreams, \"files\", or { mqtt = \"topic template\" } with {topic}, "
                    "{category}, {origin} (the site where the event entered), {site} and {node} (this node's). Each "
                    "has its own place in the queue and never delays another.",
                    [](Route& row, const Value& v, const Field& f) {
                      if (!f.expect(v, Value::Kind::array, "an array of targets")) return;
                      for (const Value& item : v.items) read_target(item, f, row);
                    },
                    nullptr,
                    "[\"fra\", \"files\"]",
                    true};
}

const Table<Route>& route_table() {
  static const Table<Route> table(
      "route", true,
      "Which events go where. A route without categories and topics takes what no other one takes; it must be there as "
      "soon as there is [agent] or [receiver].",
      {
          text("name", &Route::name, "Name of the route, in counters, status and on disk.")
              .needed()
              .like("\"payments\""),
          texts("categories", &Route::categories,
                "Masks; * stands for anything. A mask without * comes first, then the one with the longest text before "
                "its first *; two masks that would tie are an error.")
              .like("[\"payments_*\"]"),
          texts("topics", &Route::topics, "MQTT filters; every route with a matching one gets the message.")
              .like("[\"pos/+/payment\"]"),
          to_key(),
          choice<Route, Ack, Ack>(
              "ack", &Route::ack, {{"local", Ack::local}, {"far", Ack::far}},
              "When a file or a PUBLISH is released: when the next node (for MQTT: this one) has it "
              "on disk, or when every target's far end has it."),
          choice<Route, When, When>(
              "when", &Route::when, {{"always", When::always}, {"subscribed", When::subscribed}},
              "For a route with topics and one upstream. subscribed: only messages that somebody at the far end "
              "subscribes to are kept and sent; sessions that are away count, and during an outage what was wanted "
              "last. Others are acknowledged as if there were no route."),
          text("category", &Route::category, "Category of events made from MQTT messages. Default: the route's name.")
              .like("\"payments\""),
          choice<Route, std::optional<MessageFormat>, MessageFormat>(
              "format", &Route::format, {{"raw", MessageFormat::raw}, {"json", MessageFormat::json}},
              "How this route's MQTT messages become lines. Default: as [[receiver.category]] says.")
              .like("\"json\""),
      },
      {"spool"});
  return table;
}

const Table<Spool>& spool_table() {
  static const Table<Spool> table(
      "route.spool", false, "What waits for a target; may be written spool = { max = \"20GiB\" }.",
      {
          size("max", &Spool::max, 1_MiB, {kTiB.value * 1024},
               "Bytes that may wait for one target, behind what is in flight. Default: no bound but the disk.")
              .like("\"20GiB\""),
          duration(
              "keep", &Spool::keep, 1s, 3650 * kDay,
              "What waited longer for an upstream, while the node ran, is dropped and counted; right to a 32nd of it.")
              .like("\"7d\""),
          choice<Spool, Full, Full>(
              "full", &Spool::full,
              {{"block", Full::block}, {"drop_oldest", Full::drop_oldest}, {"drop_newest", Full::drop_newest}},
              "What happens at max. block: intake of this route stops, for all its targets; not for files, which wait "
              "where they are. drop_oldest, drop_newest: what is too much for an upstream is dropped and counted, and "
              "a "
              "gap marker tells its receiver; targets at this node block."),
      });
  return table;
}

const Table<Listener>& listener_table() {
  static const Table<Listener> table(
      "listener", true, "Where MQTT clients connect.",
      {
          text("name", &Listener::name, "Default: the address.").like("\"mqtt\""),
          text("bind", &Listener::bind, "\"host:port\", \"[::]:port\".").needed().like("\"127.0.0.1:1883\""),
          choice<Listener, ListenerProtocol, ListenerProtocol>(
              "protocol", &Listener::protocol, {{"mqtt", ListenerProtocol::mqtt}, {"ws", ListenerProtocol::ws}},
              "MQTT over TCP or over WebSocket."),
          text("path", &Listener::path, "Path of the WebSocket; clients name it and subprotocol \"mqtt\"."),
          texts("origins", &Listener::origins,
                "Of WebSocket: whose pages a browser may connect from, \"https://app.example\" or "
                "\"https://*.example:8443\". Clients that are no browsers say none and are let in. Default: pages of "
                "anywhere may.")
              .like("[\"https://dashboard.example\"]"),
          flag("tls", &Listener::tls, "TLS with the certificate of [tls]."),
          choice<Listener, ClientCertificate, ClientCertificate>(
              "client_certificate", &Listener::client_certificate,
              {{"none", ClientCertificate::none},
               {"optional", ClientCertificate::optional},
               {"required", ClientCertificate::required}},
              "Under TLS: whether clients are asked for a certificate. One that is shown must be valid."),
          flag("psk", &Listener::psk,
               "TLS with the pre-shared keys of [broker.psk] and [[broker.psk_identity]], whose identities become user "
               "names. With `tls = true` clients may use the certificate as well; without, there need not be any."),
          flag("proxy_protocol", &Listener::proxy_protocol,
               "Every connection begins with a PROXY header (version 1 or 2) of a balancer, which gives the client's "
               "address. Let nobody else connect here: who can, can claim any address."),
          flag(
              "allow_anonymous", &Listener::allow_anonymous,
              "Whether clients without a user name are let in. Default: on loopback only, and not with proxy_protocol.")
              .like("true"),
          integer("connections_max", &Listener::connections_max, 1, 1'000'000,
                  "Of all workers together. More are refused."),
          methods_key<Listener>("authn", &Listener::authn, "Instead of broker.authn.order."),
          choice<Listener, CertificateAs, CertificateAs>(
              "certificate_as", &Listener::certificate_as,
              {{"none", CertificateAs::none},
               {"username", CertificateAs::username},
               {"clientid", CertificateAs::clientid}},
              "What the name in a client's verified certificate becomes: nothing, its user name, which then needs no "
              "password, or its client id."),
          choice<Listener, CertificateField, CertificateField>(
              "certificate_field", &Listener::certificate_field,
              {{"cn", CertificateField::cn},
               {"dns", CertificateField::dns},
               {"email", CertificateField::email},
               {"uri", CertificateField::uri}},
              "Which name that is: the subject's CN, or the first DNS name, email address or URI among the alternative "
              "names."),
          integer("max_conn_rate", &Listener::max_conn_rate, 0, 1'000'000,
                  "Connections a second; those beyond are closed. 0: no bound, as with the other rates."),
          integer("messages_rate", &Listener::messages_rate, 0, 1'000'000'000,
                  "Messages a second from each client; who sends more is not read from for a while. Nothing is lost."),
          byte_rate("bytes_rate", &Listener::bytes_rate, "Bytes a second from each client, likewise."),
          integer("messages_rate_total", &Listener::messages_rate_total, 0, 1'000'000'000,
                  "Messages a second from all clients together, likewise."),
          byte_rate("bytes_rate_total", &Listener::bytes_rate_total, "Bytes a second from all clients together."),
          text("mountpoint", &Listener::mountpoint,
               "Put in front of all topics of this listener's clients, which see nothing else. %c: client id, %u: user "
               "name.")
              .like("\"tenants/a/\""),
      });
  return table;
}

const Table<Tls>& tls_table() {
  static const Table<Tls> table(
      "tls", false, "This node's certificate; other nodes must have one of the same authority.",
      {
          text("ca", &Tls::ca, "File with the certificates of the authorities (PEM).")
              .needed()
              .like("\"/etc/posthouse/pki/ca.crt\""),
          text("cert", &Tls::cert, "File with this node's certificate and what lies between it and the authority.")
              .needed()
              .like("\"/etc/posthouse/pki/node.crt\""),
          text("key", &Tls::key, "File with its private key.").needed().like("\"/etc/posthouse/pki/node.key\""),
          text("crl", &Tls::crl,
               "File with the authorities' revocation lists (PEM). Once a list has expired, nobody of its authority is "
               "let "
               "in. This file and the three above are read again on SIGHUP, without dropping a connection.")
              .like("\"/etc/posthouse/pki/ca.crl\""),
      });
  return table;
}

const Table<Api>& api_table() {
  static const Table<Api> table("api", false, "HTTP API.",
                                {
                                    text("socket", &Api::socket, "Unix socket that the command line talks to."),
                                    text("bind", &Api::bind, "Address for HTTP over TCP.").like("\"127.0.0.1:18083\""),
                                });
  return table;
}

const Table<Log>& log_table() {
  static const Table<Log> table("log", false, "Logging.",
                                {
                                    choice<Log, LogLevel, LogLevel>("level", &Log::level,
                                                                    {{"trace", LogLevel::trace},
                                                                     {"debug", LogLevel::debug},
                                                                     {"info", LogLevel::info},
                                                                     {"warn", LogLevel::warn},
                                                                     {"error", LogLevel::error},
                                                                     {"off", LogLevel::off}},
                                                                    "Least level that is written."),
                                });
  return table;
}

void read_routes(const Value& root, Settings& into, Diagnostics& out) {
  read_rows(root, "route", route_table(), into.routes, out);
  const Entry* routes = root.find("route");
  for (size_t i = 0; i < into.routes.size(); ++i)
    if (const Value* spool = table_at(routes->value.items[i], "spool", "route.spool", out))
      spool_table().read(*spool, into.routes[i].spool, out);
}

}  // namespace

const std::vector<NotBuilt>& not_built() {
  static const std::vector<NotBuilt> list = {
      {"api.bind", ""},
  };
  return list;
}

const std::vector<TableInfo>& schema() {
  static const std::vector<TableInfo> tables = [] {
    std::vector<TableInfo> out = {
        node_table().info(),     agent_table().info(),    agent_category_table().info(),
        receiver_table().info(), category_table().info(), upstream_table().info(),
        route_table().info(),    spool_table().info(),    listener_table().info(),
        tls_table().info(),      api_table().info(),      log_table().info(),
    };
    for (TableInfo& t : broker_tables()) out.push_back(std::move(t));
    for (TableInfo& t : access_tables()) out.push_back(std::move(t));
    return out;
  }();
  return tables;
}

void read_settings(const Value& root, Settings& into, Diagnostics& out) {
  for (const Entry& e : root.entries) {
    bool known = false;
    for (const TableInfo& t : schema()) known |= t.path == e.key;
    if (!known) report_unknown("", e, out);
  }
  if (const Value* t = table_at(root, "node", "node", out)) node_table().read(*t, into.node, out);
  if (const Value* t = table_at(root, "agent", "agent", out)) {
    agent_table().read(*t, into.agent.emplace(), out);
    read_rows(*t, "category", agent_category_table(), into.agent->categories, out);
  }
  if (const Value* t = table_at(root, "receiver", "receiver", out)) {
    receiver_table().read(*t, into.receiver.emplace(), out);
    read_rows(*t, "category", category_table(), into.receiver->categories, out);
  }
  read_rows(root, "upstream", upstream_table(), into.upstreams, out);
  read_routes(root, into, out);
  read_rows(root, "listener", listener_table(), into.listeners, out);
  if (const Value* t = table_at(root, "tls", "tls", out)) tls_table().read(*t, into.tls.emplace(), out);
  if (const Value* t = table_at(root, "api", "api", out)) api_table().read(*t, into.api, out);
  if (const Value* t = table_at(root, "log", "log", out)) log_table().read(*t, into.log, out);
  if (const Value* t = table_at(root, "broker", "broker", out)) {
    read_broker(*t, into.broker, out);
    read_access(*t, into.broker.access, out);
  }
}

}  // namespace ph::settings
