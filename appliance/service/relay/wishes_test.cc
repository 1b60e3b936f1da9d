#include "service/relay/wishes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "support/manual_loop.h"
#include "support/memory_store.h"

namespace ph::relay {
namespace {

using Entry = link::Interest::Entry;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

struct WishesTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryStore store;
  commit::Committer committer{loop, disk, store};
  std::unique_ptr<Demand> demand = open();
  WishesOptions options{
      .site = "here", .routes = {}, .route_of = [](std::string_view c) { return c == "files"; }, .takers = {}};
  std::unique_ptr<Wishes> wishes;

  std::unique_ptr<Demand> open() {
    auto made = std::make_unique<Demand>(std::vector<Demand::Upstream>{{"next", {"a:1", "b:1"}}, {"other", {"c:1"}}},
                                         loop, store, committer);
    made->load().value();
    return made;
  }
  /// Every address of the upstream says the same.
  void say(const std::string& upstream, const std::string& site, std::vector<Entry> entries,
           std::vector<std::string> categories = {"news"}) {
    for (const std::string& address :
         upstream == "next" ? std::vector<std::string>{"a:1", "b:1"} : std::vector<std::string>{"c:1"}) {
      demand->heard(upstream, address, site, true);
      demand->told(upstream, address, {.reset = true, .categories = categories, .added = entries});
    }
    loop.advance(2s);
  }
  void make() {
    wishes = std::make_unique<Wishes>(options, *demand, loop);
    demand->on_change([this] { wishes->demand_changed(); });
  }
  std::vector<Entry> told(const std::string& site = "peer", const std::set<std::string>& categories = {"news"}) {
    auto is = wishes->told(site, categories);
    return is ? std::vector<Entry>(is->begin(), is->end()) : std::vector<Entry>{{"unknown", {}}};
  }
};

}  // namespace

TEST(BeforeTemplate, takes_off_what_the_template_puts_on) {
  const std::string all;
  EXPECT_EQ(before_template("{topic}", "a/+/#"), "a/+/#");
  EXPECT_EQ(before_template("x/{topic}", "x/a/b"), "a/b");
  EXPECT_EQ(before_template("x/{topic}", "+/a"), "a");
  EXPECT_EQ(before_template("x/{topic}", "#"), "#");
  EXPECT_EQ(before_template("x/{topic}", "x/#"), "#");
  EXPECT_EQ(before_template("x/{topic}", "y/a"), std::nullopt);
  EXPECT_EQ(before_template("x/{topic}", "x"), std::nullopt);
  EXPECT_EQ(before_template("x/{origin}/{topic}", "x/ams/a/#"), "a/#");
  EXPECT_EQ(before_template("x/p{origin}/{topic}", "x/+/a"), "a");
  EXPECT_EQ(before_template("x/{topic}", ""), all);
  EXPECT_EQ(before_template("{topic}/x", "a/x"), all) << "anything may be before it";
  EXPECT_EQ(before_template("x-{topic}", "x-a"), all);
  EXPECT_EQ(before_template("events/{origin}", "events/+"), all);
  EXPECT_EQ(before_template("events/{origin}", "events/ams/#"), all);
  EXPECT_EQ(before_template("events/{origin}", "events/a/b"), std::nullopt);
  EXPECT_EQ(before_template("events/{origin}", "other/+"), std::nullopt);
}

TEST_F(WishesTest, clients_filters_are_wanted_without_what_wider_ones_cover) {
  options.routes = {{.files = false, .templates = {"up/{topic}"}, .upstreams = {}},
                    {.files = true, .templates = {}, .upstreams = {}}};
  make();
  bool used = false;
  wishes->on_first_use([&] { used = true; });
  EXPECT_THAT(told(), ElementsAre(Entry{"unknown", {}})) << "nothing is said before the clients are known";
  EXPECT_TRUE(used);
  wishes->set_filters({"up/a/#", "up/a/b/c", "up/+/z", "other", "up/a"}, true);
  EXPECT_THAT(told(), UnorderedElementsAre(Entry{"a/#", {}}, Entry{"+/z", {}}, Entry{"a", {}}));
  EXPECT_THAT(told("peer", {"news", "files"}), ElementsAre(Entry{"", {}})) << "files want everything";
}

