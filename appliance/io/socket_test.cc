// Plain TCP on loopback: the semantics of port/network.h.
#include <gtest/gtest.h>

#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <barrier>
#include <thread>

#include <algorithm>

#include "io/loop.h"
#include "io/socket.h"
#include "io/test_network.h"

namespace ph::io {
namespace {

/// A plain blocking client, for what our own connection would never do.
class RawClient {
 public:
  explicit RawClient(const port::Endpoint& to) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) return;
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(to.port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(descriptor_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  void send(std::string_view bytes) {
    ASSERT_GE(descriptor_, 0);
    EXPECT_EQ(::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// What is there now, without waiting; nullopt at the end or after a reset.
  std::optional<std::string> receive() {
    char buffer[65536];
    ssize_t got = ::recv(descriptor_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) return std::string(buffer, static_cast<size_t>(got));
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return "";
    return std::nullopt;
  }
  void half_close() { ::shutdown(descriptor_, SHUT_WR); }
  void reset() {
    linger now{1, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }
  bool connected = false;

 private:
  int descriptor_;
};

/// A client of ours that is connected to `server`, whose other end is server.clients.back().
std::unique_ptr<Recorder> connected(IoLoop& loop, Server& server) {
  auto client = std::make_unique<Recorder>();
  size_t before = server.clients.size();
  client->connection = loop.connect(server.at(), {}, *client);
  EXPECT_FALSE(client->opened) << "never from inside connect()";
  EXPECT_TRUE(loop.run_until([&] { return client->opened && server.clients.size() == before + 1; }, kTestBound));
  return client;
}

TEST(Tcp, connects_talks_both_ways_and_names_the_peers) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  Recorder& there = *server.clients.back();
  EXPECT_TRUE(there.opened);
  EXPECT_EQ(client->connection->peer().address, server.at().to_string());
  EXPECT_TRUE(there.connection->peer().address.starts_with("127.0.0.1:"));
  EXPECT_FALSE(there.connection->peer().encrypted);
  client->connection->send_copy("ping");
  there.connection->send(Slice(std::string("pong")));
  EXPECT_EQ(client->connection->unsent_bytes(), 4u) << "written at the end of the turn";
  PH_EXPECT_SOON(loop, there.data == "ping" && client->data == "pong");
  EXPECT_EQ(client->connection->unsent_bytes(), 0u);
  PH_EXPECT_SOON(loop, client->connection->bytes_acked() >= 4);
}

TEST(Tcp, sends_what_was_queued_before_it_was_open) {
  IoLoop loop;
  Server server(loop);
  Recorder client;
  client.connection = loop.connect(server.at(), {}, client);
  client.connection->send_copy("early");
  PH_EXPECT_SOON(loop, !server.clients.empty() && server.clients[0]->data == "early");
}

TEST(Tcp, gathers_one_turn_into_one_write) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  uint64_t before = loop.counters().writes.value();
  std::string expected;
  for (int i = 0; i < 20; ++i) {
    client->connection->send_copy("head");
    client->connection->send(Slice(std::string(1000, static_cast<char>('a' + i))));
    expected += "head" + std::string(1000, static_cast<char>('a' + i));
  }
  PH_EXPECT_SOON(loop, server.clients[0]->data == expected);
  EXPECT_EQ(loop.counters().writes.value() - before, 1u);
}

TEST(Tcp, shows_a_partial_frame_again_when_it_can_be_whole) {
  IoLoop loop;
  Server server(loop);
  std::vector<std::string> frames;
  RawClient client(server.at());
  PH_EXPECT_SOON(loop, server.clients.size() == 1);
  Recorder& there = *server.clients[0];
  std::vector<size_t> shown;
  there.at_data = [&](port::Connection&, ByteView bytes) {
    shown.push_back(bytes.size());
    return take_frames(bytes, frames);
  };
  std::string bytes = frame("hello") + frame(noise(200'000, 1)) + frame("end");
  auto deliver = [&](std::string_view part) {
    uint64_t before = loop.counters().bytes_read.value();
    client.send(part);
    return loop.run_until([&] { return loop.counters().bytes_read.value() == before + part.size(); }, kTestBound);
  };
  std::string_view rest = bytes;
  for (size_t size : {2u, 3u, 4u, 10u, 50'000u, 80'000u}) {
    ASSERT_TRUE(deliver(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
  EXPECT_EQ(frames.size(), 1u);
  size_t calls = shown.size();
  EXPECT_LE(calls, 4u) << "not shown while the handler knows that it is not whole";
  ASSERT_TRUE(deliver(rest));
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0], "hello");
  EXPECT_EQ(frames[1], noise(200'000, 1));
  EXPECT_EQ(frames[2], "end");
}

TEST(Tcp, delivers_frames_of_all_sizes_however_they_are_cut) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    IoLoop loop;
    std::vector<std::string> got;
    Server server(loop, {}, [&](Recorder& there) {
      there.at_data = [&](port::Connection& connection, ByteView bytes) {
        // Now and then the handler pauses in the middle of what it was shown.
        if (random.chance(0.2)) {
          connection.pause_reading(true);
          loop.post([&connection] { connection.pause_reading(false); });
          std::vector<std::string> one;
          auto took = take_frames(bytes.substr(0, bytes.size() / 2), one);
          for (auto& f : one) got.push_back(std::move(f));
          return port::Consumed{took.bytes, 0};
        }
        auto took = take_frames(bytes, got);
        if (random.chance(0.5)) took.wanted = 0;
        return took;
      };
    });
    auto client = connected(loop, server);
    std::vector<std::string> sent;
    std::string bytes;
    for (int i = 0; i < 300; ++i) {
      size_t size = random.chance(0.03) ? random.below(1'500'000) : random.below(random.chance(0.5) ? 50 : 5000);
      sent.push_back(noise(size, seed * 1000 + static_cast<uint64_t>(i)));
      bytes += frame(sent.back());
    }
    for (size_t at = 0; at < bytes.size();) {
      size_t size = std::min<size_t>(1 + random.below(random.chance(0.5) ? 100 : 100'000), bytes.size() - at);
      client->connection->send(Slice(bytes.substr(at, size)));
      at += size;
      if (random.chance(0.2)) loop.run_until([] { return true; }, 1s);
    }
    PH_EXPECT_SOON(loop, got.size() >= sent.size());
    ASSERT_TRUE(got == sent);
  }
}

TEST(Tcp, grows_a_tail_with_what_arrives_not_with_what_is_announced) {
  IoLoop loop;
  Server server(loop);
  RawClient client(server.at());
  PH_EXPECT_SOON(loop, server.clients.size() == 1);
  std::vector<std::string> frames;
  server.clients[0]->at_data = [&](port::Connection&, ByteView bytes) { return take_frames(bytes, frames); };
  uint32_t huge = 16 * 1024 * 1024;
  size_t before = ::mallinfo2().uordblks;
  client.send(std::string(reinterpret_cast<const char*>(&huge), 4) + "x");
  PH_EXPECT_SOON(loop, server.clients[0]->calls == 1);
  client.send("yz");
  uint64_t read = loop.counters().bytes_read.value();
  PH_EXPECT_SOON(loop, loop.counters().bytes_read.value() == read + 2);
  EXPECT_LT(::mallinfo2().uordblks, before + 512 * 1024);
}

TEST(Tcp, keeps_no_memory_of_a_large_frame) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  std::vector<std::string> frames;
  server.clients[0]->at_data = [&](port::Connection&, ByteView bytes) { return take_frames(bytes, frames); };
  auto used = [] {
    auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = used();
  for (const char* after : {"", "more"}) {  // the frame is all that came, or there is something behind it
    client->connection->send(Slice(frame(noise(8'000'000, 3)) + after));
    PH_EXPECT_SOON(loop, frames.size() == 1);
    frames = std::vector<std::string>();
    PH_EXPECT_SOON(loop, client->connection->unsent_bytes() == 0);
    EXPECT_LT(used(), before + 1024 * 1024);
  }
}

TEST(Tcp, closes_a_connection_whose_handler_consumes_nothing) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  Recorder& there = *server.clients[0];
  there.at_data = [](port::Connection&, ByteView) { return port::Consumed{0, 0}; };
  client->connection->send(Slice(noise(kTailMax + 1'000'000, 9)));
  PH_EXPECT_SOON(loop, there.closed.has_value());
  EXPECT_EQ(there.closed->code, port::net_errors::too_long);
}

TEST(Tcp, orderly_end_is_told_as_closed_after_all_data) {
  IoLoop loop;
  Server server(loop);
  RawClient client(server.at());
  client.send("last words");
  client.close();
  PH_EXPECT_SOON(loop, !server.clients.empty() && server.clients[0]->closed);
  EXPECT_EQ(server.clients[0]->data, "last words");
  EXPECT_EQ(server.clients[0]->closed->code, port::net_errors::closed);
}

TEST(Tcp, reset_is_told_as_reset) {
  IoLoop loop;
  Server server(loop);
  RawClient client(server.at());
  PH_EXPECT_SOON(loop, server.clients.size() == 1);
  client.reset();
  PH_EXPECT_SOON(loop, server.clients[0]->closed.has_value());
  EXPECT_EQ(server.clients[0]->closed->code, port::net_errors::reset);
}

TEST(Tcp, reads_the_peers_last_words_although_a_write_failed_first) {
  IoLoop loop;
  Server server(loop);
  RawClient client(server.at());
  PH_EXPECT_SOON(loop, server.clients.size() == 1);
  Recorder& there = *server.clients[0];
  there.connection->pause_reading(true);
  client.send("I refuse: frame_too_long");
  there.connection->send_copy("one");
  PH_EXPECT_SOON(loop, client.receive().value_or("") == "one");
  client.half_close();
  client.close();
  there.connection->send_copy("two");  // answered by a reset, so that the next write fails
  bool turned = false;
  loop.post([&] { turned = true; });
  PH_EXPECT_SOON(loop, turned && there.connection->unsent_bytes() == 0);
  there.connection->pause_reading(false);
  there.connection->send_copy("three");
  PH_EXPECT_SOON(loop, there.closed.has_value());
  EXPECT_EQ(there.data, "I refuse: frame_too_long");
}

TEST(Tcp, refused_connect_ends_in_on_close_without_on_open) {
  IoLoop loop;
  port::Endpoint nobody;
  {
    Server server(loop);
    nobody = server.at();
  }
  Recorder client;
  client.connection = loop.connect(nobody, {}, client);
  PH_EXPECT_SOON(loop, client.closed.has_value());
  EXPECT_FALSE(client.opened);
  EXPECT_EQ(client.closed->code, port::net_errors::refused);
  EXPECT_NE(client.closed->detail.find(nobody.to_string()), std::string::npos) << client.closed->detail;
}

TEST(Tcp, connect_is_bounded_when_nobody_answers) {
  IoLoop loop;
  // A listening socket whose backlog is full drops further SYNs: the same silence as a cut link.
  int deaf = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(deaf, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(deaf, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(deaf, 0), 0);
  ASSERT_EQ(::getsockname(deaf, reinterpret_cast<sockaddr*>(&at), &size), 0);
  port::Endpoint to{"127.0.0.1", ntohs(at.sin_port)};
  std::vector<std::unique_ptr<Recorder>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Recorder>());
    port::ConnectOptions options;
    options.connect_timeout = 100ms;
    clients.back()->connection = loop.connect(to, options, *clients.back());
  }
  PH_EXPECT_SOON(loop, clients.back()->closed.has_value());
  EXPECT_EQ(clients.back()->closed->code, port::net_errors::timeout);
  ::close(deaf);
}

TEST(Tcp, resolves_names_and_tries_each_address) {
  IoLoop loop;
  Server server(loop);  // 127.0.0.1 only; "localhost" may be ::1 first
  Recorder client;
  port::ConnectOptions options;
  options.connect_timeout = 10s;
  client.connection = loop.connect({"localhost", server.at().port}, options, client);
  PH_EXPECT_SOON(loop, client.opened || client.closed);
  EXPECT_TRUE(client.opened) << client.closed->to_string();
}

TEST(Tcp, unknown_name_is_told_as_such) {
  IoLoop loop;
  Recorder client;
  port::ConnectOptions options;
  options.connect_timeout = 10s;
  client.connection = loop.connect({"no-such-host.invalid", 1}, options, client);
  PH_EXPECT_SOON(loop, client.closed.has_value());
  EXPECT_TRUE(client.closed->code == port::net_errors::name || client.closed->code == port::net_errors::timeout)
      << client.closed->to_string();
}

TEST(Tcp, close_sends_what_is_queued_and_then_tells) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  std::string bytes = noise(5'000'000, 3);
  client->connection->send(Slice(bytes));
  client->connection->close(20s);
  EXPECT_FALSE(client->closed) << "never from inside close()";
  client->connection->send_copy("after close: not sent");
  PH_EXPECT_SOON(loop, client->closed && server.clients[0]->closed);
  EXPECT_EQ(client->closed->code, port::net_errors::closed_here);
  EXPECT_EQ(server.clients[0]->closed->code, port::net_errors::closed);
  EXPECT_TRUE(server.clients[0]->data == bytes);
}

TEST(Tcp, close_is_not_undone_by_input_that_nobody_reads) {
  IoLoop loop;
  Server server(loop, {}, [](Recorder& there) {
    there.at_open = [](port::Connection& connection) {
      connection.send_copy("go away");
      connection.close();
    };
  });
  // Unread input at close() would make the kernel answer with a reset, which destroys "go away" at the client.
  RawClient client(server.at());
  client.send(std::string(100'000, 'x'));
  PH_EXPECT_SOON(loop, server.clients.size() == 1);
  std::string got;
  bool ended = false;
  PH_EXPECT_SOON(loop, [&] {
    if (auto more = client.receive()) {
      got += *more;
      if (more->empty() && got == "go away") client.close(), ended = true;
    } else {
      ended = true;
    }
    if (!ended) loop.post([] {});
    return ended;
  }());
  EXPECT_EQ(got, "go away");
  PH_EXPECT_SOON(loop, server.clients[0]->closed.has_value());
  EXPECT_EQ(server.clients[0]->calls, 0);
}

TEST(Tcp, close_is_bounded_by_linger_when_the_peer_does_not_read) {
  IoLoop loop;
  Server server(loop);
  RawClient client(server.at());
  PH_EXPECT_SOON(loop, server.clients.size() == 1);
  Recorder& there = *server.clients[0];
  there.connection->send(Slice(noise(50'000'000, 10)));
  there.connection->close(50ms);
  PH_EXPECT_SOON(loop, there.closed.has_value());
  EXPECT_EQ(there.closed->code, port::net_errors::closed_here);
}

TEST(Tcp, close_at_once_and_close_while_connecting_tell_later) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  client->connection->close(0ms);
  EXPECT_FALSE(client->closed);
  PH_EXPECT_SOON(loop, client->closed && server.clients[0]->closed);
  EXPECT_EQ(client->closed->code, port::net_errors::closed_here);

  Recorder early;
  early.connection = loop.connect(server.at(), {}, early);
  early.connection->close();
  EXPECT_FALSE(early.closed);
  PH_EXPECT_SOON(loop, early.closed.has_value());
  EXPECT_FALSE(early.opened);
}

TEST(Tcp, destroying_a_connection_calls_nothing_from_any_callback) {
  enum { at_open, at_data, at_drained, at_close, outside, before_open };
  for (int where : {at_open, at_data, at_drained, at_close, outside, before_open}) {
    SCOPED_TRACE(where);
    IoLoop loop;
    Server server(loop);
    Recorder client;
    auto destroy = [&] { client.connection.reset(); };
    if (where == at_open) client.at_open = [&](port::Connection&) { destroy(); };
    if (where == at_data)
      client.at_data = [&](port::Connection&, ByteView bytes) {
        destroy();
        return port::Consumed{std::min<size_t>(bytes.size(), 1), 5};
      };
    if (where == at_drained) client.at_drained = [&](port::Connection&) { destroy(); };
    if (where == at_close) client.at_close = destroy;
    client.connection = loop.connect(server.at(), {}, client);
    client.connection->notify_below(0);
    if (where == before_open) {
      destroy();
      bool turned = false;
      loop.post([&] { turned = true; });
      PH_EXPECT_SOON(loop, turned);
      EXPECT_FALSE(client.opened);
      continue;
    }
    PH_EXPECT_SOON(loop, !server.clients.empty() && client.opened);
    Recorder& there = *server.clients[0];
    there.connection->send_copy("some bytes");
    if (where == outside) destroy();
    if (where == at_close) there.connection->close();
    PH_EXPECT_SOON(loop, there.closed.has_value());
    EXPECT_EQ(client.connection, nullptr);
    EXPECT_EQ(client.closed.has_value(), where == at_close);
  }
}

TEST(Tcp, holds_back_output_and_tells_once_when_it_drained) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  Recorder& there = *server.clients[0];
  there.connection->pause_reading(true);
  std::string bytes = noise(30'000'000, 5);
  client->connection->send(Slice(bytes));
  client->connection->notify_below(1'000'000);
  uint64_t written = 0;
  PH_EXPECT_SOON(loop, [&] {  // until the kernel's buffers are full
    uint64_t now = loop.counters().bytes_written.value();
    bool still = now > 0 && now == written;
    written = now;
    loop.post([] {});
    return still;
  }());
  EXPECT_GT(client->connection->unsent_bytes(), 1'000'000u);
  EXPECT_EQ(client->drained, 0);
  there.connection->pause_reading(false);
  PH_EXPECT_SOON(loop, there.data.size() == bytes.size());
  EXPECT_TRUE(there.data == bytes);
  EXPECT_EQ(client->drained, 1);
}

TEST(Tcp, tells_drained_also_when_there_was_nothing_to_drain) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  client->connection->notify_below(0);
  EXPECT_EQ(client->drained, 0) << "never from inside";
  PH_EXPECT_SOON(loop, client->drained == 1);
}

TEST(Tcp, a_paused_connection_is_shown_nothing_until_it_resumes) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  Recorder& there = *server.clients[0];
  there.at_data = [&](port::Connection& connection, ByteView bytes) {
    there.data += bytes.substr(0, 1);
    connection.pause_reading(true);
    return port::Consumed{1, 0};
  };
  client->connection->send_copy("abc");
  PH_EXPECT_SOON(loop, there.calls == 1);
  for (int expected = 2; expected <= 3; ++expected) {
    bool turned = false;
    loop.post([&] { turned = true; });
    PH_EXPECT_SOON(loop, turned);
    EXPECT_EQ(there.calls, expected - 1);
    there.connection->pause_reading(false);  // the rest is shown although nothing more comes
    PH_EXPECT_SOON(loop, there.calls == expected);
  }
  EXPECT_EQ(there.data, "abc");
}

/// A raw client whose other end has read "a" and is read no more.
struct PausedPeer {
  explicit PausedPeer(IoLoop& loop_in, bool last_words = false)
      : loop(loop_in),
        server(loop_in, {}, [last_words](Recorder& r) { r.last_words = last_words; }),
        client(server.at()) {
    EXPECT_TRUE(loop.run_until([&] { return !server.clients.empty(); }, kTestBound));
    client.send("a");
    EXPECT_TRUE(loop.run_until([&] { return there().data == "a"; }, kTestBound));
    there().connection->pause_reading(true);
    turn();
  }
  Recorder& there() { return *server.clients[0]; }
  /// Time for what is under way to be seen.
  void turn() {
    for (int i = 0; i < 20; ++i) {
      bool turned = false;
      loop.post([&] { turned = true; });
      EXPECT_TRUE(loop.run_until([&] { return turned; }, kTestBound));
    }
  }
  IoLoop& loop;
  Server server;
  RawClient client;
};

TEST(Paused, a_peer_that_breaks_the_connection_ends_it_at_once) {
  for (const bool unread : {false, true}) {
    IoLoop loop;
    PausedPeer p(loop);
    if (unread) p.client.send("bc");
    p.turn();
    p.client.reset();
    PH_EXPECT_SOON(loop, p.there().closed.has_value());
    EXPECT_EQ(p.there().closed->code, port::net_errors::reset);
    EXPECT_EQ(p.there().data, "a") << "not shown to who does not read";
    EXPECT_EQ(loop.counters().ended_unread.value(), 1u);
  }
}

TEST(Paused, the_last_words_of_a_broken_connection_are_for_who_wants_them) {
  IoLoop loop;
  PausedPeer p(loop, true);
  p.client.send("bc");
  p.turn();
  p.client.reset();
  PH_EXPECT_SOON(loop, p.there().closed.has_value());
  EXPECT_EQ(p.there().closed->code, port::net_errors::reset);
  EXPECT_EQ(p.there().data, "abc");
}

/// It is paused for others' sake alone, and not done with what came before the peer broke off.
TEST(Paused, who_waits_for_a_turn_is_shown_everything_before_the_end) {
  IoLoop loop;
  Server server(loop, {}, [&](Recorder& there) {
    there.in_turns = true;
    there.at_data = [&](port::Connection& connection, ByteView bytes) {
      there.data += bytes.substr(0, 1);
      connection.pause_reading(true);
      loop.post([&] { loop.post([&connection] { connection.pause_reading(false); }); });
      return port::Consumed{1, 0};
    };
  });
  RawClient client(server.at());
  client.send("abcdefghij");
  PH_EXPECT_SOON(loop, server.clients.size() == 1 && !server.clients[0]->data.empty());
  client.reset();
  PH_EXPECT_SOON(loop, server.clients[0]->closed.has_value());
  EXPECT_EQ(server.clients[0]->data, "abcdefghij");
}

TEST(Paused, the_last_words_are_one_buffer) {
  IoLoop loop;
  PausedPeer p(loop, true);
  const std::string many(16 * 1024, 'x');
  size_t sent = 0;
  for (int i = 0; i < 100; ++i, sent += many.size()) {  // as far as the kernel takes it
    p.client.send(many);
    if (sent >= 2 * kReadBufferBytes) break;
  }
  p.client.reset();
  PH_EXPECT_SOON(loop, p.there().closed.has_value());
  EXPECT_LE(p.there().data.size(), kReadBufferBytes + 1);
}

TEST(Paused, an_orderly_end_with_nothing_left_to_read_is_the_end) {
  for (const bool half : {false, true}) {
    IoLoop loop;
    PausedPeer p(loop);
    half ? p.client.half_close() : p.client.close();
    PH_EXPECT_SOON(loop, p.there().closed.has_value());
    EXPECT_EQ(p.there().closed->code, port::net_errors::closed);
  }
}

TEST(Paused, an_orderly_end_comes_behind_what_was_not_read_yet) {
  IoLoop loop;
  PausedPeer p(loop);
  p.client.send("bcd");
  p.client.close();
  p.turn();
  EXPECT_FALSE(p.there().closed) << "there is something to read";
  EXPECT_EQ(p.there().data, "a");
  p.there().connection->pause_reading(false);
  PH_EXPECT_SOON(loop, p.there().closed.has_value());
  EXPECT_EQ(p.there().data, "abcd");
  EXPECT_EQ(p.there().closed->code, port::net_errors::closed);
}

TEST(Paused, an_end_that_waits_behind_unread_bytes_costs_no_turns_and_a_reset_still_ends_it) {
  IoLoop loop;
  PausedPeer p(loop);
  p.client.send("bcd");
  p.client.half_close();
  p.turn();
  const uint64_t turns = loop.counters().turns.value();
  bool late = false;
  auto timer = loop.make_timer();
  timer->start(300ms, [&] { late = true; });
  PH_EXPECT_SOON(loop, late);
  EXPECT_LT(loop.counters().turns.value() - turns, 100u) << "the loop spins";
  EXPECT_FALSE(p.there().closed);
  p.client.reset();
  PH_EXPECT_SOON(loop, p.there().closed.has_value());
  EXPECT_EQ(p.there().closed->code, port::net_errors::reset);
}

TEST(Paused, from_the_first_moment_on_the_end_is_noticed) {
  IoLoop loop;
  Server server(loop, {}, [](Recorder& there) { there.at_open = [](port::Connection& c) { c.pause_reading(true); }; });
  RawClient client(server.at());
  PH_EXPECT_SOON(loop, !server.clients.empty() && server.clients[0]->opened);
  client.close();
  PH_EXPECT_SOON(loop, server.clients[0]->closed.has_value());
}

TEST(Paused, pausing_and_resuming_over_and_over_loses_nothing) {
  IoLoop loop;
  Server server(loop);
  auto client = connected(loop, server);
  Recorder& there = *server.clients[0];
  std::string sent;
  for (int i = 0; i < 200; ++i) {
    there.connection->pause_reading(true);
    const std::string part = noise(1 + static_cast<size_t>(i) * 37 % 5000, static_cast<uint64_t>(i));
    client->connection->send_copy(part);
    sent += part;
    bool turned = false;
    loop.post([&] { turned = true; });
    PH_EXPECT_SOON(loop, turned);
    there.connection->send_copy("back");  // writing goes on meanwhile
    there.connection->pause_reading(false);
    if (i % 3 == 0) {
      PH_EXPECT_SOON(loop, there.data.size() == sent.size());
    }
  }
  PH_EXPECT_SOON(loop, there.data.size() == sent.size() && client->data.size() == 800);
  EXPECT_EQ(there.data, sent);
}

TEST(Tcp, one_connection_that_never_stops_sending_leaves_room_for_others) {
  IoLoop loop;
  Server server(loop);
  auto firehose = connected(loop, server);
  auto other = connected(loop, server);
  Slice chunk(std::string(1'000'000, 'x'));
  size_t largest = 0;
  server.clients[0]->at_data = [&](port::Connection&, ByteView bytes) {
    largest = std::max(largest, bytes.size());
    return port::Consumed{bytes.size(), 0};
  };
  firehose->at_drained = [&](port::Connection& connection) {
    for (int i = 0; i < 4; ++i) connection.send(chunk);
    connection.notify_below(2'000'000);
  };
  firehose->connection->notify_below(0);
  int answers = 0;
  server.clients[1]->at_data = [&](port::Connection& connection, ByteView bytes) {
    connection.send_copy(bytes);
    return port::Consumed{bytes.size(), 0};
  };
  other->at_data = [&](port::Connection& connection, ByteView bytes) {
    ++answers;
    connection.send_copy("?");
    return port::Consumed{bytes.size(), 0};
  };
  other->connection->send_copy("?");
  PH_EXPECT_SOON(loop, answers >= 200);
  EXPECT_LE(largest, kReadBufferBytes) << "one buffer a connection and turn";
}

TEST(Tcp, of_many_to_write_the_later_ones_take_along_what_comes_meanwhile) {
  constexpr size_t kMany = 150;
  IoLoop loop;
  Server server(loop);
  std::vector<std::unique_ptr<Recorder>> readers;
  for (size_t i = 0; i < kMany; ++i) readers.push_back(connected(loop, server));
  auto writer = connected(loop, server);
  auto to_all = [&](ByteView bytes) {
    for (size_t i = 0; i < kMany; ++i) server.clients[i]->connection->send_copy(bytes);
  };
  server.clients.back()->at_data = [&](port::Connection& connection, ByteView bytes) {
    to_all("second");
    connection.send_copy("answer");
    return port::Consumed{bytes.size(), 0};
  };
  const uint64_t before = loop.counters().writes.value();
  writer->connection->send_copy("more");
  to_all("first");
  size_t had_before_answer = kMany;
  writer->at_data = [&](port::Connection&, ByteView bytes) {
    had_before_answer = static_cast<size_t>(std::ranges::count(readers, "firstsecond", &Recorder::data));
    return port::Consumed{bytes.size(), 0};
  };
  PH_EXPECT_SOON(loop, std::ranges::all_of(readers, [](auto& r) { return r->data == "firstsecond"; }) &&
                           had_before_answer < kMany);
  EXPECT_LT(loop.counters().writes.value() - before, kMany * 2 - kMany / 3) << "most had both in one write";
}

TEST(Tcp, a_loop_that_stops_writes_to_all_first) {
  IoLoop loop;
  Server server(loop);
  std::vector<std::unique_ptr<RawClient>> readers;
  for (size_t i = 0; i < 100; ++i) {
    readers.push_back(std::make_unique<RawClient>(server.at()));
    PH_EXPECT_SOON(loop, server.clients.size() == i + 1);
  }
  loop.post([&] {
    for (auto& client : server.clients) client->connection->send_copy("bye");
    loop.stop();
  });
  loop.run();
  for (auto& reader : readers) EXPECT_EQ(reader->receive(), "bye");
}

TEST(Listener, refuses_above_its_maximum_and_counts) {
  IoLoop loop;
  port::ListenOptions options;
  options.connections_max = 2;
  Server server(loop, options);
  auto one = connected(loop, server);
  auto two = connected(loop, server);
  Recorder three;
  three.connection = loop.connect(server.at(), {}, three);
  PH_EXPECT_SOON(loop, three.closed.has_value());
  EXPECT_EQ(loop.counters().refused_full.value(), 1u);
  one->connection->close(0ms);
  PH_EXPECT_SOON(loop, server.clients[0]->closed.has_value());
  auto four = connected(loop, server);
  EXPECT_TRUE(four->opened);
}

TEST(Listener, shares_its_maximum_with_those_that_count_with_it) {
  IoLoop loop;
  port::ListenOptions options;
  options.connections_max = 2;
  options.live = std::make_shared<std::atomic<size_t>>(0);
  Server first(loop, options);
  Server second(loop, options);
  auto one = connected(loop, first);
  auto two = connected(loop, second);
  for (const auto& at : {first.at(), second.at()}) {
    Recorder over;
    over.connection = loop.connect(at, {}, over);
    PH_EXPECT_SOON(loop, over.closed.has_value());
  }
  EXPECT_EQ(loop.counters().refused_full.value(), 2u);
  EXPECT_EQ(*options.live, 2u) << "what was refused counts no more";
  one->connection->close(0ms);
  PH_EXPECT_SOON(loop, first.clients[0]->closed.has_value());
  auto four = connected(loop, second);
  EXPECT_TRUE(four->opened);
}

TEST(Listener, refuses_what_the_accept_function_refuses) {
  IoLoop loop;
  std::unique_ptr<port::Connection> kept;
  bool keep = false;
  auto listener = loop.listen({"127.0.0.1", 0}, {},
                              [&](std::unique_ptr<port::Connection>&& connection) -> port::ConnectionHandler* {
                                if (keep) kept = std::move(connection);
                                return nullptr;
                              });
  ASSERT_TRUE(listener.has_value());
  for (int i = 1; i <= 2; ++i) {
    Recorder client;
    client.connection = loop.connect((*listener)->local(), {}, client);
    PH_EXPECT_SOON(loop, client.closed.has_value());
    EXPECT_EQ(loop.counters().refused_by_handler.value(), static_cast<uint64_t>(i));
    keep = true;
  }
  ASSERT_NE(kept, nullptr);
  kept->send_copy("into the void");
  EXPECT_EQ(kept->unsent_bytes(), 0u);
}

TEST(Listener, may_be_destroyed_by_its_own_accept_function) {
  IoLoop loop;
  std::unique_ptr<port::Listener> listener;
  Recorder there;
  auto made = loop.listen({"127.0.0.1", 0}, {}, [&](std::unique_ptr<port::Connection>&& connection) {
    listener.reset();
    there.connection = std::move(connection);
    return &there;
  });
  ASSERT_TRUE(made.has_value());
  listener = std::move(*made);
  Recorder client;
  client.connection = loop.connect(listener->local(), {}, client);
  client.connection->send_copy("hi");
  PH_EXPECT_SOON(loop, there.data == "hi");
}

TEST(Listener, says_when_the_port_is_taken) {
  IoLoop loop;
  Server server(loop);
  auto again = loop.listen(server.at(), {}, [](auto&&) { return nullptr; });
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, port::net_errors::in_use);
  EXPECT_NE(again.error().detail.find(server.at().to_string()), std::string::npos);
}

TEST(Listener, shares_a_port_between_workers_when_asked) {
  IoLoop loop;
  port::ListenOptions options;
  options.reuse_port = true;
  Server first(loop, options);
  EXPECT_FALSE(loop.listen(first.at(), options, [](auto&&) { return nullptr; }).has_value()) << "as another process";
  options.joins = true;
  auto second = loop.listen(first.at(), options, [](auto&&) { return nullptr; });
  EXPECT_TRUE(second.has_value());
}

TEST(Listener, of_two_that_begin_at_one_moment_one_gets_the_port) {
  for (int round = 0; round < 10; ++round) {
    uint16_t port = 0;
    {
      IoLoop loop;
      port = Server(loop).at().port;
    }
    std::barrier begin(2), end(2);
    std::array<bool, 2> got{};
    auto run = [&](size_t i) {
      IoLoop loop;
      begin.arrive_and_wait();
      auto listener = loop.listen({"127.0.0.1", port}, {.reuse_port = round % 2 == 0}, [](auto&&) { return nullptr; });
      got[i] = listener.has_value();
      end.arrive_and_wait();
    };
    {
      std::jthread a(run, 0), b(run, 1);
    }
    EXPECT_NE(got[0], got[1]) << (got[0] ? "both" : "neither");
  }
}

TEST(Listener, on_an_empty_host_takes_both_families) {
  IoLoop loop;
  Recorder there;
  int accepted = 0;
  auto listener = loop.listen({"", 0}, {}, [&](auto&&) -> port::ConnectionHandler* {
    ++accepted;
    return nullptr;
  });
  ASSERT_TRUE(listener.has_value());
  Recorder four;
  four.connection = loop.connect({"127.0.0.1", (*listener)->local().port}, {}, four);
  PH_EXPECT_SOON(loop, four.closed.has_value());
  EXPECT_EQ(accepted, 1);
  if ((*listener)->local().host == "::") {
    Recorder six;
    six.connection = loop.connect({"::1", (*listener)->local().port}, {}, six);
    PH_EXPECT_SOON(loop, six.closed.has_value());
    EXPECT_EQ(accepted, six.opened ? 2 : 1);
  }
}

TEST(Listener, pauses_when_descriptors_run_out_and_goes_on_afterwards) {
  IoLoop loop;
  Server server(loop);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  RawClient client(server.at());  // in the backlog
  int probe = ::dup(0);
  ASSERT_GE(probe, 0);
  ::close(probe);
  rlimit none = limit;
  none.rlim_cur = static_cast<rlim_t>(probe);  // the next descriptor would be `probe`
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  bool paused = loop.run_until([&] { return loop.counters().accept_pauses.value() > 0; }, kTestBound);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(paused);
  EXPECT_TRUE(server.clients.empty());
  PH_EXPECT_SOON(loop, server.clients.size() == 1);
}

TEST(Listener, accepts_no_more_a_second_than_it_is_told) {
  IoLoop loop;
  std::vector<Instant> accepted;
  auto listener = loop.listen({"127.0.0.1", 0}, {.accepts_a_second = 100}, [&](auto&&) -> port::ConnectionHandler* {
    accepted.push_back(loop.now());
    return nullptr;
  });
  ASSERT_TRUE(listener.has_value());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 180; ++i) clients.push_back(std::make_unique<RawClient>((*listener)->local()));
  PH_EXPECT_SOON(loop, accepted.size() == 180);
  for (size_t i = 111; i < accepted.size(); ++i)
    EXPECT_GT(accepted[i] - accepted[i - 111], 950ms) << "100 a second, 10 of them at once";
}

TEST(Tcp, an_idle_connection_costs_little_memory) {
  constexpr size_t kConnections = 400;
  IoLoop loop;
  class Ignore final : public port::ConnectionHandler {
    void on_open(port::Connection&) override {}
    port::Consumed on_data(port::Connection&, ByteView bytes) override { return {bytes.size(), 0}; }
    void on_close(port::Connection&, const Error&) override {}
  } handler;
  std::vector<std::unique_ptr<port::Connection>> accepted;
  std::vector<std::unique_ptr<RawClient>> clients;
  accepted.reserve(kConnections);
  auto listener = loop.listen({"127.0.0.1", 0}, {}, [&](std::unique_ptr<port::Connection>&& connection) {
    accepted.push_back(std::move(connection));
    return &handler;
  });
  ASSERT_TRUE(listener.has_value());
  for (size_t i = 0; i < kConnections; ++i) {
    clients.push_back(std::make_unique<RawClient>((*listener)->local()));
    clients.back()->send(std::string(1000, 'x'));
  }
  size_t before = ::mallinfo2().uordblks;
  PH_EXPECT_SOON(loop, accepted.size() == kConnections && loop.counters().bytes_read.value() == kConnections * 1000);
  size_t each = (::mallinfo2().uordblks - before) / kConnections;
  RecordProperty("bytes_per_idle_connection", static_cast<int>(each));
  EXPECT_LT(each, 1536u);
  // Each also sends once, and is as small as before when that is written.
  for (auto& connection : accepted) connection->send_copy(std::string(1000, 'y'));
  PH_EXPECT_SOON(loop, loop.counters().bytes_written.value() == kConnections * 1000);
  EXPECT_LT((::mallinfo2().uordblks - before) / kConnections, 1536u + 300u);  // the loop's own pool is in it
}

}  // namespace
}  // namespace ph::io
