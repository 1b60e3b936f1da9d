// LSD's protocol over an in-memory network: the server before the real files sink and segment log, and the upstream
// before a server that does what a test says.
#include <gtest/gtest.h>

#include <deque>

#include "codec/event/block.h"
#include "service/relay/lsd_server.h"
#include "service/relay/lsd_upstream.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_network.h"
#include "support/memory_store.h"

namespace ph::relay {
namespace {

const port::Endpoint kOne{"127.0.0.1", 3701};
const port::Endpoint kTwo{"127.0.0.1", 3702};
const NodeId kSelf = Random(7).node_id();

std::string request(const std::vector<std::tuple<std::string, lsd::Token, std::string>>& events) {
  std::string out;
  size_t begun = lsd::begin_frame(out);
  for (const auto& [category, token, payload] : events) lsd::put_event(out, category, token, payload);
  lsd::end_frame(out, begun, lsd::kRequestNewEvents);
  return out;
}

/// A client that says what it is told and keeps the answers.
class Client : public port::ConnectionHandler {
 public:
  Client(port::Network& network, const port::Endpoint& to) : connection_(network.connect(to, {}, *this)) {}
  void on_open(port::Connection&) override { open = true; }
  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    size_t taken = 0;
    for (;;) {
      auto frame = lsd::decode_frame(bytes.substr(taken));
      EXPECT_TRUE(frame);
      if (!frame || frame->consumed == 0) return {taken, 0};
      taken += frame->consumed;
      answers.push_back(lsd::decode_response(frame->id, frame->body, 1000).value());
    }
  }
  void on_close(port::Connection&, const Error&) override { closed = true; }
  void send(ByteView bytes) { connection_->send_copy(bytes); }
  void close() { connection_.reset(); }

  std::deque<lsd::Response> answers;
  bool open = false, closed = false;

 private:
  std::unique_ptr<port::Connection> connection_;
};

struct LsdTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  test::MemoryFabric fabric;
  test::MemoryNetwork network{fabric, loop};
  std::unique_ptr<commit::Committer> committer;

  LsdTest() {
    fabric.window = 32 * 1024 * 1024;  // a frame is shown whole
    committer = std::make_unique<commit::Committer>(loop, disk, store);
  }
  void settle(Duration by = 2s) {
    for (int i = 0; i < 40; ++i) loop.advance(by / 40);
  }
};

// --- the server

struct LsdServerTest : LsdTest {
  std::unique_ptr<chunk::FilesSink> sink;
  std::unique_ptr<spool::SegmentLog> log;
  std::unique_ptr<LsdServer> server;
  bool full = false;

  void start(bool with_log = false) {
    files.make_directories("/far").value();
    chunk::FilesSinkOptions options;
    options.directory = "/far/events";
    options.state_directory = "/far/state";
    sink = chunk::FilesSink::open(options, loop, files, store, *committer).value();
    if (with_log)
      log =
          spool::SegmentLog::open({.name = "default", .directory = "/far/spool"}, files, store, loop.random()).value();
    LsdServerOptions server_options{.bind = kOne, .self = kSelf};
    server_options.routes.push_back({"default", log.get(), [this] { return full; }});
    server_options.route_of = [](std::string_view) { return 0; };
    server = std::make_unique<LsdServer>(std::move(server_options), loop, network, store, *committer, sink.get());
    server->load().value();
    server->start().value();
  }
  std::string lines(const std::string& category) {
    std::string all;
    for (const std::string& path : files.paths())
      if (path.starts_with("/far/events/" + category + "/" + category + "-")) all += files.content(path);
    return all;
  }
  static std::vector<lsd::Token> tokens(const lsd::Response& answer) {
    const auto* got = std::get_if<std::vector<lsd::Token>>(&answer);
    return got ? *got : std::vector<lsd::Token>{};
  }
};

