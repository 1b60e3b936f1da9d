// TLS under the same Connection interface: handshakes that succeed, and each way in which they must not.
#include "io/tls.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "io/clock.h"
#include "io/pki.h"
#include "io/test_files.h"
#include "io/test_network.h"

namespace ph::io {
namespace {

using Context = std::shared_ptr<port::TlsContext>;

/// Two authorities with certificates, made once for all tests.
class Authorities {
 public:
  Authorities() {
    WallTime now = wall_now();
    for (std::string ca : {"ours", "theirs"}) {
      EXPECT_TRUE(pki_init(dir / ca));
      for (std::string name : {"server", "client"})
        EXPECT_TRUE(pki_issue(dir / ca, {name, {"localhost"}, {"127.0.0.1"}}));
    }
    EXPECT_TRUE(pki_issue(dir / "ours", {"expired", {}, {"127.0.0.1"}},
                          {now - std::chrono::days(9), now - std::chrono::days(1)}));
    EXPECT_TRUE(pki_issue(dir / "ours", {"future", {}, {"127.0.0.1"}},
                          {now + std::chrono::days(1), now + std::chrono::days(9)}));
    EXPECT_TRUE(pki_issue(dir / "ours", {"elsewhere", {}, {"10.9.9.9"}}));
  }
  TlsOptions options(const std::string& trusted, const std::string& ca, const std::string& name) const {
    TlsOptions o;
    if (!trusted.empty()) o.ca_file = dir / trusted + "/ca.crt";
    if (!name.empty()) {
      o.certificate_file = dir / ca + "/" + name + ".crt";
      o.key_file = dir / ca + "/" + name + ".key";
    }
    return o;
  }
  TemporaryDirectory dir;
};

class Tls : public testing::Test {
 protected:
  static void SetUpTestSuite() { authorities = new Authorities; }
  static void TearDownTestSuite() {
    delete authorities;
    authorities = nullptr;
  }
  static Context context(const TlsOptions& options) {
    auto made = port::TlsContext::load(options);
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
    return made ? *made : nullptr;
  }
  static Context ours(const std::string& name) { return context(authorities->options("ours", "ours", name)); }

  static port::ListenOptions listening(Context tls) {
    port::ListenOptions options;
    options.tls = std::move(tls);
    return options;
  }
  static port::ConnectOptions connecting(Context tls, const std::string& name = {}) {
    port::ConnectOptions options;
    options.tls = std::move(tls);
    options.server_name = name;
    options.connect_timeout = 10s;
    return options;
  }
  /// Connects and expects that the handshake fails; what each side says. The server never meets its handler.
  struct Failure {
    Error client;
    size_t accepted = 0;
    uint64_t failures = 0;
  };
  Failure refused(Context server_tls, Context client_tls, const std::string& name = {}) {
    IoLoop loop;
    Server server(loop, listening(std::move(server_tls)));
    Recorder client;
    client.connection = loop.connect(server.at(), connecting(std::move(client_tls), name), client);
    client.connection->send_copy("must not arrive");
    EXPECT_TRUE(loop.run_until([&] { return client.closed.has_value(); }, kTestBound));
    bool server_told = loop.run_until([&] { return loop.counters().handshake_failures.value() >= 1; }, kTestBound);
    EXPECT_TRUE(server_told);
    for (auto& there : server.clients) EXPECT_EQ(there->data, "");
    return {client.closed.value_or(Error{}), server.clients.size(), loop.counters().handshake_failures.value()};
  }

