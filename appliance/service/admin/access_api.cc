#include "service/admin/access_api.h"

#include <algorithm>
#include <boost/json.hpp>

#include "service/admin/error_json.h"

namespace ph::admin {
namespace {

namespace json = boost::json;
using security::Ban;
using security::Permission;
using security::Rule;
using security::User;

constexpr std::string_view kActions[] = {"publish", "subscribe", "all"};

/// 4xx for what the caller can mend.
std::pair<int, std::string_view> status_of(const Error& error) {
  if (error.code == access::errors::exists) return {409, "ALREADY_EXISTS"};
  if (error.code == access::errors::not_found) return {404, "NOT_FOUND"};
  if (error.code == access::errors::configured) return {409, "CONFIGURED"};
  if (error.code == access::errors::full) return {409, "TOO_MANY"};
  if (error.code == access::errors::invalid) return {400, "BAD_REQUEST"};
  return {500, "INTERNAL_ERROR"};
}

access::AccessStore::Done to(const AccessApi::Answer& answer, int status, std::string body) {
  return [answer, status, body = std::move(body)](const Result<>& outcome) mutable {
    if (outcome) return answer(status, std::move(body));
    const auto [code, name] = status_of(outcome.error());
    std::string message = outcome.error().to_string();
    if (outcome.error().code == access::errors::configured)
      message += ": stands in the configuration and is changed there";
    answer(code, error_json(name, message));
  };
}

void bad(const AccessApi::Answer& answer, std::string_view why) {
  answer(400, error_json("BAD_REQUEST", why));
}
void no_method(const AccessApi::Answer& answer) {
  answer(405, error_json("METHOD_NOT_ALLOWED", "not with this path"));
}

std::optional<json::object> parse_object(std::string_view text) {
  boost::system::error_code failed;
  json::value v = json::parse(text, failed);
  if (failed || !v.is_object()) return std::nullopt;
  return std::move(v.get_object());
}

std::optional<std::string> text(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  if (!v || !v->is_string()) return std::nullopt;
  return std::string(v->get_string());
}
std::string text_or(const json::object& from, std::string_view key, std::string_view other = "") {
  const auto got = text(from, key);
  return got ? *got : std::string(other);
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) return std::nullopt;
    out += static_cast<char>(digit(text[i + 1]) << 4 | digit(text[i + 2]));
    i += 2;
  }
  return out;
}

std::string list_json(json::array data) {
  const size_t count = data.size();
  return json::serialize(json::object{{"data", std::move(data)}, {"meta", {{"count", count}, {"hasnext", false}}}});
}

// --- users

json::object shown(std::string_view name, const User& user, std::string_view origin) {
  return {{"user_id", name},
          {"is_superuser", user.superuser},
          {"algorithm", user.hash.scheme == security::PasswordHash::Scheme::sha512 ? "sha512" : "pbkdf2_sha512"},
          {"iterations", user.hash.iterations},
          {"scram", user.scram.has_value()},
          {"origin", origin}};
}

json::object sent(std::string_view name, const User& user) {
  json::object out{{"user_id", name}, {"password_hash", user.hash.to_string()}, {"is_superuser", user.superuser}};
  if (user.scram) out["scram"] = user.scram->to_string();
  return out;
}

/// A user out of a request; the error is for its sender.
std::expected<User, std::string> read_user(const json::object& from) {
  User out;
  const auto hash = text(from, "password_hash");
  if (!hash) return std::unexpected("password_hash is missing; plain passwords are not taken");
  auto parsed = security::parse_password_hash(*hash);
  if (!parsed) return std::unexpected("password_hash: " + parsed.error().detail);
  out.hash = std::move(*parsed);
  if (const auto scram = text(from, "scram")) {
    out.scram = security::parse_scram_secret(*scram);
    if (!out.scram) return std::unexpected("scram cannot be read");
  }
  const json::value* superuser = from.if_contains("is_superuser");
  if (superuser && !superuser->is_bool()) return std::unexpected("is_superuser must be true or false");
  out.superuser = superuser && superuser->get_bool();
  return out;
}

// --- rules

json::object shown(const Rule& rule) {
  json::object out{{"permission", rule.permission == Permission::allow ? "allow" : "deny"},
                   {"action", kActions[static_cast<size_t>(rule.action)]}};
  if (rule.username) out["username"] = *rule.username;
  if (rule.client_id) out["clientid"] = *rule.client_id;
  if (rule.address) out["ipaddress"] = security::to_string(*rule.address);
  json::array topics;
  for (const auto& t : rule.topics) topics.emplace_back(security::to_string(t));
  out["topics"] = std::move(topics);
  return out;
}

