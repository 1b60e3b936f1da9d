#include "store/spool/log_source_fixture.h"

namespace ph::spool {

TEST_F(LogSourceTest, packs_records_densely_up_to_the_bytes_asked_for) {
  append(100);
  std::vector<port::Batch> batches;
  EXPECT_EQ(pull(500, &batches), bodies(1, 100));
  EXPECT_GT(batches.size(), 5u);
  uint64_t at = batches.front().first;
  for (const auto& b : batches) {
    EXPECT_EQ(b.first, at);
    EXPECT_LE(b.packed.size(), 520u);
    at = b.last;
  }
  start();
  std::vector<port::Batch> one;
  EXPECT_EQ(pull(1, &one), bodies(1, 100));
  EXPECT_EQ(one.size(), 100u) << "at least one block each";
}

TEST_F(LogSourceTest, tells_once_when_there_is_more) {
  EXPECT_FALSE(source().next(100));
  append(3);
  EXPECT_EQ(ready, 1);
  append(3);
  EXPECT_EQ(ready, 2) << "next() was not asked since";
  EXPECT_EQ(pull(), bodies(1, 6));
}

TEST_F(LogSourceTest, the_cursor_and_its_counters_are_written_within_a_second_in_one_batch) {
  append(10);
  std::vector<port::Batch> batches;
  pull(100, &batches);
  advance_all(batches);
  auto c = source().counters();
  EXPECT_EQ(c.in, 10u);
  EXPECT_EQ(c.delivered, 10u);
  EXPECT_EQ(c.queued, 0u);
  EXPECT_EQ(c.queued_bytes, 0u);
  uint64_t writes = store.syncs;
  loop.advance(1s);
  EXPECT_EQ(store.syncs, writes + 1);
  loop.advance(10s);
  EXPECT_EQ(store.syncs, writes + 1) << "nothing new, nothing written";
  power_cut();
  c = source().counters();
  EXPECT_EQ(c.delivered, 10u);
  EXPECT_FALSE(source().next(100));
}

TEST_F(LogSourceTest, S4_S10_restarts_hand_out_exactly_what_was_not_settled) {
  append(50);
  std::vector<port::Batch> batches;
  pull(300, &batches);
  source().advanced(batches[0].stream, batches[0].last, batches[0].events, 0);
  uint64_t done = batches[0].events;
  bool written = false;
  source().persist_now([&] { written = true; });
  loop.run_posted();
  ASSERT_TRUE(written);
  for (int restart = 0; restart < 5; ++restart) {
    restart % 2 ? power_cut() : start();
    auto streams = source().open_streams();
    ASSERT_EQ(streams.size(), 1u);
    EXPECT_EQ(streams[0].stream, batches[0].stream) << "the stream outlives restarts";
    EXPECT_EQ(streams[0].settled, done + 1);
    EXPECT_EQ(pull(), bodies(done + 1, 50));
    EXPECT_EQ(source().counters().queued, 50 - done);
    balanced();
  }
}

TEST_F(LogSourceTest, a_new_receiver_is_durable_before_its_callback_also_after_a_store_failure) {
  auto stream = source().open_streams()[0].stream;
  int called = 0;
  store.fail_writes = true;
  source().will_use(stream, "fra-1:3706", [&] { ++called; });
  source().will_use(stream, "fra-1:3706", [&] { ++called; });
  loop.run_posted();
  EXPECT_EQ(called, 0);
  store.fail_writes = false;
  loop.advance(2s);
  EXPECT_EQ(called, 2);
  power_cut();
  auto open = source().open_streams()[0];
  EXPECT_EQ(open.stream, stream);
  EXPECT_EQ(open.receivers, std::vector<std::string>{"fra-1:3706"});
  source().will_use(stream, "fra-1:3706", [&] { ++called; });
  EXPECT_EQ(called, 2) << "never from inside";
  loop.run_posted();
  EXPECT_EQ(called, 3);
}

TEST_F(LogSourceTest, S8_one_rejected_event_is_dead_lettered_once_and_the_rest_goes_on) {
  append(100);
  std::vector<port::Batch> batches;
  pull(100'000, &batches);
  ASSERT_EQ(batches.size(), 1u);
  auto blocks = unpack(batches[0]);
  source().rejected(batches[0].stream, blocks[49].first, blocks[49].last, blocks[49].encoded, "bad_category");
  source().advanced(batches[0].stream, batches[0].last, 99, 0);
  loop.advance(2s);
  auto c = source().counters();
  EXPECT_EQ(c.delivered, 99u);
  EXPECT_EQ(c.dead_lettered, 1u);
  EXPECT_EQ(c.queued, 0u);
  EXPECT_FALSE(c.oldest_unacked);
  ASSERT_EQ(dead.letters.size(), 1u);
  EXPECT_EQ(dead.letters[0].reason, "bad_category");
  EXPECT_EQ(dead.letters[0].category, "c");
  EXPECT_EQ(dead.letters[0].block.view(), blocks[49].encoded.view());
  power_cut();
  c = source().counters();
  EXPECT_EQ(c.dead_lettered, 1u);
  EXPECT_EQ(c.delivered, 99u);
}

TEST_F(LogSourceTest, a_dead_letter_that_cannot_be_written_is_in_the_store_before_the_cursor_passes) {
  append(10);
  std::vector<port::Batch> batches;
  pull(100'000, &batches);
  auto blocks = unpack(batches[0]);
  dead.fails = true;
  source().rejected(batches[0].stream, blocks[4].first, blocks[4].last, blocks[4].encoded, "no");
  source().advanced(batches[0].stream, batches[0].last, 9, 0);
  loop.advance(5s);
  EXPECT_TRUE(dead.letters.empty());
  power_cut();
  EXPECT_FALSE(source().next(100));
  dead.fails = false;
  loop.advance(5s);
  ASSERT_EQ(dead.letters.size(), 1u);
  EXPECT_EQ(dead.letters[0].block.view(), blocks[4].encoded.view());
  power_cut();
  dead.letters.clear();
  loop.advance(5s);
  EXPECT_TRUE(dead.letters.empty()) << "forgotten once written";
  EXPECT_EQ(source().counters().dead_lettered, 1u);
  balanced();
}

TEST_F(LogSourceTest, expired_events_count_as_dropped_when_they_are_passed) {
  append(10);
  std::vector<port::Batch> batches;
  pull(10'000, &batches);
  ASSERT_EQ(batches.size(), 1u);
  const StreamId stream = batches[0].stream;
  const uint64_t first = batches[0].first;
  source().expired(stream, first + 3, first + 4);
  source().expired(StreamId{stream.value + 2}, first + 5, first + 6);
  EXPECT_EQ(source().counters().dropped, 0u);
  source().advanced(stream, batches[0].last, 9, 0);
  for (int boot = 0; boot < 2; ++boot) {
    auto c = source().counters();
    EXPECT_EQ(c.delivered, 9u);
    EXPECT_EQ(c.dropped, 1u);
    EXPECT_EQ(c.dropped_expired, 1u);
    balanced();
    source().persist_now([] {});
    loop.run_posted();
    start();
  }
}

TEST_F(LogSourceTest, reads_the_cursor_of_version_1) {
  append(4);
  advance_all([&] {
    std::vector<port::Batch> batches;
    pull(10'000, &batches);
    return batches;
  }());
  source().persist_now([] {});
  loop.run_posted();
  const std::string at = store_prefix("r") + "t/fra/cursor";
  std::string entry = store.get(at).value().value();
  ASSERT_EQ(entry[0], 3);
  entry[0] = 1;
  entry.resize(entry.size() - 3);
  port::WriteBatch old;
  old.put(at, entry);
  ASSERT_TRUE(store.write(old, true));
  start();
  EXPECT_EQ(source().counters().delivered, 4u);
  balanced();
}

TEST_F(LogSourceTest, a_damaged_record_is_a_gap_and_counts_as_dropped_when_it_is_passed) {
  append(30);
  stop();
  for (const auto& p : files.paths()) {
    auto at = files.content(p).find(body(7));
    if (at == std::string::npos) continue;
    files.inode(p)->bytes[at] ^= 1;
  }
  start();
  std::vector<port::Batch> batches;
  auto expected = bodies(1, 30);
  expected[6] = "gap 1";
  EXPECT_EQ(pull(100'000, &batches), expected);
  EXPECT_EQ(batches[0].events, 29u);
  balanced();
  advance_all(batches);
  auto c = source().counters();
  EXPECT_EQ(c.dropped, 1u);
  EXPECT_EQ(c.delivered, 29u);
  balanced();
  EXPECT_EQ(log->stats().quarantined, 1u);
}

TEST_F(LogSourceTest, renew_begins_again_at_settled_under_a_new_durable_id) {
  append(20);
  std::vector<port::Batch> batches;
  pull(200, &batches);
  auto old = batches[0].stream;
  source().advanced(old, batches[0].last, batches[0].events, 0);
  disk.hold();
  source().renew(old);
  EXPECT_FALSE(source().next(1000)) << "the id is not durable yet";
  int before = ready;
  disk.release();
  loop.run_posted();
  EXPECT_EQ(ready, before + 1);
  source().advanced(old, 21, 20, 0);  // late
  std::vector<port::Batch> again;
  EXPECT_EQ(pull(200, &again), bodies(batches[0].last, 20));
  EXPECT_NE(again[0].stream, old);
  power_cut();
  EXPECT_EQ(source().open_streams()[0].stream, again[0].stream);
  EXPECT_TRUE(source().open_streams()[0].receivers.empty());
}

TEST_F(LogSourceTest, a_sink_of_this_node_commits_the_cursor_with_its_data) {
  append(200);
  auto batch = source().next(8000);
  ASSERT_TRUE(batch);
  auto entries = source().advance_entries(batch->stream, batch->last, batch->events);
  loop.advance(5s);
  EXPECT_EQ(log->first_sequence(), 1u) << "nothing is released or written before the sink commits";
  power_cut();
  EXPECT_EQ(source().counters().queued, 200u);
  batch = source().next(8000);
  entries = source().advance_entries(batch->stream, batch->last, batch->events);
  committer->request({}, entries, [](const Result<>&) {});
  loop.run_posted();
  loop.advance(2s);
  EXPECT_EQ(log->first_sequence(), batch->last);
  power_cut();
  EXPECT_EQ(source().counters().delivered, batch->events);
  EXPECT_EQ(pull().front(), body(batch->last));
  balanced();
}

TEST_F(LogSourceTest, the_log_is_kept_for_the_slowest_target) {
  targets = {"ams", "fra"};
  start();
  append(200);
  size_t segments = log->stats().segments;
  std::vector<port::Batch> fra, ams;
  pull(1000, &fra, "fra");
  advance_all(fra, "fra");
  loop.advance(2s);
  EXPECT_EQ(log->stats().segments, segments);
  pull(1000, &ams, "ams");
  advance_all(ams, "ams");
  EXPECT_NE(fra[0].stream, ams[0].stream);
  loop.advance(2s);
  EXPECT_LE(log->stats().segments, 1u);
  targets = {"fra"};
  retention->set_targets(targets);
  append(1);
  balanced("ams");
  EXPECT_EQ(source("ams").counters().queued, 1u);
}

TEST_F(LogSourceTest, tells_how_long_the_oldest_event_waits) {
  WallTime at = loop.wall_now();
  append(2);
  loop.advance(30s);
  append(1);
  EXPECT_EQ(source().counters().oldest_unacked, at);
  start();
  EXPECT_EQ(source().counters().oldest_unacked, at);
  std::vector<port::Batch> batches;
  pull(1, &batches);
  EXPECT_EQ(source().counters().oldest_unacked, at);
  source().advanced(batches[1].stream, batches[1].last, 2, 0);
  EXPECT_EQ(source().counters().oldest_unacked, at + 30s);
  EXPECT_GT(source().counters().queued_bytes, 0u);
}

TEST_F(LogSourceTest, far_is_the_least_of_all_targets_and_outlives_a_restart) {
  targets = {"ams", "fra"};
  start();
  append(10);
  std::vector<uint64_t> told;
  retention->on_far([&](uint64_t far) { told.push_back(far); });
  std::vector<port::Batch> fra, ams;
  pull(100'000, &fra, "fra");
  pull(100'000, &ams, "ams");
  source("fra").far_advanced(fra[0].stream, 8);
  source("ams").far_advanced(ams[0].stream, 5);
  source("ams").far_advanced(ams[0].stream, 4);
  EXPECT_EQ(told, (std::vector<uint64_t>{1, 5}));
  loop.advance(2s);
  power_cut();
  EXPECT_EQ(source("fra").open_streams()[0].far, 8u);
  told.clear();
  retention->on_far([&](uint64_t far) { told.push_back(far); });
  EXPECT_EQ(told, (std::vector<uint64_t>{5}));
}

// Random steps and crashes against a naive model: every event is handed out in order, none is skipped, the sums hold,
// and what the receiver acknowledged and the cursor durably passed never comes again.
TEST_F(LogSourceTest, property_any_order_of_steps_keeps_the_sums_and_the_order) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    LogSourceTest::stop();
    files.~MemoryFiles();
    new (&files) test::MemoryFiles(seed);
    store.~MemoryStore();
    new (&store) test::MemoryStore();
    dead.letters.clear();
    files.make_directories("/data").value();
    files.sync_directory("/").value();
    appended = 0;
    start();
    Random dice(seed);
    std::vector<port::Batch> flying;
    uint64_t expected = 1, durable_floor = 0, max_settled = 1;
    std::set<uint64_t> rejected;
    for (int step = 0; step < 300; ++step) {
      switch (dice.below(8)) {
        case 0:
        case 1:
          append(1 + dice.below(20));
          break;
        case 2:
        case 3:
          if (auto batch = source().next(1 + dice.below(2000))) {
            EXPECT_EQ(batch->first, expected);
            for (const auto& u : unpack(*batch)) EXPECT_EQ(u.block.payload.view(), body(u.first));
            expected = batch->last;
            flying.push_back(*batch);
          }
          break;
        case 4:
        case 5: {
          size_t n = dice.below(flying.size() + 1);
          for (size_t i = 0; i < n; ++i) {
            uint64_t bad = 0;
            if (dice.chance(0.2)) {
              auto blocks = unpack(flying[i]);
              const auto& u = blocks[dice.below(blocks.size())];
              source().rejected(flying[i].stream, u.first, u.last, u.encoded, "no");
              rejected.insert(u.first);
              bad = 1;
            }
            source().advanced(flying[i].stream, flying[i].last, flying[i].events - bad, 0);
            max_settled = std::max(max_settled, flying[i].last);
          }
          flying.erase(flying.begin(), flying.begin() + static_cast<std::ptrdiff_t>(n));
          break;
        }
        case 6:
          loop.advance(1100ms);
          durable_floor = source().settled();
          break;
        default:
          if (!dice.chance(0.2)) break;
          dice.chance(0.5) ? start() : power_cut();
          flying.clear();
          expected = source().settled();
          EXPECT_GE(expected, durable_floor);
          EXPECT_LE(expected, max_settled);
          break;
      }
      auto c = source().counters();
      ASSERT_EQ(c.in, appended);
      ASSERT_EQ(c.in, c.delivered + c.dropped + c.dead_lettered + c.queued);
      ASSERT_EQ(c.queued, appended + 1 - source().settled());
      ASSERT_EQ(c.dropped, 0u);
    }
    loop.run_posted();
    for (const auto& l : dead.letters) EXPECT_TRUE(rejected.contains(l.first));
    EXPECT_LE(source().counters().dead_lettered, dead.letters.size());
  }
}

}  // namespace ph::spool
