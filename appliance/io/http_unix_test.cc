#include "io/http_unix.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "io/test_files.h"
#include "io/test_network.h"

namespace ph::io {
namespace {

/// A node's loop on its own thread, with a server that echoes what it understood.
class HttpUnix : public testing::Test {
 protected:
  void SetUp() override {
    auto made = HttpUnixServer::listen_late(loop, path, [this](const HttpRequest& request, const HttpAnswer& answer) {
      if (request.target == "/big") return answer({200, "text/plain", std::string(5'000'000, 'b')});
      if (request.target == "/none") return answer({404, "application/json", "{}"});
      if (request.target == "/late") return loop.post([answer] { answer({200, "text/plain", "late"}); });
      answer({200, "text/plain", request.method + " " + request.target + " " + request.body});
    });
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    server = std::move(*made);
  }
  void TearDown() override {
    if (thread.joinable()) {
      loop.stop();
      thread.join();
    }
    server.reset();
  }
  void start() {
    thread = std::thread([this] { loop.run(); });
  }
  /// Sends raw bytes and returns all that comes until the end.
  std::string raw(std::string_view bytes) {
    int descriptor = connect_raw();
    (void)!::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::string all;
    char buffer[65536];
    while (ssize_t got = ::recv(descriptor, buffer, sizeof buffer, 0)) {
      if (got < 0) break;
      all.append(buffer, static_cast<size_t>(got));
    }
    ::close(descriptor);
    return all;
  }
  int connect_raw() {
    int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
      ADD_FAILURE() << "no socket";
      return descriptor;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return descriptor;
  }

  TemporaryDirectory dir;
  std::string path = dir / "api.sock";
  IoLoop loop;
  std::unique_ptr<HttpUnixServer> server;
  std::thread thread;
};

TEST_F(HttpUnix, answers_later_when_the_handler_does) {
  start();
  auto answer = http_get_unix(path, "/late");
  ASSERT_TRUE(answer.has_value()) << answer.error().to_string();
  EXPECT_EQ(answer->body, "late");
}

TEST_F(HttpUnix, answers_with_status_type_and_body) {
  start();
  auto answer = http_get_unix(path, "/api/v5/status?verbose=1");
  ASSERT_TRUE(answer.has_value()) << answer.error().to_string();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->content_type, "text/plain");
  EXPECT_EQ(answer->body, "GET /api/v5/status?verbose=1 ");
  EXPECT_EQ(http_get_unix(path, "/none")->status, 404);
  EXPECT_EQ(http_get_unix(path, "/big")->body, std::string(5'000'000, 'b'));
  EXPECT_EQ(http_unix(path, {"POST", "/x", std::string(kHttpBodyMax, 'p')})->body,
            "POST /x " + std::string(kHttpBodyMax, 'p'));
}

TEST_F(HttpUnix, the_socket_is_for_owner_and_group_and_goes_with_the_server) {
  struct stat found{};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660u);
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  auto answer = http_get_unix(path, "/");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, http_errors::unreachable);
}

TEST_F(HttpUnix, replaces_what_a_crash_left_but_nothing_that_lives) {
  auto second = HttpUnixServer::listen(loop, path, {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, http_errors::in_use);

  std::string left = dir / "left.sock";
  int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  left.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(descriptor);
  EXPECT_TRUE(HttpUnixServer::listen(loop, left, {}).has_value());

  write_file(dir / "file", "precious");
  EXPECT_FALSE(HttpUnixServer::listen(loop, dir / "file", {}).has_value());
  EXPECT_EQ(read_file(dir / "file"), "precious");
  EXPECT_FALSE(HttpUnixServer::listen(loop, dir / std::string(200, 'x'), {}).has_value());
  EXPECT_FALSE(HttpUnixServer::listen(loop, dir / "no/such/dir", {}).has_value());
}

TEST_F(HttpUnix, keeps_a_connection_for_further_requests) {
  start();
  std::string one = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
  std::string answer = raw(one + one + "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("GET /last"), std::string::npos) << answer;
  size_t answers = 0;
  for (size_t at = 0; (at = answer.find("HTTP/1.1 200", at)) != std::string::npos; ++at) ++answers;
  EXPECT_EQ(answers, 3u);
}

TEST_F(HttpUnix, refuses_what_is_too_long_or_no_http) {
  start();
  EXPECT_TRUE(raw("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n").starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(raw("GET /" + std::string(2 * kHttpHeaderMax, 'x') + " HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 431"));
  EXPECT_TRUE(raw("\x10\x10 hello\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(raw("HEAD /x HTTP/1.1\r\nConnection: close\r\n\r\n").ends_with("\r\n\r\n")) << "no body after HEAD";
}

TEST_F(HttpUnix, drops_clients_that_do_not_ask_and_goes_on) {
  server->set_timeout(50ms);
  int silent = connect_raw();
  int half = connect_raw();
  (void)!::send(half, "GET / HT", 8, MSG_NOSIGNAL);
  PH_EXPECT_SOON(loop, server->connections() == 2);
  PH_EXPECT_SOON(loop, server->connections() == 0);
  ::close(silent);
  ::close(half);
  start();
  EXPECT_TRUE(http_get_unix(path, "/").has_value());
}

TEST_F(HttpUnix, closes_connections_above_its_maximum) {
  std::vector<int> descriptors;
  for (size_t i = 0; i < kHttpConnectionsMax + 3; ++i) {
    descriptors.push_back(connect_raw());
    loop.run_until([&] { return server->connections() == std::min(i + 1, kHttpConnectionsMax); }, kTestBound);
  }
  bool turned = false;
  loop.post([&] { turned = true; });
  PH_EXPECT_SOON(loop, turned);
  EXPECT_EQ(server->connections(), kHttpConnectionsMax);
  for (int d : descriptors) ::close(d);
  PH_EXPECT_SOON(loop, server->connections() == 0);
}

TEST_F(HttpUnix, may_be_destroyed_with_connections_open) {
  int descriptor = connect_raw();
  PH_EXPECT_SOON(loop, server->connections() == 1);
  server.reset();
  bool turned = false;
  loop.post([&] { turned = true; });
  PH_EXPECT_SOON(loop, turned);
  ::close(descriptor);
}

TEST_F(HttpUnix, the_client_is_bounded_when_nobody_answers) {
  // The loop does not run: the kernel accepts, nobody answers.
  auto answer = http_unix(path, {"GET", "/", {}}, 50ms);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, http_errors::timeout);
  EXPECT_NE(answer.error().detail.find(path), std::string::npos);
}

}  // namespace
}  // namespace ph::io