std::expected<Rule, std::string> read_rule(const json::object& from) {
  Rule out;
  const std::string permission = text_or(from, "permission");
  if (permission != "allow" && permission != "deny") return std::unexpected("permission must be allow or deny");
  out.permission = permission == "allow" ? Permission::allow : Permission::deny;
  const std::string action = text_or(from, "action", "all");
  const auto* known = std::find(std::begin(kActions), std::end(kActions), action);
  if (known == std::end(kActions)) return std::unexpected("action must be publish, subscribe or all");
  out.action = static_cast<security::Action>(known - std::begin(kActions));
  out.username = text(from, "username");
  out.client_id = text(from, "clientid");
  if (const auto address = text(from, "ipaddress")) {
    out.address = security::parse_network(*address);
    if (!out.address) return std::unexpected("ipaddress is no address or network");
  }
  const json::value* topics = from.if_contains("topics");
  if (!topics) return out;
  if (!topics->is_array() || topics->get_array().size() > security::kRuleTopicsMax)
    return std::unexpected("topics must be a list of at most " + std::to_string(security::kRuleTopicsMax) + " filters");
  for (const json::value& t : topics->get_array()) {
    auto topic = t.is_string() ? security::parse_topic_rule(std::string_view(t.get_string())) : std::nullopt;
    if (!topic) return std::unexpected("topics has what is no filter");
    out.topics.push_back(std::move(*topic));
  }
  return out;
}

// --- bans

json::object shown(const Ban& ban) {
  return {{"as", security::name(ban.by)},
          {"who", ban.who},
          {"by", ban.author},
          {"reason", ban.reason},
          {"at", rfc3339(ban.at)},
          {"until", ban.until ? rfc3339(*ban.until) : std::string("infinity")}};
}

std::expected<Ban, std::string> read_ban(const json::object& from, WallTime now) {
  Ban out;
  const auto by = security::ban_by(text_or(from, "as"));
  if (!by)
    return std::unexpected("as must be clientid, username, peerhost, peerhost_net, clientid_mask or username_mask");
  out.by = *by;
  out.who = text_or(from, "who");
  out.reason = text_or(from, "reason");
  out.author = text_or(from, "by", "api");
  out.at = now;
  const std::string until = text_or(from, "until", "infinity");
  if (until == "infinity") return out;
  out.until = parse_rfc3339(until);
  if (!out.until) return std::unexpected("until must be infinity or a time like 2026-11-30T09:00:00Z");
  if (*out.until <= now) return std::unexpected("until is over already");
  return out;
}

}  // namespace

bool AccessApi::handle(const std::string& method, std::string_view target, const std::string& body,
                       const Answer& answer) {
  const std::string_view path = target.substr(0, target.find('?'));
  // A client may write the colon of EMQX's paths as %3A.
  std::string plain(path);
  if (const size_t colon = plain.find("%3A"); colon != plain.npos && colon < kUsersPath.size())
    plain.replace(colon, 3, ":");
  auto rest_of = [&plain](std::string_view base) -> std::optional<std::string_view> {
    if (!plain.starts_with(base)) return std::nullopt;
    const std::string_view rest = std::string_view(plain).substr(base.size());
    if (rest.empty()) return rest;
    return rest.starts_with('/') ? std::optional(rest.substr(1)) : std::nullopt;
  };
  if (const auto rest = rest_of(kImportPath); rest && rest->empty()) {
    import_users(method, body, answer);
    return true;
  }
  for (const std::string_view base : {kUsersPath, kRulesPath, kBannedPath}) {
    const auto rest = rest_of(base);
    if (!rest) continue;
    const size_t slash = rest->find('/');
    const auto first = percent_decode(rest->substr(0, slash));
    const auto second = percent_decode(slash == rest->npos ? std::string_view() : rest->substr(slash + 1));
    if (!first || !second)
      bad(answer, "the path cannot be read");
    else if (base == kUsersPath)
      users(method, *first, body, answer);
    else if (base == kRulesPath)
      rules(method, *first, body, answer);
    else
      banned(method, *first, *second, body, answer);
    return true;
  }
  return false;
}

void AccessApi::users(const std::string& method, const std::string& name, const std::string& body,
                      const Answer& answer) {
  if (method == "GET" && name.empty()) {
    json::array data;
    for (const auto& [id, user] : store_.users()) data.push_back(shown(id, user, "api"));
    for (const auto& [id, user] : store_.configured().users)
      if (!store_.users().contains(id)) data.push_back(shown(id, user, "config"));
    return answer(200, list_json(std::move(data)));
  }
  if (method == "DELETE" && !name.empty()) return store_.remove_user(name, to(answer, 204, ""));
  const bool add = method == "POST" && name.empty();
  if (!add && (method != "PUT" || name.empty())) return no_method(answer);
  const auto object = parse_object(body);
  if (!object) return bad(answer, "the body must be a JSON object");
  auto user = read_user(*object);
  if (!user) return bad(answer, user.error());
  if (add) {
    const std::string id = text_or(*object, "user_id");
    std::string made = json::serialize(shown(id, *user, "api"));
    return store_.add_user(id, std::move(*user), to(answer, 201, std::move(made)));
  }
  std::string changed = json::serialize(shown(name, *user, "api"));
  store_.change_user(name, std::move(*user), to(answer, 200, std::move(changed)));
}

