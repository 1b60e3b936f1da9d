// The part of the configuration that says who may use the broker, and for what: [broker.authn], [[broker.user]],
// [broker.authz], [[broker.acl]]. Rules and hashes are parsed here, with the place of what is wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/security/policy.h"
#include "core/settings/diagnostic.h"
#include "core/settings/document.h"

namespace ph::settings {

struct TableInfo;

/// How a client's credentials may be checked, in the order given.
enum class AuthMethod : uint8_t { users, certificate, jwt, http, psk };
enum class CertificateAs : uint8_t { none, username, clientid };
enum class CertificateField : uint8_t { cn, dns, email, uri };

struct Authn {
  std::vector<AuthMethod> order = {AuthMethod::certificate, AuthMethod::psk, AuthMethod::jwt, AuthMethod::users,
                                   AuthMethod::http};
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
/// Pre-shared keys of TLS.
struct Psk {
  std::string file;  // empty: none
};
struct PskIdentity {
  std::string identity;
  std::string key;  // its bytes
};
/// Keys that tokens may be signed with; each that is not empty counts.
struct Jwt {
  std::string secret;
  bool secret_base64 = false;
  std::string secret_file;
  std::string public_key_file;
  std::string jwks_file;
  std::string username_claim = "username";
  std::string acl_claim_name = "acl";
};
/// Where Debian and others keep the authorities that browsers know.
inline constexpr std::string_view kSystemAuthorities = "/etc/ssl/certs/ca-certificates.crt";
/// A server that is asked about clients.
struct HttpServer {
  std::string url;
  bool tls = false;     // out of it: https://,
  std::string address;  // "host:port",
  std::string path;     // and the rest
  Duration request_timeout = 5s;
  uint32_t requests_max = 256;
  std::string ca{kSystemAuthorities};
};
struct HttpAuthn : HttpServer {};
enum class OnFailure : uint8_t { deny, ignore };
struct HttpAuthz : HttpServer {
  Duration cache_ttl = std::chrono::minutes(1);
  uint32_t cache_max = 32;
  OnFailure on_failure = OnFailure::deny;
};
struct FlappingDetect {
  bool enable = false;
  uint32_t max_count = 15;
  Duration window_time = std::chrono::minutes(1);
  Duration ban_time = std::chrono::minutes(5);
};
struct OverloadProtection {
  bool enable = true;
  Duration lag_max = 2s;
  std::optional<Bytes> memory_max;  // nullopt: half of the machine's
};
struct Access {
  Authn authn;
  Authz authz;
  std::optional<Psk> psk;
  std::vector<PskIdentity> psk_identities;
  std::optional<Jwt> jwt;
  std::optional<HttpAuthn> http;
  std::optional<HttpAuthz> http_authz;
  FlappingDetect flapping;
  OverloadProtection overload;
  std::vector<AccessUser> users;
  std::vector<security::Rule> rules;
};

/// The tables inside [broker], for the schema.
std::vector<TableInfo> access_tables();
inline constexpr std::string_view kAccessInner[] = {"authn",
                                                    "psk",
                                                    "psk_identity",
                                                    "http",
                                                    "http_authz",
                                                    "jwt",
                                                    "user",
                                                    "authz",
                                                    "acl",
                                                    "flapping_detect",
                                                    "overload_protection"};
void read_access(const Value& broker, Access& into, Diagnostics& out);

}  // namespace ph::settings
