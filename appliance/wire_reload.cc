// What a running node takes from a new configuration.
#include "base/log.h"
#include "wire_node.h"

namespace ph {
namespace {

io::PeerCertificate peer_certificate(settings::ClientCertificate from) {
  switch (from) {
    case settings::ClientCertificate::none:
      return io::PeerCertificate::none;
    case settings::ClientCertificate::optional:
      return io::PeerCertificate::optional;
    case settings::ClientCertificate::required:
      return io::PeerCertificate::required;
  }
  return io::PeerCertificate::required;
}

}  // namespace

io::TlsOptions tls_options(const settings::Tls& from) {
  return {.ca_file = from.ca, .certificate_file = from.cert, .key_file = from.key, .crl_file = from.crl};
}

/// MQTT clients rarely have certificates; a link's two ends always do.
io::TlsOptions tls_options(const settings::Settings& from, const ListenerTls& of,
                           const std::shared_ptr<const security::PskKeys>& keys) {
  io::TlsOptions out;
  if (of.certificate && from.tls) out = tls_options(*from.tls);
  out.peer = peer_certificate(of.clients);
  if (of.psk) out.psk = keys;
  return out;
}

Result<> Node::reload(const settings::Settings& fresh) {
  struct Change {
    port::TlsContext* context;
    io::TlsOptions options;
    std::shared_ptr<const io::TlsMaterial> material;
  };
  std::vector<Change> changes;
  auto read = [&changes](port::TlsContext& context, io::TlsOptions options) -> Result<> {
    PH_ASSIGN(auto material, port::TlsContext::read(options));
    changes.push_back({&context, std::move(options), std::move(material)});
    return {};
  };
  // Which listeners there are, and of what kind, does not change; their files and keys do.
  settings::Settings next = settings_;
  if (settings_.tls && fresh.tls) next.tls = fresh.tls;
  settings::Access& access = next.broker.access;
  const settings::Access& from = fresh.broker.access;
  access.users = from.users;
  access.rules = from.rules;
  access.authz = from.authz;
  access.authn.password_file = from.authn.password_file;
  access.jwt = from.jwt;
  access.psk = from.psk;
  access.psk_identities = from.psk_identities;
  PH_ASSIGN(AccessMaterial material, read_access(access));
  PH_ASSIGN(const auto keys, read_psk(next));
  if (tls_) PH_TRY(read(*tls_, tls_options(*next.tls)));
  if (tls_http_) PH_TRY(read(*tls_http_, tls_options_of(*next.broker.access.http)));
  if (tls_http_authz_) PH_TRY(read(*tls_http_authz_, tls_options_of(*next.broker.access.http_authz)));
  for (auto& [of, context] : tls_mqtt_) PH_TRY(read(*context, tls_options(next, of, keys)));

  for (Change& c : changes) c.context->use(std::move(c.options), std::move(c.material));
  tokens_ = std::move(material.tokens);
  if (broker_) broker_->set_tokens(tokens_);
  access_->configure(std::move(material.policy));
  log_set_level(fresh.log.level);
  next.log = fresh.log;
  settings_ = std::move(next);
  return {};
}

}  // namespace ph