TEST_F(WishesTest, a_filter_that_is_gone_lingers) {
  options.routes = {{.files = false, .templates = {"{topic}"}, .upstreams = {}}};
  make();
  int changes = 0;
  wishes->on_change([&] { ++changes; });
  wishes->set_filters({"a", "b"}, true);
  EXPECT_EQ(told().size(), 2u);
  wishes->set_filters({"b"}, true);
  loop.advance(Wishes::kLinger - 1s);
  EXPECT_EQ(told().size(), 2u);
  wishes->set_filters({"a", "b"}, true);  // back
  loop.advance(2 * Wishes::kLinger);
  EXPECT_EQ(told().size(), 2u);
  const int before = changes;
  wishes->set_filters({"b"}, true);
  loop.advance(Wishes::kLinger + 1s);
  EXPECT_THAT(told(), ElementsAre(Entry{"b", {}}));
  EXPECT_GT(changes, before);
}

TEST_F(WishesTest, too_many_filters_want_everything_and_are_counted) {
  options.routes = {{.files = false, .templates = {"{topic}"}, .upstreams = {}}};
  make();
  std::vector<std::string> many;
  for (size_t i = 0; i <= limits::kInterestMax; ++i) many.push_back("f/" + std::to_string(i));
  wishes->set_filters(many, true);
  EXPECT_THAT(told(), ElementsAre(Entry{"", {}}));
  EXPECT_EQ(wishes->overflows(), 1u);
  wishes->set_filters({"a"}, false);
  EXPECT_THAT(told(), ElementsAre(Entry{"", {}}));
  wishes->set_filters({"a"}, true);
  loop.advance(Wishes::kLinger + 1s);
  EXPECT_THAT(told(), ElementsAre(Entry{"a", {}}));
}

TEST_F(WishesTest, what_lies_behind_an_upstream_is_wanted_and_asked_for) {
  options.routes = {{.files = false, .templates = {}, .upstreams = {0}}};
  make();
  wishes->set_filters({"own"}, true);
  std::vector<std::pair<size_t, std::set<std::string>>> asked;
  wishes->on_ask([&](size_t u, const std::set<std::string>& c) { asked.emplace_back(u, c); });
  EXPECT_THAT(told(), ElementsAre(Entry{"", {}})) << "not known yet";
  EXPECT_THAT(asked, ElementsAre(std::pair<size_t, std::set<std::string>>{0, {"news"}}));
  say("next", "far", {{"x", {}}, {"y", {"peer"}}, {"z", {"here", "m"}}, {"w", {"m"}}});
  EXPECT_THAT(told(), ElementsAre(Entry{"w", {"m", "far"}}, Entry{"x", {"far"}}))
      << "not what came by the peer or by us";
  EXPECT_THAT(told("far"), IsEmpty()) << "nothing goes back where it came from";
  EXPECT_THAT(told("peer", {"later"}), ElementsAre(Entry{"", {"far"}})) << "the far end was not asked for this one yet";
}

TEST_F(WishesTest, routes_on_topics_want_what_they_take) {
  options.routes = {{.files = false, .templates = {"in/{topic}"}, .upstreams = {}}};
  options.takers = {{{"in/a/#", "b"}, "t", false, std::nullopt}, {{"#"}, "news", true, 0}, {{"in/c"}, "t", false, 1}};
  make();
  wishes->set_filters({}, true);
  say("next", "far", {{"in/x", {}}, {"y", {}}});
  say("other", "peer", {});
  EXPECT_THAT(told(), ElementsAre(Entry{"a/#", {}}, Entry{"x", {"far"}}))
      << "and not what would only go back to the peer";
  EXPECT_THAT(told("third"), ElementsAre(Entry{"a/#", {}}, Entry{"c", {}}, Entry{"x", {"far"}}));
}