TEST_F(LsdServerTest, answers_after_the_commit_and_not_before) {
  start();
  Client client(network, kOne);
  disk.hold();
  client.send(request({{"clicks", {1, 18}, "first\nsecond line\n"}}));
  settle();
  EXPECT_TRUE(client.answers.empty());
  EXPECT_EQ(server->stats().events, 0u);
  disk.release();
  settle();
  ASSERT_EQ(client.answers.size(), 1u);
  EXPECT_EQ(tokens(client.answers[0]), (std::vector<lsd::Token>{{1, 18}}));
  EXPECT_EQ(lines("clicks"), "first\nsecond line\n");
  EXPECT_EQ(server->stats().events, 2u);
  EXPECT_EQ(server->direct_counters()["default"].events, 2u);
}

TEST_F(LsdServerTest, what_was_answered_survives_a_power_cut_and_counters_agree) {
  start();
  Client client(network, kOne);
  client.send(request({{"clicks", {1, 2}, "a\n"}}));
  settle();
  ASSERT_EQ(client.answers.size(), 1u);
  files.cut_power();
  store.cut_power(loop.random());
  EXPECT_EQ(lines("clicks"), "a\n") << "an answered line is synced";
  server.reset();
  sink.reset();
  start();
  EXPECT_EQ(server->stats().events, 1u);
}

TEST_F(LsdServerTest, one_request_at_a_time_and_pipelined_ones_in_order) {
  start();
  Client client(network, kOne);
  std::string all;
  for (uint64_t n = 0; n < 50; ++n) all += request({{"c" + std::to_string(n % 3), {n, n}, std::to_string(n) + "\n"}});
  fabric.chunk_max = 7;  // segments split anywhere
  client.send(all);
  settle(10s);
  ASSERT_EQ(client.answers.size(), 50u);
  for (uint64_t n = 0; n < 50; ++n) EXPECT_EQ(tokens(client.answers[n]), (std::vector<lsd::Token>{{n, n}}));
}

TEST_F(LsdServerTest, full_disk_holds_the_answer_and_writes_once_when_there_is_room) {
  start();
  files.capacity = files.used() + 50;
  Client client(network, kOne), gone(network, kOne);
  std::string payload;
  for (int i = 0; i < 100; ++i) payload += "a line of about thirty bytes " + std::to_string(i) + "\n";
  client.send(request({{"clicks", {1, 1}, payload}}));
  gone.send(request({{"clicks", {2, 2}, payload}}));
  settle(5s);
  EXPECT_TRUE(client.answers.empty());
  EXPECT_EQ(server->stats().held, 2u);
  EXPECT_EQ(server->stats().refused, 0u) << "back-pressure, not an error loop";
  gone.close();
  settle();
  EXPECT_EQ(server->stats().held, 1u);
  EXPECT_EQ(server->stats().abandoned, 1u);
  files.capacity = UINT64_MAX;
  settle(5s);
  ASSERT_EQ(client.answers.size(), 1u);
  EXPECT_EQ(lines("clicks"), payload) << "no torn line, nothing twice, nothing of who gave up";
  EXPECT_EQ(server->stats().events, 100u);
  client.send(request({{"clicks", {1, 3}, "more\n"}}));
  settle();
  EXPECT_EQ(client.answers.size(), 2u);
}

TEST_F(LsdServerTest, a_full_spool_holds_and_a_line_of_any_length_passes) {
  start(true);
  full = true;
  Client client(network, kOne);
  std::string payload = std::string(9 * 1024 * 1024, 'x') + "\n" + std::string(300 * 1024, 'y') + "\nz\n";
  client.send(request({{"clicks", {1, 1}, payload}}));
  settle();
  EXPECT_TRUE(client.answers.empty());
  full = false;
  settle(3s);
  ASSERT_EQ(client.answers.size(), 1u);
  auto cursor = log->read_from(log->first_sequence());
  std::vector<event::Block> blocks;
  for (auto record = cursor->next(); record && *record; record = cursor->next())
    blocks.push_back(event::decode((*record)->block).value());
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_TRUE(blocks[0].piece && blocks[1].piece) << "longer than a frame of a link could be sure to carry";
  std::string joined;
  for (const event::Block& b : blocks) {
    joined += b.payload.view();
    if (b.piece && &b == &blocks[0]) joined.pop_back();
    EXPECT_EQ(b.id.origin, kSelf);
  }
  EXPECT_EQ(joined, payload);
  EXPECT_EQ(blocks[1].id.first, blocks[0].id.last);
  EXPECT_EQ(blocks[3].id.first, blocks[2].id.last);
}

