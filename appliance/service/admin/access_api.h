// The part of the HTTP API that manages who may use the broker, with EMQX's paths and field names; and what the command
// line needs of it: requests made, answers shown.
//
//   GET, POST        /api/v5/authentication/password_based:built_in_database/users
//   PUT, DELETE      .../users/<name>
//   POST             .../import_users          all or none; users that exist are replaced
//   GET, POST        /api/v5/authorization/sources/built_in_database/rules
//   DELETE           .../rules/<id>
//   GET, POST        /api/v5/banned
//   DELETE           /api/v5/banned/<as>/<who>
// Passwords come as hashes, so that none is ever sent or logged. Lists are {data, meta}, errors {code, message}.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/security/policy.h"
#include "store/access/access_store.h"

namespace ph::admin {

inline constexpr std::string_view kUsersPath = "/api/v5/authentication/password_based:built_in_database/users";
inline constexpr std::string_view kImportPath = "/api/v5/authentication/password_based:built_in_database/import_users";
inline constexpr std::string_view kRulesPath = "/api/v5/authorization/sources/built_in_database/rules";
inline constexpr std::string_view kBannedPath = "/api/v5/banned";

class AccessApi {
 public:
  using Answer = std::function<void(int status, std::string body)>;
  AccessApi(access::AccessStore& store, std::function<WallTime()> now) : store_(store), now_(std::move(now)) {}

  /// False: the path is not one of these. Else `answer` is called once, now or later on the store's loop.
  bool handle(const std::string& method, std::string_view target, const std::string& body, const Answer& answer);

 private:
  void users(const std::string& method, const std::string& name, const std::string& body, const Answer& answer);
  void import_users(const std::string& method, const std::string& body, const Answer& answer);
  void rules(const std::string& method, const std::string& id, const std::string& body, const Answer& answer);
  void banned(const std::string& method, const std::string& as, const std::string& who, const std::string& body,
              const Answer& answer);

  access::AccessStore& store_;
  std::function<WallTime()> now_;
};

// --- for the command line

std::string percent_encode(std::string_view text);
std::string user_json(std::string_view name, const security::User& user);
/// The body of an import.
std::string users_json(const std::vector<std::pair<std::string, security::User>>& users);
std::string rule_json(const security::Rule& rule);
std::string ban_json(const security::Ban& ban);
/// Lists as tables. Take the document, as to_text() of status.h does. Errors: admin.malformed.
Result<std::string> users_text(std::string_view json);
Result<std::string> rules_text(std::string_view json);
Result<std::string> banned_text(std::string_view json);
/// "code: message" of an error document; the document itself if it is none.
std::string error_text(std::string_view json);
/// The id in the answer to a new rule.
std::string new_rule_id(std::string_view json);

/// "2026-11-30T09:00:00Z", also with fractions and an offset; milliseconds at best.
std::optional<WallTime> parse_rfc3339(std::string_view text);
std::string rfc3339(WallTime t);

}  // namespace ph::admin
