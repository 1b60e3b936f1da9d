#include "core/link/receiver_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/limits.h"
#include "base/random.h"

namespace ph::link {
namespace {

const StreamKey kKey{Random(1).node_id(), target_hash("fra"), StreamId{7}};
constexpr WallTime kNow = WallTime(std::chrono::hours(400'000));
using Ranges = std::vector<Range>;

/// Stores the value as a driver does and gives back what a restart would load.
std::unique_ptr<ReceiverStreams> reloaded(const StreamKey& key, const std::string& value) {
  auto streams = ReceiverStreams::make();
  EXPECT_TRUE(streams->load(store_key(key), value));
  return streams;
}

void accept(ReceiverStreams& streams, uint64_t settled, uint64_t first, uint64_t last) {
  auto fresh = streams.admit(kKey, settled, first, last);
  ASSERT_TRUE(fresh);
  streams.value_with(kKey, *fresh, kNow);
  streams.commit(kKey, *fresh);
}

}  // namespace

// Amendment 1: what arrives late, below the greatest position seen, is new unless it is in the set.
TEST(ReceiverStreams, a_sender_has_no_more_streams_than_the_bound_and_others_are_not_touched) {
  auto streams = ReceiverStreams::make();
  StreamKey key{Random(3).node_id(), 7, StreamId{0}};
  for (uint64_t n = 0; n < ReceiverStreams::kStreamsMax; ++n) {
    key.stream = StreamId{n};
    ASSERT_TRUE(streams->admit(key, 0, 0, 10));
  }
  EXPECT_TRUE(streams->admit(key, 0, 10, 20)) << "one that is open goes on";
  StreamKey one_more = key;
  one_more.stream = StreamId{ReceiverStreams::kStreamsMax};
  EXPECT_FALSE(streams->admit(one_more, 0, 0, 10));
  StreamKey other = one_more;
  other.target = 8;
  EXPECT_TRUE(streams->admit(other, 0, 0, 10));
  EXPECT_TRUE(streams->close(key));
  EXPECT_TRUE(streams->admit(one_more, 0, 0, 10));
}

TEST(ReceiverStreams, takes_a_rerouted_batch_that_arrives_late) {
  auto streams = ReceiverStreams::make();
  accept(*streams, 0, 1, 101);
  accept(*streams, 0, 201, 301);
  EXPECT_EQ(streams->admit(kKey, 0, 101, 201), (Ranges{{101, 201}}));
}

TEST(ReceiverStreams, a_duplicate_of_what_is_being_written_is_not_new_but_not_held_either) {
  auto streams = ReceiverStreams::make();
  auto first = *streams->admit(kKey, 0, 10, 20);
  EXPECT_EQ(streams->admit(kKey, 0, 5, 25), (Ranges{{5, 10}, {20, 25}}));
  EXPECT_TRUE(streams->held(kKey, 0, 100).empty());
  EXPECT_TRUE(streams->writing(kKey));
  streams->commit(kKey, first);
  EXPECT_EQ(streams->held(kKey, 0, 100), (Ranges{{10, 20}}));
  EXPECT_TRUE(streams->writing(kKey));
  streams->abandon(kKey, {{5, 10}, {20, 25}});
  EXPECT_FALSE(streams->writing(kKey));
  EXPECT_EQ(streams->admit(kKey, 0, 5, 25), (Ranges{{5, 10}, {20, 25}}));
}

TEST(ReceiverStreams, below_settled_everything_is_a_duplicate_and_ranges_are_forgotten) {
  auto streams = ReceiverStreams::make();
  accept(*streams, 0, 0, 10);
  accept(*streams, 0, 20, 30);
  EXPECT_EQ(streams->admit(kKey, 15, 12, 22), (Ranges{{15, 20}}));
  auto resumed = streams->resume(kKey, 0);
  EXPECT_EQ(resumed.settled, 15u);
  EXPECT_EQ(resumed.accepted, (std::vector<Span>{{20, 30}}));
  EXPECT_EQ(resumed.highest, 30u);
  EXPECT_EQ(streams->held(kKey, 12, 25), (Ranges{{12, 15}, {20, 25}}));
}

TEST(ReceiverStreams, successive_values_before_a_commit_build_on_each_other) {
  auto streams = ReceiverStreams::make();
  auto a = *streams->admit(kKey, 0, 0, 10);
  streams->value_with(kKey, a, kNow);
  auto b = *streams->admit(kKey, 0, 10, 20);
  std::string value = streams->value_with(kKey, b, kNow);
  EXPECT_EQ(reloaded(kKey, value)->resume(kKey, 0).accepted, (std::vector<Span>{{0, 20}}));
  streams->abandon(kKey, a);
  streams->abandon(kKey, b);
  EXPECT_TRUE(reloaded(kKey, streams->value(kKey, kNow))->resume(kKey, 0).accepted.empty());
}

// Amendment 14.
TEST(ReceiverStreams, rejects_are_reported_again_until_settled_also_after_a_restart) {
  auto streams = ReceiverStreams::make();
  auto fresh = *streams->admit(kKey, 0, 0, 100);
  streams->reject(kKey, 50, 51, "category is empty");
  EXPECT_TRUE(streams->resume(kKey, 0).rejects.empty()) << "not durable yet";
  std::string value = streams->value_with(kKey, fresh, kNow);
  streams->commit(kKey, fresh);
  std::vector<Reject> expected = {{50, 51, "category is empty"}};
  EXPECT_EQ(streams->resume(kKey, 0).rejects, expected);
  streams = reloaded(kKey, value);
  EXPECT_EQ(streams->resume(kKey, 50).rejects, expected);
  EXPECT_TRUE(streams->resume(kKey, 51).rejects.empty());
}

TEST(ReceiverStreams, neighbouring_rejects_with_one_reason_are_one) {
  auto streams = ReceiverStreams::make();
  for (uint64_t i = 0; i < 10; ++i) {
    auto fresh = *streams->admit(kKey, 0, i, i + 1);
    streams->reject(kKey, i, i + 1, i < 5 ? "a" : "b");
    streams->value_with(kKey, fresh, kNow);
    streams->commit(kKey, fresh);
  }
  EXPECT_EQ(streams->resume(kKey, 0).rejects, (std::vector<Reject>{{0, 5, "a"}, {5, 10, "b"}}));
}

TEST(ReceiverStreams, an_abandoned_reject_is_none) {
  auto streams = ReceiverStreams::make();
  auto fresh = *streams->admit(kKey, 0, 0, 10);
  streams->reject(kKey, 2, 3, "x");
  streams->abandon(kKey, fresh);
  accept(*streams, 0, 0, 10);
  EXPECT_TRUE(streams->resume(kKey, 0).rejects.empty());
}

TEST(ReceiverStreams, far_collapses_over_what_went_to_other_receivers) {
  auto streams = ReceiverStreams::make();
  accept(*streams, 0, 0, 10);
  accept(*streams, 0, 20, 30);
  EXPECT_TRUE(streams->far(kKey, 0, 10));
  EXPECT_FALSE(streams->far(kKey, 2, 5));
  EXPECT_TRUE(streams->far(kKey, 20, 30));
  EXPECT_TRUE(streams->far(kKey, 0, 20));
  EXPECT_EQ(streams->resume(kKey, 0).far, (std::vector<Span>{{0, 30}}));
  auto fresh = *streams->admit(kKey, 0, 40, 50);
  EXPECT_TRUE(streams->far(kKey, 40, 50));
  EXPECT_TRUE(streams->far_held(kKey, 35, 60).empty()) << "not before the commit";
  streams->commit(kKey, fresh);
  EXPECT_EQ(streams->far_held(kKey, 35, 60), (Ranges{{40, 50}}));
  fresh = *streams->admit(kKey, 0, 50, 60);
  EXPECT_TRUE(streams->far(kKey, 50, 60));
  streams->abandon(kKey, fresh);
  EXPECT_EQ(streams->resume(kKey, 0).far, (std::vector<Span>{{0, 30}, {40, 50}}));
  EXPECT_FALSE(streams->far({kKey.sender, kKey.target, StreamId{8}}, 0, 1)) << "unknown stream";
}

TEST(ReceiverStreams, too_many_holes_are_refused_but_a_hole_can_always_be_filled) {
  auto streams = ReceiverStreams::make();
  for (uint64_t i = 1; i <= limits::kRangesMax; ++i) accept(*streams, 0, i * 10, i * 10 + 5);
  EXPECT_FALSE(streams->admit(kKey, 0, 1'000'000, 1'000'001));
  EXPECT_TRUE(streams->admit(kKey, 0, 15, 20));
  EXPECT_TRUE(streams->admit(kKey, 0, limits::kRangesMax * 10 + 5, limits::kRangesMax * 10 + 9));
}

TEST(ReceiverStreams, streams_of_other_senders_and_targets_are_apart) {
  auto streams = ReceiverStreams::make();
  accept(*streams, 0, 0, 10);
  StreamKey other = kKey;
  other.target = target_hash("fra2");
  EXPECT_EQ(streams->admit(other, 0, 0, 10), (Ranges{{0, 10}}));
  EXPECT_EQ(streams->size(), 2u);
  EXPECT_TRUE(streams->close(kKey));
  EXPECT_FALSE(streams->close(kKey));
  EXPECT_EQ(streams->admit(kKey, 0, 0, 10), (Ranges{{0, 10}}));
}

TEST(ReceiverStreams, idle_streams_are_named_by_their_last_stored_value) {
  auto streams = ReceiverStreams::make();
  accept(*streams, 0, 0, 10);
  EXPECT_TRUE(streams->idle_since(kNow).empty());
  EXPECT_EQ(streams->idle_since(kNow + std::chrono::seconds(1)), (std::vector<StreamKey>{kKey}));
}

TEST(ReceiverStreams, refuses_truncated_damaged_and_newer_values) {
  auto streams = ReceiverStreams::make();
  accept(*streams, 5, 7, 10);
  auto fresh = *streams->admit(kKey, 5, 20, 30);
  streams->reject(kKey, 20, 21, "why");
  streams->far(kKey, 7, 9);
  std::string value = streams->value_with(kKey, fresh, kNow);
  auto loader = ReceiverStreams::make();
  for (size_t n = 0; n < value.size(); ++n) EXPECT_FALSE(loader->load(store_key(kKey), value.substr(0, n))) << n;
  for (size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string bad = value;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    auto loaded = loader->load(store_key(kKey), bad);  // never crashes; the store has checksums of its own
    EXPECT_TRUE(!loaded || bit >= 8);
  }
  value[0] = 2;
  EXPECT_EQ(loader->load(store_key(kKey), value).error().code, errors::newer_format);
  EXPECT_EQ(loader->load("r/short", value).error().code, errors::malformed);
}

// Against a naive model: one state a position, groups that commit or fail, restarts that keep the last stored value.
TEST(ReceiverStreams, agrees_with_one_state_a_position) {
  constexpr uint64_t kSpace = 60;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    auto streams = ReceiverStreams::make();
    std::set<uint64_t> accepted, refused;  // model: durable positions; of those, rejected
    uint64_t settled = 0;
    struct Group {
      Ranges ranges;
      std::set<uint64_t> positions, refused;
    };
    std::vector<Group> groups;
    std::string stored;       // what a restart finds
    std::string stored_next;  // value of the newest group
    std::set<uint64_t> pending;
    auto committed = [&](Group& g) {
      streams->commit(kKey, g.ranges);
      for (uint64_t p : g.positions) pending.erase(p);
      accepted.insert(g.positions.begin(), g.positions.end());
      refused.insert(g.refused.begin(), g.refused.end());
    };
    for (int step = 0; step < 120; ++step) {
      switch (random.below(6)) {
        case 0:
        case 1:
        case 2: {
          uint64_t first = random.below(kSpace), last = first + 1 + random.below(8);
          if (random.chance(0.2)) settled = std::max(settled, random.below(first + 1));
          auto fresh = streams->admit(kKey, settled, first, last);
          ASSERT_TRUE(fresh);
          Group g{*fresh, {}, {}};
          for (const Range& r : *fresh)
            for (uint64_t p = r.first; p < r.last; ++p) g.positions.insert(p);
          std::set<uint64_t> expected;
          for (uint64_t p = std::max(first, settled); p < last; ++p)
            if (!accepted.contains(p) && !pending.contains(p)) expected.insert(p);
          ASSERT_EQ(g.positions, expected);
          pending.insert(expected.begin(), expected.end());
          if (!fresh->empty() && random.chance(0.3)) {
            uint64_t p = fresh->front().first;
            streams->reject(kKey, p, p + 1, "r");
            g.refused.insert(p);
          }
          stored_next = streams->value_with(kKey, g.ranges, kNow);
          groups.push_back(std::move(g));
          break;
        }
        case 3:  // everything written so far becomes durable
          if (groups.empty()) break;
          for (Group& g : groups) committed(g);
          groups.clear();
          stored = stored_next;
          break;
        case 4:  // the group fails
          for (Group& g : groups) {
            streams->abandon(kKey, g.ranges);
            for (uint64_t p : g.positions) pending.erase(p);
          }
          groups.clear();
          break;
        default:  // kill -9; what was not durable is gone, and so is what was told as settled since
          if (!random.chance(0.3) || stored.empty()) break;
          streams = reloaded(kKey, stored);
          groups.clear();
          pending.clear();
          settled = std::max(settled, streams->resume(kKey, settled).settled);
      }
      Resumed::Stream told = streams->resume(kKey, settled);
      std::set<uint64_t> above, rejected;
      for (const Span& s : told.accepted)
        for (uint64_t p = s.first; p < s.last; ++p) above.insert(p);
      for (const Reject& r : told.rejects)
        for (uint64_t p = std::max(r.first, settled); p < r.last; ++p) rejected.insert(p);
      std::set<uint64_t> expected(accepted.lower_bound(settled), accepted.end());
      ASSERT_EQ(above, expected);
      ASSERT_EQ(rejected, std::set<uint64_t>(refused.lower_bound(settled), refused.end()));
    }
  }
}

}  // namespace ph::link
