#include "store/access/access_store.h"

#include <gtest/gtest.h>

#include "core/security/records.h"
#include "support/manual_loop.h"
#include "support/memory_store.h"

namespace ph::access {
namespace {

using security::Ban;
using security::BanBy;
using security::User;

User user(std::string salt, bool superuser = false) {
  return {{security::PasswordHash::Scheme::pbkdf2_sha512, 10, std::move(salt), std::string(64, 'd')}, {}, superuser};
}

class AccessStoreTest : public testing::Test {
 protected:
  void open() {
    store_.reset();
    store_ = std::make_unique<AccessStore>(loop_, disk_, memory_, configured_,
                                           [this](const security::PolicyPtr& p) { policy_ = p; });
    ASSERT_TRUE(store_->load());
    loop_.run_posted();
  }
  AccessStore::Done into(std::string& code) {
    return [&code](const Result<>& r) { code = r ? "ok" : std::string(r.error().code.name()); };
  }
  /// The outcome of one change.
  std::string outcome(const std::function<void(AccessStore::Done)>& change) {
    std::string code = "nothing";
    change(into(code));
    loop_.run_posted();
    return code;
  }

  test::ManualLoop loop_;
  test::ManualDisk disk_{loop_};
  test::MemoryStore memory_;
  security::PolicyData configured_;
  security::PolicyPtr policy_;
  std::unique_ptr<AccessStore> store_;
};

TEST_F(AccessStoreTest, a_change_counts_once_it_is_durable_and_is_there_after_a_power_cut) {
  open();
  disk_.hold();
  std::string code;
  store_->add_user("alice", user("salt", true), into(code));
  loop_.run_posted();
  EXPECT_EQ(code, "");
  EXPECT_FALSE(policy_->user("alice")) << "not before it is on disk";
  disk_.release();
  loop_.run_posted();
  EXPECT_EQ(code, "ok");
  ASSERT_TRUE(policy_->user("alice"));
  Random random(1);
  memory_.cut_power(random);
  open();
  ASSERT_TRUE(policy_->user("alice"));
  EXPECT_EQ(*policy_->user("alice"), user("salt", true));
}

TEST_F(AccessStoreTest, users_are_added_changed_and_removed) {
  configured_.users.emplace("fixed", user("a"));
  open();
  EXPECT_EQ(outcome([&](auto d) { store_->add_user("u", user("1"), std::move(d)); }), "ok");
  EXPECT_EQ(outcome([&](auto d) { store_->add_user("u", user("2"), std::move(d)); }), "access.exists");
  EXPECT_EQ(outcome([&](auto d) { store_->add_user("u:v", user("2"), std::move(d)); }), "access.invalid");
  EXPECT_EQ(outcome([&](auto d) { store_->change_user("u", user("2"), std::move(d)); }), "ok");
  EXPECT_EQ(policy_->user("u")->hash.salt, "2");
  EXPECT_EQ(outcome([&](auto d) { store_->change_user("w", user("2"), std::move(d)); }), "access.not_found");
  EXPECT_EQ(outcome([&](auto d) { store_->remove_user("fixed", std::move(d)); }), "access.configured");
  EXPECT_EQ(outcome([&](auto d) { store_->add_user("fixed", user("9"), std::move(d)); }), "ok");
  EXPECT_EQ(policy_->user("fixed")->hash.salt, "9") << "one that was added counts instead of the configured one";
  EXPECT_EQ(outcome([&](auto d) { store_->remove_user("fixed", std::move(d)); }), "ok");
  EXPECT_EQ(policy_->user("fixed")->hash.salt, "a");
  EXPECT_EQ(outcome([&](auto d) { store_->remove_user("u", std::move(d)); }), "ok");
  EXPECT_EQ(outcome([&](auto d) { store_->remove_user("u", std::move(d)); }), "access.not_found");
  EXPECT_EQ(outcome([&](auto d) { store_->import_users({{"i", user("1")}, {"j", user("2")}}, std::move(d)); }), "ok");
  EXPECT_TRUE(policy_->user("i") && policy_->user("j"));
}

TEST_F(AccessStoreTest, rules_keep_their_order_and_ids_are_not_used_again) {
  open();
  std::vector<uint64_t> ids;
  auto add = [&](const char* topic) {
    security::Rule rule;
    rule.topics.push_back(*security::parse_topic_rule(topic));
    store_->add_rule(rule, [&](Result<uint64_t> id) { ids.push_back(id.value()); });
    loop_.run_posted();
  };
  add("a");
  add("b");
  add("c");
  EXPECT_EQ(outcome([&](auto d) { store_->remove_rule(ids[1], std::move(d)); }), "ok");
  EXPECT_EQ(outcome([&](auto d) { store_->remove_rule(ids[1], std::move(d)); }), "access.not_found");
  open();
  add("d");
  EXPECT_GT(ids[3], ids[2]);
  ASSERT_EQ(policy_->data().rules.size(), 3U);
  EXPECT_EQ(policy_->data().rules[2].topics[0].filter, "d");
}

TEST_F(AccessStoreTest, bans_end_by_themselves) {
  open();
  Ban ban{BanBy::address, "::ffff:10.0.0.1", "why",
          "me",           loop_.wall_now(),  loop_.wall_now() + std::chrono::seconds(90)};
  EXPECT_EQ(outcome([&](auto d) { store_->add_ban(ban, std::move(d)); }), "ok");
  EXPECT_EQ(policy_->bans().all().size(), 1U);
  EXPECT_EQ(store_->bans().begin()->second.who, "10.0.0.1");
  open();
  EXPECT_EQ(policy_->bans().all().size(), 1U);
  loop_.advance(std::chrono::minutes(3));
  EXPECT_TRUE(policy_->bans().all().empty());
  EXPECT_EQ(memory_.size(), 0U);
  Ban bad{BanBy::network, "x", "", "", {}, {}};
  EXPECT_EQ(outcome([&](auto d) { store_->add_ban(bad, std::move(d)); }), "access.invalid");
  EXPECT_EQ(outcome([&](auto d) { store_->add_ban(ban, std::move(d)); }), "ok");
  EXPECT_EQ(outcome([&](auto d) { store_->remove_ban(BanBy::address, "10.0.0.1", std::move(d)); }), "ok");
  EXPECT_EQ(outcome([&](auto d) { store_->remove_ban(BanBy::address, "10.0.0.1", std::move(d)); }), "access.not_found");
}

TEST_F(AccessStoreTest, a_failed_write_changes_nothing) {
  open();
  memory_.fail_writes = true;
  EXPECT_EQ(outcome([&](auto d) { store_->add_user("u", user("1"), std::move(d)); }), "store.failed");
  EXPECT_FALSE(policy_->user("u"));
  memory_.fail_writes = false;
  EXPECT_EQ(outcome([&](auto d) { store_->add_user("u", user("1"), std::move(d)); }), "ok");
}

TEST_F(AccessStoreTest, what_cannot_be_read_is_counted_and_stays) {
  port::WriteBatch batch;
  std::string newer = encode(user("s"));
  newer[0] = 2;
  batch.put(security::user_key("new"), newer);
  batch.put(security::user_key("torn"), encode(user("s")).substr(0, 20));
  batch.put(security::user_key("good"), encode(user("s")));
  batch.put(security::rule_key(7), "x");
  ASSERT_TRUE(memory_.write(batch, true));
  open();
  EXPECT_EQ(store_->unreadable(), 3U);
  EXPECT_TRUE(policy_->user("good"));
  EXPECT_FALSE(policy_->user("new"));
  EXPECT_EQ(memory_.size(), 4U);
  uint64_t id = 0;
  store_->add_rule({}, [&](Result<uint64_t> r) { id = r.value(); });
  EXPECT_EQ(id, 0U);
  loop_.run_posted();
  EXPECT_EQ(id, 8U) << "an unreadable rule keeps its id";
}

TEST(Records, come_back_as_they_were_and_no_truncation_is_one) {
  using namespace security;
  User u = user("salt", true);
  u.scram = ScramSecret{4096, "s", std::string(32, 'x'), std::string(32, 'y')};
  EXPECT_EQ(decode_user(encode(u)).value(), u);
  Rule r{Permission::deny, Action::subscribe, "user", "client", parse_network("10.0.0.0/8"), {}};
  r.topics = {*parse_topic_rule("eq a/#"), *parse_topic_rule("x/%c")};
  EXPECT_EQ(decode_rule(encode(r)).value(), r);
  r.address = parse_network("2001:db8::/32");
  EXPECT_EQ(decode_rule(encode(r)).value(), r);
  Ban b{BanBy::client_id_pattern, "x*", "why", "me", from_unix_ms(5), from_unix_ms(0)};
  EXPECT_EQ(decode_ban(ban_key(b.by, b.who), encode(b)).value(), b);
  for (size_t n = 0; n < encode(u).size(); ++n) EXPECT_FALSE(decode_user(encode(u).substr(0, n)));
  for (size_t n = 0; n < encode(r).size(); ++n) EXPECT_FALSE(decode_rule(encode(r).substr(0, n)));
  for (size_t n = 0; n < encode(b).size(); ++n) EXPECT_FALSE(decode_ban(ban_key(b.by, b.who), encode(b).substr(0, n)));
  std::string bytes = encode(r);
  for (char& c : bytes) {  // whatever a flipped bit makes of it, it is a rule or it is none
    c = static_cast<char>(c ^ 1);
    const auto other = decode_rule(bytes);
    EXPECT_TRUE(!other || decode_rule(encode(*other)).value() == *other);
    c = static_cast<char>(c ^ 1);
  }
  bytes[0] = 2;
  EXPECT_EQ(decode_rule(bytes).error().code, security::errors::newer_version);
}

}  // namespace
}  // namespace ph::access
