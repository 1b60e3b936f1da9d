// The broker's door: logins, rules, bans, limits, and what another policy does to those who are in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/security/base64.h"
#include "service/broker/broker.h"
#include "service/broker/credentials.h"
#include "support/broker_rig.h"
#include "support/plain_crypto.h"

namespace ph::broker {
namespace {

using security::Permission;
using security::PolicyData;
using test::BrokerRig;
using test::MqttClient;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

security::Rule rule(Permission permission, security::Action action, std::vector<std::string> topics) {
  security::Rule out;
  out.permission = permission;
  out.action = action;
  for (const auto& t : topics) out.topics.push_back(*security::parse_topic_rule(t));
  return out;
}

class Door : public testing::Test {
 protected:
  Door() {
    data.users["u"] = make_user(crypto, "right", 10, false);
    data.users["root"] = make_user(crypto, "right", 10, true);
    options.listeners.push_back({{"127.0.0.1", 1883}, nullptr});
    options.security.order = {AuthMethod::certificate, AuthMethod::users};
    options.security.crypto = &crypto;
    options.security.jobs = &jobs;
    options.channel.enhanced_auth = true;
  }
  void open(size_t workers = 2) {
    options.security.policy = std::make_shared<security::Policy>(data);
    rig = std::make_unique<BrokerRig>(workers, options);
  }
  std::string login(const std::string& line) {
    MqttClient& c = rig->connect(line);
    const auto got = c.take();
    last = &c;
    return got.empty() ? "nothing" : got.front();
  }
  MqttClient& in(const std::string& line) {
    EXPECT_THAT(login(line), HasSubstr("reason=success")) << line;
    return *last;
  }
  std::vector<std::string> say(MqttClient& c, const std::string& line) {
    c.send(line);
    rig->run();
    return c.take();
  }
  void change() {
    rig->broker->set_policy(std::make_shared<security::Policy>(data));
    rig->run();
  }
  BrokerStats stats() const { return rig->broker->stats(); }

