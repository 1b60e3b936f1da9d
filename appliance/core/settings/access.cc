#include "core/settings/access.h"

#include <algorithm>
#include <set>

#include "core/security/base64.h"
#include "core/security/psk.h"
#include "core/settings/address.h"
#include "core/settings/auth_methods.h"
#include "core/settings/key.h"
#include "core/settings/rows.h"

namespace ph::settings {
namespace {

using security::Permission;
using security::Rule;

const Table<Authn>& authn_table() {
  static const Table<Authn> table(
      "broker.authn", false, "How MQTT clients prove who they are.",
      {
          methods_key<Authn>(
              "order", &Authn::order,
              "In which order credentials are checked. The first method that knows the client decides; a client that "
              "none of them knows is refused, unless it gives no credentials and its listener allows anonymous "
              "clients."),
          text("password_file", &Authn::password_file,
               "Users as mosquitto_passwd writes them, a line \"user:hash\" each. Read at start.")
              .like("\"/etc/mosquitto/passwd\""),
      });
  return table;
}

const Table<Psk>& psk_table() {
  static const Table<Psk> table(
      "broker.psk", false, "Pre-shared keys of TLS, for listeners with psk = true.",
      {
          text("file", &Psk::file,
               "Identities and keys as Mosquitto's psk_file has them, a line \"identity:hexadecimal key\" each. Read "
               "again on SIGHUP.")
              .needed()
              .like("\"/etc/posthouse/psk\""),
      });
  return table;
}

const Table<PskIdentity>& psk_identity_table() {
  static const Table<PskIdentity> table(
      "broker.psk_identity", true, "One pre-shared key. It counts before one of broker.psk.file.",
      {
          Key<PskIdentity>{"identity", "string", "", "What the client calls itself; becomes its user name.",
                           [](PskIdentity& row, const Value& v, const Field& f) {
                             if (!f.expect(v, Value::Kind::string, "a string")) return;
                             row.identity = v.text;
                             if (!security::psk_identity_valid(v.text))
                               f.error(v.place, f.name() + " is no identity: 1 to " +
                                                    std::to_string(security::kPskIdentityMax) +
                                                    " bytes without ':' and control characters");
                           },
                           nullptr, "\"meter-17\"", true},
          Key<PskIdentity>{"key", "string", "", "The key, up to 32 bytes, in hexadecimal.",
                           [](PskIdentity& row, const Value& v, const Field& f) {
                             if (!f.expect(v, Value::Kind::string, "a string of hexadecimal digits")) return;
                             auto key = security::parse_psk_key(v.text);
                             if (!key) return f.error(v.place, f.name() + ": " + key.error().detail);
                             row.key = std::move(*key);
                             if (row.key.size() < security::kPskBytesAdvised)
                               f.out.warning(v.place, f.name() + " has " + std::to_string(row.key.size()) + " bytes",
                                             "less than 16 can be guessed by who has recorded a handshake");
                           },
                           nullptr, "\"4f1c0e6b4a0f1d7a9c7e0d5b3a2f8e61\"", true},
      });
  return table;
}

const Table<Jwt>& jwt_table() {
  static const Table<Jwt> table(
      "broker.jwt", false,
      "Tokens (JWT) as passwords: HS256, HS384, HS512, RS256, ES256. A client is put out when its token's exp comes. "
      "The "
      "claim acl has the client's own rules: {\"pub\": [...], \"sub\": [...], \"all\": [...]} or a list of rules.",
      {
          text("secret", &Jwt::secret, "The secret of HS tokens.").like("\"correct horse battery staple\""),
          flag("secret_base64_encoded", &Jwt::secret_base64, "Whether `secret`, or what is in secret_file, is base64."),
          text("secret_file", &Jwt::secret_file, "A file with the secret; the end of its line does not count.")
              .like("\"/etc/posthouse/jwt.secret\""),
          text("public_key_file", &Jwt::public_key_file, "A PEM file with an RSA or P-256 public key.")
              .like("\"/etc/posthouse/jwt.pem\""),
          text("jwks_file", &Jwt::jwks_file, "A file with a JSON Web Key Set.").like("\"/etc/posthouse/jwks.json\""),
          text("username_claim", &Jwt::username_claim, "The claim with the user name; where it is missing: sub."),
          text("acl_claim_name", &Jwt::acl_claim_name, "The claim with the rules."),
      });
  return table;
}

template <class Row>
Key<Row> url_key(std::string example) {
  return {"url",
          "string",
          "",
          "Where to ask: http://host:port/path or https://host:port/path.",
          [](Row& row, const Value& v, const Field& f) {
            if (!f.expect(v, Value::Kind::string, "a string")) return;
            row.url = v.text;
            row.tls = v.text.starts_with("https://");
            std::string_view rest = v.text;
            if (!row.tls && !rest.starts_with("http://"))
              return f.error(v.place, f.name() + " must begin with http:// or https://");
            rest.remove_prefix(rest.find("://") + 3);
            const size_t slash = rest.find('/');
            row.path = slash == rest.npos ? "/" : rest.substr(slash);
            row.address = rest.substr(0, slash);
            const size_t bracket = row.address.rfind(']');
            if (row.address.find(':', bracket == row.address.npos ? 0 : bracket) == row.address.npos)
              row.address += row.tls ? ":443" : ":80";
            const auto parsed = parse_host_port(row.address, false);
            const bool clean = std::ranges::all_of(row.path, [](char c) { return c > ' ' && c < 0x7F && c != '#'; });
            if (!parsed || !clean)
              f.error(v.place,
                      f.name() + ": " + (parsed ? "the path has white space or odd characters in it" : parsed.error()));
          },
          nullptr,
          std::move(example),
          true};
}

/// What is the same of every server that is asked.
template <class Row>
std::vector<Key<Row>> server_keys(std::string example, std::string_view full) {
  return {
      url_key<Row>(std::move(example)),
      Key<Row>{
          "ca", "string", "",
          "Under https: file with the certificates of the authorities (PEM) that the server's may be of. Read again "
          "on SIGHUP.",
          [](Row& row, const Value& v, const Field& f) {
            if (f.expect(v, Value::Kind::string, "a string")) row.ca = v.text;
          },
          [](const Row& row) { return in_quotes(row.ca); }, "", false},
      Key<Row>{"request_timeout", "duration", "100ms .. 60s", "For the whole answer.",
               [](Row& row, const Value& v, const Field& f) {
                 if (auto d = read_duration(v, f, 100ms, 60s)) row.request_timeout = *d;
               },
               [](const Row& row) { return in_quotes(format_duration(row.request_timeout)); }, "", false},
      Key<Row>{"requests_max", "integer", "1 .. 10000", full,
               [](Row& row, const Value& v, const Field& f) {
                 if (auto n = read_integer(v, f, 1, 10'000)) row.requests_max = static_cast<uint32_t>(*n);
               },
               [](const Row& row) { return std::to_string(row.requests_max); }, "", false},
  };
}

const Table<HttpAuthn>& http_table() {
  static const Table<HttpAuthn> table(
      "broker.http", false,
      "A server that is asked about each client that connects: POST with {clientid, username, password, peerhost}; "
      "it answers {\"result\": \"allow\", \"deny\" or \"ignore\", \"is_superuser\": false, \"acl\": as in a token}, or "
      "204 "
      "for allow. No answer is like ignore, and a client that nobody else knows is then told that the server is "
      "unavailable.",
      server_keys<HttpAuthn>("\"http://127.0.0.1:8080/mqtt/auth\"",
                             "Questions at once, for each worker; further clients are refused as busy."));
  return table;
}

const Table<HttpAuthz>& http_authz_table() {
  static const Table<HttpAuthz> table(
      "broker.http_authz", false,
      "A server that is asked about what no rule decides, before the default ones: POST with {clientid, username, "
      "peerhost, action: \"publish\" or \"subscribe\", topic, qos, retain}; it answers {\"result\": \"allow\", "
      "\"deny\" or "
      "\"ignore\"}, or 204 for allow. The client's next packets wait meanwhile.",
      [] {
        auto keys = server_keys<HttpAuthz>("\"https://auth.example/mqtt/acl\"",
                                           "Questions at once, for each worker; further ones wait.");
        keys.push_back(duration("cache_ttl", &HttpAuthz::cache_ttl, 0s, std::chrono::hours(24),
                                "How long an answer holds for the client that it is about; 0s: every time anew."));
        keys.push_back(integer("cache_max", &HttpAuthz::cache_max, 1, 10'000, "Answers kept for each client."));
        keys.push_back(choice<HttpAuthz, OnFailure, OnFailure>(
            "on_failure", &HttpAuthz::on_failure, {{"deny", OnFailure::deny}, {"ignore", OnFailure::ignore}},
            "What a question counts as that gets no answer, or none that can be read. ignore: as authz says."));
        return keys;
      }());
  return table;
}

const Table<AccessUser>& user_table() {
  static const Table<AccessUser> table(
      "broker.user", true,
      "A user. Others are added without a restart by `posthouse users add`; one of the same name there counts instead.",
      {
          Key<AccessUser>{"username", "string", "", "What the client says in CONNECT.",
                          [](AccessUser& row, const Value& v, const Field& f) {
                            if (!f.expect(v, Value::Kind::string, "a string")) return;
                            row.username = v.text;
                            if (!security::username_valid(v.text))
                              f.error(v.place, f.name() + " is no user name: 1 to " +
                                                   std::to_string(security::kUsernameMax) +
                                                   " bytes without ':' and control characters");
                          },
                          nullptr, "\"meter-17\"", true},
          Key<AccessUser>{"password_hash", "string", "",
                          "The password's hash, as `posthouse users hash` or mosquitto_passwd makes it.",
                          [](AccessUser& row, const Value& v, const Field& f) {
                            if (!f.expect(v, Value::Kind::string, "a string")) return;
                            auto hash = security::parse_password_hash(v.text);
                            if (hash)
                              row.hash = std::move(*hash);
                            else
                              f.error(v.place, f.name() + ": " + hash.error().detail,
                                      "`posthouse users hash` makes one");
                          },
                          nullptr,
                          "\"$7$101$o4dgZgVJerBsRgyn$/"
                          "cfFqlOl85wtP8VWDyV5o1lNf0y9E83Si+VVwAwEyetTnmFqcVmNdhEhtz7MGpApT1q5mJ3LCKiDr7mkoRdTXg==\"",
                          true},
          flag("is_superuser", &AccessUser::superuser, "May do everything; no rule is asked."),
      });
  return table;
}

const Table<Authz>& authz_table() {
  static const Table<Authz> table(
      "broker.authz", false, "What holds for publishing and subscribing where no rule does.",
      {
          choice<Authz, Permission, Permission>("no_match", &Authz::no_match,
                                                {{"allow", Permission::allow}, {"deny", Permission::deny}},
                                                "What no rule speaks of."),
          choice<Authz, security::DenyAction, security::DenyAction>(
              "deny_action", &Authz::deny_action,
              {{"ignore", security::DenyAction::ignore}, {"disconnect", security::DenyAction::disconnect}},
              "What becomes of a PUBLISH that is not allowed. ignore: dropped and counted, version 5 is told 0x87 in "
              "PUBACK or PUBREC; disconnect: the client as well."),
          flag("default_rules", &Authz::default_rules,
               "Behind all rules: deny $SYS/#, and subscriptions to # and +/#."),
      });
  return table;
}

/// A name to which a rule is bound.
Key<Rule> who_key(std::string_view name, std::optional<std::string> Rule::* member, std::string_view doc,
                  std::string example) {
  return {name,
          "string",
          "",
          doc,
          [member](Rule& row, const Value& v, const Field& f) {
            if (f.expect(v, Value::Kind::string, "a string")) row.*member = v.text;
          },
          nullptr,
          std::move(example),
          false};
}

Key<Rule> address_key() {
  return {"ipaddress",
          "string",
          "",
          "For clients of this address or network only.",
          [](Rule& row, const Value& v, const Field& f) {
            if (!f.expect(v, Value::Kind::string, "a string")) return;
            row.address = security::parse_network(v.text);
            if (!row.address) f.error(v.place, f.name() + " is no address or network, as in \"10.0.0.0/8\"");
          },
          nullptr,
          "\"10.0.0.0/8\"",
          false};
}

Key<Rule> topics_key() {
  return {"topics",
          "array of strings",
          "",
          "Filters; \"eq a/#\" means that very filter. %c and %u (or ${clientid}, ${username}) stand for the client's "
          "id and user name. Without this key: every topic.",
          [](Rule& row, const Value& v, const Field& f) {
            if (!f.expect(v, Value::Kind::array, "an array of strings")) return;
            if (v.items.empty())
              f.error(v.place, f.name() + " is empty", "without the key the rule is for every topic");
            for (const Value& item : v.items) {
              if (!f.expect(item, Value::Kind::string, "an array of strings only")) continue;
              const ByteView subject = security::subject_of(item.text);
              if (subject.size() != item.text.size())
                f.error(
                    item.place, f.name() + ": " + in_quotes(item.text.substr(0, 80)) + " fits nothing",
                    "rules see the topic itself: write " + in_quotes(subject.empty() ? "#" : subject.substr(0, 80)));
              else if (auto topic = security::parse_topic_rule(item.text))
                row.topics.push_back(std::move(*topic));
              else
                f.error(item.place, f.name() + ": " + in_quotes(item.text.substr(0, 80)) + " is no topic filter");
            }
            if (v.items.size() > security::kRuleTopicsMax)
              f.error(v.place, f.name() + " has more than " + std::to_string(security::kRuleTopicsMax) + " filters");
          },
          nullptr,
          "[\"meters/%c/#\"]",
          false};
}

const Table<Rule>& rule_table() {
  static const Table<Rule> table(
      "broker.acl", true,
      "A rule of access; the first one that fits decides. Those of `posthouse acl add` come behind the ones of this "
      "file.",
      {
          choice<Rule, Permission, Permission>("permission", &Rule::permission,
                                               {{"allow", Permission::allow}, {"deny", Permission::deny}},
                                               "What it does.")
              .needed(),
          choice<Rule, security::Action, security::Action>("action", &Rule::action,
                                                           {{"publish", security::Action::publish},
                                                            {"subscribe", security::Action::subscribe},
                                                            {"all", security::Action::all}},
                                                           "What it is about."),
          who_key("username", &Rule::username, "For this user only.", "\"meter-17\""),
          who_key("clientid", &Rule::client_id, "For this client id only.", "\"meter-17\""),
          address_key(),
          topics_key(),
      });
  return table;
}

const Table<FlappingDetect>& flapping_table() {
  static const Table<FlappingDetect> table(
      "broker.flapping_detect", false, "Bans clients that connect and disconnect all the time.",
      {
          flag("enable", &FlappingDetect::enable, "Whether it is done."),
          integer("max_count", &FlappingDetect::max_count, 2, 1'000'000, "Ends of connections within window_time."),
          duration("window_time", &FlappingDetect::window_time, 1s, std::chrono::hours(24),
                   "The time they are counted in."),
          duration("ban_time", &FlappingDetect::ban_time, 1s, std::chrono::hours(24 * 365), "How long the ban is."),
      });
  return table;
}

const Table<OverloadProtection>& overload_table() {
  static const Table<OverloadProtection> table(
      "broker.overload_protection", false,
      "While there is too much to do, CONNECTs are refused as busy and QoS 0 messages dropped and counted, before "
      "anything else suffers.",
      {
          flag("enable", &OverloadProtection::enable, "Whether it is done."),
          duration("lag_max", &OverloadProtection::lag_max, 100ms, 60s, "How late a worker's loop may be."),
          size("memory_max", &OverloadProtection::memory_max, 64_MiB, {1ULL << 44},
               "Resident memory of the process. Default: half of the machine's.")
              .like("\"4GiB\""),
      });
  return table;
}

void check_jwt(const Value& table, const Jwt& jwt, Diagnostics& out) {
  auto place = [&](std::string_view key) {
    const Entry* e = table.find(key);
    return e ? e->value.place : table.place;
  };
  if (!jwt.secret.empty() && !jwt.secret_file.empty())
    out.error(place("secret_file"), "`secret` and `secret_file` are both there", "leave one of them out");
  if (jwt.secret_base64 && jwt.secret.empty() && jwt.secret_file.empty())
    out.error(place("secret_base64_encoded"), "`secret_base64_encoded` needs `secret` or `secret_file`");
  if (jwt.secret_base64 && !jwt.secret.empty() && security::base64_decode(jwt.secret).value_or("").empty())
    out.error(place("secret"), "`secret` is no base64", "`secret_base64_encoded = true` says that it is");
  for (const auto& [key, value] :
       {std::pair("username_claim", &jwt.username_claim), {"acl_claim_name", &jwt.acl_claim_name}})
    if (value->empty()) out.error(place(key), "`" + std::string(key) + "` is empty", "leave it out for the usual name");
}

/// Names that come twice among the rows of a table.
template <class Row>
void tell_doubles(const Value& broker, std::string_view table, std::string_view what, const std::vector<Row>& rows,
                  std::string Row::* name, Diagnostics& out) {
  std::set<std::string_view> seen;
  const Entry* written = broker.find(table);
  for (size_t i = 0; i < rows.size(); ++i)
    if (const std::string& called = rows[i].*name; !called.empty() && !seen.insert(called).second)
      out.error(written->value.items[i].place, std::string(what) + in_quotes(called) + " is there already");
}

}  // namespace

std::vector<TableInfo> access_tables() {
  return {authn_table().info(), psk_table().info(),        psk_identity_table().info(), jwt_table().info(),
          http_table().info(),  http_authz_table().info(), user_table().info(),         authz_table().info(),
          rule_table().info(),  flapping_table().info(),   overload_table().info()};
}

void read_access(const Value& broker, Access& into, Diagnostics& out) {
  if (const Value* t = table_at(broker, "authn", "broker.authn", out)) authn_table().read(*t, into.authn, out);
  if (const Value* t = table_at(broker, "psk", "broker.psk", out)) psk_table().read(*t, into.psk.emplace(), out);
  read_rows(broker, "psk_identity", psk_identity_table(), into.psk_identities, out);
  if (const Value* t = table_at(broker, "jwt", "broker.jwt", out)) {
    Jwt& jwt = into.jwt.emplace();
    jwt_table().read(*t, jwt, out);
    if (jwt.secret.empty() && jwt.secret_file.empty() && jwt.public_key_file.empty() && jwt.jwks_file.empty())
      out.error(t->place, "[broker.jwt] has no key", "give it secret, secret_file, public_key_file or jwks_file");
    check_jwt(*t, jwt, out);
  }
  if (const Value* t = table_at(broker, "http", "broker.http", out)) http_table().read(*t, into.http.emplace(), out);
  if (const Value* t = table_at(broker, "http_authz", "broker.http_authz", out))
    http_authz_table().read(*t, into.http_authz.emplace(), out);
  if (const Value* t = table_at(broker, "authz", "broker.authz", out)) authz_table().read(*t, into.authz, out);
  if (const Value* t = table_at(broker, "flapping_detect", "broker.flapping_detect", out))
    flapping_table().read(*t, into.flapping, out);
  if (const Value* t = table_at(broker, "overload_protection", "broker.overload_protection", out))
    overload_table().read(*t, into.overload, out);
  read_rows(broker, "user", user_table(), into.users, out);
  read_rows(broker, "acl", rule_table(), into.rules, out);
  tell_doubles(broker, "user", "the user ", into.users, &AccessUser::username, out);
  tell_doubles(broker, "psk_identity", "the identity ", into.psk_identities, &PskIdentity::identity, out);
}

}  // namespace ph::settings
