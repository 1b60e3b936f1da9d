// Rules, topics and stored records of access: the first line is a topic rule and what follows a topic, or a record.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/security/address.h"
#include "core/security/policy.h"
#include "core/security/records.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph;
  using namespace ph::security;
  const ByteView all(reinterpret_cast<const char*>(data), size);
  const size_t line = all.find('\n');
  const ByteView first = all.substr(0, line), rest = line == all.npos ? ByteView() : all.substr(line + 1);

  if (auto rule = parse_topic_rule(first)) {
    PH_ASSERT(parse_topic_rule(to_string(*rule)) == rule, "a rule reads as it was written");
    PolicyData policy;
    policy.default_rules = false;
    Rule deny;
    deny.permission = Permission::deny;
    deny.topics.push_back(*rule);
    policy.rules.push_back(deny);
    Access access(std::make_shared<Policy>(std::move(policy)), Identity{"c", "u", {}}, false);
    const bool may = access.may_publish(rest);
    PH_ASSERT(may == access.may_publish(rest), "an answer stays the same");
    // Whoever may not publish to a topic may not subscribe to it either.
    PH_ASSERT(may || !access.may_subscribe(rest), "a denied topic is denied as a filter, too");
  }
  if (covers(first, rest) && covers(rest, first)) PH_ASSERT(intersects(first, rest), "what is the same intersects");
  PH_ASSERT(intersects(first, rest) == intersects(rest, first), "intersection has no direction");
  if (auto network = parse_network(first)) {
    PH_ASSERT(network->contains(network->base), "a network has its own address");
    PH_ASSERT(parse_network(to_string(*network)) == network, "a network reads as it was written");
  }
  if (auto user = decode_user(all)) PH_ASSERT(decode_user(encode(*user)).value() == *user, "users come back");
  if (auto rule = decode_rule(all)) PH_ASSERT(decode_rule(encode(*rule)).value() == *rule, "rules come back");
  const std::string key = ban_key(BanBy::client_id, "c");
  if (auto ban = decode_ban(key, all)) PH_ASSERT(decode_ban(key, encode(*ban)).value() == *ban, "bans come back");
  return 0;
}