  test::PlainCrypto crypto;
  test::LoopJobs jobs;
  PolicyData data;
  BrokerOptions options;
  std::unique_ptr<BrokerRig> rig;
  MqttClient* last = nullptr;
};

TEST_F(Door, checks_passwords_and_remembers_the_right_ones) {
  open(1);
  EXPECT_THAT(login("v=5 id=a username=u password=right"), HasSubstr("reason=success"));
  EXPECT_THAT(login("v=5 id=b username=u password=wrong"), HasSubstr("bad_user_name_or_password"));
  EXPECT_THAT(login("v=5 id=c username=u"), HasSubstr("bad_user_name_or_password"));
  EXPECT_THAT(login("v=5 id=d username=nobody password=right"), HasSubstr("bad_user_name_or_password"));
  EXPECT_THAT(login("v=5 id=e"), HasSubstr("reason=success")) << "anonymous on loopback";
  EXPECT_EQ(stats().logins_failed, 3U);
  EXPECT_EQ(jobs.ran, 2U);
  EXPECT_THAT(login("v=5 id=f username=u password=right"), HasSubstr("reason=success"));
  EXPECT_EQ(jobs.ran, 2U) << "no PBKDF2 for what is remembered";
  data.users["u"] = make_user(crypto, "other", 10, false);
  change();
  EXPECT_THAT(login("v=5 id=g username=u password=right"), HasSubstr("bad_user_name_or_password"));
}

TEST_F(Door, sheds_logins_when_too_many_wait_and_forgets_clients_that_go) {
  open();
  jobs.held = true;
  jobs.waiting_max = 1;
  MqttClient& waits = rig->connect("v=5 id=a username=u password=right");
  EXPECT_THAT(login("v=5 id=b username=u password=right"), HasSubstr("server_busy"));
  EXPECT_EQ(stats().connects_shed, 1U);
  EXPECT_THAT(waits.take(), IsEmpty());
  waits.drop();
  rig->run();
  jobs.held = false;
  jobs.release();
  rig->run();
  EXPECT_EQ(stats().sessions, 0U);
  EXPECT_THAT(login("v=5 id=a username=u password=right"), HasSubstr("reason=success"));
}

TEST_F(Door, rules_hold_for_publish_subscribe_and_will) {
  data.rules = {rule(Permission::deny, security::Action::publish, {"no/#"}),
                rule(Permission::deny, security::Action::subscribe, {"hidden/#"})};
  open();
  MqttClient& s = in("v=5 id=s");
  EXPECT_THAT(say(s, "subscribe id=1 filter=no/#:1 filter=hidden/x:1 filter=#:1 filter=ok:1"),
              ElementsAre("suback id=1 granted_qos_1 not_authorized not_authorized granted_qos_1"));
  MqttClient& p = in("v=5 id=p");
  EXPECT_THAT(say(p, "publish topic=no/1 qos=1 id=7 payload=x"), ElementsAre("puback id=7 reason=not_authorized"));
  EXPECT_THAT(say(p, "publish topic=no/1 qos=2 id=8 payload=x"), ElementsAre("pubrec id=8 reason=not_authorized"));
  EXPECT_THAT(say(p, "publish topic=no/1 payload=x"), IsEmpty());
  MqttClient& old = in("v=4 id=o");
  EXPECT_THAT(say(old, "publish topic=no/1 qos=1 id=7 payload=x"), ElementsAre("puback id=7"));
  EXPECT_THAT(s.take(), IsEmpty());
  EXPECT_EQ(stats().publish_denied, 4U);
  EXPECT_THAT(login("v=5 id=w will=no/x:bye"), HasSubstr("not_authorized"));
  MqttClient& root = in("v=5 id=r username=root password=right");
  EXPECT_THAT(say(root, "publish topic=no/1 payload=x"), IsEmpty());
  EXPECT_THAT(s.take(), ElementsAre("publish topic=no/1 payload=x"));
}

TEST_F(Door, a_denied_publisher_is_put_out_if_so_configured) {
  data.rules = {rule(Permission::deny, security::Action::publish, {"no"})};
  data.deny_action = security::DenyAction::disconnect;
  open();
  MqttClient& p = in("v=5 id=p");
  EXPECT_THAT(say(p, "publish topic=no payload=x"), ElementsAre("disconnect reason=not_authorized"));
  EXPECT_TRUE(p.closed());
}

TEST_F(Door, another_policy_holds_at_once_for_those_who_are_in) {
  open(3);
  MqttClient& user = in("v=5 id=a username=u password=right");
  MqttClient& anonymous = in("v=5 id=b");
  MqttClient& publisher = in("v=5 id=c");
  say(user, "subscribe id=1 filter=t:0");
  say(anonymous, "subscribe id=1 filter=t/+:0 filter=x:0");
  say(publisher, "publish topic=x payload=1");
  EXPECT_THAT(anonymous.take(), ElementsAre("publish topic=x payload=1"));
  data.users.erase("u");
  data.rules = {rule(Permission::deny, security::Action::subscribe, {"x"})};
  data.bans = {{security::BanBy::client_id, "c", "", "", {}, {}}};
  change();
  EXPECT_THAT(user.take(), ElementsAre("disconnect reason=not_authorized"));
  EXPECT_THAT(publisher.take(), ElementsAre("disconnect reason=administrative_action"));
  EXPECT_FALSE(anonymous.closed());
  EXPECT_EQ(stats().subscriptions, 1U);
  EXPECT_THAT(login("v=5 id=c"), HasSubstr("reason=banned"));
  EXPECT_THAT(login("v=4 id=c"), StartsWith("connack"));
  EXPECT_TRUE(last->closed());
}

TEST_F(Door, a_session_is_continued_by_nobody_else) {
  data.rules = {rule(Permission::allow, security::Action::subscribe, {"for/%u"}),
                rule(Permission::deny, security::Action::subscribe, {"for/+"})};
  open();
  MqttClient& u = in("v=5 id=shared session_expiry=100 username=u password=right");
  EXPECT_THAT(say(u, "subscribe id=1 filter=for/u:1 filter=all:1"),
              ElementsAre("suback id=1 granted_qos_1 granted_qos_1"));
  say(u, "disconnect");
  MqttClient& again = in("v=5 id=shared clean=0 session_expiry=100 username=u password=right");
  EXPECT_EQ(stats().subscriptions, 2U);
  say(again, "disconnect");
  MqttClient& p = in("v=5 id=p");
  say(p, "publish topic=all qos=1 id=1 payload=for_u");
  EXPECT_THAT(login("v=5 id=shared clean=0 session_expiry=100"), testing::Not(HasSubstr("present=1")));
  EXPECT_THAT(last->take(), testing::IsEmpty());
  EXPECT_EQ(stats().subscriptions, 0U);
}

TEST_F(Door, a_will_has_the_topic_that_the_rules_see) {
  options.rewrite = {{routing::RewriteRule::On::publish, "old/#", "secret/{1}"},
                     {routing::RewriteRule::On::publish, "sys/#", "$SYS/{1}"}};
  data.rules = {rule(Permission::deny, security::Action::publish, {"secret/#"})};
  open();
  EXPECT_THAT(login("v=5 id=w will=old/x:boo username=u password=right"), HasSubstr("not_authorized"));
  EXPECT_THAT(login("v=5 id=w will=sys/x:boo username=u password=right"), HasSubstr("not_authorized"));
  EXPECT_THAT(login("v=5 id=w will=$SYS/x:boo username=u password=right"), HasSubstr("not_authorized"));
  EXPECT_THAT(login("v=5 id=w will=other:boo username=u password=right"), HasSubstr("reason=success"));
}

TEST_F(Door, a_client_over_its_rate_is_not_read_from_and_loses_nothing) {
  options.listeners[0].messages_rate = 10;
  open();
  MqttClient& s = in("v=5 id=s");
  say(s, "subscribe id=1 filter=t:0");
  MqttClient& p = in("v=5 id=p");
  for (int i = 0; i < 5; ++i) {
    for (int n = 0; n < 10; ++n) p.send("publish topic=t payload=x");
    rig->run();
  }
  EXPECT_LT(s.received().size(), 50U);
  EXPECT_EQ(stats().throttled, 1U);
  rig->advance(10s);
  EXPECT_EQ(s.take().size(), 50U);
}

TEST_F(Door, overload_sheds_connects_and_qos_0_first) {
  auto memory_short = std::make_shared<std::atomic<bool>>(false);
  options.overload.memory_short = memory_short;
  open();
  MqttClient& s = in("v=5 id=s");
  say(s, "subscribe id=1 filter=t:1");
  MqttClient& p = in("v=5 id=p");
  *memory_short = true;
  rig->advance(200ms);
  EXPECT_THAT(login("v=5 id=x"), HasSubstr("server_busy"));
  EXPECT_THAT(say(p, "publish topic=t payload=lost"), IsEmpty());
  EXPECT_THAT(say(p, "publish topic=t qos=1 id=1 payload=kept"), ElementsAre("puback id=1"));
  EXPECT_THAT(s.take(), ElementsAre("publish topic=t qos=1 id=1 payload=kept"));
  EXPECT_EQ(stats().dropped(session::Drop::overload), 1U);
  *memory_short = false;
  rig->advance(2s);
  EXPECT_THAT(login("v=5 id=x"), HasSubstr("reason=success"));
  EXPECT_EQ(stats().overloads, 2U) << "once a worker";
}

TEST_F(Door, flapping_is_seen_over_all_workers) {
  std::vector<std::string> told;
  options.security.flapping = {true, 4, 10s};
  options.security.on_flapping = [&](const std::string& id) { told.push_back(id); };
  open(3);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(told, IsEmpty());
    MqttClient& c = in("v=5 id=nervous");
    say(c, "disconnect");
  }
  EXPECT_THAT(told, ElementsAre("nervous"));
}

// --- those who are not here any more

TEST_F(Door, a_will_that_comes_later_is_asked_about_again) {
  data.rules = {rule(Permission::deny, security::Action::publish, {"never"})};
  open(3);
  MqttClient& s = in("v=5 id=s");
  say(s, "subscribe id=1 filter=gone/#:0");
  for (const char* id : {"a", "b", "c", "d"}) {
    MqttClient& c = in("v=5 id=" + std::string(id) + " username=u password=right session_expiry=100 will=gone/" + id +
                       ":bye will_delay=50");
    c.drop();
    rig->run();
  }
  MqttClient& root = in("v=5 id=r username=root password=right session_expiry=100 will=gone/r:bye will_delay=50");
  root.drop();
  data.rules = {rule(Permission::deny, security::Action::publish, {"gone/a", "gone/r"})};
  data.bans = {{security::BanBy::client_id, "b", "", "", {}, {}}};
  change();
  rig->advance(60s);
  EXPECT_THAT(s.take(),
              testing::UnorderedElementsAre("publish topic=gone/c payload=bye", "publish topic=gone/d payload=bye",
                                            "publish topic=gone/r payload=bye"));
  EXPECT_EQ(stats().publish_denied, 2U);
}

TEST_F(Door, the_will_of_a_user_who_is_no_more_is_not_published) {
  open();
  MqttClient& s = in("v=5 id=s");
  say(s, "subscribe id=1 filter=gone/#:0");
  MqttClient& later = in("v=5 id=a username=u password=right session_expiry=100 will=gone/a:bye will_delay=50");
  MqttClient& now = in("v=5 id=b username=u password=right will=gone/b:bye");
  later.drop();
  rig->run();
  data.users.erase("u");
  change();
  EXPECT_TRUE(now.closed()) << "put out";
  rig->advance(60s);
  EXPECT_THAT(s.take(), IsEmpty());
  EXPECT_EQ(stats().publish_denied, 2U);
}

TEST_F(Door, a_message_for_later_is_asked_about_when_it_is_due) {
  open(3);
  MqttClient& s = in("v=5 id=s");
  say(s, "subscribe id=1 filter=t/#:0");
  MqttClient& u = in("v=5 id=a username=u password=right");
  MqttClient& o = in("v=5 id=o");
  say(u, "publish topic=$delayed/30/t/1 payload=no");
  say(u, "publish topic=$delayed/30/t/2 payload=yes");
  say(o, "publish topic=$delayed/30/t/1 payload=others");
  MqttClient& b = in("v=5 id=b");
  say(b, "publish topic=$delayed/30/t/3 payload=of_one_who_is_banned");
  auto deny = rule(Permission::deny, security::Action::publish, {"t/1"});
  deny.username = "u";
  data.rules = {deny};
  data.bans = {{security::BanBy::client_id, "b", "", "", {}, {}}};
  change();
  rig->advance(40s);
  EXPECT_THAT(s.take(),
              testing::UnorderedElementsAre("publish topic=t/2 payload=yes", "publish topic=t/1 payload=others"));
  EXPECT_EQ(stats().publish_denied, 2U);
  EXPECT_EQ(stats().delayed, 0U);
}

TEST_F(Door, nothing_gathers_in_a_session_that_may_not_have_it_any_more) {
  open(3);
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    MqttClient& c = in("v=5 id=" + std::string(id) + " username=u password=right session_expiry=100");
    say(c, "subscribe id=1 filter=secret/x:1 filter=$share/g/secret/y:1 filter=open:1");
    c.drop();
    rig->run();
  }
  EXPECT_EQ(stats().subscriptions, 15U);
  data.rules = {rule(Permission::deny, security::Action::subscribe, {"secret/#"})};
  change();
  EXPECT_EQ(stats().subscriptions, 5U);
  EXPECT_EQ(stats().subscribe_denied, 10U);
  MqttClient& p = in("v=5 id=p");
  say(p, "publish topic=secret/x qos=1 id=1 payload=s");
  say(p, "publish topic=secret/y qos=1 id=2 payload=s");
  say(p, "publish topic=open qos=1 id=3 payload=o");
  MqttClient& again = rig->connect("v=5 id=a clean=0 username=u password=right session_expiry=100");
  EXPECT_THAT(again.take(), ElementsAre(StartsWith("connack present=1"), "publish topic=open qos=1 id=1 payload=o"));
}

