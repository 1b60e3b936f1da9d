// Access rules: who may publish and subscribe where. The first rule that fits decides; without one the policy's
// no_match does. Pure; the broker asks an Access (access.h), which holds what applies to one client.
//
// Topics of a rule are filters. "eq <filter>" means that very filter or topic and nothing that it matches. %c and %u
// (also ${clientid} and ${username}) stand for the client's id and its verified user name. A name that could widen a
// filter ('+', '#', '/' in it) never makes an allow rule fit and always makes a deny rule fit.
//
// PUBLISH: the rule's filter matches the topic. SUBSCRIBE: an allow rule fits if its filter covers the whole wanted
// filter; a deny rule fits if the two have any topic in common, so that "#" is no way around `deny secret/#`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "core/security/address.h"

namespace ph::security {

inline constexpr size_t kRulesMax = 100'000;
inline constexpr size_t kRuleTopicsMax = 256;

enum class Permission : uint8_t { allow, deny };
enum class Action : uint8_t { publish, subscribe, all };

/// Who a client is, once it was let in.
struct Identity {
  std::string client_id;
  std::optional<std::string> username;  // verified; nullopt: anonymous
  std::optional<Address> address;
};

/// A filter of a rule, as written but without "eq ".
struct TopicRule {
  std::string filter;
  bool exact = false;
  bool placeholders = false;
  bool operator==(const TopicRule&) const = default;
};
/// "eq a/+/b", "dev/%c/#". nullopt if it is no valid filter.
std::optional<TopicRule> parse_topic_rule(ByteView text);
std::string to_string(const TopicRule& topic);

struct Rule {
  Permission permission = Permission::allow;
  Action action = Action::all;
  // All that are set must fit; none set: everyone.
  std::optional<std::string> username;
  std::optional<std::string> client_id;
  std::optional<Network> address;
  std::vector<TopicRule> topics;  // empty: every topic

  bool operator==(const Rule&) const = default;
  bool concerns(const Identity& who) const;
};

/// The filter with the names filled in. nullopt: it cannot fit. `widening`: a name in it has wildcards or levels.
struct Expanded {
  std::optional<std::string> filter;
  bool widening = false;
};
Expanded expand(const TopicRule& topic, const Identity& who);

/// What a topic or filter is about: without "$share/<group>/", "$queue/", "$exclusive/", "$delayed/<seconds>/".
ByteView subject_of(ByteView topic);

/// Whether every topic that `wanted` matches is matched by `filter`. A topic without wildcards is a filter of itself.
bool covers(ByteView filter, ByteView wanted);
/// Whether there can be a topic that both match.
bool intersects(ByteView a, ByteView b);

}  // namespace ph::security
