#include <gtest/gtest.h>

#include "core/security/base64.h"
#include "core/security/policy.h"

namespace ph::security {
namespace {

TEST(Base64, is_that_of_the_standard_and_strict) {
  const std::pair<ByteView, ByteView> known[] = {{"", ""},
                                                 {"f", "Zg=="},
                                                 {"fo", "Zm8="},
                                                 {"foo", "Zm9v"},
                                                 {"foob", "Zm9vYg=="},
                                                 {"fooba", "Zm9vYmE="},
                                                 {"foobar", "Zm9vYmFy"},
                                                 {"\xfb\xff", "+/8="}};
  for (const auto& [plain, text] : known) {
    EXPECT_EQ(base64_encode(plain), text);
    EXPECT_EQ(base64_decode(text), plain);
    EXPECT_EQ(base64url_decode(base64url_encode(plain)), plain);
  }
  EXPECT_EQ(base64url_encode("\xfb\xff"), "-_8");
  for (ByteView bad : {"Zg", "Zg=", "Zg===", "Zh==", "Z===", "====", "Zm9v=", "Zm 9", "Zm-v", "Zm9vZg==Zg=="})
    EXPECT_FALSE(base64_decode(bad)) << bad;
  for (ByteView bad : {"Zg==", "Z", "Zh", "+/8"}) EXPECT_FALSE(base64url_decode(bad)) << bad;
}

constexpr ByteView kPbkdf2 =
    "$7$101$o4dgZgVJerBsRgyn$/cfFqlOl85wtP8VWDyV5o1lNf0y9E83Si+VVwAwEyetTnmFqcVmNdhEhtz7MGpApT1q5mJ3LCKiDr7mkoRdTXg=="
    "";
constexpr ByteView kSha512 =
    "$6$DcOjz7vnHUhhXtq9$UyIQ+3ZOV6TxhTBAZKmMEKayc+6dFov/0bRLSLvFPZrdOzkdSy4fy11n2wFzcve04JKBa7E2/8uQ6EvF60Cy+w==";

TEST(PasswordHash, reads_and_writes_what_mosquitto_passwd_makes) {
  for (ByteView text : {kPbkdf2, kSha512}) {
    const auto hash = parse_password_hash(text);
    ASSERT_TRUE(hash) << hash.error().to_string();
    EXPECT_EQ(hash->to_string(), text);
    EXPECT_EQ(hash->salt.size(), 12U);
  }
  EXPECT_EQ(parse_password_hash(kPbkdf2)->iterations, 101U);
}

TEST(PasswordHash, refuses_every_truncation_and_hashes_that_cost_too_much) {
  for (ByteView text : {kPbkdf2, kSha512})
    for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(parse_password_hash(text.substr(0, n))) << n;
  const std::string tail = std::string(kPbkdf2.substr(6));
  EXPECT_TRUE(parse_password_hash("$7$10000000" + tail));
  for (std::string count : {"0", "", "-1", "10000001", "99999999", "4294967297", "1x"})
    EXPECT_FALSE(parse_password_hash("$7$" + count + tail)) << count;
  EXPECT_FALSE(parse_password_hash("$7$101$$" + tail.substr(tail.rfind('$') + 1)));
}

TEST(PasswordFile, reads_lines_and_names_the_one_that_is_wrong) {
  const std::string good = "# users\nalice:" + std::string(kPbkdf2) + "\n\nbob:" + std::string(kSha512) + "\r\n";
  const auto entries = parse_password_file(good);
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_EQ((*entries)[1].first, "bob");
  const std::pair<std::string, std::string> wrong[] = {{good + "carol", "line 5: no ':'"},
                                                       {good + "carol:plain", "line 5: a hash begins"},
                                                       {good + ":" + std::string(kSha512), "line 5: no valid user"},
                                                       {good + "bob:" + std::string(kSha512), "line 5: the user is"}};
  for (const auto& [text, why] : wrong) {
    const auto outcome = parse_password_file(text);
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().detail.find(why), std::string::npos) << outcome.error().detail;
    EXPECT_EQ(outcome.error().detail.find("plain"), std::string::npos) << "secrets do not reach messages";
  }
}

TEST(Address, reads_both_families_into_one_form) {
  const std::pair<ByteView, ByteView> known[] = {{"10.0.0.1", "10.0.0.1"},
                                                 {"::ffff:10.0.0.1", "10.0.0.1"},
                                                 {"::1", "0:0:0:0:0:0:0:1"},
                                                 {"2001:db8::a:0", "2001:db8:0:0:0:0:a:0"},
                                                 {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"},
                                                 {"1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"},
                                                 {"fe80::1%eth0", "fe80:0:0:0:0:0:0:1"},
                                                 {"::", "0:0:0:0:0:0:0:0"}};
  for (const auto& [text, shown] : known) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->to_string(), shown);
  }
  for (ByteView bad :
       {"", "10.0.0", "10.0.0.256", "10.0.0.01", "10.0.0.1.2", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3",
        ":1:2:3:4:5:6:7", "1:2:3:4:5:6:7:", "g::1", "::12345", "::1.2.3", "1:2:3:4:5:6:7:1.2.3.4"})
    EXPECT_FALSE(parse_address(bad)) << bad;
  EXPECT_EQ(address_of_peer("[::1]:5")->to_string(), "0:0:0:0:0:0:0:1");
  EXPECT_TRUE(address_of_peer("127.9.9.9:1")->is_loopback());
  EXPECT_FALSE(address_of_peer("[::2]:5")->is_loopback());
}

