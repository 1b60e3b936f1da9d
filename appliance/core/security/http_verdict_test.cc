#include "core/security/http_verdict.h"

#include <gtest/gtest.h>

namespace ph::security {
namespace {

using Result = HttpVerdict::Result;

std::string answer(std::string_view head, std::string_view body) {
  return std::string(head) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

TEST(HttpVerdict, reads_an_answer_once_all_of_it_is_there) {
  const std::string all = answer("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
                                 R"({"result":"allow","is_superuser":true,"acl":{"pub":["a"]}})");
  for (size_t n = 0; n < all.size(); ++n) EXPECT_FALSE(parse_http_answer(all.substr(0, n), false)) << n;
  const auto verdict = parse_http_answer(all, false);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->result, Result::allow);
  EXPECT_TRUE(verdict->superuser);
  EXPECT_EQ(verdict->rules.size(), 1U);
  EXPECT_EQ(parse_http_answer(all.substr(0, all.size() - 1), true)->result, Result::ignore) << "cut short";
}

TEST(HttpVerdict, a_body_without_length_ends_with_its_connection) {
  const std::string all = "HTTP/1.0 200 OK\r\n\r\n{\"result\":\"deny\"}";
  EXPECT_FALSE(parse_http_answer(all, false));
  EXPECT_EQ(parse_http_answer(all, true)->result, Result::deny);
  EXPECT_FALSE(parse_http_answer("HTTP/1.0 200 OK\r\n", true)) << "nobody answered";
}

TEST(HttpVerdict, allows_only_what_says_so) {
  EXPECT_EQ(parse_http_answer("HTTP/1.1 204 No Content\r\n\r\n", false)->result, Result::allow);
  const std::pair<std::string, Result> cases[] = {
      {answer("HTTP/1.1 200 OK\r\n", "{}"), Result::ignore},
      {answer("HTTP/1.1 200 OK\r\n", "allow"), Result::ignore},
      {answer("HTTP/1.1 200 OK\r\n", R"({"result":"ignore"})"), Result::ignore},
      {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", R"({"result":"allow"})"), Result::ignore},
      {answer("HTTP/1.1 500 No\r\n", R"({"result":"allow"})"), Result::ignore},
      {answer("HTTP/2 200 OK\r\n", R"({"result":"allow"})"), Result::ignore},
      {answer("SSH-2.0-x\r\n", R"({"result":"allow"})"), Result::ignore},
      {answer("HTTP/1.1 200 OK\r\n", R"({"result":"allow","acl":{"pub":["a/#/b"]}})"), Result::deny},
  };
  for (const auto& [text, result] : cases) EXPECT_EQ(parse_http_answer(text, true)->result, result) << text;
}

TEST(HttpVerdict, a_question_is_json_whatever_the_names_are) {
  EXPECT_EQ(http_question("c\"\n", "u", std::nullopt, "10.0.0.1", ""),
            R"({"clientid":"c\"\n","peerhost":"10.0.0.1","username":"u"})");
  EXPECT_EQ(http_question("c", std::nullopt, "\xff", "10.0.0.1", "cn").find("password"), std::string::npos);
}

}  // namespace
}  // namespace ph::security
