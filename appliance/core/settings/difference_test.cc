#include "core/settings/difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ph::settings {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::string_view kBefore = R"(
[node]
name = "gw"
[log]
level = "info"
[tls]
ca = "/a"
cert = "/b"
[[listener]]
name = "plain"
bind = ":1883"
[[listener]]
name = "tls"
bind = ":8883"
tls = true
[receiver]
dir = "/r"
[[receiver.category]]
match = ["a"]
[[receiver.category]]
match = ["b"]
[[route]]
name = "all"
to = ["files", { mqtt = "x" }]
spool = { max = "1GiB" }
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kBefore);
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}
std::vector<std::string> changed(std::string_view from, std::string_view to) {
  return differences(kBefore, with(from, to));
}

TEST(Differences, comments_and_the_order_of_keys_are_none) {
  EXPECT_THAT(differences(kBefore, kBefore), IsEmpty());
  EXPECT_THAT(changed("[node]", "# a node\n\n[node]"), IsEmpty());
  EXPECT_THAT(changed("ca = \"/a\"\ncert = \"/b\"", "cert  =  '/b'\nca = \"/a\""), IsEmpty());
}

TEST(Differences, names_each_key_that_changed_came_or_went) {
  EXPECT_THAT(changed("level = \"info\"", "level = \"debug\""), ElementsAre("log.level"));
  EXPECT_THAT(changed("cert = \"/b\"\n", ""), ElementsAre("tls.cert"));
  EXPECT_THAT(changed("cert = \"/b\"\n", "cert = \"/b\"\ncrl = \"/c\"\n"), ElementsAre("tls.crl"));
  EXPECT_THAT(changed("[tls]\nca = \"/a\"\ncert = \"/b\"\n", ""), ElementsAre("tls"));
  EXPECT_THAT(changed("[node]", "[broker]\nworkers = 1\n[node]"), ElementsAre("broker"));
  EXPECT_THAT(differences(with("\"info\"", "\"warn\""), with("\"gw\"", "\"gx\"")),
              ElementsAre("node.name", "log.level"));
}

TEST(Differences, names_rows_by_their_name_or_place) {
  EXPECT_THAT(changed("bind = \":8883\"", "bind = \":8884\""), ElementsAre("listener \"tls\""));
  EXPECT_THAT(changed("name = \"plain\"", "name = \"other\""),
              ElementsAre("listener \"plain\"", "listener \"other\"", "listener (order)"));
  EXPECT_THAT(changed("[[listener]]\nname = \"plain\"\nbind = \":1883\"\n", ""), ElementsAre("listener \"plain\""));
  EXPECT_THAT(changed("match = [\"b\"]", "match = [\"b\", \"c\"]"), ElementsAre("[[receiver.category]] 2"));
  EXPECT_THAT(changed("mqtt = \"x\"", "mqtt = \"y\""), ElementsAre("route \"all\""));
  EXPECT_THAT(changed("\"1GiB\"", "\"2GiB\""), ElementsAre("route \"all\""));
}

TEST(Differences, certificates_and_the_log_level_are_live) {
  for (auto key : {"log", "log.level", "tls.ca", "tls.cert", "tls.key", "tls.crl"}) EXPECT_TRUE(is_live(key)) << key;
  for (auto key : {"tls", "log.other", "node.name", "listener \"tls\""}) EXPECT_FALSE(is_live(key)) << key;
}

}  // namespace
}  // namespace ph::settings
