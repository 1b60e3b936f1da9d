// What a running node takes from a new configuration.
#include "base/log.h"
#include "wire_node.h"

namespace ph {

io::TlsOptions tls_options(const settings::Tls& from) {
  return {.ca_file = from.ca, .certificate_file = from.cert, .key_file = from.key, .crl_file = from.crl};
}

Result<> Node::reload(const settings::Settings& fresh) {
  if (settings_.tls && fresh.tls) {
    struct Change {
      port::TlsContext* context;
      io::TlsOptions options;
      std::shared_ptr<const io::TlsMaterial> material;
    };
    std::vector<Change> changes;
    std::vector<port::TlsContext*> contexts = {tls_.get()};
    for (auto& [peer, context] : tls_mqtt_)
      if (context) contexts.push_back(context.get());
    for (port::TlsContext* context : contexts) {
      io::TlsOptions options = tls_options(*fresh.tls);
      options.peer = context->options().peer;
      PH_ASSIGN(auto material, port::TlsContext::read(options));
      changes.push_back({context, std::move(options), std::move(material)});
    }
    for (Change& c : changes) c.context->use(std::move(c.options), std::move(c.material));
    settings_.tls = fresh.tls;
  }
  log_set_level(fresh.log.level);
  settings_.log = fresh.log;
  return {};
}

}  // namespace ph