TEST_F(Door, where_rules_ask_for_addresses_absent_clients_keep_what_they_have) {
  auto allow = rule(Permission::allow, security::Action::subscribe, {"t"});
  allow.address = security::parse_network("127.0.0.0/8");
  data.rules = {allow};
  data.no_match = Permission::deny;
  open();
  MqttClient& c = in("v=5 id=c session_expiry=100");
  EXPECT_THAT(say(c, "subscribe id=1 filter=t:1"), ElementsAre("suback id=1 granted_qos_1"));
  c.drop();
  rig->run();
  data.rules.push_back(rule(Permission::allow, security::Action::publish, {"t"}));
  change();
  EXPECT_EQ(stats().subscriptions, 1U);
  MqttClient& p = in("v=5 id=p");
  say(p, "publish topic=t qos=1 id=1 payload=x");
  EXPECT_THAT(rig->connect("v=5 id=c clean=0 session_expiry=100").take(),
              ElementsAre(StartsWith("connack present=1"), "publish topic=t qos=1 id=1 payload=x"));
}

TEST_F(Door, rules_do_not_take_away_what_the_configuration_subscribes_to) {
  options.auto_subscribe = {{"inbox/%c", 1, false, false, 1}};
  data.rules = {rule(Permission::deny, security::Action::subscribe, {"inbox/#"})};
  open();
  MqttClient& p = in("v=5 id=p");
  say(p, "publish topic=inbox/c retain payload=kept");
  p.take();
  MqttClient& c = rig->connect("v=5 id=c session_expiry=100");
  EXPECT_THAT(c.take(), ElementsAre(StartsWith("connack"), "publish topic=inbox/c retain payload=kept"));
  const uint64_t before = stats().subscriptions;
  data.rules.push_back(rule(Permission::deny, security::Action::subscribe, {"other"}));
  change();
  EXPECT_EQ(stats().subscriptions, before);
  EXPECT_THAT(say(c, "subscribe id=1 filter=inbox/d:0"), ElementsAre("suback id=1 not_authorized"));
  c.drop();
  rig->run();
  data.rules.pop_back();
  change();
  EXPECT_EQ(stats().subscriptions, before);
  MqttClient& again = rig->connect("v=5 id=c clean=0 session_expiry=100");
  EXPECT_THAT(again.take(), ElementsAre(StartsWith("connack present=1"))) << "it is not new: nothing retained";
}

