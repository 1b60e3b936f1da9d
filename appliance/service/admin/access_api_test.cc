#include "service/admin/access_api.h"

#include <gtest/gtest.h>

#include "support/manual_loop.h"
#include "support/memory_store.h"

namespace ph::admin {
namespace {

constexpr std::string_view kHash =
    "$7$101$o4dgZgVJerBsRgyn$/cfFqlOl85wtP8VWDyV5o1lNf0y9E83Si+VVwAwEyetTnmFqcVmNdhEhtz7MGpApT1q5mJ3LCKiDr7mkoRdTXg=="
    "";

class AccessApiTest : public testing::Test {
 protected:
  AccessApiTest() { EXPECT_TRUE(store_.load()); }
  /// "<status> <body>"; "none" if the path is not of this API.
  std::string ask(const std::string& method, std::string_view target, const std::string& body = {}) {
    std::string out = "unanswered";
    if (!api_.handle(method, target, body,
                     [&](int status, const std::string& b) { out = std::to_string(status) + " " + b; }))
      return "none";
    loop_.run_posted();
    return out;
  }
  static std::string users(std::string_view rest = "") { return std::string(kUsersPath).append(rest); }
  static std::string rules(std::string_view rest = "") { return std::string(kRulesPath).append(rest); }
  static std::string banned(std::string_view rest = "") { return std::string(kBannedPath).append(rest); }
  static std::string user(std::string_view name) {
    return "{\"user_id\":\"" + std::string(name) + "\",\"password_hash\":\"" + std::string(kHash) + "\"}";
  }

  test::ManualLoop loop_;
  test::ManualDisk disk_{loop_};
  test::MemoryStore memory_;
  access::AccessStore store_{loop_, disk_, memory_, {}, [](const security::PolicyPtr&) {}};
  AccessApi api_{store_, [this] { return loop_.wall_now(); }};
};

TEST_F(AccessApiTest, every_beginning_of_a_path_is_answered_or_none_of_ours) {
  for (const std::string& path : {users("/x"), std::string(kImportPath), rules("/1"), banned("/clientid/x"),
                                  std::string("/api/v5/authentication/password_based%3Abuilt_in_database/users/x")})
    for (size_t n = 0; n <= path.size(); ++n)
      for (const char* method : {"GET", "POST", "PUT", "DELETE", "PATCH", ""}) {
        const std::string outcome = ask(method, path.substr(0, n));
        EXPECT_NE(outcome, "unanswered") << method << " " << path.substr(0, n);
      }
  EXPECT_EQ(ask("GET", "/api/v5/bannedx"), "none");
  EXPECT_EQ(ask("GET", users() + "%"), "none");
  EXPECT_EQ(ask("DELETE", users("/%zz")).substr(0, 3), "400");
}

TEST_F(AccessApiTest, users_live_through_their_verbs) {
  EXPECT_EQ(ask("POST", users(), user("a b")).substr(0, 3), "201");
  EXPECT_EQ(ask("POST", users(), user("a b")).substr(0, 3), "409");
  EXPECT_EQ(ask("PUT", users("/a%20b"), user("")).substr(0, 3), "200");
  EXPECT_EQ(ask("PUT", users("/nobody"), user("")).substr(0, 3), "404");
  const std::string list = ask("GET", users());
  EXPECT_NE(list.find("\"user_id\":\"a b\""), std::string::npos) << list;
  EXPECT_EQ(list.find("cfFqlOl"), std::string::npos) << "hashes stay inside";
  EXPECT_EQ(ask("DELETE", users("/a%20b")), "204 ");
  EXPECT_EQ(ask("DELETE", users("/a%20b")).substr(0, 3), "404");
  EXPECT_EQ(ask("POST", std::string(kImportPath), "{\"users\":[" + user("x") + "," + user("y") + "]}"),
            "200 {\"imported\":2}");
  EXPECT_EQ(ask("POST", std::string(kImportPath), "{\"users\":[" + user("z") + "," + user("a:b") + "]}").substr(0, 3),
            "400");
  EXPECT_FALSE(store_.users().contains("z"));
}

TEST_F(AccessApiTest, what_is_wrong_is_told) {
  const std::pair<std::string, std::string> cases[] = {
      {users(), "x"},
      {users(), "[]"},
      {users(), "{\"user_id\":\"u\"}"},
      {users(), "{\"user_id\":\"u\",\"password\":\"plain\"}"},
      {users(), "{\"user_id\":5,\"password_hash\":\"" + std::string(kHash) + "\"}"},
      {users(), "{\"user_id\":\"u\",\"is_superuser\":1,\"password_hash\":\"" + std::string(kHash) + "\"}"},
      {rules(), "{}"},
      {rules(), R"({"permission":"allow","action":"fly"})"},
      {rules(), R"({"permission":"allow","topics":"a"})"},
      {rules(), R"({"permission":"allow","topics":[5]})"},
      {rules(), R"({"permission":"allow","ipaddress":"x"})"},
      {banned(), R"({"as":"shoe","who":"x"})"},
      {banned(), R"({"as":"peerhost","who":"x"})"},
      {banned(), R"({"as":"clientid","who":""})"},
      {banned(), R"({"as":"clientid","who":"x","until":"soon"})"},
      {banned(), R"({"as":"clientid","who":"x","until":"1999-01-01T00:00:00Z"})"},
  };
  for (const auto& [path, body] : cases) {
    const std::string outcome = ask("POST", path, body);
    EXPECT_EQ(outcome.substr(0, 3), "400") << body << ": " << outcome;
    EXPECT_NE(outcome.find("\"message\""), std::string::npos);
  }
}

TEST_F(AccessApiTest, rules_and_bans_are_shown_as_they_were_sent) {
  EXPECT_EQ(ask("POST", rules(), R"({"permission":"deny","action":"publish","clientid":"c","topics":["eq a/#","b"]})"),
            R"(201 {"permission":"deny","action":"publish","clientid":"c","topics":["eq a/#","b"],"id":1})");
  EXPECT_NE(rules_text(ask("GET", rules()).substr(4)).value().find("eq a/#  b"), std::string::npos);
  EXPECT_EQ(ask("DELETE", rules("/1")), "204 ");
  EXPECT_EQ(
      ask("POST", banned(), R"({"as":"peerhost","who":"10.0.0.1","until":"2099-01-01T00:00:00+01:00"})").substr(0, 3),
      "200");
  EXPECT_NE(ask("GET", banned()).find("2098-12-31T23:00:00Z"), std::string::npos);
  EXPECT_EQ(ask("DELETE", banned("/peerhost/10.0.0.1")), "204 ");
  EXPECT_EQ(banned_text(ask("GET", banned()).substr(4)).value(), "nobody is banned\n");
}

TEST(Rfc3339, reads_what_it_writes_and_refuses_what_is_no_time) {
  for (int64_t ms : {0LL, 1'790'000'000'000LL, 951'782'399'000LL})
    EXPECT_EQ(parse_rfc3339(rfc3339(from_unix_ms(ms))), from_unix_ms(ms));
  EXPECT_EQ(parse_rfc3339("1970-01-01T01:00:00.25+01:00"), from_unix_ms(250));
  const std::string good = "2026-11-30T09:00:00.5+01:00";
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_rfc3339(good.substr(0, n))) << good.substr(0, n);
  for (std::string_view bad : {"2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "x"})
    EXPECT_FALSE(parse_rfc3339(bad)) << bad;
}

}  // namespace
}  // namespace ph::admin
