// delay_proxy: a long, narrow or broken way between two TCP programs on one machine, for kernels without netem. One
// thread, no library; it stands outside of the product and knows nothing of what it carries.
//
//   delay_proxy LISTEN_PORT TARGET_PORT [delay=MS] [rate=BYTES_PER_S] [queue=BYTES]
//
// Both ends are on 127.0.0.1. `delay` is one way, so that a round trip takes twice as long; `rate` is each direction's,
// shared by all connections as on one wire; `queue` is what the wire's entrance holds beyond what is under way: the
// proxy reads no more than that, so that the ends see the back-pressure, and the acknowledged bytes, of a slow way.
// LISTEN_PORT 0 lets the kernel choose. It says "listening PORT", then obeys lines on its standard input, each answered
// by "ok" or "error ..." on standard output; the end of the input ends it.
//
//   delay MS | rate BYTES_PER_S (0: none) | queue BYTES
//   hole      silence: what is read vanishes with what is under way, nothing is closed; new connections hear nothing
//   freeze    nothing moves, and nothing is lost
//   cut       resets all connections, and those that come
//   open      ends hole, freeze and cut; connections whose bytes vanished are reset, as their ends' next bytes would be
//   stats     "ok connections N forward BYTES backward BYTES"
//
// Bounds: kConnectionsMax connections; bytes under way: rate * delay + queue of each direction, without a rate
// kUnlimited.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr size_t kConnectionsMax = 10'000;
constexpr size_t kPiece = 64 * 1024;
constexpr size_t kUnlimited = 64 * 1024 * 1024;
constexpr size_t kSmallest = 2048;  // a direction may always hold so much, or nothing would ever move

enum class Mood : uint8_t { open, hole, freeze, cut };

struct Way {
  nanoseconds delay{};
  uint64_t rate = 0;  // bytes per second, 0: none
  size_t queue = 256 * 1024;
  Mood mood = Mood::open;

  size_t holds() const {
    if (rate == 0) return kUnlimited;
    auto under_way = static_cast<size_t>(static_cast<double>(rate) * std::chrono::duration<double>(delay).count());
    return std::max(kSmallest, under_way + queue);
  }
};

/// One of the wire's two directions: when it is free again, and what it carries.
struct Wire {
  Clock::time_point free_at{};
  size_t held = 0;
  uint64_t carried = 0;
};

struct Piece {
  Clock::time_point due;
  std::vector<char> bytes;
};

/// What one connection sends in one direction.
struct Flow {
  std::deque<Piece> pieces;
  size_t sent = 0;  // of the first piece
  bool ended = false;
  bool told = false;  // the end was passed on
};

struct Connection {
  std::array<int, 2> fd{-1, -1};  // client, target
  std::array<Flow, 2> flow;       // [i]: from fd[i] to fd[1 - i]
  std::array<uint32_t, 2> events{0, 0};
  std::array<bool, 2> listed{false, false};
  bool connecting = true;
  bool robbed = false;  // bytes of it vanished
};