TEST_F(Door, wills_are_bounded_all_together) {
  options.wills_bytes_max = 3000;
  open(3);
  const std::string will = "session_expiry=100 will_delay=50 will=w:" + std::string(700, 'x');
  for (int i = 0; i < 3; ++i) {
    MqttClient& c = in("v=5 id=c" + std::to_string(i) + " " + will);
    if (i > 0) c.drop();
    rig->run();
  }
  EXPECT_THAT(login("v=5 id=c9 " + will + std::string(700, 'y')), HasSubstr("reason=quota_exceeded"));
  EXPECT_EQ(stats().limited(session::Limit::wills), 1U);
  in("v=5 id=c9");                             // without one
  in("v=5 id=c1 clean=0 session_expiry=100");  // its will is not sent any more
  in("v=5 id=c2 clean=0 " + will);
  in("v=5 id=c8 " + will);
  EXPECT_THAT(login("v=5 id=c7 " + will + std::string(700, 'y')), HasSubstr("reason=quota_exceeded"));
  for (auto& c : rig->clients) c->drop();
  rig->advance(60s);  // all were sent
  for (int i = 0; i < 3; ++i) in("v=5 id=d" + std::to_string(i) + " " + will);
}

TEST_F(Door, the_password_of_who_has_gone_is_not_hashed) {
  open(1);
  const size_t before = crypto.slow_hashes;
  jobs.held = true;
  for (int i = 0; i < 3; ++i) rig->connect("v=5 id=a username=u password=right").drop();
  rig->run();
  EXPECT_EQ(stats().connections, 0U);
  EXPECT_EQ(stats().abandoned, 3U);
  jobs.held = false;
  jobs.release();
  rig->run();
  EXPECT_EQ(crypto.slow_hashes, before) << "nobody waits for it";
}

