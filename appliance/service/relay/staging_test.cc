// What strict senders brought, until they decide: over restarts, full disks and damage.
#include "service/relay/staging.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "codec/event/block.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::relay {
namespace {

struct Client : IntakeClient {
  void acknowledge(StreamId, const link::Ack& ack) override {
    staged.insert(staged.end(), ack.staged.begin(), ack.staged.end());
    accepted.insert(accepted.end(), ack.accepted.begin(), ack.accepted.end());
  }
  void hold(StreamId, std::string_view why) override { holds.emplace_back(why); }
  void release(StreamId) override { ++releases; }
  void consumed(uint64_t n) override { bytes += n; }
  std::vector<uint64_t> staged;
  std::vector<link::Span> accepted;
  std::vector<std::string> holds;
  int releases = 0;
  uint64_t bytes = 0;
};

const link::StreamKey kKey{Random(7).node_id(), 42, StreamId{4711}};

struct StagingTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<chunk::FilesSink> sink;
  std::unique_ptr<Intake> intake;
  std::unique_ptr<Staging> staging;
  std::shared_ptr<Client> client = std::make_shared<Client>();
  uint64_t bytes_max = 1 << 30;
  uint64_t segment_bytes = 64 << 20;

  StagingTest() {
    files.make_directories("/far").value();
    start();
  }
  void start() {
    committer = std::make_unique<commit::Committer>(loop, disk, store);
    chunk::FilesSinkOptions options;
    options.directory = "/far/events";
    options.state_directory = "/far/state";
    sink = chunk::FilesSink::open(options, loop, files, store, *committer).value();
    IntakeOptions of{.self = Random(2).node_id(), .site = "fra", .routes = {}, .route_of = {}};
    of.routes.push_back({"default", nullptr, [] { return false; }});
    of.route_of = [](std::string_view) { return 0; };
    intake = std::make_unique<Intake>(std::move(of), loop, store, *committer, sink.get());
    intake->load().value();
    auto log = spool::SegmentLog::open({"@staged", "/far/staged", segment_bytes}, files, store, loop.random());
    staging = std::make_unique<Staging>(std::move(*log), bytes_max, *intake, loop, store, *committer);
    staging->load().value();
  }
  void stop() {
    staging.reset();
    intake.reset();
    sink.reset();
    committer.reset();
  }
  void restart() {
    stop();
    start();
  }
  void damage(const std::string& text) {
    for (const std::string& path : files.paths())
      if (std::string& bytes = files.inode(path)->bytes; path.starts_with("/far/staged/"))
        bytes.at(bytes.find(text)) ^= 1;
  }
  void settle() {
    for (int i = 0; i < 20; ++i) loop.advance(100ms);
  }
  static link::Events events(uint64_t attempt, uint64_t first, const std::string& text) {
    event::Block block;
    block.payload = Slice(std::string(text));
    return of(block, attempt, first, first + text.size());
  }
  static link::Events of(event::Block block, uint64_t attempt, uint64_t first, uint64_t last) {
    block.category = "clicks";
    block.id = {NodeId{}, kKey.stream, first, last};
    block.events = std::max<uint64_t>(block.events, 1);
    std::string packed;
    put_varint(packed, last - first);
    put_sized(packed, event::encode(block));
    link::Events e;
    e.stream = kKey.stream;
    e.first = first;
    e.last = last;
    e.events = block.events;
    e.packed = Slice(std::move(packed));
    e.attempt = attempt;
    return e;
  }
  void stage(uint64_t attempt, uint64_t first, const std::string& text) {
    EXPECT_TRUE(staging->stage(kKey, "ams", events(attempt, first, text), 100, client));
    settle();
  }
  /// As a sender brings it that is not strict.
  void take(bool piece, uint64_t first, const std::string& text, uint64_t last) {
    event::Block block;
    block.piece = piece;
    block.events = count_newlines(text);
    block.payload = Slice(std::string(text));
    EXPECT_TRUE(intake->take(kKey, "ams", of(block, 0, first, last), 100, client));
    settle();
  }
  void decide(std::vector<uint64_t> publish, std::vector<uint64_t> discard) {
    staging->decide(kKey, {kKey.stream, std::move(publish), std::move(discard)});
    settle();
  }
  std::string lines() {
    std::string all;
    for (const std::string& path : files.paths())
      if (path.starts_with("/far/events/clicks/clicks-")) all += files.content(path);
    return all;
  }
};

