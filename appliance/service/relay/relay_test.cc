// The relay room over an in-memory network, file system and store: a source, an upstream, a link server, an intake and
// the real files sink and segment log behind it.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "service/relay/files_target.h"
#include "service/relay/link_server.h"
#include "service/relay/mqtt_target.h"
#include "service/relay/packed.h"
#include "service/relay/tap.h"
#include "service/relay/upstream.h"
#include "store/spool/log_source.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_network.h"
#include "support/memory_store.h"

namespace ph::relay {
namespace {

/// Hands out lines of one category, one block each; remembers what it was told.
class LineSource : public port::EventSource {
 public:
  LineSource(NodeId node, std::string category, bool wants = false)
      : node_(node), category_(std::move(category)), far_wanted_(wants) {}

  void add(const std::string& line) {
    lines_.push_back(line + "\n");
    if (ready_) ready_();
  }
  const std::string& route() const override { return route_; }
  const std::string& target() const override { return target_; }
  bool wants_far() const override { return far_wanted_; }
  std::vector<port::OpenStream> open_streams() override { return open; }
  std::optional<port::Batch> next(size_t) override {
    if (next_ == lines_.size()) return std::nullopt;
    const std::string& line = lines_[next_++];
    event::Block block;
    block.category = category_;
    block.id = {node_, stream, position_, position_ + line.size()};
    block.events = 1;
    block.payload = Slice(line);
    std::string packed;
    put_varint(packed, line.size());
    put_sized(packed, event::encode(block));
    port::Batch batch{stream, position_, position_ + line.size(), 1, Slice(std::move(packed))};
    position_ += line.size();
    return batch;
  }
  void on_ready(port::Task ready) override { ready_ = std::move(ready); }
  void will_use(StreamId, const std::string& receiver, port::Task durable) override {
    used.push_back(receiver);
    durable();
  }
  void advanced(StreamId, uint64_t to, uint64_t events, uint64_t duplicates) override {
    settled = to;
    delivered += events;
    duplicate += duplicates;
  }
  port::WriteBatch advance_entries(StreamId, uint64_t to, uint64_t events) override {
    settled = to;
    delivered += events;
    port::WriteBatch b;
    b.put("cursor", std::to_string(to));
    return b;
  }
  void far_advanced(StreamId, uint64_t to) override { far = to; }
  void rejected(StreamId, uint64_t, uint64_t, Slice, const std::string& reason) override { rejects.push_back(reason); }
  void rerouted_unasked(uint64_t, port::Task durable) override { durable(); }
  void renew(StreamId) override { ++renewed; }
  void on_closed(std::move_only_function<void(StreamId)> c) override { closed = std::move(c); }
  port::TargetCounters counters() const override { return {}; }
  /// As after a restart: hands out everything from the start again.
  void rewind() {
    next_ = 0;
    position_ = 0;
  }

  StreamId stream{4711};
  std::vector<port::OpenStream> open;
  std::vector<std::string> used, rejects;
  uint64_t settled = 0, delivered = 0, duplicate = 0, far = 0;
  int renewed = 0;
  std::move_only_function<void(StreamId)> closed;

 private:
  NodeId node_;
  std::string category_;
  bool far_wanted_;
  std::string route_ = "default", target_ = "fra";
  std::vector<std::string> lines_;
  size_t next_ = 0;
  uint64_t position_ = 0;
  port::Task ready_;
};

const NodeId kEdge = Random(1).node_id();
const NodeId kFar = Random(2).node_id();
const port::Endpoint kAt{"127.0.0.1", 3706};

struct RelayTest : testing::Test {
  std::deque<LineSource> sources;  // outlive what pulls from them
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  test::MemoryFabric fabric;
  test::MemoryNetwork network{fabric, loop};
  std::unique_ptr<commit::DiskFloor> floor;
  uint64_t reserve = 0;  // 0: none
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<chunk::FilesSink> sink;
  std::unique_ptr<spool::SegmentLog> log;
  std::unique_ptr<Intake> intake;
  std::unique_ptr<LinkServer> server;
  std::unique_ptr<Upstream> upstream;
  bool full = false;

