// Many LSD clients in one process, against any receiver of LSD's protocol (codec/lsd/frames.h); what comes out is one
// line of `name value` pairs. For `tools/dev bench link --peer`.
//
//   lsd_load ADDRESS:PORT [clients=1000] [lines=100] [event=625] [categories=8] [warm=500] [seconds=3] [pid=0]
//
//   lines     in each request, `event` bytes each with the newline: one event of one category, as a client of LSD makes
//             of what its file grew by
//   warm      milliseconds before the measured seconds begin
//   pid       the receiver's
//
// A client has one request outstanding, as a client of LSD: it sends the next one when the answer holds exactly the
// offset that it asked for. Like it, too, the connection stays, and header and body are written apart. After the
// measured seconds nothing new is asked, and everything outstanding is waited for, so that `acknowledged` is all that
// was sent. Plain epoll and lines that all requests share: a client has to cost less here than it does the receiver.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/coding.h"
#include "bench/load_words.h"
#include "bench/process_usage.h"
#include "codec/lsd/frames.h"
#include "io/descriptor_limit.h"

namespace {

using namespace ph;
using Clock = std::chrono::steady_clock;

constexpr auto kBound = std::chrono::seconds(60);  // for all to connect, and for the last answers
constexpr size_t kParallelConnects = 64;
constexpr size_t kAnswerMax = 4096;

std::map<std::string, size_t> g_numbers = {{"clients", 1000}, {"lines", 100}, {"event", 625}, {"categories", 8},
                                           {"warm", 500},     {"seconds", 3}, {"pid", 0}};

/// The encoded lines of a request, the same in all of them.
std::string encoded_lines() {
  const std::string line = std::string(g_numbers["event"] - 1, 'x') + "\n";
  std::string out;
  for (size_t n = 0; n < g_numbers["lines"]; ++n) {
    out.push_back(4 << 3 | 2);
    put_sized(out, line);
  }
  return out;
}

/// Frame header and event up to its first line.
std::string encoded_head(const std::string& category, lsd::Token token, size_t lines_bytes) {
  std::string event, body, out;
  event.push_back(1 << 3 | 2);
  put_sized(event, category);
  event.push_back(2 << 3 | 0);
  put_varint(event, token.inode);
  event.push_back(3 << 3 | 0);
  put_varint(event, token.offset);
  body.push_back(1 << 3 | 2);
  put_varint(body, event.size() + lines_bytes);
  body += event;
  for (uint32_t number : {static_cast<uint32_t>(4 + body.size() + lines_bytes), lsd::kRequestNewEvents})
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift));
  return out + body;
}

struct Client {
  int socket = -1;
  bool open = false;
  std::string category;
  lsd::Token token;
  std::string head;
  size_t sent = 0;  // of head and lines
  bool asked = false;
  Clock::time_point asked_at;
  std::string answer;
};

class Crowd {
 public:
  explicit Crowd(const sockaddr_in& to) : to_(to), lines_(encoded_lines()), clients_(g_numbers["clients"]) {
    for (size_t i = 0; i < clients_.size(); ++i) {
      clients_[i].category = "load" + std::to_string(i % std::max<size_t>(1, g_numbers["categories"]));
      clients_[i].token = {10'000'000 + i, 0};
    }
  }

  int run() {
    if (!same_as_codec()) return fail("not what the codec makes"), 1;
    const auto begin = Clock::now();
    while (open_ < clients_.size()) {
      while (begun_ < clients_.size() && begun_ - open_ < kParallelConnects)
        if (!connect(begun_++)) return 1;
      if (Clock::now() - begin > kBound) return fail("too slow to connect"), 1;
      if (!turn(100)) return 1;
    }
    asking_ = true;
    for (Client& client : clients_)
      if (!ask(client)) return 1;
    if (!run_for(std::chrono::milliseconds(g_numbers["warm"]))) return 1;
    const size_t pid = g_numbers["pid"];
    const bench::Usage before = bench::usage(pid), own = bench::usage(static_cast<size_t>(::getpid()));
    const size_t requests_before = answered_;
    latencies_.clear();
    const auto measured = Clock::now();
    if (!run_for(std::chrono::seconds(g_numbers["seconds"]))) return 1;
    const double seconds = std::chrono::duration<double>(Clock::now() - measured).count();
    const bench::Usage after = bench::usage(pid), own_after = bench::usage(static_cast<size_t>(::getpid()));
    const double events = static_cast<double>((answered_ - requests_before) * g_numbers["lines"]);
    std::vector<uint32_t> latencies = std::move(latencies_);
    latencies_.clear();
    asking_ = false;
    const auto drained_by = Clock::now() + kBound;
    while (outstanding_ > 0) {
      if (Clock::now() > drained_by) return fail("the last answers do not come"), 1;
      if (!turn(100)) return 1;
    }
    std::ranges::sort(latencies);
    auto percentile = [&](double part) {
      return latencies.empty() ? 0 : latencies[static_cast<size_t>(part * static_cast<double>(latencies.size() - 1))];
    };
    const double each = 1e6 / std::max(events, 1.0);
    std::printf("events_per_s %.0f seconds %.3f requests %zu acknowledged %zu p50_us %u p99_us %u load_us %.3f",
                events / seconds, seconds, latencies.size(), answered_ * g_numbers["lines"], percentile(0.5),
                percentile(0.99), (own_after.cpu_seconds - own.cpu_seconds) * each);
    if (pid)
      std::printf(" cpu_us %.3f cores %.2f peak_mib %.1f", (after.cpu_seconds - before.cpu_seconds) * each,
                  (after.cpu_seconds - before.cpu_seconds) / seconds, bench::usage(pid).peak_mib);
    std::printf("\n");
    return 0;
  }