TEST_F(StagingTest, nothing_is_in_a_file_before_it_is_decided_also_after_a_restart) {
  stage(5, 0, "one\n");
  stage(6, 4, "two\n");
  EXPECT_EQ(client->staged, (std::vector<uint64_t>{5, 6}));
  EXPECT_EQ(client->bytes, 200u);
  EXPECT_EQ(lines(), "");
  restart();
  const auto told = staging->staged(kKey);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0], (link::Resumed::Staged{5, 0, 4}));
  intake->introduce(kKey, client);
  decide({5}, {6});
  EXPECT_EQ(lines(), "one\n");
  EXPECT_EQ(client->accepted, (std::vector<link::Span>{{0, 4}}));
  EXPECT_TRUE(staging->staged(kKey).empty());
  EXPECT_EQ(staging->stats().discarded, 1u);
  restart();
  EXPECT_TRUE(staging->staged(kKey).empty()) << "the decision is durable";
  EXPECT_TRUE(intake->has(kKey, 0, 4));
}

TEST_F(StagingTest, a_range_staged_twice_is_published_once) {
  stage(5, 0, "one\n");
  stage(6, 0, "one\n");
  decide({5}, {});
  decide({6}, {});
  EXPECT_EQ(lines(), "one\n");
  EXPECT_EQ(staging->stats().batches, 0u);
}

TEST_F(StagingTest, what_is_here_already_is_acknowledged_and_not_staged) {
  stage(5, 0, "one\n");
  decide({5}, {});
  client->accepted.clear();
  stage(9, 0, "one\n");
  EXPECT_EQ(client->accepted, (std::vector<link::Span>{{0, 4}}));
  EXPECT_EQ(staging->stats().batches, 0u);
  EXPECT_EQ(lines(), "one\n");
}

TEST_F(StagingTest, a_full_disk_holds_the_stream_and_keeps_nothing) {
  files.capacity = files.used();
  stage(5, 0, "one\n");
  EXPECT_TRUE(client->staged.empty());
  EXPECT_FALSE(client->holds.empty());
  EXPECT_EQ(staging->stats().batches, 0u);
  files.capacity = UINT64_MAX;
  settle();
  EXPECT_GT(client->releases, 0);
}

TEST_F(StagingTest, what_was_to_be_published_on_a_full_disk_is_published_when_there_is_room) {
  stage(5, 0, "one\n");
  files.capacity = files.used();
  decide({5}, {});
  EXPECT_EQ(lines(), "");
  EXPECT_EQ(staging->staged(kKey).size(), 1u) << "told of, should its sender ask";
  files.capacity = UINT64_MAX;
  settle();
  EXPECT_EQ(lines(), "one\n");
  EXPECT_EQ(staging->stats().batches, 0u);
}

TEST_F(StagingTest, decisions_do_not_pass_an_earlier_one_whose_commit_failed) {
  stage(5, 0, "one\n");
  stage(6, 4, "two\n");
  stage(7, 8, "three\n");
  files.capacity = files.used();
  staging->decide(kKey, {kKey.stream, {5}, {}});
  for (int i = 0; i < 3; ++i) loop.advance(50ms);
  files.capacity = UINT64_MAX;
  // There is room again, and the first one is not tried again yet.
  staging->decide(kKey, {kKey.stream, {6}, {}});
  staging->decide(kKey, {kKey.stream, {7}, {}});
  for (int i = 0; i < 3; ++i) loop.advance(50ms);
  EXPECT_EQ(lines(), "");
  settle();
  EXPECT_EQ(lines(), "one\ntwo\nthree\n");
  EXPECT_EQ(staging->stats().batches, 0u);
}

/// The later one is of a new run of the sender, whose attempts are numbered from elsewhere.
TEST_F(StagingTest, decisions_wait_for_room_in_the_order_of_the_stream) {
  stage(900, 0, "one\n");
  stage(6, 4, "two\n");
  files.capacity = files.used();
  decide({900}, {});
  decide({6}, {});
  EXPECT_EQ(lines(), "");
  files.capacity = UINT64_MAX;
  settle();
  EXPECT_EQ(lines(), "one\ntwo\n");
}

