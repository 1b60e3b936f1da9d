#include "core/routing/topic_rewrite.h"

#include <gtest/gtest.h>

#include <set>

namespace ph::routing {
namespace {

using On = RewriteRule::On;

TEST(TopicRewrite, fills_in_what_wildcards_stood_for) {
  const TopicRewrite rewrite({{On::both, "old/+/x/#", "new/{2}/{1}"},
                              {On::publish, "in", "clients/%c/%u/in"},
                              {On::subscribe, "all/#", "every/{1}"},
                              {On::both, "old/#", "second"}});
  auto publish = [&](ByteView t) { return rewrite.apply(On::publish, t, "c/1", "u+"); };
  auto subscribe = [&](ByteView t) { return rewrite.apply(On::subscribe, t, "c", "u"); };
  EXPECT_EQ(publish("old/a/x/b/c"), "new/b/c/a");
  EXPECT_EQ(publish("old/a/x"), "new//a") << "# stands for nothing, too";
  EXPECT_EQ(publish("old/a/y"), "second") << "the first rule that matches";
  EXPECT_EQ(publish("in"), "clients/c%2F1/u%2B/in") << "names cannot choose levels or wildcards";
  EXPECT_EQ(subscribe("in"), std::nullopt);
  EXPECT_EQ(subscribe("all/+/#"), "every/+/#");
  EXPECT_EQ(publish("all/a"), std::nullopt);
  EXPECT_EQ(publish("other"), std::nullopt);
}

TEST(TopicRewrite, what_would_become_invalid_stays) {
  const TopicRewrite rewrite({{On::both, "a/#", "{1}"}, {On::both, "b/+/#", "x{1}/{2}"}});
  EXPECT_EQ(rewrite.apply(On::publish, "a", "", ""), std::nullopt) << "empty";
  EXPECT_EQ(rewrite.apply(On::subscribe, "b/+/c", "", ""), std::nullopt) << "x+ is no level";
  EXPECT_EQ(rewrite.apply(On::publish, "b/y/z", "", ""), "xy/z");
  EXPECT_EQ(rewrite.apply(On::publish, "a/" + std::string(65'600, 'x'), "", ""), std::nullopt);
}

TEST(TopicRewrite, different_names_stay_different) {
  std::set<std::string> made;
  const std::vector<std::string> names = {"a/b",     "a_b",  "a+b",    "a#b",  "a%b", "a%2Fb",
                                          "a%252Fb", "$SYS", "%24SYS", "_SYS", "ab",  ""};
  for (const std::string& name : names) {
    const std::string one = fill_client("%u/", "", name);
    EXPECT_TRUE(made.insert(one).second) << name;
    EXPECT_EQ(one.find('/'), one.size() - 1) << "one level";
    EXPECT_EQ(one.find_first_of("+#$"), one.npos) << name;
  }
  EXPECT_EQ(fill_client("%u", "", "eve.smith@x_y-z$"), "eve.smith@x_y-z$") << "usual names stay what they were";
}

TEST(TopicRewrite, fills_client_and_user) {
  EXPECT_EQ(fill_client("mp/%c/%u/%x%", "c#", "u/1"), "mp/c%23/u%2F1/%x%");
}

}  // namespace
}  // namespace ph::routing
