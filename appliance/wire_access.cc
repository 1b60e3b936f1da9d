// Who may use the broker: the policy out of the configuration and of what was added since, and the way of a change to
// the disk and to the workers.
#include <cerrno>
#include <fstream>

#include "base/log.h"
#include "wire_node.h"

namespace ph {
namespace {

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

}  // namespace

/// Reads what the configuration refers to. A user that stands in the file itself counts before one of the password
/// file.
Result<> Node::open_access() {
  const settings::Access& from = settings_.broker.access;
  security::PolicyData data;
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
  access_ = std::make_unique<access::AccessStore>(loop_, *disk_, *store_, std::move(data),
                                                  [this](const security::PolicyPtr& policy) {
                                                    policy_ = policy;
                                                    if (broker_) broker_->set_policy(policy);
                                                  });
  access_api_ = std::make_unique<admin::AccessApi>(*access_, [this] { return loop_.wall_now(); });
  return access_->load();
}

}  // namespace ph
