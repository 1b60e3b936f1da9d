// A crowd of clients that connect to any MQTT broker and then say nothing; what comes out is one line of `name value`
// pairs.
//   crowd_load 127.0.0.1:PORT [clients=5000] [rate=0] [parallel=64] [hold=1] [pid=0]
//
//   rate      connections a second, evenly spread; 0: `parallel` at a time, as fast as the broker takes them
//   hold      seconds that all stay connected before the broker's memory is looked at
//   pid       the broker's
//
// Each client's latency counts from when it was due to its CONNACK. A process of ours has at most kClientsPerProcess
// clients, since each is a descriptor, and each process has a source address of its own, 127.0.1.N, since the ports of
// one would not do. Plain epoll instead of our own loop: a client has to cost less here than it does the broker.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/load_words.h"
#include "bench/process_usage.h"
#include "codec/mqtt/packet.h"
#include "io/descriptor_limit.h"

namespace {

using namespace ph;
using Clock = std::chrono::steady_clock;

constexpr size_t kClientsPerProcess = 12'000;
constexpr auto kBound = std::chrono::seconds(120);

/// What the processes share; latencies follow it, one for each client.
struct Board {
  std::atomic<size_t> ready;
  std::atomic<bool> done;
  std::atomic<bool> failed;
};

std::map<std::string, size_t> g_numbers = {{"clients", 5000}, {"rate", 0}, {"parallel", 64}, {"hold", 1}, {"pid", 0}};

/// One process's part of the crowd.
class Crowd {
 public:
  Crowd(const sockaddr_in& to, size_t process, size_t processes, Board& board, std::span<uint32_t> latencies)
      : to_(to), process_(process), processes_(processes), board_(board), latencies_(latencies) {
    sockets_.assign(latencies.size(), -1);
    due_.resize(latencies.size());
  }

  /// False: the broker refused one, or was too slow.
  bool connect_all() {
    const size_t parallel = std::max<size_t>(1, g_numbers["parallel"] / processes_);
    const auto begin = Clock::now();
    while (ready_ < sockets_.size()) {
      if (Clock::now() - begin > kBound) return fail("too slow");
      auto pause = std::chrono::milliseconds(100);
      while (begun_ < sockets_.size()) {
        if (g_numbers["rate"] == 0) {
          if (begun_ - ready_ >= parallel) break;
          due_[begun_] = Clock::now();
        } else {
          due_[begun_] =
              begin + std::chrono::nanoseconds(1'000'000'000 / g_numbers["rate"] * (begun_ * processes_ + process_));
          if (due_[begun_] > Clock::now()) {
            pause = std::chrono::milliseconds(1);
            break;
          }
        }
        if (!start(begun_++)) return false;
      }
      epoll_event events[256];
      const int n = ::epoll_wait(poll_, events, 256, static_cast<int>(pause.count()));
      for (int i = 0; i < n; ++i)
        if (!on_event(events[i].data.u64, events[i].events)) return false;
    }
    return true;
  }

 private:
  bool fail(const char* what) {
    std::fprintf(stderr, "crowd_load: %s: %s, %zu of %zu were connected\n", what, std::strerror(errno), ready_,
                 sockets_.size());
    return false;
  }

  bool start(size_t i) {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0) return fail("socket");
    sockets_[i] = s;
    const int on = 1;
    ::setsockopt(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7F000101 + static_cast<uint32_t>(process_));
    if (::bind(s, reinterpret_cast<sockaddr*>(&from), sizeof from) != 0) return fail("bind");
    if (::connect(s, reinterpret_cast<const sockaddr*>(&to_), sizeof to_) != 0 && errno != EINPROGRESS)
      return fail("connect");
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.u64 = i;
    ::epoll_ctl(poll_, EPOLL_CTL_ADD, s, &event);
    return true;
  }

  bool on_event(size_t i, uint32_t what) {
    const int s = sockets_[i];
    if (what & EPOLLOUT) {
      mqtt::Connect c;
      c.version = mqtt::Version::v311;
      const std::string id = "crowd" + std::to_string(process_) + "-" + std::to_string(i);
      c.client_id = id;
      std::string bytes;
      mqtt::encode(c, bytes);
      if (::send(s, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
        return fail("send");
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      ::epoll_ctl(poll_, EPOLL_CTL_MOD, s, &event);
      return true;
    }
    char got[64];
    const ssize_t n = ::recv(s, got, sizeof got, MSG_DONTWAIT);
    if (n < 4 || got[0] != 0x20 || got[3] != 0) return fail("no CONNACK");
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - due_[i]).count();
    latencies_[i] = static_cast<uint32_t>(us);
    ++ready_;
    board_.ready.fetch_add(1);
    return true;
  }

  const sockaddr_in& to_;
  const size_t process_, processes_;
  Board& board_;
  std::span<uint32_t> latencies_;
  const int poll_ = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<int> sockets_;
  std::vector<Clock::time_point> due_;
  size_t begun_ = 0;
  size_t ready_ = 0;
};

int run(const sockaddr_in& to) {
  const size_t clients = g_numbers["clients"], pid = g_numbers["pid"];
  const size_t processes = (clients + kClientsPerProcess - 1) / kClientsPerProcess;
  void* shared = ::mmap(nullptr, sizeof(Board) + clients * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto& board = *new (shared) Board{};
  const std::span latencies(reinterpret_cast<uint32_t*>(static_cast<char*>(shared) + sizeof(Board)), clients);

  const bench::Usage before = bench::usage(pid);
  const auto begin = Clock::now();
  std::vector<pid_t> children;
  for (size_t p = 0; p < processes; ++p) {
    const size_t from = clients * p / processes, end = clients * (p + 1) / processes;
    const pid_t child = ::fork();
    if (child == 0) {
      Crowd crowd(to, p, processes, board, latencies.subspan(from, end - from));
      if (!crowd.connect_all()) board.failed = true;
      while (!board.done && !board.failed) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::_Exit(0);
    }
    children.push_back(child);
  }
  while (board.ready < clients && !board.failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const bench::Usage after = bench::usage(pid);
  if (!board.failed) std::this_thread::sleep_for(std::chrono::seconds(g_numbers["hold"]));
  const bench::Usage held = bench::usage(pid);
  board.done = true;
  for (pid_t child : children) ::waitpid(child, nullptr, 0);
  if (board.failed) return 1;

  std::ranges::sort(latencies);
  const double count = static_cast<double>(clients);
  const double cpu = std::max(after.cpu_seconds - before.cpu_seconds, 1e-9);
  auto percentile = [&](double part) { return latencies[static_cast<size_t>((count - 1) * part)]; };
  std::printf("seconds %.3f delivered_per_s %.0f p50_us %u p99_us %u", seconds, count / seconds, percentile(0.5),
              percentile(0.99));
  if (pid)
    std::printf(
        " cpu_seconds %.4f per_cpu_second %.0f rss_mib %.1f kib_each %.2f idle_cpu_ms_per_s %.2f", cpu, count / cpu,
        held.rss_mib, (held.rss_mib - before.rss_mib) * 1024 / count,
        (held.cpu_seconds - after.cpu_seconds) * 1000 / static_cast<double>(std::max<size_t>(1, g_numbers["hold"])));
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in to{};
  if (!bench::load_words(argc, argv, to, g_numbers) || g_numbers["clients"] == 0) {
    std::fprintf(stderr, "crowd_load ADDRESS:PORT [clients=N] [rate=N] [parallel=N] [hold=SECONDS] [pid=N]\n");
    return 2;
  }
  io::raise_descriptor_limit();
  return run(to);
}
