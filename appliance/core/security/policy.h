// Policy: everything that decides who may do what, as one immutable snapshot: users, rules, bans, defaults. A change
// makes a new one, which is handed to every worker. Access is what of it applies to one client, with the answers that
// it has given: asked for each PUBLISH and each filter of a SUBSCRIBE.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/security/acl.h"
#include "core/security/ban.h"
#include "core/security/password.h"
#include "core/security/scram.h"

namespace ph::security {

struct User {
  PasswordHash hash;
  std::optional<ScramSecret> scram;  // made together with the hash; nullopt: an imported one
  bool superuser = false;            // no rule is asked
  bool operator==(const User&) const = default;
};
using Users = std::map<std::string, User, std::less<>>;

/// What the broker does with what a client may not do. ignore: a version 5 client is told 0x87 where there is an
/// acknowledgement, else it is dropped and counted.
enum class DenyAction : uint8_t { ignore, disconnect };

struct PolicyData {
  Users users;
  std::vector<Rule> rules;    // asked in this order
  bool default_rules = true;  // behind them: nobody uses $SYS/#, nobody subscribes to all topics at once
  Permission no_match = Permission::allow;
  DenyAction deny_action = DenyAction::ignore;
  std::vector<Ban> bans;
};

class Policy {
 public:
  explicit Policy(PolicyData data);

  const User* user(ByteView name) const;
  bool has_users() const { return !data_.users.empty(); }
  const BanList& bans() const { return bans_; }
  Permission no_match() const { return data_.no_match; }
  DenyAction deny_action() const { return data_.deny_action; }
  const PolicyData& data() const { return data_; }
  /// Some rule is for clients of certain addresses.
  bool asks_addresses() const { return asks_addresses_; }
  /// Nobody may do more or less by the other one, if they have the same users.
  bool same_rules(const Policy& other) const;
  /// The rules that concern this client, in order; those of `claims` stand before the default ones.
  std::vector<const Rule*> rules_of(const Identity& who, const std::vector<Rule>& claims) const;

 private:
  using Index = std::unordered_map<std::string, std::vector<uint32_t>>;
  PolicyData data_;
  BanList bans_;
  std::vector<uint32_t> general_;  // places in data_.rules
  Index by_username_, by_client_id_;
  bool asks_addresses_ = false;
};
using PolicyPtr = std::shared_ptr<const Policy>;

/// What a client's own rules say of something; open: nothing.
enum class Ruling : uint8_t { allow, deny, open };

class Access {
 public:
  /// `claims`: rules that came with the credentials (JWT).
  Access(PolicyPtr policy, Identity who, bool superuser, std::vector<Rule> claims = {});
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  bool may_publish(ByteView topic);
  bool may_subscribe(ByteView filter) const;
  /// The rules alone, without the default ones and without what holds where none fits.
  Ruling ruling(ByteView topic, Action action) const;
  /// Applies another policy, when it is another one.
  void follow(const PolicyPtr& policy, bool superuser);

  const Identity& who() const { return who_; }
  const PolicyPtr& policy() const { return policy_; }
  bool superuser() const { return superuser_; }

 private:
  static constexpr size_t kAnswersMax = 32;
  struct Line {
    ByteView filter;  // of the policy, or in expanded_
    Permission permission = Permission::allow;
    Action action = Action::all;
    bool exact = false;
    bool every = false;  // whatever the topic
  };
  struct TextHash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
    size_t operator()(ByteView text) const { return std::hash<ByteView>{}(text); }
  };

  void compile();
  void add_lines(const Rule& rule);
  bool decide(ByteView topic, Action action) const;
  std::optional<bool> first_fit(ByteView topic, Action action, size_t lines) const;
  std::optional<bool> constant(Action action) const;

  PolicyPtr policy_;
  Identity who_;
  bool superuser_;
  std::vector<Rule> claims_;
  std::vector<Line> lines_;
  size_t own_lines_ = 0;  // of lines_, those that stand before the default ones
  std::deque<std::string> expanded_;
  std::optional<bool> publish_always_;                                        // the same answer for every topic
  std::unordered_map<std::string, bool, TextHash, std::equal_to<>> answers_;  // of may_publish
};

}  // namespace ph::security
