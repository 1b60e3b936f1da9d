#include "io/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "io/clock.h"
#include "io/descriptor_limit.h"
#include "io/net_error.h"
#include "io/resolver.h"
#include "io/socket.h"

namespace ph::io {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 4096;
constexpr int kBindAttempts = 6;
constexpr Duration kBindPause = 4ms;  // and one more after each attempt
constexpr Duration kTellAgain = 10s;  // that accepting pauses, over and over

/// What accepts, kept alive by its pending operation until the listener stops it.
class Acceptor final : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(LoopState& loop, tcp protocol, int descriptor, std::shared_ptr<ListenerState> state)
      : loop_(loop), socket_(loop.context), pause_(loop.context), state_(std::move(state)) {
    socket_.assign(protocol, descriptor);
  }

  void wait() {
    socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](error_code failed) {
      if (!failed && !self->state_->stopped) self->accept_some();
    });
  }

  void stop() {
    state_->stopped = true;
    error_code ignored;
    socket_.close(ignored);
    pause_.cancel();
  }

  port::Endpoint local() const {
    error_code failed;
    auto at = socket_.local_endpoint(failed);
    return failed ? port::Endpoint{} : port::Endpoint{at.address().to_string(), at.port()};
  }

 private:
  void accept_some() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      if (Duration until = next_token(); until > Duration::zero()) return wait_for(until);
      tcp::endpoint from;
      auto size = static_cast<socklen_t>(from.capacity());
      int descriptor = ::accept4(socket_.native_handle(), from.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (descriptor < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
          tokens_ += 1;  // nobody came
          break;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return pause(errno);
        continue;  // that one client failed: ECONNABORTED, EPROTO and the network's errors (accept(2))
      }
      if (static_cast<size_t>(descriptor) >= descriptor_ceiling()) {
        ::close(descriptor);
        loop_.counters.refused_descriptors.add();
        return pause(EMFILE);
      }
      from.resize(size);
      // Counted before it is compared: listeners of other loops may count at the same time.
      if (state_->options.live->fetch_add(1, std::memory_order_relaxed) >= state_->options.connections_max) {
        state_->options.live->fetch_sub(1, std::memory_order_relaxed);
        ::close(descriptor);
        loop_.counters.refused_full.add();
        log_warn("connection_refused_full",
                 {{"listener", local().to_string()}, {"connections_max", state_->options.connections_max}});
        continue;
      }
      std::make_shared<Socket>(loop_)->accepted(descriptor, from, state_);
      if (state_->stopped) return;
    }
    wait();
  }

  void pause(int os_error) {
    loop_.counters.accept_pauses.add();
    if (const Instant now = steady_now(); now - told_at_ >= kTellAgain) {
      told_at_ = now;
      log_error("accepting_paused", {{"listener", local().to_string()},
                                     {"error", net_error("accept", os_error).to_string()},
                                     {"descriptors_max", descriptor_limit()}});
    }
    wait_for(kAcceptPause);
  }

  void wait_for(Duration pause) {
    pause_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(pause));
    pause_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled && !self->state_->stopped) self->wait();
    });
  }

  /// Takes the right to accept one more; how long until there is one if there is none now. A tenth of a second's
  /// worth may come at once.
  Duration next_token() {
    auto rate = static_cast<double>(state_->options.accepts_a_second);
    if (rate == 0) return Duration::zero();
    Instant now = steady_now();
    double since = std::chrono::duration<double>(now - counted_at_).count();
    tokens_ = std::min(std::max(1.0, rate / 10), tokens_ + since * rate);
    counted_at_ = now;
    if (tokens_ < 1)
      return std::chrono::duration_cast<Duration>(std::chrono::duration<double>((1 - tokens_) / rate)) + 1ms;
    tokens_ -= 1;
    return Duration::zero();
  }

  LoopState& loop_;
  TcpAcceptor socket_;
  SteadyTimer pause_;
  std::shared_ptr<ListenerState> state_;
  double tokens_ = 0;
  Instant counted_at_{};
  Instant told_at_{};  // of a pause
};

class IoListener final : public port::Listener {
 public:
  explicit IoListener(std::shared_ptr<Acceptor> acceptor) : acceptor_(std::move(acceptor)) {}
  ~IoListener() override { acceptor_->stop(); }
  port::Endpoint local() const override { return acceptor_->local(); }

