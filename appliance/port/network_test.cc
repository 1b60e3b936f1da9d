#include "port/network.h"

#include <gtest/gtest.h>

namespace ph::port {
namespace {

void expect_parsed(std::string_view text, std::string_view host, uint16_t port) {
  auto parsed = parse_endpoint(text);
  ASSERT_TRUE(parsed.has_value()) << text << ": " << parsed.error().to_string();
  EXPECT_EQ(parsed->host, host) << text;
  EXPECT_EQ(parsed->port, port) << text;
}

TEST(ParseEndpoint, reads_names_addresses_and_wildcards) {
  expect_parsed("relay-1.fra.example:3706", "relay-1.fra.example", 3706);
  expect_parsed("127.0.0.1:1883", "127.0.0.1", 1883);
  expect_parsed("[::]:3706", "::", 3706);
  expect_parsed("[fe80::1%eth0]:1", "fe80::1%eth0", 1);
  expect_parsed("[::ffff:10.0.0.1]:65535", "::ffff:10.0.0.1", 65535);
  expect_parsed(":0", "", 0);
  expect_parsed("*:8883", "", 8883);
}

TEST(ParseEndpoint, round_trips_through_to_string) {
  for (std::string text : {"host:1", "10.1.2.3:65535", "[::1]:3706"}) {
    auto parsed = parse_endpoint(text);
    ASSERT_TRUE(parsed.has_value()) << text;
    EXPECT_EQ(parsed->to_string(), text);
  }
}

TEST(ParseEndpoint, refuses_what_is_not_an_address) {
  for (std::string text :
       {"",        ":",         "host",     "host:",     "host:65536", "host:999999", "host:-1", "host:+1",
        "host: 1", "host:1 ",   "host:0x1", "::1:80",    "::",         "[::1]",       "[::1]80", "[::1:80",
        "[]:80",   "[host]:80", "[::g]:80", "[::1%]:80", "ho st:80",   "ho/st:80",    "[::1]:",  "http://host:80"}) {
    auto parsed = parse_endpoint(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, net_errors::bad_address) << text;
    EXPECT_NE(parsed.error().detail.find(text), std::string::npos) << parsed.error().detail;
  }
  EXPECT_FALSE(parse_endpoint(std::string(254, 'a') + ":80").has_value());
  EXPECT_FALSE(parse_endpoint(std::string_view("a\0b:80", 6)).has_value());
}

}  // namespace
}  // namespace ph::port