// --- tokens

class Token : public Door {
 protected:
  Token() {
    options.security.order.push_back(AuthMethod::jwt);
    TokenOptions tokens;
    tokens.keys.push_back({security::JwtKey::Kind::secret, std::nullopt, "key"});
    tokens.keys.push_back({security::JwtKey::Kind::rsa, std::nullopt, "rsa"});
    options.security.tokens = std::make_shared<const TokenOptions>(std::move(tokens));
  }
  std::string token(const std::string& claims, const std::string& algorithm = "HS256", const std::string& key = "key") {
    std::string text =
        security::base64url_encode("{\"alg\":\"" + algorithm + "\"}") + "." + security::base64url_encode(claims);
    return text + "." + security::base64url_encode(crypto.hmac(port::Hash::sha256, key, text));
  }
};

TEST_F(Token, carries_name_and_rules_and_ends) {
  data.no_match = Permission::deny;
  data.rules = {rule(Permission::allow, security::Action::publish, {"by/%u"})};
  open();
  const int64_t soon = to_unix_ms(rig->loops[0]->wall_now()) / 1000 + 100;
  MqttClient& c = in("v=5 id=t username=ignored password=" +
                     token(R"({"sub":"max","acl":{"pub":["own"]},"exp":)" + std::to_string(soon) + "}"));
  EXPECT_THAT(say(c, "publish topic=by/max qos=1 id=1 payload=x"), ElementsAre(HasSubstr("id=1 reason=no_matching")));
  EXPECT_THAT(say(c, "publish topic=own qos=1 id=2 payload=x"), ElementsAre(HasSubstr("id=2 reason=no_matching")));
  EXPECT_THAT(say(c, "publish topic=by/ignored qos=1 id=3 payload=x"),
              ElementsAre("puback id=3 reason=not_authorized"));
  rig->advance(90s);
  EXPECT_FALSE(c.closed());
  rig->advance(60s);
  EXPECT_THAT(c.take(), ElementsAre("disconnect reason=not_authorized"));
  EXPECT_EQ(stats().logins_expired, 1U);
  EXPECT_THAT(login("v=5 id=t password=" + token(R"({"sub":"max","exp":)" + std::to_string(soon) + "}")),
              HasSubstr("bad_user_name_or_password"));
}

