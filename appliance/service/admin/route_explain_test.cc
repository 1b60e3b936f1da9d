#include "service/admin/route_explain.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace ph::admin {
namespace {

settings::Settings sample() {
  settings::Settings s;
  s.node.data_dir = "/data";
  s.agent.emplace().dir = "/in";
  s.receiver.emplace().link = "127.0.0.1:1";
  settings::Route pay, pos, rest;
  pay.name = "pay";
  pay.categories = {"payments", "pay_*"};
  pay.to = {{settings::Target::Kind::upstream, "fra"}, {settings::Target::Kind::files, "files"}};
  pay.spool.max = Bytes{1024};
  pay.spool.full = settings::Full::drop_oldest;
  pos.name = "pos";
  pos.topics = {"pos/+/payment", "pos/#"};
  pos.category = "pos";
  pos.to = {{settings::Target::Kind::upstream, "fra"}};
  rest.name = "rest";
  rest.to = {{settings::Target::Kind::files, "files"}};
  s.routes = {pay, pos, rest};
  return s;
}

bool never(std::string_view) {
  return false;
}

}  // namespace

TEST(RouteExplain, the_mask_that_won_is_named) {
  auto s = sample();
  EXPECT_EQ(explain(s, SampleKind::category, "payments", never).routes.at(0).mask, "payments");
  auto wild = explain(s, SampleKind::category, "pay_eu", never);
  EXPECT_EQ(wild.routes.at(0).mask, "pay_*");
  EXPECT_EQ(wild.routes[0].route->name, "pay");
  const std::string text = to_text(wild);
  for (const char* part : {"route pay, by its mask pay_*", "fra files", "drop_oldest", "/data/spool/pay", "1024"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  auto other = explain(s, SampleKind::category, "clicks", never);
  EXPECT_EQ(other.routes.at(0).route->name, "rest");
  EXPECT_NE(to_text(other).find("being the default route"), std::string::npos);
}

TEST(RouteExplain, a_file_is_explained_by_its_category) {
  auto s = sample();
  auto first = explain(s, SampleKind::file, "/in/payments.log", never);
  EXPECT_EQ(first.category, "payments");
  EXPECT_EQ(first.routes.at(0).mask, "payments");
  auto inner = explain(s, SampleKind::file, "/in/pay_eu/2026.log", never);
  EXPECT_EQ(inner.category, "pay_eu");
  auto rotated =
      explain(s, SampleKind::file, "/in/payments.log.1", [](std::string_view n) { return n == "payments.log"; });
  EXPECT_EQ(rotated.category, "payments");
  EXPECT_FALSE(explain(s, SampleKind::file, "/in/.hidden", never).refused.empty());
  EXPECT_FALSE(explain(s, SampleKind::file, "/in/a/b/c.log", never).refused.empty());
  EXPECT_FALSE(explain(s, SampleKind::file, "/inside/a.log", never).refused.empty());
}

TEST(RouteExplain, a_topic_has_every_route_that_wants_it_or_none) {
  auto s = sample();
  auto got = explain(s, SampleKind::topic, "pos/7/payment", never);
  ASSERT_EQ(got.routes.size(), 1u);
  EXPECT_EQ(got.routes[0].mask, "pos/+/payment");
  EXPECT_FALSE(explain(s, SampleKind::topic, "other/topic", never).refused.empty());
  EXPECT_FALSE(explain(s, SampleKind::topic, "pos/#", never).refused.empty()) << "a filter is no topic";
}

TEST(RouteExplain, the_kind_of_a_sample_is_guessed_and_a_bad_category_is_told) {
  auto s = sample();
  EXPECT_EQ(guess_kind(s, "/in/a.log"), SampleKind::file);
  EXPECT_EQ(guess_kind(s, "/in2/a.log"), SampleKind::topic);
  EXPECT_EQ(guess_kind(s, "a/b"), SampleKind::topic);
  EXPECT_EQ(guess_kind(s, "a"), SampleKind::category);
  auto bad = explain(s, SampleKind::category, "a\nb", never);
  EXPECT_FALSE(bad.refused.empty());
  EXPECT_EQ(to_text(bad).find("a\nb"), std::string::npos);
  auto root = boost::json::parse(to_json(bad)).as_object();
  EXPECT_TRUE(root["routes"].as_array().empty());
}

}  // namespace ph::admin