TEST_F(StagingTest, over_its_bound_streams_are_held) {
  bytes_max = 1;
  restart();
  stage(5, 0, "one\n");
  stage(6, 4, "two\n");
  EXPECT_EQ(client->staged, (std::vector<uint64_t>{5}));
  ASSERT_FALSE(client->holds.empty());
  EXPECT_EQ(client->holds.back(), "staging_full");
}

TEST_F(StagingTest, what_nobody_decides_on_does_not_keep_the_room_of_others) {
  segment_bytes = 8 << 10;
  bytes_max = 64 << 10;
  restart();
  stage(1, 0, "left behind\n");
  std::string all;
  for (uint64_t n = 0; n < 500; ++n) {
    const std::string text = std::string(500, static_cast<char>('a' + n % 26)) + '\n';
    stage(n + 2, 1000 + n * 501, text);
    decide({n + 2}, {});
    all += text;
    if (n == 250) restart();
  }
  EXPECT_EQ(client->holds, std::vector<std::string>{});
  EXPECT_EQ(lines(), all);
  EXPECT_LE(staging->stats().bytes, 2 * segment_bytes);
  EXPECT_EQ(staging->staged(kKey).size(), 1u);
  restart();
  decide({1}, {});
  EXPECT_EQ(lines(), all + "left behind\n");
  EXPECT_EQ(staging->stats().lost, 0u);
}

TEST_F(StagingTest, a_record_that_cannot_be_read_again_is_not_here) {
  stage(5, 0, "one\n");
  damage("one");
  restart();
  decide({5}, {});
  EXPECT_EQ(staging->stats().lost, 1u);
  EXPECT_TRUE(staging->staged(kKey).empty());
  EXPECT_EQ(lines(), "");
}

TEST_F(StagingTest, a_decision_names_what_is_here_beside_what_is_not) {
  stage(5, 0, "one\n");
  damage("one");
  restart();
  decide({5, 5, 6}, {5, 7});  // with its last entry the stream is gone, too
  EXPECT_EQ(staging->stats().lost, 1u);
  EXPECT_EQ(staging->stats().discarded, 1u);
  EXPECT_EQ(staging->stats().batches, 0u);
}

/// What HOLD took back from one connection is delivered by another way, and the stream is done; then, from a socket
/// buffer that nobody read for long, comes what was taken back.
TEST_F(StagingTest, what_was_taken_back_is_still_refused_when_another_connection_has_closed_the_stream) {
  auto other = std::make_shared<Client>();
  for (auto& each : {client, other}) {
    EXPECT_TRUE(intake->take(kKey, "ams", events(0, each == client ? 0 : 4, "one\n"), 100, each));
    settle();
  }
  files.capacity = files.used();
  EXPECT_TRUE(intake->take(kKey, "ams", events(0, 8, "two\n"), 100, client));
  settle();
  ASSERT_EQ(client->holds.size(), 1u);
  ASSERT_EQ(other->holds.size(), 1u) << "everybody is told";
  files.capacity = UINT64_MAX;
  settle();
  ASSERT_EQ(other->releases, 1);
  EXPECT_FALSE(intake->close(kKey, client));
  other->bytes = 0;
  EXPECT_TRUE(intake->take(kKey, "ams", events(0, 8, "two\n"), 100, other));
  EXPECT_TRUE(staging->stage(kKey, "ams", events(3, 12, "three\n"), 100, other));
  settle();
  EXPECT_EQ(lines(), "one\none\n");
  EXPECT_EQ(staging->stats().batches, 0u);
  EXPECT_EQ(other->bytes, 200u) << "its credit comes back";
  EXPECT_EQ(intake->streams(), 1u);
  EXPECT_TRUE(intake->close(kKey, other));
  EXPECT_EQ(intake->streams(), 0u);
}

TEST_F(StagingTest, a_stream_whose_other_connection_never_closes_it_goes_when_that_has_gone) {
  auto other = std::make_shared<Client>();
  EXPECT_TRUE(intake->take(kKey, "ams", events(0, 0, "one\n"), 100, client));
  settle();
  intake->introduce(kKey, other);
  EXPECT_FALSE(intake->close(kKey, client));
  loop.advance(std::chrono::hours(2));
  EXPECT_EQ(intake->streams(), 1u);
  other.reset();
  loop.advance(std::chrono::hours(2));
  settle();
  EXPECT_EQ(intake->streams(), 0u);
  EXPECT_FALSE(intake->has(kKey, 0, 4));
}

