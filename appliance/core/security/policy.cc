#include "core/security/policy.h"

#include <algorithm>
#include <span>

namespace ph::security {
namespace {

const std::vector<Rule>& default_rules() {
  static const std::vector<Rule> rules = [] {
    Rule system{Permission::deny, Action::all, {}, {}, {}, {}};
    system.topics.push_back({"$SYS/#", false, false});
    Rule all{Permission::deny, Action::subscribe, {}, {}, {}, {}};
    all.topics.push_back({"#", true, false});
    all.topics.push_back({"+/#", true, false});
    return std::vector<Rule>{system, all};
  }();
  return rules;
}

}  // namespace

Policy::Policy(PolicyData data) : data_(std::move(data)), bans_(data_.bans) {
  for (uint32_t i = 0; i < data_.rules.size(); ++i) {
    const Rule& rule = data_.rules[i];
    asks_addresses_ = asks_addresses_ || rule.address;
    if (rule.username)
      by_username_[*rule.username].push_back(i);
    else if (rule.client_id)
      by_client_id_[*rule.client_id].push_back(i);
    else
      general_.push_back(i);
  }
}

bool Policy::same_rules(const Policy& other) const {
  return data_.rules == other.data_.rules && data_.default_rules == other.data_.default_rules &&
         data_.no_match == other.data_.no_match;
}

const User* Policy::user(ByteView name) const {
  const auto it = data_.users.find(name);
  return it == data_.users.end() ? nullptr : &it->second;
}

std::vector<const Rule*> Policy::rules_of(const Identity& who, const std::vector<Rule>& claims) const {
  std::vector<uint32_t> places = general_;
  auto add = [&](const Index& from, const std::string& key) {
    if (const auto it = from.find(key); it != from.end())
      places.insert(places.end(), it->second.begin(), it->second.end());
  };
  if (who.username) add(by_username_, *who.username);
  add(by_client_id_, who.client_id);
  std::sort(places.begin(), places.end());
  std::vector<const Rule*> out;
  for (uint32_t place : places)
    if (data_.rules[place].concerns(who)) out.push_back(&data_.rules[place]);
  for (const Rule& rule : claims) out.push_back(&rule);
  if (data_.default_rules)
    for (const Rule& rule : default_rules()) out.push_back(&rule);
  return out;
}

Access::Access(PolicyPtr policy, Identity who, bool superuser, std::vector<Rule> claims)
    : policy_(std::move(policy)), who_(std::move(who)), superuser_(superuser), claims_(std::move(claims)) {
  compile();
}

void Access::follow(const PolicyPtr& policy, bool superuser) {
  if (policy == policy_ && superuser == superuser_) return;
  policy_ = policy;
  superuser_ = superuser;
  compile();
}

void Access::compile() {
  lines_.clear();
  expanded_.clear();
  answers_.clear();
  own_lines_ = 0;
  if (!superuser_) {
    const std::vector<const Rule*> rules = policy_->rules_of(who_, claims_);
    const size_t own = rules.size() - (policy_->data().default_rules ? default_rules().size() : 0);
    for (size_t i = 0; i < rules.size(); ++i) {
      add_lines(*rules[i]);
      if (i < own) own_lines_ = lines_.size();
    }
  }
  lines_.shrink_to_fit();
  publish_always_ = superuser_ ? std::optional(true) : constant(Action::publish);
}

void Access::add_lines(const Rule& rule) {
  Line line{{}, rule.permission, rule.action, false, rule.topics.empty()};
  if (line.every) return lines_.push_back(line);
  for (const TopicRule& topic : rule.topics) {
    line.exact = topic.exact;
    line.filter = topic.filter;
    line.every = false;
    if (topic.placeholders) {
      Expanded e = expand(topic, who_);
      if (e.widening && rule.permission == Permission::deny)
        line.every = true;
      else if (e.filter)
        line.filter = expanded_.emplace_back(std::move(*e.filter));
      else
        continue;
    }
    lines_.push_back(line);
  }
}

/// The answer when no topic can change it.
std::optional<bool> Access::constant(Action action) const {
  for (const Line& line : lines_) {
    if (line.action != action && line.action != Action::all) continue;
    if (!line.every) return std::nullopt;
    return line.permission == Permission::allow;
  }
  return policy_->no_match() == Permission::allow;
}

/// What the first of the first `lines` lines that fits says.
std::optional<bool> Access::first_fit(ByteView topic, Action action, size_t lines) const {
  for (const Line& line : std::span(lines_).first(lines)) {
    if (line.action != action && line.action != Action::all) continue;
    bool fits = line.every;
    if (!fits && line.exact)
      fits = line.filter == topic;
    else if (!fits)
      fits = action == Action::publish || line.permission == Permission::allow ? covers(line.filter, topic)
                                                                               : intersects(line.filter, topic);
    if (fits) return line.permission == Permission::allow;
  }
  return std::nullopt;
}

bool Access::decide(ByteView topic, Action action) const {
  return first_fit(topic, action, lines_.size()).value_or(policy_->no_match() == Permission::allow);
}

Ruling Access::ruling(ByteView topic, Action action) const {
  if (superuser_) return Ruling::allow;
  const auto fit = first_fit(subject_of(topic), action, own_lines_);
  return !fit ? Ruling::open : *fit ? Ruling::allow : Ruling::deny;
}

bool Access::may_publish(ByteView topic) {
  if (publish_always_) return *publish_always_;
  topic = subject_of(topic);
  if (const auto it = answers_.find(topic); it != answers_.end()) return it->second;
  const bool answer = decide(topic, Action::publish);
  if (answers_.size() >= kAnswersMax) answers_.clear();
  answers_.emplace(topic, answer);
  return answer;
}

bool Access::may_subscribe(ByteView filter) const {
  return superuser_ || decide(subject_of(filter), Action::subscribe);
}

}  // namespace ph::security