// --- what is known of far ends

TEST_F(WishesTest, demand_sends_everything_until_all_addresses_have_said_otherwise) {
  EXPECT_TRUE(demand->wants(0, "news", "a"));
  demand->heard("next", "a:1", "far", true);
  demand->told("next", "a:1", {.reset = true, .categories = {"news"}, .added = {{"a", {}}}});
  loop.advance(1s);
  EXPECT_TRUE(demand->wants(0, "news", "zzz"));
  say("next", "far", {{"a/+", {}}, {"b/#", {"m"}}});
  EXPECT_TRUE(demand->wants(0, "news", "a/1"));
  EXPECT_TRUE(demand->wants(0, "news", "b"));
  EXPECT_FALSE(demand->wants(0, "news", "zzz"));
  EXPECT_TRUE(demand->wants(0, "another category", "zzz"));
  EXPECT_TRUE(demand->wants(1, "news", "zzz"));
  demand->heard("next", "b:1", "far", false);  // an older node now: cannot tell
  loop.advance(1s);
  EXPECT_TRUE(demand->wants(0, "news", "zzz"));
}

TEST_F(WishesTest, demand_follows_what_is_added_and_removed_and_uses_no_half_answer) {
  say("other", "far", {{"a", {}}});
  demand->told("other", "c:1", {.added = {{"b", {}}}, .removed = {{"a", {}}}});
  loop.advance(1s);
  EXPECT_FALSE(demand->wants(1, "news", "a"));
  EXPECT_TRUE(demand->wants(1, "news", "b"));
  demand->told("other", "c:1", {.reset = true, .categories = {"news"}, .more = true, .added = {{"c", {}}}});
  loop.advance(1s);
  EXPECT_TRUE(demand->wants(1, "news", "b"));
  EXPECT_FALSE(demand->wants(1, "news", "c"));
  demand->told("other", "c:1", {.added = {{"d", {}}}});
  loop.advance(1s);
  EXPECT_FALSE(demand->wants(1, "news", "b"));
  EXPECT_TRUE(demand->wants(1, "news", "c") && demand->wants(1, "news", "d"));
  EXPECT_EQ(demand->filters_of("other"), 2u);
  std::vector<Entry> many;
  for (size_t i = 0; i <= limits::kInterestMax; ++i) many.push_back({std::to_string(i), {}});
  demand->told("other", "c:1", {.added = many});
  loop.advance(1s);
  EXPECT_EQ(demand->filters_of("other"), std::nullopt) << "who does not keep to the bound gets everything";
}

TEST_F(WishesTest, demand_is_kept_over_a_restart_and_a_damaged_record_wants_everything) {
  say("next", "far", {{"a", {"m"}}});
  loop.advance(3s);
  demand = open();
  EXPECT_FALSE(demand->wants(0, "news", "b"));
  EXPECT_TRUE(demand->wants(0, "news", "a"));
  EXPECT_EQ(demand->addresses(0).front().site, "far");
  std::map<std::string, std::string> records;
  store
      .scan("i/",
            [&](ByteView key, ByteView value) {
              records.emplace(key, value);
              return true;
            })
      .value();
  ASSERT_EQ(records.size(), 2u);
  const auto& [key, value] = *records.begin();
  for (size_t n = 0; n < value.size(); ++n)
    for (bool cut : {true, false}) {
      port::WriteBatch damage;
      std::string bad = value.substr(0, cut ? n : value.size());
      if (!cut) bad[n] = static_cast<char>(bad[n] ^ 0x40);
      damage.put(key, bad);
      store.write(damage, true).value();
      demand = open();
      // The site is only a hint; everything else is covered by the frame's checksum.
      const bool site = !cut && n >= 2 && n < 5;
      EXPECT_EQ(demand->wants(0, "news", "b"), !site) << n << " " << cut;
    }
}

}  // namespace ph::relay
