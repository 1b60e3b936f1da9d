#include "store/spool/log_source_fixture.h"

namespace ph::spool {

TEST_F(LogSourceTest, S5_drop_oldest_gives_up_one_contiguous_range_behind_what_is_in_flight) {
  append(100);
  auto in_flight = source().next(500);
  ASSERT_TRUE(in_flight);
  uint64_t held = in_flight->last - 1;
  for (int i = 0; i < 30; ++i) {
    append(100);
    source().drop_oldest(8000);
    loop.run_posted();
    balanced();
  }
  auto c = source().counters();
  EXPECT_GT(c.dropped, 2500u);
  loop.advance(2s);
  EXPECT_LE(log->stats().bytes, 8000u + 4 * segment_bytes) << "the disk is given back, in the middle too";
  power_cut();
  EXPECT_EQ(source().counters().dropped, c.dropped);
  balanced();
  std::vector<port::Batch> batches;
  auto got = pull(1000, &batches);
  std::vector<std::string> expected = bodies(1, held);
  expected.push_back("gap " + std::to_string(c.dropped));
  for (auto& b : bodies(held + c.dropped + 1, 3100)) expected.push_back(b);
  EXPECT_EQ(got, expected);
  advance_all(batches);
  c = source().counters();
  EXPECT_EQ(c.delivered + c.dropped, 3100u);
  EXPECT_EQ(c.queued, 0u);
  EXPECT_EQ(log->stats().quarantined, 0u);
  loop.advance(2s);
  power_cut();
  EXPECT_EQ(source().counters().delivered, c.delivered);
  EXPECT_FALSE(source().next(1));
}

TEST_F(LogSourceTest, what_an_earlier_run_had_in_flight_is_not_dropped_before_it_can_be_asked_for) {
  options.overflow = Overflow::drop_oldest;
  options.bytes_max = 8000;
  start();
  bool durable = false;
  source().will_use(source().open_streams()[0].stream, "fra-1:3706", [&] { durable = true; });
  loop.advance(1s);
  ASSERT_TRUE(durable);
  for (int i = 0; i < 20; ++i) {
    append(100);
    pull();
  }
  EXPECT_EQ(source().counters().dropped, 0u);
  power_cut();
  append(100);
  EXPECT_EQ(source().counters().dropped, 0u);
  std::vector<port::Batch> batches;
  EXPECT_EQ(pull(1000, &batches), bodies(1, 2100));
  append(3000);
  loop.advance(10s);
  EXPECT_GT(source().counters().dropped, 2000u) << "of what is behind it";
  pull(1000, &batches);
  advance_all(batches);
  const auto c = source().counters();
  EXPECT_EQ(c.queued, 0u);
  EXPECT_EQ(c.delivered + c.dropped, 5100u);
  EXPECT_LT(c.dropped, 3000u);
  balanced();
}

TEST_F(LogSourceTest, a_dropped_range_is_handed_out_and_its_segments_go_only_once_it_is_counted_on_disk) {
  options.overflow = Overflow::drop_oldest;
  options.bytes_max = 8000;
  start();
  append(50);
  disk.hold();
  append(3000);  // its own group waits behind the hold
  EXPECT_EQ(source().counters().dropped, 0u);
  disk.release();
  loop.run_posted();
  balanced();
  const auto c = source().counters();
  EXPECT_GT(c.dropped, 2500u);
  EXPECT_EQ(c.dropped_full, c.dropped);
  loop.advance(2s);
  auto batch = source().next(100'000);
  ASSERT_TRUE(batch);
  EXPECT_TRUE(unpack(*batch)[0].block.gap);
  power_cut();
  EXPECT_EQ(source().counters().dropped, c.dropped) << "what a receiver was told of stays dropped";
  balanced();
}

TEST_F(LogSourceTest, drop_oldest_keeps_the_newest_within_its_bound_without_being_asked) {
  options.overflow = Overflow::drop_oldest;
  options.bytes_max = 8000;
  start();
  for (int i = 0; i < 30; ++i) {
    append(100);
    loop.run_posted();
    EXPECT_LE(source().counters().queued_bytes, 8000u);
    balanced();
    if (i % 7 != 6) continue;
    power_cut();  // dropped segments are gone, or are about to go
    EXPECT_GT(source().counters().queued, 40u) << "the bound is no narrower than it says";
    EXPECT_LE(source().counters().queued_bytes, 8000u + 2 * segment_bytes);
  }
  loop.advance(2s);
  uint64_t gaps = 0;
  const auto c = source().counters();
  std::vector<port::Batch> batches;
  auto got = pull(1000, &batches);
  for (; got[0].starts_with("gap "); got.erase(got.begin())) gaps += std::stoull(got[0].substr(4));
  got.insert(got.begin(), "gap " + std::to_string(gaps));
  EXPECT_LE(log->stats().bytes, 8000u + 4 * segment_bytes);
  ASSERT_EQ(got[0], "gap " + std::to_string(c.dropped));
  EXPECT_EQ(std::vector<std::string>(got.begin() + 1, got.end()), bodies(c.dropped + 1, 3000));
  advance_all(batches);
  EXPECT_EQ(source().counters().delivered + source().counters().dropped, 3000u);
}

TEST_F(LogSourceTest, drop_newest_keeps_the_oldest_and_what_does_not_fit_of_each_group_is_one_gap) {
  options.overflow = Overflow::drop_newest;
  options.bytes_max = 8000;
  start();
  for (int i = 0; i < 30; ++i) {
    append(100);
    loop.run_posted();
    EXPECT_LE(source().counters().queued_bytes, 8000u);
    balanced();
  }
  loop.advance(2s);
  auto c = source().counters();
  EXPECT_GT(c.dropped, 2500u);
  EXPECT_LE(log->stats().bytes, 8000u + 4 * segment_bytes) << "what was given up is no longer on disk";
  power_cut();
  EXPECT_EQ(source().counters().dropped, c.dropped);
  EXPECT_LE(source().counters().queued_bytes, 8200u) << "an earlier run's drops are known with their bytes";
  append(5);
  c = source().counters();
  EXPECT_EQ(c.queued, 3005 - c.dropped);
  balanced();
  std::vector<port::Batch> batches;
  uint64_t gaps = 0, whole = 0;
  for (const std::string& each : pull(1000, &batches))
    if (each.starts_with("gap ")) {
      gaps += std::stoull(each.substr(4));
    } else if (++whole + 5 <= c.queued) {
      EXPECT_EQ(each, body(whole));
    }
  EXPECT_EQ(whole, c.queued);
  EXPECT_EQ(gaps, c.dropped);
  advance_all(batches);
  append(50);
  EXPECT_EQ(pull(1000, &batches), bodies(3006, 3055)) << "once there is room again, everything is taken again";
  EXPECT_EQ(log->stats().quarantined, 0u);
}

TEST_F(LogSourceTest, drop_newest_takes_what_fits_of_a_group) {
  options.overflow = Overflow::drop_newest;
  options.bytes_max = 1000;
  start();
  append(100);
  const auto c = source().counters();
  EXPECT_GT(c.queued, 5u);
  EXPECT_LE(c.queued_bytes, 1000u);
  EXPECT_GT(c.queued_bytes, 800u);
  loop.advance(2s);
  auto got = pull();
  ASSERT_EQ(got.size(), c.queued + 1);
  EXPECT_EQ(got.back(), "gap " + std::to_string(c.dropped));
}

TEST_F(LogSourceTest, what_waited_longer_than_keep_is_dropped_whatever_the_wall_clock_says) {
  options.keep = 320s;
  start();
  append(10);
  loop.advance(200s);
  append(20);
  auto in_flight = source().next(1);
  ASSERT_TRUE(in_flight);
  loop.advance(115s);
  EXPECT_EQ(source().counters().dropped, 0u);
  loop.advance(16s);
  auto c = source().counters();
  EXPECT_EQ(c.dropped, 9u) << "one is in flight";
  EXPECT_EQ(c.dropped_keep, 9u);
  balanced();
  source().persist_now([] {});
  loop.run_posted();
  start();  // what has waited goes on counting
  EXPECT_EQ(source().counters().dropped, 9u);
  loop.advance(150s);
  EXPECT_EQ(source().counters().dropped, 9u);
  loop.advance(60s);
  c = source().counters();
  EXPECT_EQ(c.dropped, 30u) << "after a restart nothing is in flight";
  EXPECT_EQ(c.queued, 0u);
  balanced();
}

TEST_F(LogSourceTest, an_earlier_runs_gap_is_not_joined_with_a_later_one) {
  options.overflow = Overflow::drop_oldest;
  options.bytes_max = 2000;
  start();
  append(300);
  loop.advance(2s);
  const uint64_t before = source().counters().dropped;
  auto sent = source().next(1);
  ASSERT_TRUE(sent && unpack(*sent)[0].block.gap);
  power_cut();
  append(300);
  loop.advance(2s);
  auto got = pull();
  EXPECT_EQ(got[0], "gap " + std::to_string(before)) << "a receiver may hold exactly that";
  EXPECT_EQ(got[1], "gap " + std::to_string(source().counters().dropped - before));
}

// Overflow policies, targets that come and go, and power cuts against the sums: an event is queued, delivered or
// dropped, and what is handed out is everything that was not dropped, in order.
TEST_F(LogSourceTest, property_dropping_keeps_the_sums_over_any_crash) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    LogSourceTest::stop();
    files.~MemoryFiles();
    new (&files) test::MemoryFiles(seed);
    store.~MemoryStore();
    new (&store) test::MemoryStore();
    files.make_directories("/data").value();
    files.sync_directory("/").value();
    appended = 0;
    options = {};
    options.overflow = seed % 3 == 0 ? Overflow::drop_newest : Overflow::drop_oldest;
    options.bytes_max = 3000;
    if (seed % 3 == 1) options.keep = 64s;
    start();
    Random dice(seed);
    std::vector<port::Batch> flying;
    for (int step = 0; step < 200; ++step) {
      switch (dice.below(7)) {
        case 0:
        case 1:
          append(1 + dice.below(40));
          break;
        case 2:
        case 3:
          if (auto batch = source().next(1 + dice.below(1000))) {
            if (!flying.empty()) {
              ASSERT_EQ(batch->first, flying.back().last);
            }
            uint64_t events = 0;
            for (const auto& u : unpack(*batch)) {
              if (u.block.gap) continue;
              EXPECT_EQ(u.block.payload.view(), body(u.first));
              ++events;
            }
            ASSERT_EQ(events, batch->events);
            flying.push_back(*batch);
          }
          break;
        case 4:
          if (!flying.empty()) {
            source().advanced(flying[0].stream, flying[0].last, flying[0].events, 0);
            flying.erase(flying.begin());
          }
          break;
        case 5:
          loop.advance(Duration(1s) * dice.below(5));
          break;
        case 6:
          if (dice.below(4) > 0) break;
          flying.clear();
          power_cut();
          appended = log->durable_events();
          break;
      }
      auto c = source().counters();
      ASSERT_EQ(c.in, appended);
      ASSERT_EQ(c.in, c.delivered + c.dropped + c.dead_lettered + c.queued);
      ASSERT_EQ(c.dropped, c.dropped_full + c.dropped_keep);
    }
    EXPECT_GT(source().counters().dropped, 0u);
    EXPECT_EQ(log->stats().quarantined, 0u);
  }
}

}  // namespace ph::spool