TEST(Network, contains_what_shares_its_prefix) {
  const auto inside = [](ByteView network, ByteView address) {
    return parse_network(network)->contains(*parse_address(address));
  };
  EXPECT_TRUE(inside("10.0.0.0/8", "10.200.1.2"));
  EXPECT_FALSE(inside("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(inside("10.0.0.0/8", "::ffff:10.1.1.1"));
  EXPECT_TRUE(inside("192.168.128.0/17", "192.168.255.1"));
  EXPECT_FALSE(inside("192.168.128.0/17", "192.168.127.1"));
  EXPECT_TRUE(inside("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(inside("0.0.0.0/0", "::1"));
  EXPECT_TRUE(inside("::/0", "1.2.3.4"));
  EXPECT_TRUE(inside("1.2.3.4", "1.2.3.4"));
  for (ByteView bad : {"10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/x", "/8", "10.0.0.0/-1", "10.0.0.0/08"})
    EXPECT_FALSE(parse_network(bad)) << bad;
}

TEST(Filters, cover_and_intersect) {
  struct Case {
    ByteView filter, wanted;
    bool covers, intersects;
  };
  const Case cases[] = {
      {"a/b", "a/b", true, true},       {"a/+", "a/b", true, true},       {"a/#", "a", true, true},
      {"a/#", "a/#", true, true},       {"a/+", "a/#", false, true},      {"a", "a/#", false, true},
      {"a/b", "a/+", false, true},      {"#", "a/+/c", true, true},       {"#", "$SYS/a", false, false},
      {"+/a", "$SYS/a", false, false},  {"$SYS/#", "#", false, false},    {"$SYS/#", "$SYS/a", true, true},
      {"a/+/c", "a/b/d", false, false}, {"+", "a/b", false, false},       {"+/+", "/a", true, true},
      {"secret/#", "#", false, true},   {"secret/#", "+/x", false, true}, {"a/b", "a", false, false},
      {"a/+/#", "a", false, false},     {"+", "+", true, true},           {"a//b", "a//b", true, true}};
  for (const Case& c : cases) {
    EXPECT_EQ(covers(c.filter, c.wanted), c.covers) << c.filter << " " << c.wanted;
    EXPECT_EQ(intersects(c.filter, c.wanted), c.intersects) << c.filter << " " << c.wanted;
    EXPECT_EQ(intersects(c.wanted, c.filter), c.intersects) << c.wanted << " " << c.filter;
  }
}

/// What covers and what intersects, against all topics of a small world.
TEST(Filters, agree_with_topics_one_by_one) {
  std::vector<std::string> topics, filters;
  for (std::string a : {"a", "b", ""})
    for (std::string b : {"", "/a", "/b", "/"})
      for (std::string c : {"", "/a", "/b"}) topics.push_back(a + b + c);
  std::erase(topics, "");
  for (std::string a : {"a", "+", "#"})
    for (std::string b : {"", "/a", "/+", "/#"})
      for (std::string c : {"", "/b", "/#"}) {
        const std::string f = a + b + c;
        if (f.find('#') == f.npos || f.find('#') == f.size() - 1) filters.push_back(f);
      }
  for (const auto& f : filters)
    for (const auto& g : filters) {
      bool all = true, any = false;
      for (const auto& t : topics) {
        const bool in_f = covers(f, t), in_g = covers(g, t);
        all = all && (!in_g || in_f);
        any = any || (in_f && in_g);
      }
      EXPECT_TRUE(all || !covers(f, g)) << f << " covers " << g;
      EXPECT_TRUE(!any || intersects(f, g)) << f << " and " << g;
    }
}

Rule rule(Permission permission, Action action, std::vector<std::string> topics) {
  Rule out;
  out.permission = permission;
  out.action = action;
  for (const auto& t : topics) out.topics.push_back(*parse_topic_rule(t));
  return out;
}
constexpr auto kAllow = Permission::allow;
constexpr auto kDeny = Permission::deny;

std::unique_ptr<Access> access(PolicyData data, std::optional<std::string> user = "u", std::string client = "c",
                               std::vector<Rule> claims = {}) {
  return std::make_unique<Access>(std::make_shared<Policy>(std::move(data)),
                                  Identity{std::move(client), std::move(user), parse_address("10.0.0.1")}, false,
                                  std::move(claims));
}

TEST(Access, the_first_rule_that_fits_decides) {
  PolicyData data;
  data.rules = {rule(kDeny, Action::publish, {"a/x"}), rule(kAllow, Action::all, {"a/#"}),
                rule(kDeny, Action::all, {})};
  auto a = access(data);
  EXPECT_TRUE(a->may_publish("a/y"));
  EXPECT_FALSE(a->may_publish("a/x"));
  EXPECT_FALSE(a->may_publish("b"));
  EXPECT_TRUE(a->may_subscribe("a/x"));
  EXPECT_TRUE(a->may_subscribe("$share/g/a/+"));
  EXPECT_FALSE(a->may_subscribe("$share/g/b"));
  EXPECT_FALSE(a->may_subscribe("+/x"));
  EXPECT_FALSE(a->may_publish("$delayed/5/b"));
  EXPECT_TRUE(a->may_publish("$delayed/5/a/y"));
}

TEST(Access, rules_of_a_user_a_client_and_an_address_stand_in_their_order) {
  PolicyData data;
  for (const char* topic : {"1", "2", "3", "4"}) data.rules.push_back(rule(kDeny, Action::all, {topic}));
  data.rules[0].username = "other";
  data.rules[1].username = "u";
  data.rules[2].client_id = "c";
  data.rules[3].address = parse_network("10.0.0.0/8");
  data.rules.push_back(rule(kAllow, Action::all, {"#"}));
  data.rules.push_back(rule(kDeny, Action::all, {"1"}));
  data.rules.back().username = "u";
  auto a = access(data);
  EXPECT_TRUE(a->may_publish("1"));
  for (const char* topic : {"2", "3", "4"}) EXPECT_FALSE(a->may_publish(topic)) << topic;
  auto anonymous = access(data, std::nullopt, "d");
  EXPECT_TRUE(anonymous->may_publish("2"));
  EXPECT_TRUE(anonymous->may_publish("3"));
}

TEST(Access, names_in_filters_cannot_widen_them) {
  PolicyData data;
  data.no_match = kDeny;
  data.rules = {rule(kAllow, Action::all, {"c/%c/#", "u/${username}"})};
  auto plain = access(data);
  EXPECT_TRUE(plain->may_publish("c/c/x"));
  EXPECT_TRUE(plain->may_publish("u/u"));
  EXPECT_FALSE(plain->may_publish("c/d/x"));
  for (std::string evil : {"+", "#", "a/b", ""}) {
    auto a = access(data, evil, evil);
    EXPECT_FALSE(a->may_subscribe("c/" + evil + "/#")) << evil;
    EXPECT_FALSE(a->may_publish("c/x/y")) << evil;
    EXPECT_FALSE(a->may_publish("u/x")) << evil;
  }
  EXPECT_FALSE(access(data, std::nullopt)->may_publish("u/"));
  PolicyData denying;
  denying.rules = {rule(kDeny, Action::all, {"c/%c/#"})};
  EXPECT_FALSE(access(denying, "u", "a/b")->may_publish("x")) << "a deny rule is not got around by an odd name";
  EXPECT_TRUE(access(denying)->may_publish("x"));
}

TEST(Access, default_rules_stand_behind_all_others) {
  auto a = access({});
  EXPECT_TRUE(a->may_publish("x"));
  EXPECT_FALSE(a->may_publish("$SYS/x"));
  EXPECT_FALSE(a->may_subscribe("#"));
  EXPECT_FALSE(a->may_subscribe("$share/g/+/#"));
  EXPECT_FALSE(a->may_subscribe("$SYS/#"));
  EXPECT_TRUE(a->may_subscribe("x/#"));
  PolicyData data;
  data.rules = {rule(kAllow, Action::subscribe, {"eq #", "$SYS/#"})};
  auto b = access(data);
  EXPECT_TRUE(b->may_subscribe("#"));
  EXPECT_TRUE(b->may_subscribe("$SYS/a"));
  EXPECT_FALSE(b->may_subscribe("+/#"));
  data.rules.clear();
  data.default_rules = false;
  EXPECT_TRUE(access(data)->may_subscribe("#"));
}

TEST(Access, rules_of_the_credentials_come_behind_the_configured_ones) {
  PolicyData data;
  data.no_match = kDeny;
  data.rules = {rule(kDeny, Action::all, {"no/#"})};
  auto a = access(data, "u", "c", {rule(kAllow, Action::all, {"no/x", "yes/#"})});
  EXPECT_FALSE(a->may_publish("no/x"));
  EXPECT_TRUE(a->may_publish("yes/x"));
}

TEST(Access, follows_another_policy_and_forgets_its_answers) {
  PolicyData data;
  data.rules = {rule(kDeny, Action::publish, {"a"})};
  auto a = access(data);
  EXPECT_FALSE(a->may_publish("a"));
  a->follow(std::make_shared<Policy>(PolicyData{}), false);
  EXPECT_TRUE(a->may_publish("a"));
  a->follow(std::make_shared<Policy>(data), false);
  EXPECT_FALSE(a->may_publish("a"));
  a->follow(a->policy(), true);
  EXPECT_TRUE(a->may_publish("a"));
  EXPECT_TRUE(a->may_subscribe("#"));
}

TEST(TopicRule, reads_what_it_writes_and_refuses_what_is_no_filter) {
  for (ByteView text : {"a/#", "eq a/+/b", "x/%c/%u/y", "${clientid}", "eq #", "+", "a b"}) {
    const auto t = parse_topic_rule(text);
    ASSERT_TRUE(t) << text;
    EXPECT_EQ(to_string(*t), text);
  }
  for (ByteView bad : {"", "eq ", "a/#/b", "a#", "a+/b", "%c#", "\xff"}) EXPECT_FALSE(parse_topic_rule(bad)) << bad;
}

Ban ban(BanBy by, std::string who, std::optional<WallTime> until = std::nullopt) {
  return {by, std::move(who), "", "", {}, until};
}

TEST(BanList, keeps_out_by_every_kind_and_until_its_time) {
  const WallTime now = from_unix_ms(1000);
  const Identity who{"client-7", "user-7", parse_address("10.1.2.3")};
  auto banned = [&](Ban b, const Identity& i, std::optional<ByteView> claimed = std::nullopt) {
    EXPECT_EQ(check_ban(b), "");
    return BanList({b}).find(i, claimed, now) != nullptr;
  };
  EXPECT_TRUE(banned(ban(BanBy::client_id, "client-7"), who));
  EXPECT_FALSE(banned(ban(BanBy::client_id, "client-8"), who));
  EXPECT_TRUE(banned(ban(BanBy::client_id_pattern, "*-7"), who));
  EXPECT_TRUE(banned(ban(BanBy::username, "user-7"), who));
  EXPECT_TRUE(banned(ban(BanBy::username_pattern, "user-*"), who));
  EXPECT_TRUE(banned(ban(BanBy::username, "said"), who, "said")) << "also before the name is verified";
  EXPECT_TRUE(banned(ban(BanBy::address, "::ffff:10.1.2.3"), who));
  EXPECT_TRUE(banned(ban(BanBy::network, "10.0.0.0/8"), who));
  EXPECT_FALSE(banned(ban(BanBy::network, "11.0.0.0/8"), who));
  EXPECT_TRUE(banned(ban(BanBy::client_id, "client-7", from_unix_ms(1001)), who));
  EXPECT_FALSE(banned(ban(BanBy::client_id, "client-7", from_unix_ms(1000)), who));
  for (Ban bad : {ban(BanBy::address, "x"), ban(BanBy::network, "10.0.0.0/99"), ban(BanBy::client_id, "")})
    EXPECT_NE(check_ban(bad), "");
  for (size_t i = 0; i < kBanKinds; ++i) EXPECT_EQ(ban_by(name(static_cast<BanBy>(i))), static_cast<BanBy>(i));
  EXPECT_FALSE(ban_by("x"));
}

TEST(Scram, reads_the_conversation_of_the_rfc) {  // RFC 7677 3
  const auto first = parse_scram_first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->username, "user");
  const auto salt = *base64_decode("W22ZaJ0SNY7soEsUEjb6gQ==");
  const std::string reply = scram_server_first(*first, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", salt, 4096);
  EXPECT_EQ(reply, "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
  const ByteView last =
      "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
  const auto final_ = parse_scram_final(last, *first);
  ASSERT_TRUE(final_) << final_.error().to_string();
  EXPECT_EQ(final_->nonce, "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
  EXPECT_EQ(scram_auth_message(*first, reply, *final_),
            "n=user,r=rOprNGfwEbeRWgbNEkqO," + reply + "," + std::string(last.substr(0, last.rfind(",p="))));
  for (size_t n = 0; n < last.size(); ++n) EXPECT_FALSE(parse_scram_final(last.substr(0, n), *first)) << n;
  const auto other = parse_scram_first("y,,n=user,r=rOprNGfwEbeRWgbNEkqO");
  EXPECT_FALSE(parse_scram_final(last, *other)) << "the header was another one";
}

TEST(Scram, refuses_what_it_does_not_know) {
  for (ByteView bad : {"", "n", "n,", "n,,", "p=tls-unique,,n=u,r=x", "n,,n=,r=x", "n,,n=u", "n,,n=u,r=",
                       "n,,m=x,n=u,r=x", "n,,n=u=2,r=x", "n,a=other,n=u,r=x", "x,,n=u,r=x", "n,,n=u,r=a b"})
    EXPECT_FALSE(parse_scram_first(bad)) << bad;
  EXPECT_EQ(parse_scram_first("n,a=u=2Cv,n=u=2Cv,r=x")->username, "u,v");
}

TEST(ScramSecret, reads_what_it_writes) {
  const ScramSecret secret{4096, "salt", std::string(32, 'a'), std::string(32, 'b')};
  EXPECT_EQ(parse_scram_secret(secret.to_string()), secret);
  const std::string text = secret.to_string();
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(parse_scram_secret(text.substr(0, n))) << n;
}

}  // namespace
}  // namespace ph::security