TEST_F(StagingTest, a_stream_whose_other_connection_never_closes_it_goes_after_a_day) {
  auto other = std::make_shared<Client>();
  for (auto& each : {client, other}) EXPECT_TRUE(intake->take(kKey, "ams", events(0, 0, "one\n"), 100, each));
  settle();
  EXPECT_FALSE(intake->close(kKey, client));
  for (int hour = 0; hour < 23; ++hour) loop.advance(std::chrono::hours(1));
  EXPECT_EQ(intake->streams(), 1u);
  for (int hour = 0; hour < 3; ++hour) loop.advance(std::chrono::hours(1));
  settle();
  EXPECT_EQ(intake->streams(), 0u);
}

TEST_F(StagingTest, a_stream_that_goes_on_after_a_close_is_not_forgotten) {
  auto other = std::make_shared<Client>();
  for (auto& each : {client, other}) EXPECT_TRUE(intake->take(kKey, "ams", events(0, 0, "one\n"), 100, each));
  settle();
  EXPECT_FALSE(intake->close(kKey, client));
  EXPECT_TRUE(intake->take(kKey, "ams", events(0, 4, "two\n"), 100, other));
  for (int hour = 0; hour < 48; ++hour) loop.advance(std::chrono::hours(1));
  EXPECT_TRUE(intake->has(kKey, 0, 8));
}

TEST_F(StagingTest, a_closed_stream_leaves_nothing) {
  stage(5, 0, "one\n");
  staging->close(kKey);
  settle();
  restart();
  EXPECT_EQ(staging->stats().batches, 0u);
}

TEST_F(StagingTest, what_a_sender_that_never_comes_back_staged_is_swept_after_stream_ttl) {
  stage(1, 0, "first\n");
  ASSERT_EQ(staging->staged(kKey).size(), 1u);
  const auto days = [&](int n) {
    for (int hour = 0; hour < n * 24; ++hour) loop.advance(std::chrono::hours(1));
  };
  days(10);
  EXPECT_EQ(staging->staged(kKey).size(), 1u) << "its sender is connected";
  client.reset();
  days(3);
  restart();
  days(3);
  EXPECT_EQ(staging->staged(kKey).size(), 1u) << "six days of silence";
  days(2);
  settle();
  EXPECT_TRUE(staging->staged(kKey).empty());
  EXPECT_EQ(staging->stats().swept, 1u);
  EXPECT_EQ(staging->stats().batches, 0u);
  restart();
  EXPECT_TRUE(staging->staged(kKey).empty()) << "it is gone from the store, too";
  // A sender that comes back after all is told that nothing is here, and brings it again.
  client = std::make_shared<Client>();
  EXPECT_TRUE(staging->stage(kKey, "ams", events(9, 0, "first\n"), 100, client));
  settle();
  EXPECT_EQ(client->staged, std::vector<uint64_t>{9});
}

/// A sender that lost power goes on under new streams, and one that closes a stream cannot say so to whom it cannot
/// reach: what is left of it must not keep others' room for stream_ttl.
TEST_F(StagingTest, what_a_sender_that_is_back_does_not_ask_about_makes_room_for_others) {
  const link::StreamKey other{Random(8).node_id(), 42, StreamId{5}};
  Staging::Senders asked;
  segment_bytes = 1;
  restart();
  for (uint64_t i = 1; i <= 4; ++i) stage(i, i * 6, "first\n");
  bytes_max = staging->stats().bytes;
  restart();
  staging->asked_by([&] { return asked; });
  EXPECT_TRUE(intake->open_to(kKey, events(9, 0, "x\n"), client));
  EXPECT_TRUE(staging->stage(other, "ams", events(1, 0, "other\n"), 100, client));
  settle();
  ASSERT_EQ(client->holds, std::vector<std::string>{"staging_full"});
  const auto again = [&](Duration later) {
    loop.advance(later);
    settle();
    auto next = std::make_shared<Client>();
    EXPECT_TRUE(staging->stage(other, "ams", events(2, 0, "other\n"), 100, next));
    settle();
    loop.advance(2s);
    return next;
  };
  asked.insert({kKey.sender, kKey.target});
  again(90s);
  EXPECT_EQ(staging->stats().swept, 0u) << "a connection speaks for the stream";
  client.reset();
  asked.clear();
  again(20s);
  EXPECT_EQ(staging->stats().swept, 0u) << "its sender is not here";
  asked.insert({kKey.sender, kKey.target + 1});
  again(20s);
  EXPECT_EQ(staging->stats().swept, 0u) << "another upstream of it is";
  asked.insert({kKey.sender, kKey.target});
  again(20s);
  EXPECT_EQ(staging->stats().swept, 4u);
  EXPECT_TRUE(staging->staged(kKey).empty());
  EXPECT_EQ(again(2s)->staged, std::vector<uint64_t>{2});
  restart();
  EXPECT_TRUE(staging->staged(kKey).empty());
}

