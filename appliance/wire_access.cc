// Who may use the broker: the policy out of the configuration and of what was added since, and the way of a change to
// the disk and to the workers.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/log.h"
#include "core/security/base64.h"
#include "wire_node.h"

namespace ph {
namespace {

constexpr size_t kHashThreads = 2;          // for passwords
constexpr size_t kHashesWaitingMax = 1024;  // more: CONNECTs are refused as busy
constexpr Duration kMemoryStep = 500ms;
constexpr int64_t kPasswordFileMax = 64LL * 1024 * 1024;

/// Follows symbolic links: secrets are often mounted behind some.
Result<std::string> read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return fail_errno(port::file_errors::failed, path, errno);
  const auto size = static_cast<int64_t>(in.tellg());
  if (size < 0 || size > kPasswordFileMax)
    return fail(port::file_errors::failed,
                path + ": not a file of at most " + std::to_string(kPasswordFileMax) + " bytes");
  std::string text(static_cast<size_t>(size), '\0');
  in.seekg(0);
  in.read(text.data(), size);
  if (in.bad()) return fail(port::file_errors::failed, path + ": cannot be read");
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

std::vector<broker::AuthMethod> auth_methods(const std::vector<settings::AuthMethod>& from) {
  std::vector<broker::AuthMethod> out;
  for (settings::AuthMethod m : from) {
    switch (m) {
      case settings::AuthMethod::users:
        out.push_back(broker::AuthMethod::users);
        break;
      case settings::AuthMethod::certificate:
        out.push_back(broker::AuthMethod::certificate);
        break;
      case settings::AuthMethod::jwt:
        out.push_back(broker::AuthMethod::jwt);
        break;
      case settings::AuthMethod::psk:
        out.push_back(broker::AuthMethod::psk);
        break;
      case settings::AuthMethod::http:
        out.push_back(broker::AuthMethod::http);
        break;
    }
  }
  return out;
}

Result<std::vector<security::JwtKey>> jwt_keys(const settings::Jwt& from) {
  using security::JwtKey;
  std::vector<JwtKey> out;
  auto add_secret = [&](std::string secret) -> Result<> {
    while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
    if (from.secret_base64) secret = security::base64_decode(secret).value_or("");
    if (secret.empty()) return fail(security::errors::bad_jwks, "the secret of tokens is empty or no base64");
    out.push_back({JwtKey::Kind::secret, std::nullopt, std::move(secret)});
    return {};
  };
  if (!from.secret.empty()) PH_TRY(add_secret(from.secret));
  if (!from.secret_file.empty()) {
    PH_ASSIGN(std::string secret, read_whole(from.secret_file));
    PH_TRY(add_secret(std::move(secret)));
  }
  if (!from.public_key_file.empty()) {
    PH_ASSIGN(const std::string pem, read_whole(from.public_key_file));
    PH_ASSIGN(const JwtKey::Kind kind, io::public_key_kind(pem, from.public_key_file));
    out.push_back({kind, std::nullopt, pem});
  }
  if (!from.jwks_file.empty()) {
    PH_ASSIGN(const std::string text, read_whole(from.jwks_file));
    auto keys = security::parse_jwks(text);
    if (!keys) return fail(keys.error().code, from.jwks_file + ": " + keys.error().detail);
    for (JwtKey& key : *keys) out.push_back(std::move(key));
  }
  return out;
}

/// Resident bytes of this process; 0 if that cannot be known.
uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  in >> all >> resident;
  return in ? resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

io::TlsOptions Node::tls_options_of(const settings::HttpServer& server) {
  io::TlsOptions out;
  out.ca_file = server.ca;
  out.ca_may_have_others = server.ca == settings::kSystemAuthorities;
  return out;
}

broker::HttpCheckOptions Node::http_options(const settings::HttpServer& from, std::shared_ptr<port::TlsContext> tls) {
  const auto at = port::parse_endpoint(from.address);  // checked with the settings
  if (!at) return {};
  return {*at, from.path, std::move(tls), from.request_timeout, from.requests_max};
}

void Node::set_listener_access(const settings::Listener& from, broker::ListenerOptions& to) {
  if (from.authn) to.authn = auth_methods(*from.authn);
  to.certificate_as = from.certificate_as == settings::CertificateAs::username   ? broker::CertificateAs::username
                      : from.certificate_as == settings::CertificateAs::clientid ? broker::CertificateAs::client_id
                                                                                 : broker::CertificateAs::nothing;
  to.certificate_field = static_cast<port::CertificateField>(from.certificate_field);
  to.websocket_origins = from.origins;
  to.connections_rate = from.max_conn_rate;
  to.messages_rate = from.messages_rate;
  to.messages_rate_total = from.messages_rate_total;
  to.bytes_rate = from.bytes_rate ? from.bytes_rate->value : 0;
  to.bytes_rate_total = from.bytes_rate_total ? from.bytes_rate_total->value : 0;
}

void Node::set_broker_access(broker::BrokerOptions& options) {
  const settings::Access& from = settings_.broker.access;
  jobs_ = std::make_unique<io::IoJobPool>(kHashThreads, kHashesWaitingMax);
  options.security.policy = policy_;
  options.security.order = auth_methods(from.authn.order);
  options.security.crypto = &crypto_;
  options.channel.enhanced_auth = true;
  options.security.jobs = jobs_.get();
  options.security.tokens = tokens_;
  if (from.http) options.security.http = http_options(*from.http, tls_http_);
  if (from.http_authz) {
    options.security.authorizer = {http_options(*from.http_authz, tls_http_authz_), from.http_authz->cache_ttl,
                                   from.http_authz->cache_max,
                                   from.http_authz->on_failure == settings::OnFailure::deny};
    options.channel.asks_first = true;
  }
  options.security.flapping = {from.flapping.enable, from.flapping.max_count, from.flapping.window_time};
  options.security.on_flapping = [this, ban_time = from.flapping.ban_time](const std::string& client_id) {
    loop_.post([this, ban_time, client_id] {
      const WallTime now = loop_.wall_now();
      access_->add_ban({security::BanBy::client_id, client_id, "connected and disconnected too often", "flapping", now,
                        now + std::chrono::duration_cast<std::chrono::milliseconds>(ban_time)},
                       [](const Result<>&) {});  // a failure is logged there
    });
  };
  if (!from.overload.enable) return;
  options.overload.lag_max = from.overload.lag_max;
  options.overload.memory_short = memory_short_;
  const auto pages = static_cast<uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  const uint64_t half = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
  memory_timer_ = loop_.make_timer();
  watch_memory(from.overload.memory_max ? from.overload.memory_max->value : half);
}

void Node::watch_memory(uint64_t bytes_max) {
  memory_short_->store(bytes_max != 0 && resident_bytes() > bytes_max, std::memory_order_relaxed);
  memory_timer_->start(kMemoryStep, [this, bytes_max] { watch_memory(bytes_max); });
}

/// A user that stands in the file itself counts before one of the password file.
Result<AccessMaterial> read_access(const settings::Access& from) {
  AccessMaterial out;
  security::PolicyData& data = out.policy;
  data.no_match = from.authz.no_match;
  data.deny_action = from.authz.deny_action;
  data.default_rules = from.authz.default_rules;
  data.rules = from.rules;
  for (const auto& u : from.users) data.users.emplace(u.username, security::User{u.hash, {}, u.superuser});
  if (!from.authn.password_file.empty()) {
    PH_ASSIGN(const std::string text, read_whole(from.authn.password_file));
    auto entries = security::parse_password_file(text);
    if (!entries) return fail(security::errors::bad_file, from.authn.password_file + ": " + entries.error().detail);
    for (auto& [name, hash] : *entries) data.users.emplace(std::move(name), security::User{std::move(hash), {}, false});
  }
  if (from.jwt) {
    broker::TokenOptions tokens;
    PH_ASSIGN(tokens.keys, jwt_keys(*from.jwt));
    tokens.claims = {from.jwt->username_claim, from.jwt->acl_claim_name};
    out.tokens = std::make_shared<const broker::TokenOptions>(std::move(tokens));
  }
  return out;
}

Result<std::shared_ptr<const security::PskKeys>> read_psk(const settings::Settings& from) {
  const settings::Access& access = from.broker.access;
  std::shared_ptr<const security::PskKeys> none;
  if (!std::ranges::any_of(from.listeners, [](const auto& l) { return l.psk; })) return none;
  security::PskKeys keys;
  for (const auto& row : access.psk_identities) keys.emplace(row.identity, row.key);
  if (access.psk) {
    PH_ASSIGN(const std::string text, read_whole(access.psk->file));
    auto more = security::parse_psk_file(text);
    if (!more) return fail(more.error().code, access.psk->file + ": " + more.error().detail);
    const auto weak =
        std::ranges::count_if(*more, [](const auto& row) { return row.second.size() < security::kPskBytesAdvised; });
    if (weak > 0)
      log_warn("psk_keys_short", {{"file", access.psk->file}, {"keys", weak}, {"advised", security::kPskBytesAdvised}});
    keys.merge(*more);
  }
  return std::make_shared<const security::PskKeys>(std::move(keys));
}

Result<> Node::open_access() {
  PH_ASSIGN(AccessMaterial material, read_access(settings_.broker.access));
  tokens_ = std::move(material.tokens);
  const settings::Access& from = settings_.broker.access;
  if (from.http && from.http->tls) {
    PH_ASSIGN(tls_http_, io::make_tls_client(tls_options_of(*from.http)));
  }
  if (from.http_authz && from.http_authz->tls) {
    PH_ASSIGN(tls_http_authz_, io::make_tls_client(tls_options_of(*from.http_authz)));
  }
  access_ = std::make_unique<access::AccessStore>(loop_, *disk_, *store_, std::move(material.policy),
                                                  [this](const security::PolicyPtr& policy) {
                                                    policy_ = policy;
                                                    if (broker_) broker_->set_policy(policy);
                                                  });
  access_api_ = std::make_unique<admin::AccessApi>(*access_, [this] { return loop_.wall_now(); });
  return access_->load();
}

}  // namespace ph
