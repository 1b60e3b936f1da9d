#include "core/routing/shared_group.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace ph::routing {
namespace {

SharedGroup group(size_t online, size_t offline = 0) {
  SharedGroup g(std::make_shared<const std::string>("$share/g/t"));
  for (uint64_t i = 1; i <= online + offline; ++i) g.set({i, static_cast<uint32_t>(i % 2)}, i <= online);
  return g;
}

std::map<uint64_t, int> chosen(SharedGroup& g, SharedStrategy strategy, int times, uint32_t worker = 0) {
  Random random(1);
  std::map<uint64_t, int> out;
  for (int i = 0; i < times; ++i) {
    const std::string name = std::to_string(i);
    ++out[g.choose(strategy, {worker, name, name}, random)->uid];
  }
  return out;
}

TEST(SharedGroup, takes_turns_among_those_online) {
  SharedGroup g = group(3, 2);
  EXPECT_EQ(chosen(g, SharedStrategy::round_robin, 300), (std::map<uint64_t, int>{{1, 100}, {2, 100}, {3, 100}}));
  for (uint64_t i = 1; i <= 3; ++i) g.set({i, 0}, false);
  EXPECT_EQ(chosen(g, SharedStrategy::round_robin, 500).size(), 5U) << "all are offline: all take part";
  g.set({5, 0}, true);
  EXPECT_EQ(chosen(g, SharedStrategy::random, 10), (std::map<uint64_t, int>{{5, 10}}));
}

TEST(SharedGroup, random_and_hashes_reach_everybody) {
  SharedGroup g = group(4);
  for (auto strategy : {SharedStrategy::random, SharedStrategy::hash_clientid, SharedStrategy::hash_topic}) {
    const auto got = chosen(g, strategy, 1000);
    ASSERT_EQ(got.size(), 4U);
    for (const auto& [uid, n] : got) EXPECT_NEAR(n, 250, 80);
  }
}

TEST(SharedGroup, sticky_stays_until_the_member_goes) {
  SharedGroup g = group(4);
  EXPECT_EQ(chosen(g, SharedStrategy::sticky, 50), (std::map<uint64_t, int>{{1, 50}}));
  g.remove(1);
  EXPECT_EQ(chosen(g, SharedStrategy::sticky, 50), (std::map<uint64_t, int>{{2, 50}}));
  g.set({1, 0}, true);
  EXPECT_EQ(chosen(g, SharedStrategy::sticky, 50), (std::map<uint64_t, int>{{2, 50}})) << "who was there before stays";
  g.set({2, 0}, false);
  EXPECT_EQ(chosen(g, SharedStrategy::sticky, 50), (std::map<uint64_t, int>{{1, 50}}));
}

TEST(SharedGroup, hashes_move_only_what_has_to_move) {
  SharedGroup g = group(5);
  Random random(1);
  std::map<std::string, uint64_t> before;
  for (int i = 0; i < 200; ++i) {
    const std::string t = "t/" + std::to_string(i);
    before[t] = g.choose(SharedStrategy::hash_topic, {0, "", t}, random)->uid;
  }
  g.remove(3);
  for (const auto& [t, uid] : before) {
    if (uid == 3) continue;
    EXPECT_EQ(g.choose(SharedStrategy::hash_topic, {0, "", t}, random)->uid, uid);
  }
}

TEST(SharedGroup, local_prefers_the_own_worker) {
  SharedGroup g = group(4);  // 2 and 4 on worker 0
  EXPECT_EQ(chosen(g, SharedStrategy::local, 100), (std::map<uint64_t, int>{{2, 50}, {4, 50}}));
  EXPECT_EQ(chosen(g, SharedStrategy::local, 100, 7).size(), 4U) << "none there: anybody";
}

TEST(SharedGroup, agrees_with_a_model_under_random_changes) {
  Random random(7);
  SharedGroup g = group(0);
  std::map<uint64_t, bool> model;
  for (int step = 0; step < 5000; ++step) {
    const uint64_t uid = 1 + random.below(12);
    if (random.chance(0.3)) {
      g.remove(uid);
      model.erase(uid);
    } else {
      const bool online = random.chance(0.5);
      g.set({uid, static_cast<uint32_t>(step)}, online);
      model[uid] = online;
      ASSERT_EQ(g.find(uid)->worker, static_cast<uint32_t>(step));
    }
    size_t online = 0;
    for (const auto& [u, on] : model) online += on ? 1 : 0;
    ASSERT_EQ(g.size(), model.size());
    ASSERT_EQ(g.online(), online);
    for (auto strategy : {SharedStrategy::round_robin, SharedStrategy::random, SharedStrategy::sticky,
                          SharedStrategy::hash_clientid, SharedStrategy::hash_topic, SharedStrategy::local}) {
      const SharedMember* m = g.choose(strategy, {1, "c", "t"}, random);
      ASSERT_EQ(m == nullptr, model.empty());
      if (m) {
        ASSERT_TRUE(model.at(m->uid) || online == 0);
      }
    }
  }
}

}  // namespace
}  // namespace ph::routing
