#include "service/admin/status.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace ph::admin {
namespace {

Status sample() {
  Status s;
  s.node = "gw-17";
  s.site = "ams";
  s.version = "0.1.0";
  s.uptime_seconds = 3725;
  s.now = from_unix_ms(1'000'000);
  RouteRow row{"payments", "fra", {}};
  row.counters.in = 10;
  row.counters.delivered = 7;
  row.counters.queued = 3;
  row.counters.queued_bytes = 4096;
  row.counters.oldest_unacked = from_unix_ms(990'500);
  s.routes.push_back(row);
  s.upstreams.push_back(
      {"fra", 3, 4096, {{"fra-1:3706", "dc-1", "connecting", 1, 4096, 0, 4, 3, "net.refused: fra-1:3706"}}});
  s.spool.push_back({"payments", 65536, 1, 7, 10, 0});
  s.receiver = Numbers{{"events", 5}, {"duplicates", 0}};
  s.upstreams[0].receivers[0].last_error = "net.refused: fra-1:3706";
  s.routes[0].counters.maybe_duplicate = 77;
  s.routes[0].counters.dropped_full = 5;
  s.routes[0].drain_seconds = 90;
  s.gaps = {{"00ff", 255, 10, 20, 4, "dropped", from_unix_ms(1000)}};
  s.agent = Numbers{};
  s.kept_files = {{"clicks/a\nALARM fake\x1b[2J", "held"}};
  s.alarms = {{"records_quarantined", "spool payments", "1 damaged record", from_unix_ms(940'000)}};
  return s;
}

}  // namespace

TEST(Status, json_carries_the_contract_fields) {
  auto root = boost::json::parse(to_json(sample())).as_object();
  auto& route = root["routes"].as_array()[0].as_object();
  for (const char* key :
       {"route", "target", "in", "delivered", "duplicate", "maybe_duplicate", "dropped", "dropped_full", "dropped_keep",
        "dropped_damaged", "dropped_expired", "dropped_bytes", "dead_lettered", "queued", "queued_bytes",
        "unread_bytes", "oldest_unacked_seconds", "drain_seconds"})
    EXPECT_TRUE(route.contains(key)) << key;
  EXPECT_DOUBLE_EQ(route["oldest_unacked_seconds"].to_number<double>(), 9.5);
  EXPECT_DOUBLE_EQ(route["drain_seconds"].to_number<double>(), 90);
  EXPECT_EQ(root["gaps"].as_array()[0].as_object()["events"].to_number<uint64_t>(), 4u);
  EXPECT_EQ(root["receiver"].as_object()["events"].to_number<uint64_t>(), 5u);
  EXPECT_FALSE(root.contains("mqtt"));
  auto& alarm = root["alarms"].as_array()[0].as_object();
  EXPECT_EQ(alarm["code"].as_string(), "records_quarantined");
  EXPECT_EQ(alarm["about"].as_string(), "spool payments");
  EXPECT_EQ(alarm["since_ms"].to_number<int64_t>(), 940'000);
}

TEST(Status, text_names_what_is_stuck) {
  auto text = to_text(to_json(sample()));
  ASSERT_TRUE(text);
  for (const char* part :
       {"node gw-17", "up 1 h 2 min", "ALARM records_quarantined spool payments: 1 damaged record, for 1 min 0 s",
        "payments", "9.5 s", "connecting", "net.refused"})
    EXPECT_NE(text->find(part), std::string::npos) << part << "\n" << *text;
}

TEST(Status, text_shows_what_may_be_twice_gaps_and_the_drain_estimate) {
  auto text = to_text(to_json(sample()));
  ASSERT_TRUE(text);
  for (const char* part : {"maybe dup", " 77 ", "1 min 30 s", "gap from", "00000000000000ff", "10..20"})
    EXPECT_NE(text->find(part), std::string::npos) << part << "\n" << *text;
  Status unknown = sample();
  unknown.routes[0].drain_seconds.reset();
  EXPECT_NE(to_text(to_json(unknown))->find(" ?\n"), std::string::npos);
}

TEST(Status, names_from_outside_cannot_make_lines_of_their_own) {
  Status s = sample();
  s.alarms[0].about = "a\nb";
  s.upstreams[0].receivers[0].last_error = "x\ry";
  auto text = to_text(to_json(s));
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("clicks/a\\x0aALARM fake\\x1b[2J"), std::string::npos) << *text;
  EXPECT_NE(text->find("a\\x0ab"), std::string::npos) << *text;
  EXPECT_NE(text->find("x\\x0dy"), std::string::npos) << *text;
  for (char c : *text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

TEST(Status, text_of_garbage_is_an_error) {
  EXPECT_EQ(to_text("not json").error().code, errors::malformed);
  EXPECT_EQ(to_text("[]").error().code, errors::malformed);
  EXPECT_TRUE(to_text("{}"));
}

}  // namespace ph::admin
