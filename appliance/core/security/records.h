// Users, rules and bans as the node's store keeps them, under the prefix "x/". All integers are varints unless said
// otherwise; "text" is a length and its bytes.
//
//   x/u/<name>               u8 version = 1; u8 flags (1: superuser); text password hash; text SCRAM secret (may be
//                            empty)
//   x/a/<id, 8 bytes BE>     u8 version = 1; u8 permission; u8 action; u8 who (1: user name, 2: client id, 4: address);
//                            for each bit a text; number of topics; a text each, as written
//   x/b/<u8 kind><who>       u8 version = 1; text reason; text author; milliseconds at; milliseconds until + 1, or 0
//
// A record of a newer version, or one that cannot be read, is no record: the reader keeps it where it is and says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/security/policy.h"

namespace ph::security {

inline constexpr std::string_view kUserPrefix = "x/u/";
inline constexpr std::string_view kRulePrefix = "x/a/";
inline constexpr std::string_view kBanPrefix = "x/b/";

namespace errors {
inline constexpr ErrorCode newer_version{"security.newer_version"};
inline constexpr ErrorCode malformed{"security.malformed"};
}  // namespace errors

std::string user_key(std::string_view name);
std::string rule_key(uint64_t id);
std::string ban_key(BanBy by, std::string_view who);
std::optional<uint64_t> rule_id(std::string_view key);

std::string encode(const User& user);
std::string encode(const Rule& rule);
std::string encode(const Ban& ban);
Result<User> decode_user(ByteView bytes);
Result<Rule> decode_rule(ByteView bytes);
/// Kind and name are in the key.
Result<Ban> decode_ban(std::string_view key, ByteView bytes);

}  // namespace ph::security
