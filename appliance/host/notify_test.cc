#include "host/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "support/manual_loop.h"

namespace ph::host {
namespace {

/// Stands for systemd: a datagram socket in the abstract name space, named in NOTIFY_SOCKET.
struct NotifySocket {
  int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  NotifySocket() {
    std::string name = "posthouse-notify-test-" + std::to_string(::getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, name.size());
    auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
    ::setenv("WATCHDOG_USEC", "2000000", 1);
    ::unsetenv("WATCHDOG_PID");
  }
  ~NotifySocket() {
    ::close(fd);
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
  }
  std::string next() const {
    char buffer[512];
    ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    return n < 0 ? std::string() : std::string(buffer, static_cast<size_t>(n));
  }
};

}  // namespace

TEST(Notify, says_ready_and_stopping) {
  NotifySocket systemd;
  notify_ready("all is well");
  EXPECT_EQ(systemd.next(), "READY=1\nSTATUS=all is well");
  notify_stopping();
  EXPECT_EQ(systemd.next(), "STOPPING=1");
}

TEST(Watchdog, is_fed_while_every_worker_answers_and_not_when_one_hangs) {
  NotifySocket systemd;
  test::ManualLoop loop, worker;
  Watchdog dog(loop, {&worker});
  ASSERT_TRUE(dog.enabled());
  EXPECT_EQ(systemd.next(), "WATCHDOG=1");
  worker.run_posted();
  loop.advance(1s);
  EXPECT_EQ(systemd.next(), "WATCHDOG=1");
  loop.advance(3s);  // the worker ran nothing
  EXPECT_EQ(systemd.next(), "");
  worker.run_posted();
  loop.advance(1s);
  EXPECT_EQ(systemd.next(), "WATCHDOG=1");
}

}  // namespace ph::host
