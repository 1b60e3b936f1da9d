#include "store/spool/log_source.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "store/spool/segment_format.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::spool {
namespace {

struct FakeDeadLetters : port::DeadLetters {
  std::vector<port::DeadLetter> letters;
  bool fails = false;
  Result<> append(const std::vector<port::DeadLetter>& more) override {
    if (fails) return fail("test.failed");
    for (const auto& l : more) {
      bool known = false;
      for (const auto& have : letters) known = known || (have.stream == l.stream && have.first == l.first);
      if (!known) letters.push_back(l);
    }
    return {};
  }
};

struct Unpacked {
  uint64_t first;
  uint64_t last;
  Slice encoded;
  event::Block block;
};

std::vector<Unpacked> unpack(const port::Batch& batch) {
  std::vector<Unpacked> out;
  Reader in(batch.packed.view());
  uint64_t at = batch.first;
  while (!in.at_end()) {
    uint64_t span = in.varint();
    ByteView bytes = in.sized();
    if (!in.ok()) break;
    Slice encoded{std::string(bytes)};
    auto block = event::decode(encoded);
    out.push_back({at, at + span, encoded, block ? *block : event::Block{}});
    EXPECT_TRUE(block);
    at += span;
  }
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(at, batch.last);
  return out;
}

struct LogSourceTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  Random random{3};
  FakeDeadLetters dead;
  std::unique_ptr<SegmentLog> log;
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<LogRetention> retention;
  std::map<std::string, std::unique_ptr<LogSource>> sources;
  std::vector<std::string> targets{"fra"};
  LogSourceOptions options;  // of every source, beside its names
  int ready = 0;
  uint64_t appended = 0;
  uint64_t segment_bytes = 4096;

  void SetUp() override {
    log_configure(LogLevel::off, false);
    files.make_directories("/data").value();
    start();
  }
  void stop() {
    loop.run_posted();
    sources.clear();
    retention.reset();
    committer.reset();
    log.reset();
  }
  void start() {
    stop();
    log = std::move(*SegmentLog::open({"r", "/data/spool/r", segment_bytes}, files, store, random));
    committer = std::make_unique<commit::Committer>(loop, disk, store);
    retention = std::make_unique<LogRetention>(*log, targets);
    for (const auto& t : targets) {
      options.route = "r";
      options.target = t;
      auto opened = LogSource::open(options, *log, *retention, loop, disk, store, dead);
      ASSERT_TRUE(opened) << opened.error().to_string();
      sources[t] = std::move(*opened);
      sources[t]->on_ready([this] { ++ready; });
      sources[t]->on_closed([](StreamId) {});
    }
    loop.run_posted();
  }
  LogSource& source(const std::string& target = "fra") { return *sources.at(target); }
  static std::string body(uint64_t n) { return "line " + std::to_string(n) + "\n"; }
  void append(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      event::Block b;
      b.category = "c";
      b.id = {NodeId{}, StreamId{1}, appended, 0};
      b.payload = Slice(body(++appended));
      b.id.last = b.id.first + b.payload.size();
      b.events = 1;
      b.accepted_at = loop.wall_now();
      log->append(Slice(event::encode(b)), 1, b.accepted_at);
    }
    committer->touch(*log);
    loop.run_posted();
  }
  /// Everything that is ready, as payloads; gaps as "gap <events>".
  std::vector<std::string> pull(size_t bytes = 1000, std::vector<port::Batch>* batches = nullptr,
                                const std::string& target = "fra") {
    std::vector<std::string> out;
    while (auto batch = source(target).next(bytes)) {
      for (const auto& u : unpack(*batch))
        out.push_back(u.block.gap ? "gap " + std::to_string(u.block.events) : std::string(u.block.payload.view()));
      if (batches) batches->push_back(*batch);
    }
    return out;
  }
  void balanced(const std::string& target = "fra") {
    auto c = source(target).counters();
    EXPECT_EQ(c.in, c.delivered + c.dropped + c.dead_lettered + c.queued);
  }
  void advance_all(const std::vector<port::Batch>& batches, const std::string& target = "fra") {
    for (const auto& b : batches) source(target).advanced(b.stream, b.last, b.events, 0);
  }
  void power_cut() {
    stop();
    files.cut_power();
    store.cut_power(random);
    start();
  }
  std::vector<std::string> bodies(uint64_t from, uint64_t to) {
    std::vector<std::string> out;
    for (uint64_t i = from; i <= to; ++i) out.push_back(body(i));
    return out;
  }
};

}  // namespace

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
