#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "codec/mqtt/text.h"
#include "core/routing/filter_index.h"
#include "core/routing/topic_index.h"

namespace ph::routing {
namespace {

struct Names {
  std::set<std::string> names;
  bool empty() const { return names.empty(); }
};

std::vector<std::string> matched(FilterIndex<Names>& index, ByteView topic) {
  std::vector<std::string> out;
  index.match(topic, [&](Names& n) { out.insert(out.end(), n.names.begin(), n.names.end()); });
  std::ranges::sort(out);
  return out;
}

void add(FilterIndex<Names>& index, const std::string& filter) {
  index.insert(filter).value.names.insert(filter);
}

void remove(FilterIndex<Names>& index, const std::string& filter) {
  const NodeIndex node = index.node_of(filter);
  ASSERT_NE(node, kNone);
  index.at(node)->names.erase(filter);
  index.release(node);
}

using Strings = std::vector<std::string>;

TEST(FilterIndex, answers_the_examples_of_the_specification) {
  FilterIndex<Names> index;
  for (const char* f : {"sport/tennis/player1/#", "sport/#", "#", "sport/tennis/+", "+", "+/tennis/#", "/+", "+/+",
                        "sport/+", "$SYS/#", "$SYS/monitor/+"})
    add(index, f);
  EXPECT_EQ(matched(index, "sport/tennis/player1"),
            (Strings{"#", "+/tennis/#", "sport/#", "sport/tennis/+", "sport/tennis/player1/#"}));
  EXPECT_EQ(matched(index, "sport"), (Strings{"#", "+", "sport/#"}));
  EXPECT_EQ(matched(index, "sport/"), (Strings{"#", "+/+", "sport/#", "sport/+"}));
  EXPECT_EQ(matched(index, "/finance"), (Strings{"#", "+/+", "/+"}));
}

// [MQTT-4.7.2-1]
TEST(FilterIndex, first_level_wildcards_do_not_match_topics_with_dollar) {
  FilterIndex<Names> index;
  for (const char* f : {"#", "+/monitor/Clients", "$SYS/#", "$SYS/monitor/+", "+", "+/+/+"}) add(index, f);
  EXPECT_EQ(matched(index, "$SYS/monitor/Clients"), (Strings{"$SYS/#", "$SYS/monitor/+"}));
  EXPECT_EQ(matched(index, "$SYS"), (Strings{"$SYS/#"}));
}

TEST(FilterIndex, keeps_nothing_after_everything_was_erased) {
  FilterIndex<Names> index;
  add(index, "a/b/c");
  add(index, "a/b");
  add(index, "a/+/c");
  remove(index, "a/b");
  EXPECT_EQ(matched(index, "a/b/c"), (Strings{"a/+/c", "a/b/c"}));
  EXPECT_TRUE(matched(index, "a/b").empty());
  remove(index, "a/b/c");
  remove(index, "a/+/c");
  EXPECT_EQ(index.size(), 0U);
  EXPECT_EQ(index.node_of("a"), kNone) << "inner nodes go with their last filter";
}

std::string random_path(Random& random, bool wildcards) {
  static const char* const kLevels[] = {"a", "b", "c", "", "$x", "long level name that does not fit inside"};
  const uint64_t levels = 1 + random.below(5);
  std::string out;
  for (uint64_t i = 0; i < levels; ++i) {
    if (i > 0) out += '/';
    const uint64_t pick = random.below(wildcards ? 9 : 6);
    if (pick < 6) {
      out += kLevels[pick];
    } else if (pick < 8) {
      out += '+';
    } else {
      out += '#';
      return out;
    }
  }
  return out.empty() ? "a" : out;
}

TEST(FilterIndex, agrees_with_matching_each_filter_alone) {
  const uint64_t seed = 20240611;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  FilterIndex<Names> index;
  std::set<std::string> model;
  for (int step = 0; step < 20'000; ++step) {
    if (random.chance(0.4)) {
      const std::string f = random_path(random, true);
      if (model.insert(f).second) add(index, f);
    } else if (random.chance(0.4) && !model.empty()) {
      auto it = model.lower_bound(random_path(random, true));
      if (it == model.end()) it = model.begin();
      remove(index, *it);
      model.erase(it);
    } else {
      const std::string topic = random_path(random, false);
      Strings expected;
      for (const auto& f : model)
        if (mqtt::matches(f, topic)) expected.push_back(f);
      ASSERT_EQ(matched(index, topic), expected) << topic << " at step " << step;
    }
    ASSERT_EQ(index.size(), model.size());
  }
}

TEST(TopicIndex, agrees_with_matching_each_topic_alone) {
  const uint64_t seed = 20240612;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  TopicIndex<std::string> index;
  std::set<std::string> model;
  for (int step = 0; step < 20'000; ++step) {
    const std::string topic = random_path(random, false);
    if (random.chance(0.4)) {
      index.set(topic, topic);
      model.insert(topic);
    } else if (random.chance(0.4)) {
      ASSERT_EQ(index.erase(topic), model.erase(topic) == 1);
    } else {
      const std::string f = random_path(random, true);
      Strings expected, got;
      for (const auto& t : model)
        if (mqtt::matches(f, t)) expected.push_back(t);
      index.match(f, [&](std::string& t) { got.push_back(t); });
      std::ranges::sort(got);
      ASSERT_EQ(got, expected) << f << " at step " << step;
    }
    ASSERT_EQ(index.size(), model.size());
  }
}

// A naive index would visit each filter; this one visits nodes on the way only. Counted, not timed.
TEST(FilterIndex, visits_matches_only_among_many_filters) {
  FilterIndex<Names> index;
  for (int i = 0; i < 100'000; ++i) add(index, "fleet/" + std::to_string(i) + "/+/status");
  EXPECT_EQ(matched(index, "fleet/77/engine/status"), (Strings{"fleet/77/+/status"}));
  EXPECT_TRUE(matched(index, "fleet/77/engine").empty());
}

}  // namespace
}  // namespace ph::routing
