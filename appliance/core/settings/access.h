// The part of the configuration that says who may use the broker, and for what: [broker.authn], [[broker.user]],
// [broker.authz], [[broker.acl]]. Rules and hashes are parsed here, with the place of what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/security/policy.h"
#include "core/settings/diagnostic.h"
#include "core/settings/document.h"

namespace ph::settings {

struct TableInfo;

/// How a client's credentials may be checked, in the order given.
enum class AuthMethod : uint8_t { users, certificate };

struct Authn {
  std::vector<AuthMethod> order = {AuthMethod::certificate, AuthMethod::users};
  std::string password_file;  // empty: none
};
struct AccessUser {
  std::string username;
  security::PasswordHash hash;
  bool superuser = false;
};
struct Authz {
  security::Permission no_match = security::Permission::allow;
  security::DenyAction deny_action = security::DenyAction::ignore;
  bool default_rules = true;
};
struct Access {
  Authn authn;
  Authz authz;
  std::vector<AccessUser> users;
  std::vector<security::Rule> rules;
};

/// The tables inside [broker], for the schema.
std::vector<TableInfo> access_tables();
inline constexpr std::string_view kAccessInner[] = {"authn", "user", "authz", "acl"};
void read_access(const Value& broker, Access& into, Diagnostics& out);

}  // namespace ph::settings
