#include "service/relay/seen_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "service/relay/loop_stop.h"
#include "service/relay/packed.h"
#include "support/manual_loop.h"
#include "support/memory_store.h"

namespace ph::relay {
namespace {

using event::BlockKind;
using link::Range;
using testing::ElementsAre;
using testing::IsEmpty;

const NodeId kOrigin = Random(1).node_id();

struct SeenTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryStore store;
  commit::Committer committer{loop, disk, store};
  std::unique_ptr<SeenEvents> seen = open();

  std::unique_ptr<SeenEvents> open(size_t pages_max = SeenEvents::kPagesMax) {
    auto made = std::make_unique<SeenEvents>(loop, store, committer, pages_max);
    made->load().value();
    return made;
  }
  static event::EventId id(uint64_t first, uint64_t last, uint64_t stream = 7) {
    return {kOrigin, StreamId{stream}, first, last};
  }
  /// As a group commit: whether it is durable or failed.
  void take(std::string_view scope, BlockKind kind, const event::EventId& what, bool succeeds = true) {
    SeenEvents::Marks marks;
    port::WriteBatch entries;
    seen->mark(scope, kind, what, marks);
    seen->put(marks, entries);
    if (succeeds) {
      store.write(entries, true).value();
      seen->durable(marks);
    } else {
      seen->undo(marks);
    }
  }
  size_t stored() {
    size_t count = 0;
    store.scan("d/p/", [&](ByteView, ByteView) { return ++count > 0; }).value();
    return count;
  }
};

}  // namespace

TEST_F(SeenTest, an_event_is_seen_in_its_scope_also_after_a_restart) {
  EXPECT_THAT(seen->unseen("r/all", BlockKind::message, id(5, 6)), ElementsAre(Range{5, 6}));
  take("r/all", BlockKind::message, id(5, 6));
  for (int restart = 0; restart < 2; ++restart) {
    EXPECT_THAT(seen->unseen("r/all", BlockKind::message, id(5, 6)), IsEmpty());
    EXPECT_THAT(seen->unseen("r/other", BlockKind::message, id(5, 6)), ElementsAre(Range{5, 6}));
    EXPECT_THAT(seen->unseen("r/all", BlockKind::message, id(5, 6, 8)), ElementsAre(Range{5, 6}));
    EXPECT_THAT(seen->unseen("r/all", BlockKind::message, id(4, 8)), ElementsAre(Range{4, 5}, Range{6, 8}));
    seen = open();
  }
}

TEST_F(SeenTest, what_a_failed_group_marked_is_not_seen_and_nothing_else_is_taken_back) {
  take("s", BlockKind::lines, id(0, 100));
  take("s", BlockKind::lines, id(50, 150), false);
  EXPECT_THAT(seen->unseen("s", BlockKind::lines, id(0, 200)), ElementsAre(Range{100, 200}));
  seen = open();
  EXPECT_THAT(seen->unseen("s", BlockKind::lines, id(0, 200)), ElementsAre(Range{100, 200}));
}

TEST_F(SeenTest, a_run_of_lines_over_the_edge_of_a_page_is_one_run) {
  const uint64_t edge = uint64_t{1} << 24;
  take("s", BlockKind::lines, id(edge - 10, edge + 10));
  EXPECT_EQ(stored(), 2u);
  seen = open();
  EXPECT_THAT(seen->unseen("s", BlockKind::lines, id(edge - 20, edge + 30)),
              ElementsAre(Range{edge - 20, edge - 10}, Range{edge + 10, edge + 30}));
  EXPECT_THAT(seen->unseen("s", BlockKind::lines, id(UINT64_MAX - 5, UINT64_MAX)),
              ElementsAre(Range{UINT64_MAX - 5, UINT64_MAX}));
}

TEST_F(SeenTest, every_other_message_of_a_long_stream_costs_bounded_entries) {
  for (uint64_t n = 0; n < 3 * 4096; n += 2) take("s", BlockKind::message, id(n, n + 1));
  EXPECT_EQ(stored(), 3u);
  seen = open();
  EXPECT_EQ(seen->pages(), 3u);
  EXPECT_EQ(seen->unseen("s", BlockKind::message, id(0, 3 * 4096)).size(), size_t{3 * 2048});
}

TEST_F(SeenTest, the_last_two_generations_are_known_and_older_ones_are_removed) {
  seen = open(100);
  for (uint64_t stream = 0; stream < 250; ++stream) take("s", BlockKind::message, id(1, 2, stream));
  EXPECT_EQ(seen->ended_early(), 2u);
  for (int i = 0; i < 20; ++i) loop.advance(1s);
  EXPECT_EQ(stored(), 150u);
  seen = open(100);
  EXPECT_THAT(seen->unseen("s", BlockKind::message, id(1, 2, 10)), ElementsAre(Range{1, 2}));
  for (uint64_t stream = 100; stream < 250; ++stream)
    EXPECT_THAT(seen->unseen("s", BlockKind::message, id(1, 2, stream)), IsEmpty()) << stream;
  take("s", BlockKind::message, id(2, 3, 110));  // brings its page into the generation of now, whole
  for (uint64_t stream = 300; stream < 349; ++stream) take("s", BlockKind::message, id(1, 2, stream));
  take("s", BlockKind::message, id(1, 2, 400));
  EXPECT_THAT(seen->unseen("s", BlockKind::message, id(1, 3, 110)), IsEmpty());
}