void AccessApi::import_users(const std::string& method, const std::string& body, const Answer& answer) {
  if (method != "POST") return no_method(answer);
  const auto object = parse_object(body);
  const json::value* list = object ? object->if_contains("users") : nullptr;
  if (!list || !list->is_array()) return bad(answer, "the body must be {\"users\": [...]}");
  security::Users users;
  for (const json::value& v : list->get_array()) {
    if (!v.is_object()) return bad(answer, "users must be objects");
    auto user = read_user(v.get_object());
    if (!user) return bad(answer, user.error());
    users.insert_or_assign(text_or(v.get_object(), "user_id"), std::move(*user));
  }
  std::string done = json::serialize(json::object{{"imported", users.size()}});
  store_.import_users(std::move(users), to(answer, 200, std::move(done)));
}

void AccessApi::rules(const std::string& method, const std::string& id, const std::string& body, const Answer& answer) {
  if (method == "GET" && id.empty()) {
    json::array data;
    for (const Rule& rule : store_.configured().rules) {
      json::object row = shown(rule);
      row["origin"] = "config";
      data.push_back(std::move(row));
    }
    for (const auto& [number, rule] : store_.rules()) {
      json::object row = shown(rule);
      row["id"] = number;
      row["origin"] = "api";
      data.push_back(std::move(row));
    }
    return answer(200, list_json(std::move(data)));
  }
  if (method == "DELETE" && !id.empty()) {
    if (id.size() > 18 || id.find_first_not_of("0123456789") != id.npos) return bad(answer, "an id is a number");
    return store_.remove_rule(std::stoull(id), to(answer, 204, ""));
  }
  if (method != "POST" || !id.empty()) return no_method(answer);
  const auto object = parse_object(body);
  if (!object) return bad(answer, "the body must be a JSON object");
  auto rule = read_rule(*object);
  if (!rule) return bad(answer, rule.error());
  json::object row = shown(*rule);
  store_.add_rule(std::move(*rule), [answer, row = std::move(row)](Result<uint64_t> number) mutable {
    if (!number) return to(answer, 201, "")(std::unexpected(number.error()));
    row["id"] = *number;
    answer(201, json::serialize(row));
  });
}

void AccessApi::banned(const std::string& method, const std::string& as, const std::string& who,
                       const std::string& body, const Answer& answer) {
  if (method == "GET" && as.empty()) {
    json::array data;
    for (const auto& [key, ban] : store_.bans())
      if (!ban.until || now_() < *ban.until) data.push_back(shown(ban));
    return answer(200, list_json(std::move(data)));
  }
  if (method == "DELETE" && !as.empty()) {
    const auto by = security::ban_by(as);
    if (!by || who.empty()) return bad(answer, "DELETE /api/v5/banned/<as>/<who>");
    return store_.remove_ban(*by, who, to(answer, 204, ""));
  }
  if (method != "POST" || !as.empty()) return no_method(answer);
  const auto object = parse_object(body);
  if (!object) return bad(answer, "the body must be a JSON object");
  auto ban = read_ban(*object, now_());
  if (!ban) return bad(answer, ban.error());
  if (const std::string wrong = check_ban(*ban); !wrong.empty()) return bad(answer, "who: " + wrong);
  std::string made = json::serialize(shown(*ban));
  store_.add_ban(std::move(*ban), to(answer, 200, std::move(made)));
}

// --- for the command line

std::string user_json(std::string_view name, const User& user) {
  return json::serialize(sent(name, user));
}

std::string users_json(const std::vector<std::pair<std::string, User>>& users) {
  json::array list;
  for (const auto& [name, user] : users) list.push_back(sent(name, user));
  return json::serialize(json::object{{"users", std::move(list)}});
}

std::string rule_json(const Rule& rule) {
  return json::serialize(shown(rule));
}

std::string ban_json(const Ban& ban) {
  json::object out = shown(ban);
  out.erase("at");
  return json::serialize(out);
}

std::string error_text(std::string_view document) {
  const auto object = parse_object(document);
  if (!object) return std::string(document);
  return text_or(*object, "code", "?") + ": " + text_or(*object, "message", document);
}

std::string new_rule_id(std::string_view document) {
  const auto object = parse_object(document);
  const json::value* id = object ? object->if_contains("id") : nullptr;
  return id ? json::serialize(*id) : "?";
}

}  // namespace ph::admin