TEST_F(LsdServerTest, nothing_of_a_refused_request_is_written) {
  start();
  Client client(network, kOne);
  client.send(request({{"good", {1, 1}, "a\n"}, {"../evil", {1, 2}, "b\n"}}));
  settle();
  ASSERT_EQ(client.answers.size(), 1u);
  EXPECT_EQ(std::get<lsd::Generic>(client.answers[0]).text, lsd::kWriteFailed);
  EXPECT_EQ(lines("good"), "");
  for (const std::string& path : files.paths()) EXPECT_EQ(path.find("evil"), std::string::npos);
  client.send(request({{"good", {1, 1}, "a\n"}}));
  settle();
  EXPECT_EQ(lines("good"), "a\n");
}

TEST_F(LsdServerTest, large_frames_wait_for_each_other_and_a_stalled_one_is_given_up) {
  start();
  std::deque<Client> clients;
  std::string body(15 * 1024 * 1024, 'x');
  body.back() = '\n';
  std::string large = request({{"large", {1, 1}, body}});
  for (int i = 0; i < 4; ++i) clients.emplace_back(network, kOne).send(ByteView(large).substr(0, 8 + i));
  settle();
  Client small(network, kOne);
  small.send(request({{"small", {2, 2}, "s\n"}}));
  settle();
  EXPECT_EQ(small.answers.size(), 1u) << "a small request does not wait behind large ones that do not come";
  for (int i = 0; i < 4; ++i) clients[static_cast<size_t>(i)].send(ByteView(large).substr(8 + static_cast<size_t>(i)));
  for (int i = 0; i < 100 && !std::ranges::all_of(clients, [](auto& c) { return c.answers.size() == 1; }); ++i)
    settle();
  EXPECT_TRUE(std::ranges::all_of(clients, [](auto& c) { return c.answers.size() == 1; }));
  clients[0].send(ByteView(large).substr(0, 100));
  settle(LsdServer::kFrameTimeout + 3s);
  EXPECT_TRUE(clients[0].closed);
  EXPECT_EQ(server->stats().protocol_errors, 1u);
}

TEST_F(LsdServerTest, large_frames_are_served_in_turn_however_fast_a_client_comes_again) {
  start();
  std::string body(11 * 1024 * 1024, 'x');
  body.back() = '\n';
  const std::string large = request({{"large", {1, 1}, body}});
  ASSERT_GT(3 * large.size(), LsdServer::kFramesBytes);
  std::deque<Client> clients;
  std::vector<size_t> asked(5, 1);
  for (size_t i = 0; i < asked.size(); ++i) clients.emplace_back(network, kOne).send(large);
  clients[3].close();  // while it waits
  for (int step = 0; step < 1000 && clients[4].answers.size() < 3; ++step) {
    settle(100ms);
    for (size_t i : {0u, 1u, 2u, 4u}) {
      if (clients[i].answers.size() == asked[i]) {
        clients[i].send(large);
        ++asked[i];
      }
      EXPECT_LE(clients[i].answers.size(), clients[4].answers.size() + 1) << "client " << i << " before the last one";
    }
  }
  EXPECT_EQ(clients[4].answers.size(), 3u);
}

TEST_F(LsdServerTest, stopping_answers_what_is_being_written_and_refuses_the_rest) {
  start();
  Client writing(network, kOne), idle(network, kOne);
  settle();
  disk.hold();
  writing.send(request({{"clicks", {1, 2}, "a\n"}}));
  settle();
  server->stop();
  settle();
  EXPECT_TRUE(idle.closed);
  disk.release();
  settle();
  ASSERT_EQ(writing.answers.size(), 1u);
  EXPECT_EQ(tokens(writing.answers[0]).size(), 1u);
  EXPECT_TRUE(writing.closed);
}

// --- the upstream