  void start_receiver(bool with_log = false) {
    files.make_directories("/far").value();
    if (reserve > 0) floor = std::make_unique<commit::DiskFloor>(loop, files, "/far", reserve);
    committer = std::make_unique<commit::Committer>(loop, disk, store, floor.get());
    chunk::FilesSinkOptions options;
    options.floor = floor.get();
    options.directory = "/far/events";
    options.state_directory = "/far/state";
    sink = chunk::FilesSink::open(options, loop, files, store, *committer).value();
    if (with_log)
      log = spool::SegmentLog::open({.name = "default", .directory = "/far/spool", .floor = floor.get()}, files, store,
                                    loop.random())
                .value();
    IntakeOptions intake_options{.self = kFar, .site = "fra", .routes = {}, .route_of = {}};
    intake_options.routes.push_back({"default", log.get(), [this] { return full; }});
    intake_options.route_of = [](std::string_view) { return 0; };
    if (floor) intake_options.room = [this] { return floor->room(); };
    intake = std::make_unique<Intake>(std::move(intake_options), loop, store, *committer, sink.get());
    intake->load().value();
    server = std::make_unique<LinkServer>(
        LinkServerOptions{.bind = kAt, .tls = nullptr, .self = kFar, .name = "far", .site = "fra", .incarnation = 9},
        loop, network, *intake, nullptr);
    server->start().value();
  }
  void stop_receiver() {
    server.reset();
    intake.reset();
    sink.reset();
    log.reset();
    committer.reset();
  }
  void start_upstream(LineSource& source) { start_upstream(std::vector<port::EventSource*>{&source}); }
  void start_upstream(std::vector<port::EventSource*> from) {
    UpstreamOptions options{.name = "fra", .addresses = {{kAt, 1}}, .tls = nullptr, .server_name = {}};
    options.self = kEdge;
    options.node_name = "edge";
    options.site = "ams";
    upstream = std::make_unique<Upstream>(std::move(options), loop, network, std::move(from));
    upstream->start();
  }
  void settle(Duration by = 2s) {
    for (int i = 0; i < 20; ++i) loop.advance(by / 20);
  }
  std::string far_lines(const std::string& category) {
    std::string all;
    for (const std::string& path : files.paths())
      if (path.starts_with("/far/events/" + category + "/" + category + "-")) all += files.content(path);
    return all;
  }
};

}  // namespace

TEST_F(RelayTest, lines_arrive_once_and_the_source_is_told) {
  start_receiver();
  LineSource& source = sources.emplace_back(kEdge, "clicks");
  for (int i = 0; i < 100; ++i) source.add("line " + std::to_string(i));
  start_upstream(source);
  settle();
  std::string want;
  for (int i = 0; i < 100; ++i) want += "line " + std::to_string(i) + "\n";
  EXPECT_EQ(far_lines("clicks"), want);
  EXPECT_EQ(source.delivered, 100u);
  EXPECT_EQ(source.settled, want.size());
  EXPECT_EQ(source.used, std::vector<std::string>{kAt.to_string()});
  EXPECT_EQ(intake->counters().events, 100u);
  EXPECT_EQ(intake->direct_counters()["default"].events, 100u);
}

TEST_F(RelayTest, an_upstream_that_finishes_is_told_of_what_is_in_flight_and_sends_no_more) {
  start_receiver();
  LineSource& source = sources.emplace_back(kEdge, "clicks");
  source.add("one");
  start_upstream(source);
  disk.hold();
  settle();
  ASSERT_FALSE(upstream->drained());
  upstream->finish();
  source.add("two");
  disk.release();
  settle();
  EXPECT_TRUE(upstream->drained());
  EXPECT_EQ(source.delivered, 1u);
  settle();
  EXPECT_EQ(far_lines("clicks"), "one\n");
  upstream.reset();
  start_upstream(source);
  settle();
  EXPECT_EQ(far_lines("clicks"), "one\ntwo\n");
  EXPECT_EQ(intake->counters().duplicates, 0u);
}

TEST_F(RelayTest, a_sender_that_forgot_its_cursor_repeats_nothing) {
  start_receiver();
  LineSource& source = sources.emplace_back(kEdge, "clicks");
  for (int i = 0; i < 10; ++i) source.add(std::to_string(i));
  start_upstream(source);
  settle();
  upstream.reset();
  source.rewind();
  source.delivered = 0;
  source.open = {{source.stream, 0, 0, UINT64_MAX, {kAt.to_string()}}};
  source.add("new");
  start_upstream(source);
  settle();
  EXPECT_EQ(far_lines("clicks"), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\nnew\n");
  EXPECT_EQ(source.delivered, 11u);
  EXPECT_EQ(source.duplicate, 10u);
}

TEST_F(RelayTest, a_receiver_that_restarts_gets_the_rest_once) {
  start_receiver();
  LineSource& source = sources.emplace_back(kEdge, "clicks");
  for (int i = 0; i < 50; ++i) source.add(std::to_string(i));
  start_upstream(source);
  for (int i = 0; i < 7; ++i) loop.run_posted();
  stop_receiver();
  settle();
  for (int i = 50; i < 60; ++i) source.add(std::to_string(i));
  start_receiver();
  settle(20s);
  std::string want;
  for (int i = 0; i < 60; ++i) want += std::to_string(i) + "\n";
  EXPECT_EQ(far_lines("clicks"), want);
  EXPECT_EQ(source.delivered, 60u);
}

TEST_F(RelayTest, a_bad_category_is_rejected_and_the_rest_goes_on) {
  start_receiver();
  LineSource& bad = sources.emplace_back(kEdge, "../evil");
  bad.add("x");
  start_upstream(bad);
  settle();
  ASSERT_EQ(bad.rejects.size(), 1u);
  EXPECT_EQ(bad.delivered, 0u);
  EXPECT_EQ(bad.settled, 2u);
  EXPECT_EQ(intake->counters().rejected, 1u);
  for (const std::string& path : files.paths()) EXPECT_EQ(path.find("evil"), std::string::npos) << path;
}

TEST_F(RelayTest, a_full_disk_holds_the_stream_and_lets_it_go_when_there_is_room) {
  start_receiver();
  files.capacity = files.used() + 50;
  LineSource& source = sources.emplace_back(kEdge, "clicks");
  for (int i = 0; i < 100; ++i) source.add("a line of thirty bytes, or so " + std::to_string(i));
  start_upstream(source);
  settle(5s);
  EXPECT_LT(source.delivered, 100u);
  EXPECT_FALSE(sink->stats().alarm.empty());
  files.capacity = UINT64_MAX;
  settle(5s);
  EXPECT_EQ(source.delivered, 100u);
  EXPECT_EQ(count_newlines(far_lines("clicks")), 100u);
  EXPECT_TRUE(sink->stats().alarm.empty());
}

/// Another process fills the disk and frees it again: no group is tried over and over, nothing is lost or doubled.
TEST_F(RelayTest, intake_stops_at_the_reserve_and_goes_on_by_itself) {
  for (bool with_log : {false, true}) {
    SCOPED_TRACE(with_log);
    reserve = 10'000;
    files.capacity = 1'000'000;
    files.append("/ballast", "");
    start_receiver(with_log);
    auto ballast = files.inode("/ballast");
    LineSource& source = sources.emplace_back(kEdge, "clicks");
    source.stream = StreamId{with_log ? 2u : 1u};
    source.add("one");
    start_upstream(source);
    settle();
    EXPECT_EQ(source.delivered, 1u);
    ballast->bytes.resize(files.capacity - files.used() - 9'000);
    const uint64_t writes = files.operations;
    for (int i = 0; i < 20; ++i) source.add("line " + std::to_string(i));
    settle(10s);
    EXPECT_EQ(source.delivered, 1u);
    EXPECT_EQ(intake->held_streams(), 1u);
    EXPECT_EQ(floor->refusals(), 0u) << "held before it costs a commit";
    EXPECT_FALSE(committer->trouble());
    EXPECT_LE(files.operations - writes, 3u) << "a rotation at most";
    ballast->bytes.clear();
    settle(2s);
    EXPECT_EQ(source.delivered, 21u);
    EXPECT_EQ(intake->counters().events, with_log ? 42u : 21u) << "of both rounds";
    EXPECT_EQ(intake->counters().duplicates, 0u);
    upstream.reset();
    stop_receiver();
  }
}

TEST_F(RelayTest, the_files_target_waits_at_the_reserve) {
  reserve = 10'000;
  files.capacity = 1'000'000;
  files.append("/ballast", std::string(989'000, 'x'));
  start_receiver();
  LineSource& source = sources.emplace_back(kEdge, "clicks");
  source.add("one");
  FilesTarget target(source, *sink, *committer, loop);
  target.start();
  loop.run_posted();
  EXPECT_EQ(far_lines("clicks"), "one\n");
  files.inode("/ballast")->bytes.resize(991'000);
  loop.advance(1s);
  source.add("two");
  settle(5s);
  EXPECT_EQ(far_lines("clicks"), "one\n");
  EXPECT_FALSE(committer->trouble());
  files.inode("/ballast")->bytes.clear();
  settle(2s);
  EXPECT_EQ(far_lines("clicks"), "one\ntwo\n");
}

TEST_F(RelayTest, something_in_a_categorys_place_holds_its_streams_alone_until_it_is_gone) {
  start_receiver();
  files.append("/far/events/clicks", "a stray file");
  LineSource& blocked = sources.emplace_back(kEdge, "clicks");
  LineSource& other = sources.emplace_back(kEdge, "other");
  other.stream = StreamId{4712};
  blocked.add("one");
  other.add("two");
  start_upstream(std::vector<port::EventSource*>{&blocked, &other});
  settle(5s);
  EXPECT_TRUE(blocked.rejects.empty());
  EXPECT_EQ(blocked.settled, 0u);
  EXPECT_EQ(intake->held_streams(), 1u);
  other.add("three");
  settle();
  EXPECT_EQ(other.delivered, 2u);
  EXPECT_EQ(far_lines("other"), "two\nthree\n");
  files.unlink("/far/events/clicks").value();
  settle(3s);
  EXPECT_EQ(blocked.delivered, 1u);
  EXPECT_EQ(far_lines("clicks"), "one\n");
  EXPECT_EQ(intake->held_streams(), 0u);
  EXPECT_EQ(intake->counters().rejected, 0u);
}

TEST_F(RelayTest, a_full_spool_holds_its_streams_until_it_has_room) {
  start_receiver(true);
  LineSource& source = sources.emplace_back(kEdge, "clicks");
  source.add("first");
  start_upstream(source);
  settle();
  EXPECT_EQ(source.delivered, 1u);
  full = true;
  source.add("second, still taken: the bound is looked at after a commit");
  settle();
  EXPECT_EQ(source.delivered, 2u);
  source.add("third");
  settle();
  EXPECT_EQ(source.delivered, 2u);
  EXPECT_EQ(intake->held_streams(), 1u);
  full = false;
  settle(3s);
  EXPECT_EQ(source.delivered, 3u);
  EXPECT_EQ(log->durable_end() - log->first_sequence(), 3u);
}

TEST_F(RelayTest, far_acknowledgements_come_with_the_files_or_from_behind_the_log) {
  start_receiver();
  LineSource& direct = sources.emplace_back(kEdge, "clicks", true);
  direct.add("one");
  start_upstream(direct);
  settle();
  EXPECT_EQ(direct.far, 4u);
  upstream.reset();
  stop_receiver();

  start_receiver(true);
  LineSource& stored = sources.emplace_back(kEdge, "clicks", true);
  stored.stream = StreamId{99};
  stored.add("one");
  stored.add("two");
  start_upstream(stored);
  settle();
  EXPECT_EQ(stored.delivered, 2u);
  EXPECT_EQ(stored.far, 0u);
  intake->far_reached("default", log->first_sequence() + 1);
  settle();
  EXPECT_EQ(stored.far, 4u);
  intake->far_reached("default", log->durable_end());
  settle();
  EXPECT_EQ(stored.far, 8u);
}

TEST_F(RelayTest, a_far_acknowledgement_whose_commit_failed_is_told_later) {
  struct FailsOnce : commit::Participant {
    void begin(port::WriteBatch&) override {}
    Result<> flush() override { return fail(port::file_errors::no_space, "test"); }
    void finished(const Result<>& outcome) override { failed = !outcome; }
    bool failed = false;
  } fails;
  start_receiver(true);
  LineSource& source = sources.emplace_back(kEdge, "clicks", true);
  source.add("one");
  start_upstream(source);
  settle();
  committer->touch(fails);
  intake->far_reached("default", log->durable_end());
  settle(100ms);
  EXPECT_TRUE(fails.failed);
  EXPECT_EQ(source.far, 0u);
  settle(3s);
  EXPECT_EQ(source.far, 4u);
}

TEST_F(RelayTest, a_far_acknowledgement_that_a_crash_kept_back_is_told_at_the_start) {
  start_receiver(true);
  LineSource& source = sources.emplace_back(kEdge, "clicks", true);
  source.add("one");
  start_upstream(source);
  settle();
  stop_receiver();
  start_receiver(true);
  settle(20s);
  EXPECT_EQ(source.far, 0u);
  spool::LogRetention retention(*log, {"fra"});
  retention.far_reported("fra", log->durable_end());  // what is stored, before anybody listens
  retention.on_far([this](uint64_t sequence) { intake->far_reached("default", sequence); });
  settle();
  EXPECT_EQ(source.far, 4u);
}

TEST_F(RelayTest, garbage_and_wrong_checksums_end_the_connection_and_are_counted) {
  start_receiver();
  struct Client : port::ConnectionHandler {
    std::string send, got;
    bool closed = false;
    void on_open(port::Connection& c) override { c.send(Slice(send)); }
    port::Consumed on_data(port::Connection&, ByteView b) override {
      got += b;
      return {b.size(), 0};
    }
    void on_close(port::Connection&, const Error&) override { closed = true; }
  };
  std::string bad_crc = link::encode(link::Hello{.node = kEdge}).head;
  bad_crc.back() ^= 1;
  std::string four_gib("\xFF\xFF\xFF\xFF\x01\x05\x00\x00\x00\x00\x00\x00", 12);
  uint64_t errors = 0;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), bad_crc, four_gib, link::encode(link::Ping{1}).head}) {
    Client client;
    client.send = bytes;
    auto connection = network.connect(kAt, {}, client);
    settle();
    EXPECT_TRUE(client.closed);
    EXPECT_EQ(server->stats().protocol_errors, ++errors);
  }
}

TEST_F(RelayTest, a_peer_with_another_version_or_this_nodes_own_id_is_refused) {
  start_receiver();
  struct Client : port::ConnectionHandler {
    link::Hello hello;
    std::string reason;
    void on_open(port::Connection& c) override { c.send_copy(link::encode(hello).head); }
    port::Consumed on_data(port::Connection&, ByteView b) override {
      auto d = link::decode(b);
      if (!d || !d->consumed) return {};
      if (auto* f = std::get_if<link::Frame>(&d->frame))
        if (auto* r = std::get_if<link::Refuse>(f)) reason = r->reason;
      return {d->consumed, 0};
    }
    void on_close(port::Connection&, const Error&) override {}
  };
  for (auto [hello, part] :
       {std::pair{link::Hello{.protocol_min = 2, .protocol_max = 3, .node = kEdge, .target = "t"}, "protocol version"},
        std::pair{link::Hello{.node = kFar, .target = "t"}, "own id"}}) {
    Client client;
    client.hello = hello;
    auto connection = network.connect(kAt, {}, client);
    settle();
    EXPECT_NE(client.reason.find(part), std::string::npos) << client.reason;
  }
}

/// What is wanted at an address is told as changes: of two connections the slower one would tell old ones last.
TEST_F(RelayTest, of_several_connections_to_an_address_one_at_a_time_asks_what_is_wanted) {
  struct Peer : port::ConnectionHandler {
    std::unique_ptr<port::Connection> connection;
    size_t asked = 0;
    void on_open(port::Connection& c) override {
      c.send_copy(link::encode(link::Hello{.node = kFar, .site = "fra", .features = link::features::interest}).head);
    }
    port::Consumed on_data(port::Connection&, ByteView b) override {
      size_t taken = 0;
      for (auto d = link::decode(b); d && d->consumed; d = link::decode(b.substr(taken))) {
        taken += d->consumed;
        if (auto* f = std::get_if<link::Frame>(&d->frame)) asked += std::holds_alternative<link::InterestAsk>(*f);
      }
      return {taken, 0};
    }
    void on_close(port::Connection&, const Error&) override {}
    void tell(std::string filter, bool reset) {
      link::Interest wanted{.reset = reset, .categories = {}, .added = {{std::move(filter), {}}}};
      if (reset) wanted.categories = {"news"};
      connection->send_copy(link::encode(wanted).head);
    }
  };
  std::deque<Peer> peers;
  auto listener = network.listen(kAt, {}, [&](std::unique_ptr<port::Connection>&& c) {
    peers.emplace_back().connection = std::move(c);
    return &peers.back();
  });
  committer = std::make_unique<commit::Committer>(loop, disk, store);
  Demand demand({{"fra", {kAt.to_string()}}}, loop, store, *committer);
  UpstreamOptions options{.name = "fra", .addresses = {{kAt, 1}}, .tls = nullptr, .server_name = {}};
  options.connections = 2;
  options.self = kEdge;
  options.demand = &demand;
  options.asks = {"news"};
  upstream = std::make_unique<Upstream>(std::move(options), loop, network, std::vector<port::EventSource*>{});
  upstream->start();
  for (int i = 0; i < 5; ++i) loop.advance(1ms);
  ASSERT_EQ(peers.size(), 2u);
  ASSERT_EQ(peers[0].asked + peers[1].asked, 1u);
  Peer& asked = peers[peers[0].asked ? 0 : 1];
  Peer& other = peers[peers[0].asked ? 1 : 0];
  asked.tell("a", true);
  other.tell("old", false);
  loop.advance(100ms);
  EXPECT_TRUE(demand.wants(0, "news", "a"));
  EXPECT_FALSE(demand.wants(0, "news", "old"));
  asked.connection.reset();
  for (int i = 0; i < 5; ++i) loop.advance(1ms);
  EXPECT_EQ(other.asked, 1u) << "the one that is left asks";
  other.tell("b", true);
  loop.advance(100ms);
  EXPECT_TRUE(demand.wants(0, "news", "b"));
  EXPECT_FALSE(demand.wants(0, "news", "a"));
  upstream->ask({"sports"});
  for (int i = 0; i < 5; ++i) loop.advance(1ms);
  EXPECT_EQ(other.asked, 2u);
  upstream.reset();
}

TEST_F(RelayTest, the_files_target_commits_data_and_cursor_together) {
  start_receiver();
  LineSource& source = sources.emplace_back(kEdge, "local");
  source.add("a");
  source.add("b");
  FilesTarget target(source, *sink, *committer, loop);
  target.start();
  settle();
  EXPECT_EQ(far_lines("local"), "a\nb\n");
  EXPECT_EQ(store.get("cursor").value(), "4");
  files.capacity = files.used();
  source.add("c");
  settle(3s);
  EXPECT_EQ(far_lines("local"), "a\nb\n");
  EXPECT_EQ(store.get("cursor").value(), "4");
  files.capacity = UINT64_MAX;
  settle(3s);
  EXPECT_EQ(far_lines("local"), "a\nb\nc\n");
  EXPECT_EQ(store.get("cursor").value(), "6");
}

TEST_F(RelayTest, the_files_target_tells_at_the_start_how_far_it_is) {
  start_receiver();
  LineSource& source = sources.emplace_back(kEdge, "local", true);
  source.open = {{source.stream, 40, 10, 40, {}}};  // stopped between the commit of its cursor and the note of far
  FilesTarget target(source, *sink, *committer, loop);
  target.start();
  EXPECT_EQ(source.far, 40u);
}

TEST(MqttTopic, fills_templates_and_keeps_wildcards_out) {
  EXPECT_EQ(fill_topic("events/{category}", "a/b", "clicks"), "events/clicks");
  EXPECT_EQ(fill_topic("{topic}", "a/b", "clicks"), "a/b");
  EXPECT_EQ(fill_topic("{topic}", "", "clicks"), "clicks");
  EXPECT_EQ(fill_topic("x/{category}/y", "", "a+b#c"), "x/a_b_c/y");
  EXPECT_EQ(fill_topic("{origin}/{topic}", "t", "c", "ams"), "ams/t");
  EXPECT_EQ(fill_node("{site}/{node}/{topic}/{site}", "fra", "gw"), "fra/gw/{topic}/fra");
}

}  // namespace ph::relay
