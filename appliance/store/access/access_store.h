// AccessStore: users, rules and bans that were added while the node runs. Owned by the node's event loop. A change is
// on disk before it counts: one synced batch on the disk thread, then a new policy out of the configuration's part and
// this one, then the answer. Changes are carried out in the order in which they are asked for.
//
// Bounds: security::kUsersMax, kRulesMax, kBansMax in all; what exceeds one is refused ("access.full"). Bans that are
// over are forgotten when something changes, and once a minute. Making a policy copies all of it: some milliseconds for
// 100,000 users, which is why an import is one change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/security/policy.h"
#include "port/keyed_store.h"
#include "port/loop.h"

namespace ph::access {

namespace errors {
inline constexpr ErrorCode full{"access.full"};
inline constexpr ErrorCode exists{"access.exists"};
inline constexpr ErrorCode not_found{"access.not_found"};
inline constexpr ErrorCode configured{"access.configured"};  // stands in the configuration: is changed there
inline constexpr ErrorCode invalid{"access.invalid"};
}  // namespace errors

class AccessStore {
 public:
  using Done = std::move_only_function<void(Result<>)>;
  using Bans = std::map<std::pair<security::BanBy, std::string>, security::Ban>;

  /// `configured`: what the configuration says. `changed` is told of each new policy, load()'s included.
  AccessStore(port::Loop& loop, port::DiskQueue& disk, port::KeyedStore& store, security::PolicyData configured,
              std::function<void(const security::PolicyPtr&)> changed);
  ~AccessStore();
  AccessStore(const AccessStore&) = delete;
  AccessStore& operator=(const AccessStore&) = delete;

  /// Another configuration: its users and rules instead of those before. `changed` is told.
  void configure(security::PolicyData configured);
  /// Reads what there is. Records that cannot be read stay and are counted.
  Result<> load();

  /// Errors of all: those above, and the store's.
  void add_user(std::string name, security::User user, Done done);
  void change_user(std::string name, security::User user, Done done);
  void remove_user(const std::string& name, Done done);
  /// All or none; users that exist are replaced.
  void import_users(security::Users users, Done done);
  /// Tells the rule's id.
  void add_rule(security::Rule rule, std::move_only_function<void(Result<uint64_t>)> done);
  void remove_rule(uint64_t id, Done done);
  /// Replaces one of the same kind and name.
  void add_ban(security::Ban ban, Done done);
  void remove_ban(security::BanBy by, const std::string& who, Done done);

  const security::PolicyData& configured() const { return configured_; }
  const security::Users& users() const { return users_; }
  const std::map<uint64_t, security::Rule>& rules() const { return rules_; }
  const Bans& bans() const { return bans_; }
  uint64_t unreadable() const { return unreadable_; }

 private:
  /// Writes, then applies, then answers.
  void commit(port::WriteBatch batch, port::Task apply, Done done);
  void publish();
  void forget_over();
  void put_user(std::string name, security::User user, Done done);

  port::Loop& loop_;
  port::DiskQueue& disk_;
  port::KeyedStore& store_;
  security::PolicyData configured_;
  std::function<void(const security::PolicyPtr&)> changed_;
  security::Users users_;
  std::map<uint64_t, security::Rule> rules_;
  Bans bans_;
  uint64_t last_rule_ = 0;
  uint64_t unreadable_ = 0;
  std::unique_ptr<port::Timer> sweeper_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted answers may outlive us at shutdown
};

}  // namespace ph::access