/// Hands out lines of several categories, each a stream of its own; remembers what it was told.
class Source : public port::EventSource {
 public:
  void add(uint64_t stream, const std::string& category, const std::string& line) {
    event::Block block;
    block.category = category;
    uint64_t& at = ends_[stream];
    block.payload = Slice(line + "\n");
    block.id = {kSelf, StreamId{stream}, at, at + block.payload.size()};
    block.events = 1;
    std::string packed;
    put_varint(packed, block.payload.size());
    put_sized(packed, event::encode(block));
    batches_.push_back({StreamId{stream}, at, block.id.last, 1, Slice(std::move(packed))});
    at = block.id.last;
    if (ready_) ready_();
  }
  const std::string& route() const override { return name_; }
  const std::string& target() const override { return name_; }
  bool wants_far() const override { return true; }
  std::vector<port::OpenStream> open_streams() override { return open; }
  std::optional<port::Batch> next(size_t) override {
    if (batches_.empty()) return std::nullopt;
    port::Batch batch = std::move(batches_.front());
    batches_.pop_front();
    return batch;
  }
  void on_ready(port::Task ready) override { ready_ = std::move(ready); }
  void will_use(StreamId stream, const std::string&, port::Task durable) override {
    used.push_back(stream.value);
    if (hold_use)
      held.push_back(std::move(durable));
    else
      durable();
  }
  void advanced(StreamId stream, uint64_t settled, uint64_t events, uint64_t) override {
    EXPECT_GT(settled, settled_at[stream.value]) << "cursors only grow";
    settled_at[stream.value] = settled;
    delivered += events;
  }
  void persist_now(port::Task durable) override {
    ++persisted;
    durable();
  }
  port::WriteBatch advance_entries(StreamId, uint64_t, uint64_t) override { return {}; }
  void far_advanced(StreamId stream, uint64_t far) override { far_at[stream.value] = far; }
  void rejected(StreamId, uint64_t, uint64_t, Slice, const std::string& reason) override { rejects.push_back(reason); }
  void rerouted_unasked(uint64_t events, port::Task durable) override {
    maybe_duplicate += events;
    if (hold_count)
      held.push_back(std::move(durable));
    else
      durable();
  }
  void renew(StreamId) override {}
  void on_closed(std::move_only_function<void(StreamId)>) override {}
  port::TargetCounters counters() const override { return {}; }

  std::vector<port::OpenStream> open;
  std::vector<uint64_t> used;
  std::map<uint64_t, uint64_t> settled_at, far_at;
  std::vector<std::string> rejects;
  std::vector<port::Task> held;
  uint64_t delivered = 0, maybe_duplicate = 0, persisted = 0;
  bool hold_use = false, hold_count = false;

 private:
  std::string name_ = "all";
  std::map<uint64_t, uint64_t> ends_;
  std::deque<port::Batch> batches_;
  port::Task ready_;
};

/// A server of which a test decides every answer.
class Server {
 public:
  class Session;
  struct Asked {
    Session* session;
    std::vector<lsd::Token> tokens;
    std::vector<std::string> categories;
    std::string lines;
  };
  Server(port::Network& network, const port::Endpoint& at) : Server(network, at, true) {}
  Server(port::Network& network, const port::Endpoint& at, bool answers) : answers_(answers) {
    listener_ = network
                    .listen(at, {},
                            [this](std::unique_ptr<port::Connection>&& c) -> port::ConnectionHandler* {
                              return sessions_.emplace_back(std::make_unique<Session>(*this, std::move(c))).get();
                            })
                    .value();
  }

  class Session : public port::ConnectionHandler {
   public:
    Session(Server& server, std::unique_ptr<port::Connection> connection)
        : server_(server), connection_(std::move(connection)) {}
    void on_open(port::Connection&) override { ++server_.connections; }
    port::Consumed on_data(port::Connection&, ByteView bytes) override {
      size_t taken = 0;
      for (;;) {
        auto frame = lsd::decode_frame(bytes.substr(taken)).value();
        if (frame.consumed == 0) return {taken, 0};
        taken += frame.consumed;
        Asked asked{this, {}, {}, {}};
        lsd::for_each_event(frame.body, [&](const lsd::Event& e) {
          asked.tokens.push_back(e.token);
          asked.categories.emplace_back(e.category);
          lsd::for_each_line(e, [&](ByteView line) { asked.lines += line; });
        }).value();
        server_.on_request(std::move(asked));
      }
    }
    void on_close(port::Connection&, const Error&) override { connection_.reset(); }
    void answer(std::vector<lsd::Token> tokens) {
      std::string out;
      size_t begun = lsd::begin_frame(out);
      for (const lsd::Token& t : tokens) lsd::put_offset(out, t);
      lsd::end_frame(out, begun, lsd::kResponseOffsets);
      if (connection_) connection_->send_copy(out);
    }
    void refuse() {
      if (connection_) connection_->send_copy(lsd::encode_error(-1, lsd::kWriteFailed));
    }
    void close() { connection_.reset(); }
    void say(ByteView bytes) { connection_->send_copy(bytes); }