TEST_F(Token, a_name_in_a_token_is_not_the_user_of_that_name) {
  data.rules = {rule(Permission::deny, security::Action::publish, {"no"})};
  open();
  MqttClient& c = in("v=5 id=t password=" + token(R"({"sub":"root"})", "RS256", "rsa"));
  EXPECT_THAT(say(c, "publish topic=no qos=1 id=1 payload=x"), ElementsAre("puback id=1 reason=not_authorized"));
  change();
  EXPECT_THAT(say(c, "publish topic=no qos=1 id=2 payload=x"), ElementsAre("puback id=2 reason=not_authorized"));
  data.users.erase("root");
  change();
  EXPECT_FALSE(c.closed());
}

TEST_F(Token, a_public_key_is_no_secret) {
  open();
  EXPECT_THAT(login("v=5 id=a password=" + token("{}", "HS256", "rsa")), HasSubstr("bad_user_name_or_password"));
  EXPECT_THAT(login("v=5 id=a password=" + token("{}", "none", "key")), HasSubstr("bad_user_name_or_password"));
}

// --- SCRAM

class Scram : public Door {
 protected:
  /// What a client computes from the server's first message: its last one.
  std::string last_message(const std::string& server_first, const std::string& password) {
    const security::ScramSecret& secret = *data.users["u"].scram;
    const std::string nonce = server_first.substr(2, server_first.find(',') - 2);
    const std::string without = "c=biws,r=" + nonce;
    const std::string all = "n=u,r=abc," + server_first + "," + without;
    const std::string salted = crypto.pbkdf2(port::Hash::sha256, password, secret.salt, secret.iterations);
    const std::string key = crypto.hmac(port::Hash::sha256, salted, "Client Key");
    std::string proof = crypto.hmac(port::Hash::sha256, crypto.digest(port::Hash::sha256, key), all);
    for (size_t i = 0; i < proof.size(); ++i) proof[i] = static_cast<char>(proof[i] ^ key[i]);
    return without + ",p=" + security::base64_encode(proof);
  }
  static std::string data_in(const std::string& line) {
    const size_t at = line.find("authentication_data=");
    const std::string rest = at == line.npos ? "" : line.substr(at + 20);
    return rest.substr(0, rest.find(' '));
  }
  static constexpr const char* kConnect =
      "v=5 id=c authentication_method=SCRAM-SHA-256 authentication_data=n,,n=u,r=abc";
  /// `reason`: 24 goes on, 25 begins again.
  static std::string auth(int reason, const std::string& data) {
    return "auth reason=" + std::to_string(reason) + " authentication_method=SCRAM-SHA-256 authentication_data=" + data;
  }
};

