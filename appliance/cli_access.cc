#include "cli_access.h"

#include <fmt/core.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli.h"

#include "core/security/saslprep.h"
#include "core/settings/units.h"
#include "io/clock.h"
#include "io/crypto.h"
#include "io/http_unix.h"
#include "service/admin/access_api.h"
#include "service/broker/credentials.h"

namespace ph::cli {
namespace {

constexpr ErrorCode kRefused{"cli.refused"};
constexpr ErrorCode kBadInput{"cli.bad_input"};
constexpr size_t kImportBytes = 512UL * 1024;  // of one request
constexpr size_t kPasswordMax = 65'535;        // what CONNECT can carry

/// What the verbs' options fill in. One verb is called in a process.
struct Options {
  std::string socket, config;
  bool json = false;
  std::string name, password, file;
  bool password_from_input = false, superuser = false;
  uint32_t iterations = security::kIterationsDefault;
  std::string permission, action = "all", user, client, address, id;
  std::vector<std::string> topics;
  std::string as, who, reason, until, duration;
};
using Shared = std::shared_ptr<Options>;

/// One request to the node. nullopt after telling why there is no answer; `code` is then what to exit with.
std::optional<std::string> ask(const Options& o, const std::string& method, const std::string& target,
                               const std::string& body, int& code) {
  code = kInvalid;
  const auto socket = socket_of(o.socket, o.config);
  if (!socket) return std::nullopt;
  code = kFailed;
  auto answer = io::http_unix(*socket, {method, target, body});
  if (!answer) {
    say(kFailed, answer.error());
    return std::nullopt;
  }
  if (answer->status >= 300) {
    if (o.json) fmt::print("{}\n", answer->body);
    code = say(answer->status == 400 ? kInvalid : kFailed, {kRefused, admin::error_text(answer->body)});
    return std::nullopt;
  }
  code = kDone;
  return std::move(answer->body);
}

/// A change: prints the node's answer (as JSON), or what was done.
int change(const Options& o, const std::string& method, const std::string& target, const std::string& body,
           const std::string& done) {
  int code = kDone;
  const auto answer = ask(o, method, target, body, code);
  if (!answer) return code;
  if (o.json)
    fmt::print("{}\n", answer->empty() ? "{}" : *answer);
  else
    fmt::print("{}\n", done);
  return kDone;
}

int list(const Options& o, std::string_view path, Result<std::string> (*show)(std::string_view)) {
  int code = kDone;
  const auto answer = ask(o, "GET", std::string(path), {}, code);
  if (!answer) return code;
  if (o.json) {
    fmt::print("{}\n", *answer);
    return kDone;
  }
  auto text = show(*answer);
  if (!text) return say(kFailed, text.error());
  std::fputs(text->c_str(), stdout);
  return kDone;
}

// --- passwords

std::string first_line(std::istream& in) {
  std::string line;
  std::getline(in, line);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

/// Asks on the terminal, without showing what is typed, twice.
std::optional<std::string> ask_password() {
  termios before{};
  ::tcgetattr(STDIN_FILENO, &before);
  termios silent = before;
  silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  std::string typed[2];
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
  for (int i = 0; i < 2; ++i) {
    std::fputs(i ? "again: " : "password: ", stderr);
    typed[i] = first_line(std::cin);
    std::fputs("\n", stderr);
  }
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
  return typed[0] == typed[1] ? std::optional(typed[0]) : std::nullopt;
}

/// The user with the password that was given; nullopt after telling what is wrong.
std::optional<security::User> user_of(const Options& o) {
  std::optional<std::string> password = o.password;
  if (o.password.empty()) {
    const bool terminal = !o.password_from_input && ::isatty(STDIN_FILENO);
    password = terminal ? ask_password() : std::optional(first_line(std::cin));
  }
  if (!password || password->empty() || password->size() > kPasswordMax) {
    say(kInvalid, {kBadInput, password ? "a password has 1 to 65535 bytes" : "the two are not the same"});
    return std::nullopt;
  }
  if (const auto prepared = security::saslprep(*password); !prepared)
    fmt::print(stderr, "note: SCRAM has no form for this password, {}; all other ways to log in take it\n",
               prepared.error().detail);
  return broker::make_user(io::MbedCrypto(), *password, o.iterations, o.superuser);
}

int put_user(const Options& o, bool fresh) {
  if (!security::username_valid(o.name))
    return say(kInvalid, {kBadInput, "a user name has 1 to 1024 bytes, no ':' and no control characters"});
  const auto user = user_of(o);
  if (!user) return kInvalid;
  const std::string base(admin::kUsersPath);
  return fresh ? change(o, "POST", base, admin::user_json(o.name, *user), "added " + o.name)
               : change(o, "PUT", base + "/" + admin::percent_encode(o.name), admin::user_json(o.name, *user),
                        "changed " + o.name);
}

/// A Mosquitto password file, in requests that the API takes: each is all or none.
int import_users(const Options& o) {
  std::ifstream in(o.file, std::ios::binary);
  if (!in && o.file != "-") return say(kInvalid, {kBadInput, o.file + ": cannot be read"});
  std::stringstream text;
  text << (o.file == "-" ? std::cin.rdbuf() : in.rdbuf());
  auto entries = security::parse_password_file(text.str());
  if (!entries) return say(kInvalid, {entries.error().code, o.file + ": " + entries.error().detail});
  size_t imported = 0;
  std::vector<std::pair<std::string, security::User>> group;
  size_t bytes = 0;
  for (size_t i = 0; i < entries->size(); ++i) {
    auto& [name, hash] = (*entries)[i];
    bytes += name.size() * 6 + 400;  // as JSON, at most
    group.emplace_back(std::move(name), security::User{std::move(hash), {}, false});
    if (bytes < kImportBytes && i + 1 < entries->size()) continue;
    int code = kDone;
    if (!ask(o, "POST", std::string(admin::kImportPath), admin::users_json(group), code)) {
      if (imported) fmt::print(stderr, "posthouse: {} of {} users were imported before\n", imported, entries->size());
      return code;
    }
    imported += std::exchange(group, {}).size();
    bytes = 0;
  }
  if (o.json)
    fmt::print("{{\"imported\":{}}}\n", imported);
  else
    fmt::print("imported {} users\n", imported);
  return kDone;
}

// --- rules and bans

int add_rule(const Options& o) {
  security::Rule rule;
  rule.permission = o.permission == "allow" ? security::Permission::allow : security::Permission::deny;
  rule.action = o.action == "publish"     ? security::Action::publish
                : o.action == "subscribe" ? security::Action::subscribe
                                          : security::Action::all;
  if (!o.user.empty()) rule.username = o.user;
  if (!o.client.empty()) rule.client_id = o.client;
  if (!o.address.empty()) rule.address = security::parse_network(o.address);
  if (!o.address.empty() && !rule.address)
    return say(kInvalid, {kBadInput, o.address + " is no address or network, as in 10.0.0.0/8"});
  for (const std::string& t : o.topics) {
    auto topic = security::parse_topic_rule(t);
    if (!topic) return say(kInvalid, {kBadInput, "'" + t + "' is no topic filter"});
    rule.topics.push_back(std::move(*topic));
  }
  int code = kDone;
  const auto answer = ask(o, "POST", std::string(admin::kRulesPath), admin::rule_json(rule), code);
  if (!answer) return code;
  if (o.json)
    fmt::print("{}\n", *answer);
  else
    fmt::print("added rule {}\n", admin::new_rule_id(*answer));
  return kDone;
}

/// EMQX's names, and shorter ones.
std::optional<security::BanBy> ban_kind(const std::string& text) {
  static const std::pair<std::string_view, security::BanBy> kShort[] = {{"client", security::BanBy::client_id},
                                                                        {"user", security::BanBy::username},
                                                                        {"address", security::BanBy::address},
                                                                        {"network", security::BanBy::network}};
  for (const auto& [name, by] : kShort)
    if (name == text) return by;
  return security::ban_by(text);
}

int add_ban(const Options& o) {
  security::Ban ban;
  const auto by = ban_kind(o.as);
  if (!by)
    return say(kInvalid, {kBadInput, "'" + o.as +
                                         "': by client, user, address, network, clientid_mask or "
                                         "username_mask"});
  ban.by = *by;
  ban.who = o.who;
  ban.reason = o.reason;
  ban.author = "cli";
  if (!o.until.empty()) ban.until = admin::parse_rfc3339(o.until);
  if (!o.until.empty() && !ban.until)
    return say(kInvalid, {kBadInput, "'" + o.until + "' is no time like 2026-11-30T09:00:00Z"});
  if (!o.duration.empty()) {
    const auto span = settings::parse_duration(o.duration);
    if (!span) return say(kInvalid, {kBadInput, "--for: " + span.error()});
    ban.until = io::wall_now() + std::chrono::duration_cast<std::chrono::milliseconds>(*span) + 1s;
  }
  if (const std::string wrong = check_ban(ban); !wrong.empty()) return say(kInvalid, {kBadInput, o.who + ": " + wrong});
  return change(o, "POST", std::string(admin::kBannedPath), admin::ban_json(ban), "banned " + ban.who);
}

int remove_ban(const Options& o) {
  const auto by = ban_kind(o.as);
  if (!by) return say(kInvalid, {kBadInput, "'" + o.as + "' is nothing to ban by"});
  return change(
      o, "DELETE",
      std::string(admin::kBannedPath) + "/" + std::string(security::name(*by)) + "/" + admin::percent_encode(o.who), {},
      "no longer banned: " + o.who);
}

// --- the verbs

CLI::App* verb(CLI::App& under, const Shared& o, const std::string& name, const std::string& what, int& code,
               std::function<int(const Options&)> act) {
  CLI::App* sub = under.add_subcommand(name, what);
  sub->add_flag("--json", o->json, "the node's answer as JSON");
  sub->add_option("--socket", o->socket, "Unix socket of the node");
  sub->add_option("-c,--config", o->config, "take the socket from this configuration");
  sub->callback([o, &code, act = std::move(act)] { code = act(*o); });
  return sub;
}

void with_password(CLI::App* sub, const Shared& o) {
  sub->add_option("-p,--password", o->password, "the password; others on this machine can see it: better leave it out");
  sub->add_flag("--stdin", o->password_from_input, "read the password's line from standard input without asking");
  sub->add_option("--iterations", o->iterations, "of PBKDF2")
      ->check(CLI::Range(uint32_t{1}, security::kIterationsMax))
      ->capture_default_str();
}

void add_users(CLI::App& app, const Shared& o, int& code) {
  CLI::App* users = app.add_subcommand("users", "users of the MQTT broker; changes hold at once");
  users->require_subcommand(1);
  auto* add = verb(*users, o, "add", "add the user NAME", code, [](const Options& x) { return put_user(x, true); });
  auto* passwd = verb(*users, o, "passwd", "give the user NAME another password; its clients are disconnected", code,
                      [](const Options& x) { return put_user(x, false); });
  for (CLI::App* sub : {add, passwd}) {
    sub->add_option("NAME", o->name)->required();
    with_password(sub, o);
    sub->add_flag("--superuser", o->superuser, "no rule is asked");
  }
  verb(*users, o, "del", "remove the user NAME; its clients are disconnected", code,
       [](const Options& x) {
         return change(x, "DELETE", std::string(admin::kUsersPath) + "/" + admin::percent_encode(x.name), {},
                       "removed " + x.name);
       })
      ->add_option("NAME", o->name)
      ->required();
  verb(*users, o, "list", "all users, those of the configuration included", code,
       [](const Options& x) { return list(x, admin::kUsersPath, admin::users_text); });
  verb(*users, o, "import", "add the users of a Mosquitto password file", code, import_users)
      ->add_option("FILE", o->file, "- for standard input")
      ->required();
  CLI::App* hash = users->add_subcommand("hash", "print a password's hash for password_hash in the configuration");
  with_password(hash, o);
  hash->callback([o, &code] {
    const auto user = user_of(*o);
    code = user ? kDone : kInvalid;
    if (user) fmt::print("{}\n", user->hash.to_string());
  });
}

void add_acl(CLI::App& app, const Shared& o, int& code) {
  CLI::App* acl = app.add_subcommand("acl", "rules of access; those that are added come behind the configuration's");
  acl->require_subcommand(1);
  auto* add = verb(*acl, o, "add", "add a rule; without TOPIC it is for all topics", code, add_rule);
  add->add_option("PERMISSION", o->permission)->required()->check(CLI::IsMember({"allow", "deny"}));
  add->add_option("TOPIC", o->topics, "filters; 'eq a/#' for that very filter; %c and %u for client id and user");
  add->add_option("--action", o->action)->check(CLI::IsMember({"publish", "subscribe", "all"}))->capture_default_str();
  add->add_option("--user", o->user, "for this user only");
  add->add_option("--client", o->client, "for this client id only");
  add->add_option("--address", o->address, "for this address or network only");
  verb(*acl, o, "list", "all rules in the order in which they are asked", code,
       [](const Options& x) { return list(x, admin::kRulesPath, admin::rules_text); });
  verb(*acl, o, "del", "remove the rule ID", code,
       [](const Options& x) {
         return change(x, "DELETE", std::string(admin::kRulesPath) + "/" + admin::percent_encode(x.id), {},
                       "removed rule " + x.id);
       })
      ->add_option("ID", o->id)
      ->required();
}

void add_ban_verbs(CLI::App& app, const Shared& o, int& code) {
  CLI::App* ban = app.add_subcommand("ban", "keep clients out; those that are in are disconnected");
  ban->require_subcommand(1);
  auto* add = verb(*ban, o, "add", "ban WHO", code, add_ban);
  auto* del = verb(*ban, o, "del", "end a ban", code, remove_ban);
  for (CLI::App* sub : {add, del}) {
    sub->add_option("BY", o->as, "client, user, address, network, clientid_mask or username_mask")->required();
    sub->add_option("WHO", o->who, "in a mask * stands for anything")->required();
  }
  add->add_option("--reason", o->reason, "for people");
  auto* until = add->add_option("--until", o->until, "a time like 2026-11-30T09:00:00Z; without it for ever");
  add->add_option("--for", o->duration, "a duration like 10m or 2h")->excludes(until);
  verb(*ban, o, "list", "who is banned", code,
       [](const Options& x) { return list(x, admin::kBannedPath, admin::banned_text); });
}

}  // namespace

void add_access_verbs(CLI::App& app, int& code) {
  const auto options = std::make_shared<Options>();
  add_users(app, options, code);
  add_acl(app, options, code);
  add_ban_verbs(app, options, code);
}

}  // namespace ph::cli