   private:
    Server& server_;
    std::unique_ptr<port::Connection> connection_;
  };

  void answer_next() {
    Asked asked = std::move(waiting.front());
    waiting.pop_front();
    accept(asked);
  }
  void accept(const Asked& asked) {
    lines += asked.lines;
    asked.session->answer({asked.tokens.rbegin(), asked.tokens.rend()});
  }
  std::vector<std::unique_ptr<Session>>& sessions() { return sessions_; }

  std::function<bool(const Asked&)> takes = [](const Asked&) { return true; };
  std::deque<Asked> waiting;
  std::string lines;
  size_t requests = 0, connections = 0;

 private:
  void on_request(Asked asked) {
    ++requests;
    if (!answers_)
      waiting.push_back(std::move(asked));
    else if (takes(asked))
      accept(asked);
    else
      asked.session->refuse();
  }
  bool answers_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::unique_ptr<port::Listener> listener_;
};

struct LsdUpstreamTest : LsdTest {
  Source source;
  std::unique_ptr<LsdUpstream> upstream;

  void start(std::vector<port::Endpoint> to, size_t connections = 4) {
    LsdUpstreamOptions options{.name = "old"};
    for (auto& at : to) options.addresses.push_back({at, 1});
    options.connections = connections;
    upstream = std::make_unique<LsdUpstream>(std::move(options), loop, network, store, *committer,
                                             std::vector<port::EventSource*>{&source});
    upstream->start();
  }
  ~LsdUpstreamTest() override { upstream.reset(); }
};

