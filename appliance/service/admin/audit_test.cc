#include "service/admin/audit.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "service/admin/status.h"

namespace ph::admin {
namespace {

std::string document(uint64_t in, uint64_t delivered, uint64_t dropped, uint64_t full) {
  Status s;
  RouteRow row{"all", "far\n", {}, {}};
  row.counters.in = in;
  row.counters.delivered = delivered;
  row.counters.dropped = dropped;
  row.counters.dropped_full = full;
  row.counters.dead_lettered = 1;
  row.counters.queued = 2;
  s.routes.push_back(row);
  return to_json(s);
}

}  // namespace

TEST(Audit, what_adds_up_is_sound) {
  auto got = audit(document(10, 4, 3, 3));
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->sound());
  EXPECT_NE(to_text(*got).find("every event is accounted for"), std::string::npos);
}

TEST(Audit, a_difference_is_named_with_its_route_and_target) {
  auto missing = audit(document(11, 4, 3, 3));
  ASSERT_TRUE(missing);
  EXPECT_FALSE(missing->sound());
  EXPECT_EQ(missing->rows[0].difference, 1);
  EXPECT_NE(to_text(*missing).find("route all to far\\x0a: 1 event missing\n"), std::string::npos) << to_text(*missing);
  auto more = audit(document(8, 4, 3, 3));
  EXPECT_EQ(more->rows[0].difference, -2);
  EXPECT_NE(to_text(*more).find("2 events too many"), std::string::npos);
  auto root = boost::json::parse(to_json(*more)).as_object();
  EXPECT_FALSE(root["sound"].as_bool());
  EXPECT_EQ(root["rows"].as_array()[0].as_object()["difference"].to_number<int64_t>(), -2);
}

TEST(Audit, a_part_of_dropped_is_not_greater_than_the_whole) {
  auto got = audit(document(10, 4, 3, 4));
  ASSERT_TRUE(got);
  EXPECT_FALSE(got->sound());
  EXPECT_NE(to_text(*got).find("the reasons of dropped add up to 4"), std::string::npos);
}

TEST(Audit, what_is_no_status_document_is_an_error) {
  for (const char* text : {"", "[]", "{}", "{\"routes\":1}", "{"})
    EXPECT_EQ(audit(text).error().code, errors::malformed);
}

}  // namespace ph::admin