TEST_F(SeenTest, an_early_end_is_told_for_seven_days_with_how_much_is_remembered) {
  seen = open(10);
  EXPECT_EQ(seen->short_memory(), std::nullopt);
  take("s", BlockKind::message, id(1, 2));
  loop.advance(5h);
  for (uint64_t stream = 1; stream < 12; ++stream) take("s", BlockKind::message, id(1, 2, stream));
  loop.advance(2h);
  const auto kept = seen->short_memory();
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept / 1h, 7) << "from the beginning of the generation before";
  take("s", BlockKind::message, id(1, 2, 50));
  seen = open(10);
  EXPECT_EQ(seen->ended_early(), 1u) << "also after a restart";
  EXPECT_EQ(*seen->short_memory() / 1h, 7);
  loop.advance(SeenEvents::kKeepFor);
  EXPECT_EQ(seen->short_memory(), std::nullopt);
  EXPECT_EQ(seen->ended_early(), 1u);
}

TEST_F(SeenTest, a_generation_ends_by_its_age) {
  take("s", BlockKind::message, id(1, 2));
  loop.advance(SeenEvents::kKeepFor + 1h);
  take("s", BlockKind::message, id(1, 2, 8));
  EXPECT_THAT(seen->unseen("s", BlockKind::message, id(1, 2)), IsEmpty());
  loop.advance(SeenEvents::kKeepFor + 1h);
  take("s", BlockKind::message, id(1, 2, 9));
  for (int i = 0; i < 10; ++i) loop.advance(1s);
  seen = open();
  EXPECT_THAT(seen->unseen("s", BlockKind::message, id(1, 2)), ElementsAre(Range{1, 2}));
  EXPECT_EQ(seen->ended_early(), 0u);
}

TEST_F(SeenTest, a_damaged_page_has_seen_nothing_and_a_newer_store_is_refused) {
  take("s", BlockKind::message, id(1, 2));
  std::string key;
  store
      .scan("d/p/",
            [&](ByteView k, ByteView) {
              key = k;
              return false;
            })
      .value();
  const std::string whole = store.get(key).value().value();
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    port::WriteBatch damage;
    damage.put(key, whole.substr(0, cut));
    store.write(damage, true).value();
    seen = open();
    EXPECT_THAT(seen->unseen("s", BlockKind::message, id(1, 2)), ElementsAre(Range{1, 2}));
  }
  port::WriteBatch newer;
  newer.put("d/state", "\x02\x01\x01");
  store.write(newer, true).value();
  SeenEvents other(loop, store, committer);
  EXPECT_EQ(other.load().error().code.name(), "relay.seen_newer");
}

// --- what is not sent where it has been

namespace {

port::Batch batch_of(const std::vector<std::vector<std::string>>& hops) {
  port::Batch batch{StreamId{1}, 10, 10, 0, {}};
  std::string packed;
  for (const auto& list : hops) {
    event::Block b;
    b.kind = BlockKind::message;
    b.category = "c";
    b.id = {kOrigin, StreamId{2}, batch.last, batch.last + 1};
    b.events = 1;
    b.topic = "t";
    b.hops = list;
    put_varint(packed, 1);
    put_sized(packed, event::encode(b));
    ++batch.last;
    ++batch.events;
  }
  batch.packed = Slice(std::move(packed));
  return batch;
}

}  // namespace

TEST(LoopStop, what_passed_a_site_becomes_one_gap_a_run) {
  uint64_t looped = 0;
  const port::Batch from = batch_of({{"a"}, {"b", "a"}, {}, {"b"}, {"a"}});
  const port::Batch to = without_loops(from, {"a"}, looped);
  EXPECT_EQ(looped, 3u);
  EXPECT_EQ(to.events, 5u);
  std::vector<std::string> seen;
  ASSERT_TRUE(for_each_block(to.packed, to.first, to.last, [&](uint64_t first, uint64_t last, const Slice& encoded) {
    const event::Block b = event::decode(encoded).value();
    seen.push_back(std::to_string(first) + "-" + std::to_string(last) + (b.gap ? " " + b.topic : "") + " " +
                   std::to_string(b.events));
  }));
  EXPECT_THAT(seen, ElementsAre("10-12 been there 2", "12-13 1", "13-14 1", "14-15 been there 1"));
}

TEST(LoopStop, a_batch_that_passed_no_site_or_not_all_is_left_as_it_is) {
  uint64_t looped = 0;
  const port::Batch from = batch_of({{"a"}, {}});
  for (const auto& sites : {std::vector<std::string>{}, {"b"}, {"a", "b"}})
    EXPECT_EQ(without_loops(from, sites, looped).packed.data(), from.packed.data());
  EXPECT_EQ(looped, 0u);
}

}  // namespace ph::relay