TEST_F(LsdUpstreamTest, lines_arrive_and_the_source_is_told_on_disk) {
  Server server(network, kOne);
  for (int i = 0; i < 10; ++i) source.add(1, "clicks", std::to_string(i));
  start({kOne});
  settle();
  EXPECT_EQ(server.lines, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
  EXPECT_EQ(source.delivered, 10u);
  EXPECT_EQ(source.settled_at[1], 20u);
  EXPECT_EQ(source.far_at[1], 20u) << "an answer is the end of the way";
  EXPECT_GT(source.persisted, 0u);
  EXPECT_EQ(source.maybe_duplicate, 0u);
}

TEST_F(LsdUpstreamTest, a_stream_has_one_request_in_flight_and_others_use_the_other_connections) {
  Server server(network, kOne, false);
  start({kOne});
  settle();
  for (uint64_t stream = 1; stream <= 3; ++stream) {
    source.add(stream, "c" + std::to_string(stream), "a");
    settle();
  }
  EXPECT_EQ(server.waiting.size(), 3u);
  source.add(1, "c1", "b");
  settle();
  EXPECT_EQ(server.waiting.size(), 3u) << "its first request is not answered";
  server.answer_next();
  settle();
  EXPECT_EQ(server.waiting.size(), 3u);
  EXPECT_EQ(server.waiting.back().lines, "b\n");
  while (!server.waiting.empty()) server.answer_next();
  settle();
  EXPECT_EQ(source.delivered, 4u);
}

TEST_F(LsdUpstreamTest, nothing_leaves_before_its_source_knows) {
  Server server(network, kOne);
  source.hold_use = true;
  source.add(1, "clicks", "a");
  start({kOne});
  settle();
  EXPECT_EQ(server.requests, 0u);
  ASSERT_EQ(source.held.size(), 1u);
  source.held[0]();
  settle();
  EXPECT_EQ(server.lines, "a\n");
}

TEST_F(LsdUpstreamTest, a_lost_connection_repeats_what_was_in_flight_in_order_once_it_is_counted) {
  Server server(network, kOne, false);
  start({kOne});
  settle();
  source.add(1, "clicks", "a");
  settle();
  source.add(1, "clicks", "b");
  source.hold_count = true;
  settle();
  server.waiting.front().session->close();
  server.waiting.clear();
  settle();
  EXPECT_EQ(source.maybe_duplicate, 1u) << "b never left";
  EXPECT_TRUE(server.waiting.empty()) << "not before the count is on disk";
  for (auto& durable : source.held) durable();
  settle();
  while (!server.waiting.empty()) server.answer_next();
  settle();
  EXPECT_EQ(server.lines, "a\nb\n");
  EXPECT_EQ(source.delivered, 2u);
}

TEST_F(LsdUpstreamTest, only_the_exact_tokens_are_an_answer) {
  Server server(network, kOne, false);
  start({kOne});
  source.add(1, "clicks", "a");
  settle();
  auto next = [&] {
    auto asked = server.waiting.front();
    server.waiting.pop_front();
    return asked;
  };
  for (int wrong = 0; wrong < 5; ++wrong) {
    ASSERT_EQ(server.waiting.size(), 1u) << wrong;
    auto asked = next();
    EXPECT_EQ(asked.tokens, (std::vector<lsd::Token>{{1, 2}})) << "stable over repetitions";
    if (wrong == 0) asked.session->answer({});
    if (wrong == 1) asked.session->answer({{1, 2}, {1, 2}});
    if (wrong == 2) asked.session->answer({{1, 3}});
    if (wrong == 3) asked.session->say("\xff\xff\xff\xff\xff\xff\xff\xff");
    if (wrong == 4) asked.session->refuse();
    settle(15s);
    EXPECT_EQ(source.delivered, 0u);
  }
  server.answer_next();
  settle();
  EXPECT_EQ(source.delivered, 1u);
  EXPECT_EQ(source.maybe_duplicate, 1u) << "counted once";
}

TEST_F(LsdUpstreamTest, a_refused_stream_goes_alone_and_delays_no_other) {
  Server server(network, kOne);
  server.takes = [](const Server::Asked& asked) {
    return std::ranges::find(asked.categories, "poison") == asked.categories.end();
  };
  for (uint64_t n = 0; n < 3; ++n) source.add(n + 1, n == 1 ? "poison" : "good", "x" + std::to_string(n));
  start({kOne});
  settle(3s);
  EXPECT_EQ(server.lines.size(), 6u) << server.lines;
  EXPECT_EQ(server.lines.find("x1"), std::string::npos);
  size_t before = server.requests;
  settle(60s);
  EXPECT_LE(server.requests - before, 20u) << "it backs off";
  source.add(1, "good", "more");
  settle(2s);
  EXPECT_TRUE(server.lines.ends_with("more\n"));
  server.takes = [](const Server::Asked&) { return true; };
  settle(16s);
  EXPECT_EQ(source.delivered, 4u);
}

TEST_F(LsdUpstreamTest, a_silent_receiver_loses_its_events_to_another) {
  Server silent(network, kOne, false);
  start({kOne, kTwo});
  settle();
  source.add(1, "a", "x");
  settle();
  ASSERT_EQ(silent.waiting.size(), 1u);
  Server good(network, kTwo);
  settle(45s);
  EXPECT_EQ(good.lines, "x\n");
  EXPECT_EQ(source.maybe_duplicate, 1u);
}

TEST_F(LsdUpstreamTest, unsolicited_bytes_are_an_error_and_a_closed_idle_connection_comes_back) {
  Server server(network, kOne);
  start({kOne});
  settle();
  size_t before = server.connections;
  for (auto& s : server.sessions()) s->say("hello");
  settle(5s);
  EXPECT_GT(server.connections, before);
  source.add(1, "a", "x");
  settle();
  EXPECT_EQ(source.delivered, 1u);
}

TEST_F(LsdUpstreamTest, after_an_unclean_end_the_first_window_is_counted_and_after_a_clean_one_nothing) {
  Server server(network, kOne, false);
  start({kOne});
  source.add(1, "a", "x");
  settle();
  upstream.reset();  // killed with a request in flight
  server.waiting.clear();
  source.open = {{StreamId{1}, 0, 0, 100, {"lsd"}}};
  Source again;
  again.open = source.open;
  again.add(1, "a", "x");
  again.add(2, "b", "never sent before");
  {
    LsdUpstreamOptions options{.name = "old", .addresses = {{kOne, 1}}};
    LsdUpstream second(options, loop, network, store, *committer, {&again});
    second.start();
    settle();
    while (!server.waiting.empty()) {
      server.answer_next();
      settle();
    }
    EXPECT_EQ(again.delivered, 2u);
    EXPECT_EQ(again.maybe_duplicate, 1u);
    second.stop();
    EXPECT_TRUE(second.drained());
    settle();
  }
  Source third;
  third.open = {{StreamId{1}, 2, 0, 100, {"lsd"}}};
  third.add(1, "a", "new");
  LsdUpstream last({.name = "old", .addresses = {{kOne, 1}}}, loop, network, store, *committer, {&third});
  last.start();
  settle();
  server.answer_next();
  settle();
  EXPECT_EQ(third.delivered, 1u);
  EXPECT_EQ(third.maybe_duplicate, 0u);
}

TEST(LsdRequest, a_message_becomes_a_line_and_a_frame_never_grows_beyond_its_bound) {
  auto batch_of = [](const std::string& payload, uint64_t first) {
    event::Block block;
    block.kind = event::BlockKind::message;
    block.category = "pos";
    block.topic = "t";
    block.id = {kSelf, StreamId{1}, first, first + 1};
    block.events = 1;
    block.payload = Slice(payload);
    std::string packed;
    put_varint(packed, 1);
    put_sized(packed, event::encode(block));
    return port::Batch{StreamId{1}, first, first + 1, 1, Slice(std::move(packed))};
  };
  std::vector<LsdUnsendable> unsendable;
  LsdRequest two;
  two.add(batch_of("a\nb\\", 0), {}, unsendable);
  two.add(batch_of("c", 1), {}, unsendable);
  EXPECT_EQ(two.events(), 2u);
  EXPECT_TRUE(two.answered_by({{1, 2}, {1, 1}}));
  EXPECT_FALSE(two.answered_by({{1, 2}}));
  std::string lines;
  auto frame = two.take_frame();
  lsd::for_each_event(lsd::decode_frame(frame.view())->body, [&](const lsd::Event& e) {
    lsd::for_each_line(e, [&](ByteView line) { lines += line; });
  }).value();
  EXPECT_EQ(lines, "a\\nb\\\\\nc\n");
  // Control characters take six bytes each as JSON.
  LsdRequest full;
  std::string control(2 * 1024 * 1024, '\x01');
  uint64_t added = 0;
  while (full.takes(batch_of(control, added).packed.size()))
    full.add(batch_of(control, added++), {.json = true}, unsendable);
  EXPECT_EQ(added, 1u);
  EXPECT_LE(full.take_frame().size(), lsd::kFrameBytesMax);
  EXPECT_TRUE(unsendable.empty());
  LsdRequest none;
  none.add(batch_of(std::string(4 * 1024 * 1024, '\x01'), 0), {.json = true}, unsendable);
  EXPECT_TRUE(none.empty());
  ASSERT_EQ(unsendable.size(), 1u);
  EXPECT_EQ(unsendable[0].events, 1u);
}

TEST_F(LsdUpstreamTest, stopping_waits_for_answers_without_sending_more) {
  Server server(network, kOne, false);
  start({kOne});
  source.add(1, "a", "x");
  settle();
  upstream->stop();
  source.add(1, "a", "y");
  settle();
  EXPECT_FALSE(upstream->drained());
  server.answer_next();
  settle();
  EXPECT_TRUE(upstream->drained());
  EXPECT_EQ(source.delivered, 1u);
  EXPECT_TRUE(server.waiting.empty());
}

}  // namespace
}  // namespace ph::relay
