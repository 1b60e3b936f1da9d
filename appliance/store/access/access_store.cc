#include "store/access/access_store.h"

#include "base/log.h"
#include "core/security/records.h"

namespace ph::access {
namespace {

constexpr Duration kSweep = std::chrono::minutes(1);

}  // namespace

AccessStore::AccessStore(port::Loop& loop, port::DiskQueue& disk, port::KeyedStore& store,
                         security::PolicyData configured, std::function<void(const security::PolicyPtr&)> changed)
    : loop_(loop),
      disk_(disk),
      store_(store),
      configured_(std::move(configured)),
      changed_(std::move(changed)),
      sweeper_(loop.make_timer()) {}

AccessStore::~AccessStore() {
  *alive_ = false;
}

Result<> AccessStore::load() {
  auto unreadable = [this](std::string_view what, const Error& why) {
    ++unreadable_;
    log_error("access_record_unreadable", {{"kind", what}, {"error", why.to_string()}});
    return true;
  };
  PH_TRY(store_.scan(security::kUserPrefix, [&](ByteView key, ByteView value) {
    auto user = security::decode_user(value);
    if (!user) return unreadable("user", user.error());
    users_.emplace(std::string(key.substr(security::kUserPrefix.size())), std::move(*user));
    return true;
  }));
  PH_TRY(store_.scan(security::kRulePrefix, [&](ByteView key, ByteView value) {
    const auto id = security::rule_id(key);
    if (id) last_rule_ = std::max(last_rule_, *id);
    auto rule = security::decode_rule(value);
    if (!rule || !id) return unreadable("rule", rule ? Error{security::errors::malformed, "", 0} : rule.error());
    rules_.emplace(*id, std::move(*rule));
    return true;
  }));
  PH_TRY(store_.scan(security::kBanPrefix, [&](ByteView key, ByteView value) {
    auto ban = security::decode_ban(key, value);
    if (!ban) return unreadable("ban", ban.error());
    bans_.insert_or_assign({ban->by, ban->who}, std::move(*ban));
    return true;
  }));
  publish();
  forget_over();
  return {};
}

void AccessStore::configure(security::PolicyData configured) {
  configured_ = std::move(configured);
  publish();
}

void AccessStore::publish() {
  security::PolicyData data = configured_;
  for (const auto& [name, user] : users_) data.users.insert_or_assign(name, user);
  for (const auto& [id, rule] : rules_) data.rules.push_back(rule);
  for (const auto& [key, ban] : bans_) data.bans.push_back(ban);
  changed_(std::make_shared<security::Policy>(std::move(data)));
}

void AccessStore::commit(port::WriteBatch batch, port::Task apply, Done done) {
  auto outcome = std::make_shared<Result<>>();
  disk_.run([this, batch = std::move(batch), outcome] { *outcome = store_.write(batch, true); },
            [this, alive = alive_, outcome, apply = std::move(apply), done = std::move(done)]() mutable {
              if (!*alive) return;
              if (!*outcome) {
                log_error("access_change_failed", {{"error", outcome->error().to_string()}});
                return done(std::move(*outcome));
              }
              apply();
              publish();
              done({});
            });
}

/// Bans that are over count no more anyway: that they are gone need not be told to anybody.
void AccessStore::forget_over() {
  port::WriteBatch batch;
  const WallTime now = loop_.wall_now();
  for (auto it = bans_.begin(); it != bans_.end();) {
    if (!it->second.until || now < *it->second.until) {
      ++it;
      continue;
    }
    batch.remove(security::ban_key(it->first.first, it->first.second));
    it = bans_.erase(it);
  }
  if (!batch.empty()) commit(std::move(batch), [] {}, [](Result<>) {});
  sweeper_->start(kSweep, [this] { forget_over(); });
}

// --- users

void AccessStore::put_user(std::string name, security::User user, Done done) {
  port::WriteBatch batch;
  batch.put(security::user_key(name), encode(user));
  commit(
      std::move(batch), [this, name = std::move(name), user = std::move(user)] { users_.insert_or_assign(name, user); },
      std::move(done));
}

void AccessStore::add_user(std::string name, security::User user, Done done) {
  if (!security::username_valid(name)) return done(fail(errors::invalid, "no valid user name"));
  if (users_.contains(name)) return done(fail(errors::exists, name));
  if (users_.size() >= security::kUsersMax) return done(fail(errors::full, "too many users"));
  put_user(std::move(name), std::move(user), std::move(done));
}

void AccessStore::change_user(std::string name, security::User user, Done done) {
  if (!users_.contains(name))
    return done(configured_.users.contains(name) ? fail(errors::configured, name) : fail(errors::not_found, name));
  put_user(std::move(name), std::move(user), std::move(done));
}

void AccessStore::remove_user(const std::string& name, Done done) {
  if (!users_.contains(name))
    return done(configured_.users.contains(name) ? fail(errors::configured, name) : fail(errors::not_found, name));
  port::WriteBatch batch;
  batch.remove(security::user_key(name));
  commit(std::move(batch), [this, name] { users_.erase(name); }, std::move(done));
}

void AccessStore::import_users(security::Users users, Done done) {
  if (users_.size() + users.size() > security::kUsersMax) return done(fail(errors::full, "too many users"));
  port::WriteBatch batch;
  for (const auto& [name, user] : users) {
    if (!security::username_valid(name)) return done(fail(errors::invalid, "no valid user name"));
    batch.put(security::user_key(name), encode(user));
  }
  commit(
      std::move(batch),
      [this, users = std::move(users)] {
        for (const auto& [name, user] : users) users_.insert_or_assign(name, user);
      },
      std::move(done));
}

// --- rules

void AccessStore::add_rule(security::Rule rule, std::move_only_function<void(Result<uint64_t>)> done) {
  if (rules_.size() >= security::kRulesMax) return done(fail(errors::full, "too many rules"));
  const uint64_t id = ++last_rule_;
  port::WriteBatch batch;
  batch.put(security::rule_key(id), encode(rule));
  commit(
      std::move(batch), [this, id, rule = std::move(rule)] { rules_.emplace(id, rule); },
      [id, done = std::move(done)](Result<> outcome) mutable {
        if (!outcome) return done(std::unexpected(std::move(outcome.error())));
        done(id);
      });
}

void AccessStore::remove_rule(uint64_t id, Done done) {
  if (!rules_.contains(id)) return done(fail(errors::not_found, "rule " + std::to_string(id)));
  port::WriteBatch batch;
  batch.remove(security::rule_key(id));
  commit(std::move(batch), [this, id] { rules_.erase(id); }, std::move(done));
}

// --- bans

void AccessStore::add_ban(security::Ban ban, Done done) {
  if (const std::string wrong = check_ban(ban); !wrong.empty()) return done(fail(errors::invalid, wrong));
  if (bans_.size() >= security::kBansMax) return done(fail(errors::full, "too many bans"));
  if (ban.by >= security::BanBy::network) {
    size_t same = 0;
    for (const auto& [key, other] : bans_) same += other.by == ban.by;
    if (same >= security::kBanPatternsMax) return done(fail(errors::full, "too many bans of this kind"));
  }
  port::WriteBatch batch;
  batch.put(security::ban_key(ban.by, ban.who), encode(ban));
  commit(
      std::move(batch), [this, ban = std::move(ban)] { bans_.insert_or_assign({ban.by, ban.who}, ban); },
      std::move(done));
}

void AccessStore::remove_ban(security::BanBy by, const std::string& who, Done done) {
  security::Ban ban{by, who, {}, {}, {}, {}};
  (void)check_ban(ban);  // brings an address into its form
  if (!bans_.contains({by, ban.who})) return done(fail(errors::not_found, who));
  port::WriteBatch batch;
  batch.remove(security::ban_key(by, ban.who));
  commit(std::move(batch), [this, by, who = ban.who] { bans_.erase({by, who}); }, std::move(done));
}

}  // namespace ph::access