  static Authorities* authorities;
};
Authorities* Tls::authorities = nullptr;

bool says(const Error& error, std::string_view part) {
  return error.code == port::net_errors::tls && error.detail.find(part) != std::string::npos;
}

TEST_F(Tls, both_sides_know_each_other_by_name) {
  IoLoop loop;
  Server server(loop, listening(ours("server")));
  Recorder client;
  client.connection = loop.connect(server.at(), connecting(ours("client")), client);
  client.connection->send_copy("early");
  PH_EXPECT_SOON(loop, client.opened && server.clients.size() == 1 && server.clients[0]->data == "early");
  EXPECT_TRUE(client.connection->peer().encrypted);
  EXPECT_EQ(client.connection->peer().certificate_name, "server");
  Recorder& there = *server.clients[0];
  EXPECT_TRUE(there.connection->peer().encrypted);
  EXPECT_EQ(there.connection->peer().certificate_name, "client");
  there.connection->send(Slice(std::string("answer")));
  PH_EXPECT_SOON(loop, client.data == "answer");
  EXPECT_EQ(loop.counters().handshakes.value(), 2u);
}

TEST_F(Tls, a_paused_connection_ends_with_its_peer_unless_there_is_something_to_read) {
  for (const bool unread : {false, true}) {
    IoLoop loop;
    Server server(loop, listening(ours("server")));
    Recorder client;
    client.connection = loop.connect(server.at(), connecting(ours("client")), client);
    client.connection->send_copy("a");
    PH_EXPECT_SOON(loop, server.clients.size() == 1 && server.clients[0]->data == "a");
    Recorder& there = *server.clients[0];
    there.connection->pause_reading(true);
    if (unread) client.connection->send_copy("bc");
    bool late = false;
    auto timer = loop.make_timer();
    timer->start(50ms, [&] { late = true; });
    PH_EXPECT_SOON(loop, late);
    client.connection->close(1s);  // close_notify, and then FIN
    if (unread) {
      late = false;
      timer->start(100ms, [&] { late = true; });
      PH_EXPECT_SOON(loop, late);
      EXPECT_FALSE(there.closed);
      there.connection->pause_reading(false);
    }
    PH_EXPECT_SOON(loop, there.closed.has_value());
    EXPECT_EQ(there.data, unread ? "abc" : "a");
    EXPECT_EQ(there.closed->code, port::net_errors::closed);
  }
}

TEST_F(Tls, checks_the_server_by_dns_name_and_by_address) {
  for (std::string name : {"server", "localhost", "127.0.0.1"}) {
    IoLoop loop;
    Server server(loop, listening(ours("server")));
    Recorder client;
    client.connection = loop.connect(server.at(), connecting(ours("client"), name), client);
    PH_EXPECT_SOON(loop, client.opened || client.closed);
    EXPECT_TRUE(client.opened) << name << ": " << client.closed->to_string();
  }
  for (std::string name : {"other-name", "127.0.0.2", "::1"}) {
    auto failure = refused(ours("server"), ours("client"), name);
    EXPECT_TRUE(says(failure.client, "is not for \"" + name + "\"")) << failure.client.to_string();
  }
  auto failure = refused(ours("elsewhere"), ours("client"));
  EXPECT_TRUE(says(failure.client, "is not for \"127.0.0.1\"")) << failure.client.to_string();
}

TEST_F(Tls, a_server_of_another_ca_is_refused) {
  auto failure = refused(context(authorities->options("ours", "theirs", "server")), ours("client"));
  EXPECT_TRUE(says(failure.client, "is of another CA")) << failure.client.to_string();
  EXPECT_EQ(failure.accepted, 0u);
}

TEST_F(Tls, a_client_of_another_ca_is_refused_and_told_why) {
  auto failure = refused(ours("server"), context(authorities->options("ours", "theirs", "client")));
  // Under 1.3 the client has finished when the server refuses, and cannot always read the alert.
  EXPECT_TRUE(says(failure.client, tls13_available() ? "" : "our certificate is of another CA"))
      << failure.client.to_string();
  EXPECT_EQ(failure.accepted, 0u);
}

TEST_F(Tls, a_client_without_certificate_is_refused_unless_that_is_allowed) {
  auto failure = refused(ours("server"), context(authorities->options("ours", "", "")));
  EXPECT_EQ(failure.accepted, 0u);
  EXPECT_EQ(failure.client.code, port::net_errors::tls) << failure.client.to_string();

  for (auto peer : {PeerCertificate::optional, PeerCertificate::none}) {
    auto options = authorities->options("ours", "ours", "server");
    options.peer = peer;
    IoLoop loop;
    Server server(loop, listening(context(options)));
    Recorder client;
    client.connection = loop.connect(server.at(), connecting(context(authorities->options("ours", "", ""))), client);
    PH_EXPECT_SOON(loop, client.opened && server.clients.size() == 1);
    EXPECT_EQ(server.clients[0]->connection->peer().certificate_name, "");
  }
}

TEST_F(Tls, a_bad_certificate_is_refused_also_where_none_is_needed) {
  auto options = authorities->options("ours", "ours", "server");
  options.peer = PeerCertificate::optional;
  auto failure = refused(context(options), context(authorities->options("ours", "theirs", "client")));
  EXPECT_EQ(failure.accepted, 0u);
}

TEST_F(Tls, expired_and_future_certificates_are_refused_on_either_side) {
  auto failure = refused(ours("expired"), ours("client"));
  EXPECT_TRUE(says(failure.client, "has expired")) << failure.client.to_string();
  failure = refused(ours("future"), ours("client"));
  EXPECT_TRUE(says(failure.client, "is not valid yet")) << failure.client.to_string();
  EXPECT_EQ(refused(ours("server"), ours("expired")).accepted, 0u);
  EXPECT_EQ(refused(ours("server"), ours("future")).accepted, 0u);
}

/// A blocking plain socket to `to`.
int plain_socket(const port::Endpoint& to) {
  int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(to.port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(descriptor, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  return descriptor;
}

TEST_F(Tls, garbage_on_a_tls_port_reaches_no_handler) {
  for (std::string garbage : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), noise(100'000, 7), std::string(5, '\0'),
                              std::string("\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00\x00", 16)}) {
    IoLoop loop;
    Server server(loop, listening(ours("server")));
    int descriptor = plain_socket(server.at());
    (void)!::send(descriptor, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    ::shutdown(descriptor, SHUT_WR);
    PH_EXPECT_SOON(loop, loop.counters().handshake_failures.value() == 1);
    EXPECT_TRUE(server.clients.empty());
    ::close(descriptor);
  }
}

TEST_F(Tls, a_stalled_handshake_is_bounded) {
  IoLoop loop;
  loop.set_handshake_timeout(50ms);
  Server server(loop, listening(ours("server")));
  int descriptor = plain_socket(server.at());
  (void)!::send(descriptor, "\x16\x03\x01", 3, MSG_NOSIGNAL);  // and then nothing
  PH_EXPECT_SOON(loop, loop.counters().handshake_failures.value() == 1);
  EXPECT_TRUE(server.clients.empty());
  ::close(descriptor);

  Server plain(loop);  // answers nothing to a client that speaks TLS
  Recorder client;
  client.connection = loop.connect(plain.at(), connecting(ours("client")), client);
  PH_EXPECT_SOON(loop, client.closed.has_value());
  EXPECT_TRUE(says(*client.closed, "took too long")) << client.closed->to_string();
}

TEST_F(Tls, many_handshakes_do_not_starve_who_is_connected) {
  IoLoop loop;
  loop.set_handshake_timeout(kTestBound);  // 60 of them on a busy machine
  Server server(loop, listening(ours("server")));
  Server plain(loop, {}, [](Recorder& there) {
    there.at_data = [](port::Connection& connection, ByteView bytes) {
      connection.send_copy(bytes);
      return port::Consumed{bytes.size(), 0};
    };
  });
  Recorder talker;
  int answers = 0;
  talker.at_data = [&](port::Connection& connection, ByteView bytes) {
    ++answers;
    connection.send_copy("?");
    return port::Consumed{bytes.size(), 0};
  };
  talker.at_open = [](port::Connection& connection) { connection.send_copy("?"); };
  talker.connection = loop.connect(plain.at(), {}, talker);
  PH_EXPECT_SOON(loop, answers > 0);
  std::vector<std::unique_ptr<Recorder>> clients;
  auto client_context = ours("client");
  for (int i = 0; i < 30; ++i) {
    clients.push_back(std::make_unique<Recorder>());
    clients.back()->connection = loop.connect(server.at(), connecting(client_context), *clients.back());
  }
  // How many answers came between two handshakes depends on when the kernel hands over a packet; that some came while
  // others still waited does not.
  int before = answers;
  int while_waiting = 0;
  PH_EXPECT_SOON(loop, [&] {
    if (server.clients.size() < 30) while_waiting = answers - before;
    return server.clients.size() == 30;
  }());
  EXPECT_GE(while_waiting, 3) << "answers while 60 handshakes were computed";
}

TEST_F(Tls, of_many_handshakes_the_first_are_through_before_the_last_begin) {
  IoLoop loop;
  loop.set_handshake_timeout(kTestBound);
  uint64_t begun_at_first = 0;
  Server server(loop, listening(ours("server")), [&](Recorder&) {
    if (begun_at_first == 0) begun_at_first = loop.counters().handshakes_begun.value();
  });
  std::vector<std::unique_ptr<Recorder>> clients;
  auto client_context = ours("client");
  for (int i = 0; i < 60; ++i) {
    clients.push_back(std::make_unique<Recorder>());
    clients.back()->connection = loop.connect(server.at(), connecting(client_context), *clients.back());
  }
  PH_EXPECT_SOON(loop, server.clients.size() == 60);
  EXPECT_EQ(loop.counters().handshakes_begun.value(), 120u);
  // 60 of them are the clients' own beginnings.
  EXPECT_LT(begun_at_first, 60u + 30u) << "or a crowd would time out all together";
  EXPECT_EQ(loop.counters().handshake_failures.value(), 0u);
}

TEST_F(Tls, twenty_megabytes_come_back_unchanged) {
  IoLoop loop;
  Server server(loop, listening(ours("server")), [](Recorder& there) {
    there.at_data = [](port::Connection& connection, ByteView bytes) {
      connection.send(Slice(std::string(bytes)));
      if (connection.unsent_bytes() > 1'000'000) {
        connection.pause_reading(true);
        connection.notify_below(100'000);
      }
      return port::Consumed{bytes.size(), 0};
    };
    there.at_drained = [](port::Connection& connection) { connection.pause_reading(false); };
  });
  std::string bytes = noise(20'000'000, 11);
  Recorder client;
  client.connection = loop.connect(server.at(), connecting(ours("client")), client);
  Random random(12);
  for (size_t at = 0; at < bytes.size();) {
    size_t size = std::min<size_t>(1 + random.below(random.chance(0.5) ? 200 : 60'000), bytes.size() - at);
    if (random.chance(0.5))
      client.connection->send_copy(ByteView(bytes).substr(at, size));
    else
      client.connection->send(Slice(bytes.substr(at, size)));
    at += size;
  }
  PH_EXPECT_SOON(loop, client.data.size() == bytes.size());
  EXPECT_TRUE(client.data == bytes);
  EXPECT_FALSE(client.closed);
}

TEST_F(Tls, gathers_small_sends_of_a_turn_into_one_record) {
  IoLoop loop;
  Server server(loop, listening(ours("server")));
  Recorder client;
  client.connection = loop.connect(server.at(), connecting(ours("client")), client);
  PH_EXPECT_SOON(loop, client.opened && server.clients.size() == 1);
  uint64_t before = loop.counters().writes.value();
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    client.connection->send(Slice(std::string(150, static_cast<char>('a' + i % 26))));
    client.connection->send_copy("x");
    expected += std::string(150, static_cast<char>('a' + i % 26)) + "x";
  }
  PH_EXPECT_SOON(loop, server.clients[0]->data == expected);
  EXPECT_EQ(loop.counters().writes.value() - before, 1u);
}

TEST_F(Tls, output_to_a_peer_that_does_not_read_is_held_back_and_close_is_bounded) {
  IoLoop loop;
  Server server(loop, listening(ours("server")));
  Recorder client;
  client.connection = loop.connect(server.at(), connecting(ours("client")), client);
  PH_EXPECT_SOON(loop, client.opened && server.clients.size() == 1);
  Recorder& there = *server.clients[0];
  there.connection->pause_reading(true);
  client.connection->send(Slice(noise(30'000'000, 1)));
  client.connection->notify_below(1000);
  uint64_t written = 0;
  PH_EXPECT_SOON(loop, [&] {
    uint64_t now = loop.counters().bytes_written.value();
    bool still = now > 10'000 && now == written;
    written = now;
    loop.post([] {});
    return still;
  }());
  EXPECT_GT(client.connection->unsent_bytes(), 1'000'000u);
  EXPECT_EQ(client.drained, 0);
  client.connection->close(50ms);
  PH_EXPECT_SOON(loop, client.closed.has_value());
  EXPECT_EQ(client.closed->code, port::net_errors::closed_here);
}

TEST_F(Tls, close_delivers_everything_and_an_orderly_end) {
  IoLoop loop;
  Server server(loop, listening(ours("server")));
  Recorder client;
  client.connection = loop.connect(server.at(), connecting(ours("client")), client);
  PH_EXPECT_SOON(loop, client.opened && server.clients.size() == 1);
  std::string bytes = noise(3'000'000, 2);
  client.connection->send(Slice(bytes));
  client.connection->close(20s);
  Recorder& there = *server.clients[0];
  PH_EXPECT_SOON(loop, there.closed && client.closed);
  EXPECT_TRUE(there.data == bytes);
  EXPECT_EQ(there.closed->code, port::net_errors::closed);
  EXPECT_EQ(client.closed->code, port::net_errors::closed_here);
}

TEST_F(Tls, data_that_comes_with_the_end_of_the_handshake_is_delivered_also_after_a_pause) {
  IoLoop loop;
  bool pause = true;
  Server server(loop, listening(ours("server")), [&](Recorder& there) { there.connection->pause_reading(pause); });
  Recorder client;
  client.connection = loop.connect(server.at(), connecting(ours("client")), client);
  client.connection->send_copy("in one flight with Finished");
  PH_EXPECT_SOON(loop, client.opened && server.clients.size() == 1);
  bool turned = false;
  loop.post([&] { turned = true; });
  PH_EXPECT_SOON(loop, turned && client.connection->unsent_bytes() == 0);
  EXPECT_EQ(server.clients[0]->data, "");
  server.clients[0]->connection->pause_reading(false);
  PH_EXPECT_SOON(loop, server.clients[0]->data == "in one flight with Finished");
}

TEST_F(Tls, what_a_paused_handler_left_is_shown_before_the_end) {
  IoLoop loop;
  Server server(loop, listening(ours("server")), [&](Recorder& there) {
    there.at_data = [&](port::Connection& connection, ByteView bytes) {
      there.data += bytes.substr(0, 1);
      connection.pause_reading(true);
      loop.post([&connection] { connection.pause_reading(false); });
      return port::Consumed{1, 0};
    };
  });
  Recorder client;
  client.connection = loop.connect(server.at(), connecting(ours("client")), client);
  PH_EXPECT_SOON(loop, client.opened && server.clients.size() == 1);
  client.connection->send_copy("abcdef");
  client.connection->close(kTestBound);
  PH_EXPECT_SOON(loop, server.clients[0]->closed.has_value());
  EXPECT_EQ(server.clients[0]->data, "abcdef");
  EXPECT_EQ(server.clients[0]->closed->code, port::net_errors::closed);
}

TEST_F(Tls, destroying_connections_in_every_state_is_safe) {
  for (int turns = 0; turns < 12; ++turns) {
    IoLoop loop;
    Server server(loop, listening(ours("server")));
    Recorder client;
    client.connection = loop.connect(server.at(), connecting(ours("client")), client);
    int left = turns;
    loop.run_until(
        [&] {
          loop.post([] {});
          return left-- == 0;
        },
        kTestBound);
    client.connection.reset();
    if (turns % 2) server.listener.reset();
    bool turned = false;
    loop.post([&] { turned = true; });
    PH_EXPECT_SOON(loop, turned);
    EXPECT_FALSE(client.closed);
  }
}

TEST_F(Tls, loading_says_which_file_is_wrong) {
  TemporaryDirectory dir;
  auto options = authorities->options("ours", "ours", "server");
  auto missing = options;
  missing.ca_file = dir / "none.crt";
  auto loaded = port::TlsContext::load(missing);
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, tls_errors::bad_file);
  EXPECT_NE(loaded.error().detail.find("none.crt"), std::string::npos);

  auto garbage = options;
  garbage.certificate_file = dir / "garbage.crt";
  write_file(garbage.certificate_file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  EXPECT_EQ(port::TlsContext::load(garbage).error().code, tls_errors::bad_file);

  auto half = options;
  half.ca_file = dir / "half.crt";
  write_file(half.ca_file, read_file(options.ca_file) + read_file(garbage.certificate_file));
  EXPECT_EQ(port::TlsContext::load(half).error().code, tls_errors::bad_file) << "one of two is not enough";

  auto mixed = options;
  mixed.key_file = authorities->options("ours", "ours", "client").key_file;
  EXPECT_EQ(port::TlsContext::load(mixed).error().code, tls_errors::mismatch);

  auto nobody = options;
  nobody.certificate_file = nobody.key_file = "";
  EXPECT_FALSE(make_tls_server(nobody).has_value());
  EXPECT_TRUE(make_tls_client(nobody).has_value());
  auto trusting = options;
  trusting.ca_file = "";
  EXPECT_FALSE(make_tls_server(trusting).has_value()) << "required by default";
  EXPECT_FALSE(make_tls_client(trusting).has_value());
  trusting.peer = PeerCertificate::none;
  EXPECT_TRUE(make_tls_server(trusting).has_value());

  auto newest = options;
  newest.tls13_only = true;
  EXPECT_EQ(port::TlsContext::load(newest).has_value(), tls13_available());
}

TEST_F(Tls, reload_is_for_new_connections_and_a_bad_one_changes_nothing) {
  TemporaryDirectory dir;
  auto place = [&](const TlsOptions& from) {
    for (const auto& [a, b] : {std::pair(from.ca_file, "ca"), {from.certificate_file, "crt"}, {from.key_file, "key"}})
      std::filesystem::copy_file(a, dir / b, std::filesystem::copy_options::overwrite_existing);
  };
  place(authorities->options("ours", "ours", "server"));
  TlsOptions options;
  options.ca_file = dir / "ca";
  options.certificate_file = dir / "crt";
  options.key_file = dir / "key";
  auto reloaded = context(options);
  WallTime first_expiry = reloaded->expires().value();
  IoLoop loop;
  Server server(loop, listening(reloaded));
  Recorder before;
  before.connection = loop.connect(server.at(), connecting(ours("client")), before);
  PH_EXPECT_SOON(loop, before.opened);

  write_file(dir / "key", "not a key");
  EXPECT_FALSE(reloaded->reload().has_value());
  EXPECT_EQ(reloaded->expires().value(), first_expiry);
  Recorder still;
  still.connection = loop.connect(server.at(), connecting(ours("client")), still);
  PH_EXPECT_SOON(loop, still.opened);

  place(authorities->options("theirs", "theirs", "server"));
  ASSERT_TRUE(reloaded->reload().has_value());
  Recorder old_world;
  old_world.connection = loop.connect(server.at(), connecting(ours("client")), old_world);
  Recorder new_world;
  auto theirs = context(authorities->options("theirs", "theirs", "client"));
  new_world.connection = loop.connect(server.at(), connecting(theirs), new_world);
  PH_EXPECT_SOON(loop, new_world.opened && old_world.closed);
  before.connection->send_copy("still here");
  PH_EXPECT_SOON(loop, server.clients[0]->data == "still here");
}

/// Runs a command in the background and serves `loop` until it ends.
std::string shell_with(IoLoop& loop, const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  int descriptor = ::fileno(pipe);
  bool ended = false;
  auto poll = loop.make_timer();
  std::function<void()> look = [&] {
    char buffer[4096];
    fd_set set;
    FD_ZERO(&set);
    FD_SET(descriptor, &set);
    timeval now{};
    while (!ended && ::select(descriptor + 1, &set, nullptr, nullptr, &now) == 1) {
      ssize_t got = ::read(descriptor, buffer, sizeof buffer);
      if (got <= 0) ended = true;
      if (got > 0) output.append(buffer, static_cast<size_t>(got));
    }
    if (!ended) poll->start(2ms, [&] { look(); });
  };
  look();
  EXPECT_TRUE(loop.run_until([&] { return ended; }, kTestBound));
  ::pclose(pipe);
  return output;
}

TEST_F(Tls, another_implementation_talks_to_it_and_resumes_with_the_clients_name_kept) {
  IoLoop loop;
  Server server(loop, listening(ours("server")), [](Recorder& there) {
    there.at_data = [](port::Connection& connection, ByteView bytes) {
      connection.send_copy("got " + std::string(bytes));
      connection.close();
      return port::Consumed{bytes.size(), 0};
    };
  });
  auto files = authorities->options("ours", "ours", "client");
  TemporaryDirectory dir;
  if (shell_with(loop, "openssl version").find("OpenSSL") == std::string::npos) GTEST_SKIP() << "no openssl command";
  std::string first =
      shell_with(loop, "echo hello | openssl s_client -ign_eof -connect " + server.at().to_string() +
                           " -verify_return_error -tls1_2 -CAfile " + files.ca_file + " -cert " +
                           files.certificate_file + " -key " + files.key_file + " -sess_out " + (dir / "session"));
  EXPECT_NE(first.find("got hello"), std::string::npos) << first;
  EXPECT_NE(first.find("Verify return code: 0 (ok)"), std::string::npos) << first;
  EXPECT_NE(first.find("New, TLSv1.2"), std::string::npos) << first;
  std::string again = shell_with(loop, "echo hello | openssl s_client -ign_eof -connect " + server.at().to_string() +
                                           " -tls1_2 -CAfile " + files.ca_file + " -sess_in " + (dir / "session"));
  EXPECT_NE(again.find("Reused, TLSv1.2"), std::string::npos) << again;
  EXPECT_NE(again.find("got hello"), std::string::npos) << again;
  ASSERT_EQ(server.clients.size(), 2u);
  for (auto& there : server.clients) EXPECT_EQ(there->connection->peer().certificate_name, "client");
  std::string old = shell_with(loop, "openssl s_client -connect " + server.at().to_string() +
                                         " -tls1_1 -cipher DEFAULT@SECLEVEL=0 -CAfile " + files.ca_file);
  EXPECT_NE(old.find("alert"), std::string::npos) << old;
  EXPECT_EQ(server.clients.size(), 2u);
}

}  // namespace
}  // namespace ph::io