TEST_F(StagingTest, an_entry_without_a_time_is_kept_for_stream_ttl_from_the_start_on) {
  stage(1, 0, "first\n");
  port::WriteBatch older;
  store
      .scan("g/",
            [&](ByteView key, ByteView value) {
              Reader in(value);
              in.fixed<uint8_t>();
              for (int i = 0; i < 3; ++i) in.varint();
              older.put(std::string(key), std::string(value.substr(0, value.size() - in.rest().size())));
              return true;
            })
      .value();
  ASSERT_FALSE(older.empty());
  store.write(older, true).value();
  client.reset();
  stop();
  loop.advance(std::chrono::hours(24 * 30));
  start();
  for (int hour = 0; hour < 24 * 6; ++hour) loop.advance(std::chrono::hours(1));
  EXPECT_EQ(staging->staged(kKey).size(), 1u);
  for (int hour = 0; hour < 24 * 2; ++hour) loop.advance(std::chrono::hours(1));
  EXPECT_TRUE(staging->staged(kKey).empty());
}

TEST_F(StagingTest, a_damaged_entry_of_the_store_is_named) {
  port::WriteBatch bad;
  bad.put("g/short", "\x01");
  store.write(bad, true).value();
  auto log = spool::SegmentLog::open({.name = "@staged2", .directory = "/far/staged2"}, files, store, loop.random());
  Staging other(std::move(*log), bytes_max, *intake, loop, store, *committer);
  auto loaded = other.load();
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().to_string().find("store key"), std::string::npos);
}

// --- blocks of which a part was published before, cut to other events

TEST_F(StagingTest, an_event_that_went_on_is_published_whole_once_and_counted) {
  stage(5, 0, "one\n");
  decide({5}, {});
  event::Block grown;
  grown.joined = true;
  grown.payload = Slice(std::string("one\\n and more\n"));
  for (uint64_t attempt : {6, 7}) EXPECT_TRUE(staging->stage(kKey, "ams", of(grown, attempt, 0, 14), 100, client));
  settle();
  decide({6}, {});
  decide({7}, {});
  EXPECT_EQ(lines(), "one\none\\n and more\n");
  EXPECT_TRUE(intake->has(kKey, 0, 14));
  EXPECT_EQ(intake->counters().events, 2u);
  EXPECT_EQ(intake->counters().recut, 1u);
  EXPECT_EQ(intake->counters().duplicates, 1u) << "of the second attempt";
  restart();
  EXPECT_EQ(intake->counters().recut, 1u);
}

TEST_F(StagingTest, what_is_left_of_a_line_in_pieces_comes_once) {
  take(true, 4, "tw\n", 6);
  take(false, 0, "one\ntwo\n", 8);
  EXPECT_EQ(lines(), "tw\none\no\n");
  EXPECT_EQ(intake->counters().recut, 0u);
}

TEST_F(StagingTest, lines_are_never_cut_within_a_line_that_has_no_end_there) {
  take(true, 6, "o\n", 8);
  take(false, 0, "one\ntwo\n", 8);
  EXPECT_EQ(lines(), "o\none\ntwo\n");
  EXPECT_EQ(intake->counters().events, 3u);
  EXPECT_EQ(intake->counters().recut, 2u);
}

}  // namespace
}  // namespace ph::relay
