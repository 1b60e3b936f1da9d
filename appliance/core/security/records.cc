#include "core/security/records.h"

#include "base/coding.h"

namespace ph::security {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kSuperuser = 1;
enum WhoBits : uint8_t { kUsername = 1, kClientId = 2, kAddress = 4 };

Result<> check_version(Reader& in) {
  const auto version = in.fixed<uint8_t>();
  if (in.ok() && version > kVersion) return fail(errors::newer_version);
  if (!in.ok() || version != kVersion) return fail(errors::malformed);
  return {};
}

}  // namespace

std::string user_key(std::string_view name) {
  return std::string(kUserPrefix).append(name);
}

std::string rule_key(uint64_t id) {
  std::string key(kRulePrefix);
  put_key(key, id);
  return key;
}

std::optional<uint64_t> rule_id(std::string_view key) {
  if (!key.starts_with(kRulePrefix) || key.size() != kRulePrefix.size() + 8) return std::nullopt;
  return load_key(key.data() + kRulePrefix.size());
}

std::string ban_key(BanBy by, std::string_view who) {
  std::string key(kBanPrefix);
  key.push_back(static_cast<char>(by));
  return key.append(who);
}

std::string encode(const User& user) {
  std::string out;
  put_fixed<uint8_t>(out, kVersion);
  put_fixed<uint8_t>(out, user.superuser ? kSuperuser : 0);
  put_sized(out, user.hash.to_string());
  put_sized(out, user.scram ? user.scram->to_string() : std::string());
  return out;
}

Result<User> decode_user(ByteView bytes) {
  Reader in(bytes);
  PH_TRY(check_version(in));
  const auto flags = in.fixed<uint8_t>();
  const ByteView hash = in.sized();
  const ByteView scram = in.sized();
  if (!in.ok() || !in.at_end() || flags > kSuperuser) return fail(errors::malformed);
  User out;
  PH_ASSIGN(out.hash, parse_password_hash(hash));
  out.superuser = flags & kSuperuser;
  if (!scram.empty()) out.scram = parse_scram_secret(scram);
  if (!scram.empty() && !out.scram) return fail(errors::malformed);
  return out;
}

std::string encode(const Rule& rule) {
  std::string out;
  put_fixed<uint8_t>(out, kVersion);
  put_fixed<uint8_t>(out, static_cast<uint8_t>(rule.permission));
  put_fixed<uint8_t>(out, static_cast<uint8_t>(rule.action));
  put_fixed<uint8_t>(out, static_cast<uint8_t>((rule.username ? kUsername : 0) | (rule.client_id ? kClientId : 0) |
                                               (rule.address ? kAddress : 0)));
  if (rule.username) put_sized(out, *rule.username);
  if (rule.client_id) put_sized(out, *rule.client_id);
  if (rule.address) put_sized(out, to_string(*rule.address));
  put_varint(out, rule.topics.size());
  for (const TopicRule& topic : rule.topics) put_sized(out, to_string(topic));
  return out;
}

Result<Rule> decode_rule(ByteView bytes) {
  Reader in(bytes);
  PH_TRY(check_version(in));
  const auto permission = in.fixed<uint8_t>();
  const auto action = in.fixed<uint8_t>();
  const auto who = in.fixed<uint8_t>();
  if (!in.ok() || permission > static_cast<uint8_t>(Permission::deny) || action > static_cast<uint8_t>(Action::all) ||
      who > (kUsername | kClientId | kAddress))
    return fail(errors::malformed);
  Rule out;
  out.permission = static_cast<Permission>(permission);
  out.action = static_cast<Action>(action);
  if (who & kUsername) out.username = in.sized();
  if (who & kClientId) out.client_id = in.sized();
  if (who & kAddress) {
    out.address = parse_network(in.sized());
    if (!out.address) return fail(errors::malformed);
  }
  const uint64_t count = in.varint();
  if (!in.ok() || count > kRuleTopicsMax) return fail(errors::malformed);
  for (uint64_t i = 0; i < count; ++i) {
    auto topic = parse_topic_rule(in.sized());
    if (!in.ok() || !topic) return fail(errors::malformed);
    out.topics.push_back(std::move(*topic));
  }
  if (!in.at_end()) return fail(errors::malformed);
  return out;
}

std::string encode(const Ban& ban) {
  std::string out;
  put_fixed<uint8_t>(out, kVersion);
  put_sized(out, ban.reason);
  put_sized(out, ban.author);
  put_varint(out, static_cast<uint64_t>(to_unix_ms(ban.at)));
  put_varint(out, ban.until ? static_cast<uint64_t>(to_unix_ms(*ban.until)) + 1 : 0);
  return out;
}

Result<Ban> decode_ban(std::string_view key, ByteView bytes) {
  if (!key.starts_with(kBanPrefix) || key.size() <= kBanPrefix.size() + 1) return fail(errors::malformed);
  const auto kind = static_cast<uint8_t>(key[kBanPrefix.size()]);
  if (kind >= kBanKinds) return fail(errors::newer_version);
  Reader in(bytes);
  PH_TRY(check_version(in));
  Ban out;
  out.by = static_cast<BanBy>(kind);
  out.who = key.substr(kBanPrefix.size() + 1);
  out.reason = in.sized();
  out.author = in.sized();
  out.at = from_unix_ms(static_cast<int64_t>(in.varint()));
  const uint64_t until = in.varint();
  if (!in.ok() || !in.at_end()) return fail(errors::malformed);
  if (until) out.until = from_unix_ms(static_cast<int64_t>(until - 1));
  if (!check_ban(out).empty()) return fail(errors::malformed);
  return out;
}

}  // namespace ph::security
