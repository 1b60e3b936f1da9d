#include "core/security/acl_claim.h"

#include <boost/json.hpp>
#include <string>

#include "core/security/jwt.h"

namespace ph::security {
namespace {

namespace json = boost::json;

std::optional<std::string> text(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  return v && v->is_string() ? std::optional(std::string(v->get_string())) : std::nullopt;
}

bool add_topics(const json::value& from, Rule& rule) {
  const auto add = [&rule](const json::value& v) {
    auto topic = v.is_string() ? parse_topic_rule(std::string_view(v.get_string())) : std::nullopt;
    if (!topic || rule.topics.size() >= kRuleTopicsMax) return false;
    rule.topics.push_back(std::move(*topic));
    return true;
  };
  if (!from.is_array()) return add(from);
  for (const json::value& v : from.get_array())
    if (!add(v)) return false;
  return true;
}

bool read_rule(const json::value& from, std::vector<Rule>& out) {
  if (!from.is_object()) return false;
  const json::object& o = from.get_object();
  Rule rule;
  const auto permission = text(o, "permission");
  const std::string action = text(o, "action").value_or("all");
  if (permission != "allow" && permission != "deny") return false;
  rule.permission = permission == "allow" ? Permission::allow : Permission::deny;
  if (action != "publish" && action != "subscribe" && action != "all") return false;
  rule.action = action == "publish" ? Action::publish : action == "subscribe" ? Action::subscribe : Action::all;
  for (std::string_view key : {"topic", "topics"})
    if (const json::value* v = o.if_contains(key); v && !add_topics(*v, rule)) return false;
  if (rule.topics.empty()) return false;  // a rule for every topic is rather a mistake in a token
  out.push_back(std::move(rule));
  return true;
}

}  // namespace

bool read_acl_claim(const json::value& acl, std::vector<Rule>& out) {
  if (acl.is_array()) {
    if (acl.get_array().size() > kJwtRulesMax) return false;
    for (const json::value& v : acl.get_array())
      if (!read_rule(v, out)) return false;
    return true;
  }
  if (!acl.is_object()) return false;
  static constexpr std::pair<std::string_view, Action> kLists[] = {
      {"pub", Action::publish}, {"sub", Action::subscribe}, {"all", Action::all}};
  for (const auto& [key, action] : kLists) {
    const json::value* list = acl.get_object().if_contains(key);
    if (!list) continue;
    Rule rule;
    rule.action = action;
    if (!add_topics(*list, rule)) return false;
    if (!rule.topics.empty()) out.push_back(std::move(rule));
  }
  return true;
}

}  // namespace ph::security