TEST_F(Scram, lets_in_who_knows_the_password_and_again_while_in) {
  open();
  const std::string first = login(kConnect);
  EXPECT_THAT(first, StartsWith("auth reason=continue_authentication"));
  MqttClient& c = *last;
  const auto in = say(c, auth(24, last_message(data_in(first), "right")));
  ASSERT_EQ(in.size(), 1U);
  EXPECT_THAT(in[0], StartsWith("connack present=0 reason=success"));
  EXPECT_THAT(in[0], HasSubstr("authentication_method=SCRAM-SHA-256"));
  EXPECT_THAT(in[0], HasSubstr("authentication_data=v="));
  EXPECT_THAT(say(c, "pingreq"), ElementsAre("pingresp"));

  const auto again = say(c, auth(25, "n,,n=u,r=abc"));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_THAT(say(c, "pingreq"), ElementsAre("pingresp")) << "other packets go on meanwhile";
  EXPECT_THAT(say(c, auth(24, last_message(data_in(again[0]), "right"))),
              ElementsAre(StartsWith("auth reason=success")));
  const auto third = say(c, auth(25, "n,,n=u,r=abc"));
  EXPECT_THAT(say(c, auth(24, last_message(data_in(third[0]), "wrong"))),
              ElementsAre("disconnect reason=not_authorized"));
}

TEST_F(Scram, refuses_wrong_passwords_other_methods_and_strangers_alike) {
  open();
  const std::string first = login(kConnect);
  EXPECT_THAT(say(*last, auth(24, last_message(data_in(first), "wrong"))),
              ElementsAre(HasSubstr("reason=not_authorized")));
  EXPECT_TRUE(last->closed());
  const std::string stranger = login("v=5 id=c authentication_method=SCRAM-SHA-256 authentication_data=n,,n=x,r=abc");
  EXPECT_THAT(stranger, StartsWith("auth reason=continue_authentication"));
  EXPECT_THAT(say(*last, auth(24, last_message(data_in(stranger), "right"))),
              ElementsAre(HasSubstr("reason=not_authorized")));
  EXPECT_THAT(login("v=5 id=c authentication_method=PLAIN authentication_data=x"),
              HasSubstr("bad_authentication_method"));
  EXPECT_THAT(login("v=5 id=c authentication_method=SCRAM-SHA-256"), HasSubstr("not_authorized"));
  EXPECT_THAT(login("v=5 id=c authentication_method=SCRAM-SHA-256 authentication_data=garbage"),
              HasSubstr("not_authorized"));
}

TEST_F(Scram, another_order_of_packets_is_a_protocol_error) {
  open();
  for (const char* line : {"pingreq", "publish topic=t payload=x", "subscribe id=1 filter=t:0"}) {
    EXPECT_THAT(login(kConnect), StartsWith("auth"));
    EXPECT_THAT(say(*last, line), ElementsAre(HasSubstr("reason=protocol_error"))) << line;
    EXPECT_TRUE(last->closed());
  }
  EXPECT_THAT(login(kConnect), StartsWith("auth"));
  EXPECT_THAT(say(*last, "auth reason=24 authentication_method=OTHER"),
              ElementsAre(HasSubstr("reason=bad_authentication_method")));
  EXPECT_THAT(login(kConnect), StartsWith("auth"));
  EXPECT_THAT(say(*last, "disconnect"), IsEmpty());
  EXPECT_TRUE(last->closed());
  MqttClient& plain = in("v=5 id=p");
  EXPECT_THAT(say(plain, auth(25, "n,,n=u,r=abc")), ElementsAre("disconnect reason=protocol_error"));
  // Somebody who is in as himself does not become another one.
  const std::string first = login(kConnect);
  MqttClient& c = *last;
  say(c, auth(24, last_message(data_in(first), "right")));
  EXPECT_THAT(say(c, auth(25, "n,,n=root,r=abc")), ElementsAre("disconnect reason=not_authorized"));
}

TEST_F(Scram, a_client_that_stops_half_way_is_closed_in_time) {
  open();
  EXPECT_THAT(login(kConnect), StartsWith("auth"));
  rig->advance(20s);
  EXPECT_TRUE(last->closed());
  EXPECT_EQ(stats().connections, 0U);
}

}  // namespace
}  // namespace ph::broker