class Proxy {
 public:
  Proxy(uint16_t listen_port, uint16_t target_port, Way way) : way_(way), target_port_(target_port) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    size_buffers(listener_);  // taken over by what it accepts
    sockaddr_in at = loopback(listen_port);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(listener_, 4096) != 0) {
      std::perror("delay_proxy: listen");
      std::exit(1);
    }
    socklen_t size = sizeof at;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    std::printf("listening %u\n", ntohs(at.sin_port));
    std::fflush(stdout);
    ::fcntl(0, F_SETFL, ::fcntl(0, F_GETFL) | O_NONBLOCK);
    for (int* fd : {&listener_, &timer_, &input_}) {
      epoll_event e{.events = EPOLLIN, .data = {.ptr = fd}};
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, *fd, &e);
    }
  }

  int run() {
    std::array<epoll_event, 256> ready{};
    for (;;) {
      int n = ::epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), -1);
      now_ = Clock::now();
      for (int i = 0; i < std::max(n, 0); ++i) {
        void* what = ready[static_cast<size_t>(i)].data.ptr;
        if (what == &listener_) {
          accept_all();
        } else if (what == &input_) {
          if (!obey_input()) return 0;
        } else if (what == &timer_) {
          uint64_t ticks = 0;
          (void)!::read(timer_, &ticks, sizeof ticks);
        } else if (auto* c = static_cast<Connection*>(what); living_.contains(c)) {
          if (ready[static_cast<size_t>(i)].events & (EPOLLERR | EPOLLHUP) && !c->connecting) check_dead(c);
        }
      }
      move_all();
    }
  }

 private:
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }

  /// A slow way's ends must not think that the kernel's own buffers are the far side.
  void size_buffers(int fd) const {
    if (way_.rate == 0) return;
    int size = static_cast<int>(std::clamp<size_t>(way_.holds() / 4, 4096, 4 * 1024 * 1024));
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (way_.rate < 1'000'000) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  }

  void accept_all() {
    for (;;) {
      int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      if (way_.mood == Mood::cut || connections_.size() >= kConnectionsMax) {
        reset(fd);
        continue;
      }
      auto c = std::make_unique<Connection>();
      c->fd[0] = fd;
      c->robbed = way_.mood == Mood::hole;
      c->fd[1] = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      size_buffers(c->fd[0]);
      size_buffers(c->fd[1]);
      int one = 1;
      for (int end : c->fd) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      sockaddr_in to = loopback(target_port_);
      if (::connect(c->fd[1], reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) {
        reset(c->fd[0]);
        ::close(c->fd[1]);
        continue;
      }
      for (size_t i = 0; i < 2; ++i) watch(*c, i, EPOLLOUT);
      living_.insert(c.get());
      connections_.push_back(std::move(c));
    }
  }

  void watch(Connection& c, size_t end, uint32_t events) const {
    if (c.fd[end] < 0 || (c.listed[end] && c.events[end] == events)) return;
    epoll_event e{.events = events, .data = {.ptr = &c}};
    ::epoll_ctl(epoll_, c.listed[end] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c.fd[end], &e);
    c.listed[end] = true;
    c.events[end] = events;
  }

  static void reset(int fd) {
    linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(fd);
  }

  void drop(Connection* c) {
    for (size_t i = 0; i < 2; ++i) {
      for (const Piece& p : c->flow[i].pieces) wires_[i].held -= p.bytes.size();
      if (c->fd[i] >= 0) reset(c->fd[i]);
    }
    living_.erase(c);
    std::erase_if(connections_, [c](const auto& one) { return one.get() == c; });
  }

  /// An end is gone; behind a hole the other one must not hear of it.
  void lose(Connection* c, size_t end) {
    if (way_.mood != Mood::hole) return drop(c);
    ::close(std::exchange(c->fd[end], -1));
    c->robbed = true;
  }

  void check_dead(Connection* c) {
    for (size_t i = 0; i < 2 && living_.contains(c); ++i) {
      if (c->fd[i] < 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(c->fd[i], SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) lose(c, i);
    }
  }

  /// All that can move moves; then the timer is set for what comes due next.
  void move_all() {
    Clock::time_point next = Clock::time_point::max();
    std::vector<Connection*> all;
    for (const auto& c : connections_) all.push_back(c.get());
    if (!all.empty()) std::rotate(all.begin(), all.begin() + static_cast<ptrdiff_t>(turn_++ % all.size()), all.end());
    for (Connection* c : all) {
      if (c->connecting && !connected(c)) continue;
      bool alive = true;
      for (size_t i = 0; i < 2 && alive; ++i) alive = read_from(*c, i) && write_to(*c, i, next);
      if (!alive || (c->flow[0].told && c->flow[1].told)) {
        drop(c);
        continue;
      }
      for (size_t i = 0; i < 2; ++i) interest(*c, i);
    }
    itimerspec at{};
    if (next != Clock::time_point::max()) {
      auto wait = std::max<int64_t>(1, nanoseconds(next - now_).count());
      at.it_value = {.tv_sec = wait / 1'000'000'000, .tv_nsec = wait % 1'000'000'000};
    }
    ::timerfd_settime(timer_, 0, &at, nullptr);
  }

  /// False: not yet, or it is gone.
  bool connected(Connection* c) {
    pollfd p{.fd = c->fd[1], .events = POLLOUT, .revents = 0};
    if (::poll(&p, 1, 0) <= 0) return false;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(c->fd[1], SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) {
      c->connecting = false;
      return true;
    }
    drop(c);
    return false;
  }

  bool may_read(const Connection& c, size_t i) const {
    if (c.fd[i] < 0 || c.flow[i].ended || c.connecting || way_.mood == Mood::freeze) return false;
    return way_.mood == Mood::hole || wires_[i].held < way_.holds();
  }

  bool read_from(Connection& c, size_t i) {
    Flow& flow = c.flow[i];
    for (int pieces = 0; pieces < 16 && may_read(c, i); ++pieces) {
      // In small pieces on a slow wire, so that what is read is what it has room for.
      size_t room = way_.mood == Mood::hole ? kPiece : way_.holds() - wires_[i].held;
      size_t want =
          std::min({kPiece, std::max<size_t>(room, 1), std::max<size_t>(1448, way_.rate ? way_.rate / 100 : kPiece)});
      ssize_t n = ::recv(c.fd[i], buffer_.data(), want, 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (n <= 0 && way_.mood == Mood::hole) {
        lose(&c, i);
        return true;
      }
      if (n < 0) return false;
      if (n == 0) {
        flow.ended = true;
        return true;
      }
      if (way_.mood == Mood::hole || c.robbed) {
        c.robbed = true;
        continue;
      }
      Wire& wire = wires_[i];
      auto size = static_cast<size_t>(n);
      wire.free_at = std::max(wire.free_at, now_);
      if (way_.rate)
        wire.free_at +=
            nanoseconds(static_cast<int64_t>(1e9 * static_cast<double>(size) / static_cast<double>(way_.rate)));
      wire.held += size;
      wire.carried += size;
      flow.pieces.push_back({wire.free_at + way_.delay, std::vector<char>(buffer_.data(), buffer_.data() + size)});
    }
    return true;
  }

  bool write_to(Connection& c, size_t i, Clock::time_point& next) {
    Flow& flow = c.flow[i];
    if (way_.mood == Mood::freeze || way_.mood == Mood::hole || c.fd[1 - i] < 0) return true;
    while (!flow.pieces.empty()) {
      Piece& p = flow.pieces.front();
      if (p.due > now_) {
        next = std::min(next, p.due);
        return true;
      }
      ssize_t n = ::send(c.fd[1 - i], p.bytes.data() + flow.sent, p.bytes.size() - flow.sent, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      flow.sent += static_cast<size_t>(n);
      if (flow.sent < p.bytes.size()) return true;
      wires_[i].held -= p.bytes.size();
      flow.pieces.pop_front();
      flow.sent = 0;
    }
    if (flow.ended && !flow.told) {
      ::shutdown(c.fd[1 - i], SHUT_WR);
      flow.told = true;
    }
    return true;
  }

  void interest(Connection& c, size_t i) const {
    const Flow& out = c.flow[1 - i];  // what is written to fd[i]
    bool writes = !out.pieces.empty() && out.pieces.front().due <= now_ && way_.mood == Mood::open;
    uint32_t events = (may_read(c, i) ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u);
    watch(c, i, events);
  }

  bool obey_input() {
    char bytes[4096];
    ssize_t n = ::read(0, bytes, sizeof bytes);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    input_text_.append(bytes, static_cast<size_t>(n));
    for (size_t end; (end = input_text_.find('\n')) != std::string::npos; input_text_.erase(0, end + 1)) {
      std::string answer = obey(input_text_.substr(0, end));
      std::printf("%s\n", answer.c_str());
      std::fflush(stdout);
    }
    return true;
  }

  std::string obey(const std::string& line) {
    std::string word = line.substr(0, line.find(' '));
    uint64_t number = line.size() > word.size() ? std::strtoull(line.c_str() + word.size(), nullptr, 10) : 0;
    if (word == "delay") {
      way_.delay = std::chrono::milliseconds(number);
    } else if (word == "rate") {
      way_.rate = number;
    } else if (word == "queue") {
      way_.queue = number;
    } else if (word == "hole") {
      way_.mood = Mood::hole;
      empty_wires();
    } else if (word == "freeze") {
      way_.mood = Mood::freeze;
    } else if (word == "cut") {
      way_.mood = Mood::cut;
      while (!connections_.empty()) drop(connections_.back().get());
    } else if (word == "open") {
      way_.mood = Mood::open;
      std::vector<Connection*> robbed;
      for (const auto& c : connections_)
        if (c->robbed) robbed.push_back(c.get());
      for (Connection* c : robbed) drop(c);
    } else if (word == "stats") {
      return "ok connections " + std::to_string(connections_.size()) + " forward " + std::to_string(wires_[0].carried) +
             " backward " + std::to_string(wires_[1].carried);
    } else {
      return "error no such word: " + word;
    }
    return "ok";
  }

  void empty_wires() {
    for (const auto& c : connections_)
      for (size_t i = 0; i < 2; ++i) {
        Flow& flow = c->flow[i];
        if (!flow.pieces.empty()) c->robbed = true;
        for (const Piece& p : flow.pieces) wires_[i].held -= p.bytes.size();
        flow.pieces.clear();
        flow.sent = 0;
      }
  }

  Way way_;
  uint16_t target_port_;
  int epoll_ = -1, listener_ = -1, timer_ = -1, input_ = 0;
  Clock::time_point now_ = Clock::now();
  std::array<Wire, 2> wires_;  // client to target, target to client
  std::vector<std::unique_ptr<Connection>> connections_;
  std::set<Connection*> living_;
  size_t turn_ = 0;
  std::array<char, kPiece> buffer_{};
  std::string input_text_;
};

uint64_t number_after(std::string_view argument, std::string_view name, bool& good) {
  char* end = nullptr;
  uint64_t n = std::strtoull(argument.data() + name.size(), &end, 10);
  if (end != argument.data() + argument.size() || argument.size() == name.size()) good = false;
  return n;
}

}  // namespace

int main(int argc, char** argv) {
  Way way;
  bool good = argc >= 3;
  for (int i = 3; i < argc; ++i) {
    std::string_view a = argv[i];
    if (a.starts_with("delay="))
      way.delay = std::chrono::milliseconds(number_after(a, "delay=", good));
    else if (a.starts_with("rate="))
      way.rate = number_after(a, "rate=", good);
    else if (a.starts_with("queue="))
      way.queue = number_after(a, "queue=", good);
    else
      good = false;
  }
  if (!good) {
    std::fprintf(stderr, "usage: delay_proxy LISTEN_PORT TARGET_PORT [delay=MS] [rate=BYTES_PER_S] [queue=BYTES]\n");
    return 2;
  }
  return Proxy(static_cast<uint16_t>(std::atoi(argv[1])), static_cast<uint16_t>(std::atoi(argv[2])), way).run();
}