 private:
  std::shared_ptr<Acceptor> acceptor_;
};

std::expected<int, int> bind_listen(const tcp::endpoint& at, bool reuse_port, bool reuse_later = false);

/// Listens where others of this process will listen, too, and nobody else. SO_REUSEPORT alone would let a second
/// process of the same user in, and the kernel would share out the clients among strangers: whoever begins has to get
/// the port without it first, which fails while anybody listens there. Only then is it opened to our own.
std::expected<int, int> bind_first(const tcp::endpoint& at) {
  auto guard = bind_listen(at, false, true);
  if (!guard) return guard;
  auto descriptor = bind_listen(at, true);
  ::close(*guard);
  return descriptor;
}

/// Two that begin to listen at one moment both fail: to each the other seems to listen already. So a port in use is
/// tried again after a moment of random length, a few times.
std::expected<int, int> bind_patiently(const tcp::endpoint& at, bool reuse_port, Random& random) {
  for (int attempt = 1;; ++attempt) {
    auto descriptor = reuse_port ? bind_first(at) : bind_listen(at, false);
    if (descriptor || descriptor.error() != EADDRINUSE || attempt == kBindAttempts) return descriptor;
    std::this_thread::sleep_for(random.jitter(kBindPause * attempt));
  }
}

/// A bound and listening descriptor, or errno. `reuse_later`: others may join from now on.
std::expected<int, int> bind_listen(const tcp::endpoint& at, bool reuse_port, bool reuse_later) {
  int descriptor = ::socket(at.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return std::unexpected(errno);
  int on = 1;
  int off = 0;
  bool ok = ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
  if (reuse_port) ok = ok && ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0;
  if (at.protocol() == tcp::v6() && at.address().is_unspecified())
    ok = ok && ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0;
  ok = ok && ::bind(descriptor, at.data(), static_cast<socklen_t>(at.size())) == 0;
  ok = ok && ::listen(descriptor, kBacklog) == 0;
  if (reuse_later) ok = ok && ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0;
  if (ok) set_stream_options(descriptor);  // what it accepts has them, too
  if (ok) return descriptor;
  int os_error = errno;
  ::close(descriptor);
  return std::unexpected(os_error);
}

/// Where to try to listen, in order; the first that works is it.
Result<std::vector<tcp::endpoint>> candidates(const port::Endpoint& at) {
  if (at.host.empty())
    return std::vector<tcp::endpoint>{{asio::ip::address_v6::any(), at.port}, {asio::ip::address_v4::any(), at.port}};
  error_code failed;
  auto address = asio::ip::make_address(at.host, failed);
  if (!failed) return std::vector<tcp::endpoint>{{address, at.port}};
  PH_ASSIGN(auto addresses, look_up(at.host));
  std::vector<tcp::endpoint> found;
  for (const auto& each : addresses) found.emplace_back(each, at.port);
  return found;
}

}  // namespace

Result<std::unique_ptr<port::Listener>> listen_tcp(LoopState& loop, const port::Endpoint& at,
                                                   port::ListenOptions options, port::AcceptFn accept) {
  PH_ASSIGN(auto endpoints, candidates(at));
  int os_error = EADDRNOTAVAIL;
  for (const auto& endpoint : endpoints) {
    const bool joins = options.joins || endpoint.port() == 0;
    auto descriptor =
        joins ? bind_listen(endpoint, options.reuse_port) : bind_patiently(endpoint, options.reuse_port, loop.random);
    if (!descriptor) {
      os_error = descriptor.error();
      // Only a missing IPv6 leads on to IPv4: a port in use must not end as a listener on half of the addresses.
      if (os_error == EAFNOSUPPORT || os_error == EADDRNOTAVAIL || !at.host.empty()) continue;
      break;
    }
    auto state = std::make_shared<ListenerState>();
    state->options = std::move(options);
    if (!state->options.live) state->options.live = std::make_shared<std::atomic<size_t>>(0);
    state->accept = std::move(accept);
    auto acceptor = std::make_shared<Acceptor>(loop, endpoint.protocol(), *descriptor, std::move(state));
    acceptor->wait();
    return std::make_unique<IoListener>(std::move(acceptor));
  }
  return std::unexpected(net_error(at.to_string(), os_error));
}

}  // namespace ph::io
