// The files of config/: the reference is what the schema says, the examples are valid and route as they promise.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/route/route_table.h"
#include "core/settings/parse.h"

namespace ph::settings {
namespace {

std::string config(const std::string& name) {
  const auto path = std::filesystem::path(__FILE__).parent_path() / "../../config" / name;
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

Settings valid(const std::string& name) {
  Outcome outcome = parse(config(name), "host");
  EXPECT_TRUE(outcome.diagnostics.empty()) << outcome.to_string(name);
  return outcome.settings.value_or(Settings{});
}

/// Name of the route that takes a category.
std::string taker(const Settings& settings, std::string_view category) {
  std::vector<route::Rule> rules;
  for (const Route& r : settings.routes) rules.push_back({r.categories, r.topics});
  const auto index = route::RouteTable(rules).of_category(category);
  return index ? settings.routes[*index].name : "none";
}

TEST(ConfigFiles, the_reference_equals_the_schema) {
  EXPECT_EQ(config("posthouse.toml"), reference()) << "run: posthouse config reference > config/posthouse.toml";
}

TEST(ConfigFiles, an_edge_keeps_local_events_and_sends_the_rest_to_the_relays) {
  const Settings s = valid("edge.toml");
  EXPECT_EQ(taker(s, "local_debug"), "local");
  EXPECT_EQ(taker(s, "clicks"), "rest");
  EXPECT_EQ(s.upstreams.at(0).tls, true);
}

TEST(ConfigFiles, a_relay_sends_by_the_datacenter_in_the_name) {
  const Settings s = valid("relay.toml");
  EXPECT_EQ(taker(s, "local_debug"), "local");
  EXPECT_EQ(taker(s, "fra_orders"), "fra");
  EXPECT_EQ(taker(s, "sin_orders"), "sin");
  EXPECT_EQ(taker(s, "payments_eu"), "payments");
  EXPECT_EQ(taker(s, "clicks"), "central");
}

TEST(ConfigFiles, a_datacenter_writes_files_and_publishes_alarms) {
  const Settings s = valid("datacenter.toml");
  EXPECT_EQ(taker(s, "clicks"), "all");
  EXPECT_EQ(taker(s, "alarms_fire"), "alarms");
  EXPECT_EQ(s.listeners.at(0).allow_anonymous, true);
  EXPECT_EQ(s.listeners.at(1).allow_anonymous, false);
}

}  // namespace
}  // namespace ph::settings