 private:
  bool fail(const std::string& what) {
    std::fprintf(stderr, "lsd_load: %s (%s), %zu of %zu connected, %zu requests answered\n", what.c_str(),
                 std::strerror(errno), open_, clients_.size(), answered_);
    return false;
  }

  bool same_as_codec() const {
    const std::string line = std::string(g_numbers["event"] - 1, 'x') + "\n";
    std::string plain, made;
    for (size_t n = 0; n < g_numbers["lines"]; ++n) plain += line;
    const size_t begun = lsd::begin_frame(made);
    lsd::put_event(made, "load1", {10'000'001, 1'000'000}, plain);
    lsd::end_frame(made, begun, lsd::kRequestNewEvents);
    return made == encoded_head("load1", {10'000'001, 1'000'000}, lines_.size()) + lines_;
  }

  bool connect(size_t i) {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0) return fail("socket");
    clients_[i].socket = s;
    const int on = 1;
    ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(s, reinterpret_cast<const sockaddr*>(&to_), sizeof to_) != 0 && errno != EINPROGRESS)
      return fail("connect");
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.u64 = i;
    ::epoll_ctl(poll_, EPOLL_CTL_ADD, s, &event);
    return true;
  }

  bool run_for(Clock::duration time) {
    for (const auto until = Clock::now() + time; Clock::now() < until;)
      if (!turn(20)) return false;
    return true;
  }

  bool turn(int milliseconds) {
    epoll_event events[256];
    const int n = ::epoll_wait(poll_, events, 256, milliseconds);
    for (int i = 0; i < n; ++i) {
      Client& client = clients_[events[i].data.u64];
      if (events[i].events & (EPOLLERR | EPOLLHUP)) return fail("a connection ended");
      if (!client.open && events[i].events & EPOLLOUT) {
        client.open = true;
        ++open_;
      }
      if (events[i].events & EPOLLOUT && !send(client)) return false;
      if (events[i].events & EPOLLIN && !receive(client)) return false;
    }
    return true;
  }

  bool ask(Client& client) {
    client.token.offset += g_numbers["lines"] * g_numbers["event"];
    client.head = encoded_head(client.category, client.token, lines_.size());
    client.sent = 0;
    client.asked = true;
    client.asked_at = Clock::now();
    ++outstanding_;
    return send(client);
  }

  bool send(Client& client) {
    const size_t total = client.head.size() + lines_.size();
    while (client.asked && client.sent < total) {
      iovec parts[2];
      int count = 0;
      if (client.sent < lsd::kHeaderBytes) {
        parts[count++] = {client.head.data() + client.sent, lsd::kHeaderBytes - client.sent};
      } else {
        if (client.sent < client.head.size())
          parts[count++] = {client.head.data() + client.sent, client.head.size() - client.sent};
        const size_t of_lines = client.sent - std::min(client.sent, client.head.size());
        parts[count++] = {lines_.data() + of_lines, lines_.size() - of_lines};
      }
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = static_cast<size_t>(count);
      const ssize_t n = ::sendmsg(client.socket, &message, MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) return true;
      if (n < 0) return fail("send");
      client.sent += static_cast<size_t>(n);
    }
    return true;
  }

  bool receive(Client& client) {
    char bytes[kAnswerMax];
    for (;;) {
      const ssize_t n = ::recv(client.socket, bytes, sizeof bytes, 0);
      if (n < 0 && errno == EAGAIN) return true;
      if (n <= 0) return fail("a connection ended");
      client.answer.append(bytes, static_cast<size_t>(n));
      auto frame = lsd::decode_frame(client.answer);
      if (!frame || client.answer.size() > kAnswerMax) return fail("no frame of LSD's");
      if (frame->consumed == 0) continue;
      if (!on_answer(client, *frame)) return false;
      client.answer.clear();
      if (asking_ && !ask(client)) return false;
    }
  }

  bool on_answer(Client& client, const lsd::Frame& frame) {
    if (!client.asked || frame.consumed != client.answer.size()) return fail("bytes that nobody asked for");
    auto answer = lsd::decode_response(frame.id, frame.body, 1);
    if (!answer) return fail(answer.error().to_string());
    if (const auto* error = std::get_if<lsd::Generic>(&*answer)) return fail("refused: " + error->text);
    if (std::get<std::vector<lsd::Token>>(*answer) != std::vector{client.token})
      return fail("other offsets than asked");
    latencies_.push_back(static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - client.asked_at).count()));
    client.asked = false;
    --outstanding_;
    ++answered_;
    return true;
  }

  const sockaddr_in& to_;
  std::string lines_;
  std::vector<Client> clients_;
  const int poll_ = ::epoll_create1(EPOLL_CLOEXEC);
  size_t begun_ = 0, open_ = 0, outstanding_ = 0, answered_ = 0;
  bool asking_ = false;
  std::vector<uint32_t> latencies_;  // microseconds from a request to its answer
};

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in to{};
  const bool good = bench::load_words(argc, argv, to, g_numbers);
  const size_t lines = g_numbers["lines"], event = g_numbers["event"];
  if (!good || g_numbers["clients"] == 0 || lines == 0 || event < 2 || lines * (event + 8) + 256 > lsd::kLengthMax) {
    std::fprintf(stderr,
                 "lsd_load ADDRESS:PORT [clients=N] [lines=N] [event=N] [categories=N] [warm=MS] [seconds=N] "
                 "[pid=N], a request below 16 MiB\n");
    return 2;
  }
  if (io::raise_descriptor_limit() < g_numbers["clients"] + 100)
    return std::fprintf(stderr, "lsd_load: too few descriptors\n"), 2;
  return Crowd(to).run();
}
