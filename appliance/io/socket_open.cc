// How a socket begins (connect, accept) and ends (release). The rest is in socket.cc.
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "io/clock.h"
#include "io/net_error.h"
#include "io/socket.h"

namespace ph::io {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

// A peer that vanished is noticed after 60 s + 6 * 10 s, if the protocol above has no faster way.
constexpr int kKeepIdleSeconds = 60;
constexpr int kKeepIntervalSeconds = 10;
constexpr int kKeepProbes = 6;
constexpr Duration kAlertLinger = 1s;  // for the peer to read why its handshake failed

/// "1.2.3.4:5" also for an IPv4 peer of an IPv6 socket.
std::string address_text(const tcp::endpoint& at) {
  asio::ip::address address = at.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return port::Endpoint{address.to_string(), at.port()}.to_string();
}

/// What ::getpeername or ::getsockname says; nullopt if it fails.
std::optional<tcp::endpoint> end_of(int descriptor, int (*which)(int, sockaddr*, socklen_t*)) {
  tcp::endpoint at;
  auto size = static_cast<socklen_t>(at.capacity());
  if (which(descriptor, at.data(), &size) != 0) return std::nullopt;
  at.resize(size);
  return at;
}

void set_option(int descriptor, int level, int option, int value) {
  // Refused only by exotic sockets; the connection works without.
  (void)::setsockopt(descriptor, level, option, &value, sizeof value);
}

}  // namespace

struct Socket::Attempt {
  Attempt(port::Endpoint address, port::ConnectOptions how) : to(std::move(address)), options(std::move(how)) {}
  port::Endpoint to;
  port::ConnectOptions options;
  std::vector<tcp::endpoint> addresses;
  size_t tried = 0;  // addresses begun with; the attempt that is under way has this number
  Instant give_up;
  Error last{port::net_errors::failed, "no address", 0};
};

Socket::Socket(LoopState& loop) : loop_(loop) {}
Socket::~Socket() {
  release();
}

std::unique_ptr<port::Connection> Socket::connect(const port::Endpoint& to, port::ConnectOptions options,
                                                  port::ConnectionHandler& handler) {
  auto handle = std::make_unique<ConnectionHandle>(shared_from_this());
  handle_ = handle.get();
  handler_ = &handler;
  peer_.address = to.to_string();
  attempt_ = std::make_unique<Attempt>(to, std::move(options));
  attempt_->give_up = steady_now() + attempt_->options.connect_timeout;
  loop_.later([self = shared_from_this()] {
    if (self->phase_ == Phase::connecting) self->resolve();
  });
  return handle;
}

void Socket::resolve() {
  Attempt& a = *attempt_;
  error_code not_numeric;
  auto address = asio::ip::make_address(a.to.host, not_numeric);
  if (!not_numeric) {
    a.addresses.emplace_back(address, a.to.port);
    return try_next_address();
  }
  set_deadline(a.options.connect_timeout);
  a.last = Error{port::net_errors::timeout, a.to.to_string() + ": looking up the name", 0};
  loop_.resolver->resolve(a.to.host, [self = shared_from_this()](const Result<Addresses>& found) {
    if (self->phase_ != Phase::connecting) return;
    if (!found) return self->connect_failed(found.error());
    for (const auto& each : *found) self->attempt_->addresses.emplace_back(each, self->attempt_->to.port);
    self->try_next_address();
  });
}

void Socket::try_next_address() {
  Attempt& a = *attempt_;
  while (true) {
    Duration left = a.give_up - steady_now();
    if (a.tried == a.addresses.size() || left <= Duration::zero()) return connect_failed(a.last);
    const tcp::endpoint& to = a.addresses[a.tried++];
    close_descriptor();
    descriptor_ = ::socket(to.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor_ < 0) {
      a.last = net_error(address_text(to), errno);
      continue;
    }
    if (::connect(descriptor_, to.data(), static_cast<socklen_t>(to.size())) != 0 && errno != EINPROGRESS &&
        errno != EINTR) {
      a.last = net_error(address_text(to), errno);
      continue;
    }
    a.last = Error{port::net_errors::timeout, address_text(to) + ": no answer", 0};
    // Each address gets its share, so that one that swallows packets leaves time for the others.
    set_deadline(left / static_cast<Duration::rep>(a.addresses.size() - a.tried + 1));
    return wait_writable();
  }
}

void Socket::connect_answered() {
  int refused = 0;
  socklen_t size = sizeof refused;
  if (::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &refused, &size) != 0) refused = errno;
  if (refused == 0) return connected();
  attempt_->last = net_error(address_text(attempt_->addresses[attempt_->tried - 1]), refused);
  try_next_address();
}

void Socket::connect_failed(Error why) {
  loop_.counters.connect_failures.add();
  finish(std::move(why));
}

void Socket::connected() {
  const auto there = end_of(descriptor_, ::getpeername);
  if (there && there == end_of(descriptor_, ::getsockname)) {
    // Connecting to a free port of the ephemeral range on this very host can meet itself (simultaneous open).
    attempt_->last = net_error(address_text(*there), ECONNREFUSED);
    return try_next_address();
  }
  if (!there) {
    attempt_->last = net_error(peer_.address, ENOTCONN);
    return try_next_address();
  }
  peer_.address = address_text(*there);
  set_stream_options(descriptor_);
  if (!attempt_->options.tls) return opened();
  auto options = std::move(attempt_->options);
  secure(*options.tls, false, options.server_name.empty() ? attempt_->to.host : options.server_name);
}

void set_stream_options(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
}

void Socket::accepted(int descriptor, const tcp::endpoint& from, std::shared_ptr<ListenerState> listener) {
  descriptor_ = descriptor;
  listener_ = std::move(listener);
  peer_.address = address_text(from);
  peer_.accepted = steady_now();
  if (listener_->options.open_timeout > Duration::zero()) open_by_ = peer_.accepted + listener_->options.open_timeout;
  if (listener_->options.proxy_protocol) {
    phase_ = Phase::announcing;
    set_opening_deadline();
    wait_readable();
  } else {
    announced({});
  }
  if (!handle_ && phase_ != Phase::closed) loop_.opening.emplace(this, shared_from_this());
}

void Socket::secure(const port::TlsContext& context, bool server, const std::string& server_name) {
  auto session = TlsSession::make(context.material(), server, server_name, descriptor_);
  if (!session) {
    loop_.counters.handshake_failures.add();
    return finish(std::move(session).error());
  }
  tls_ = std::move(*session);
  attempt_.reset();
  phase_ = Phase::handshaking;
  set_opening_deadline();
  if (server)
    wait_readable();
  else
    handshake_soon();
}

void Socket::handshake_soon() {
  if (handshake_queued_) return;
  handshake_queued_ = true;
  queued_at_ = steady_now();
  loop_.handshake_later(shared_from_this(), handshake_begun_ || !listener_);
}

void Socket::handshake_now() {
  handshake_queued_ = false;
  if (phase_ != Phase::handshaking) return;
  if (open_by_ != Instant{}) {  // a client does not pay for what others keep us busy with
    const Duration waited = steady_now() - queued_at_;
    open_by_ += waited;
    peer_.accepted += waited;
    if (handshake_begun_) set_opening_deadline();
  }
  if (!tls_->stashed()) {
    ssize_t got = ::recv(descriptor_, loop_.read_buffer.get(), kReadBufferBytes, MSG_DONTWAIT);
    if (got > 0) tls_->feed({loop_.read_buffer.get(), static_cast<size_t>(got)});
    heard_ = heard_ || got > 0;
    if (got > 0) loop_.counters.bytes_read.add(static_cast<size_t>(got));
    if (got == 0) tls_->end_input();
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      return handshake_failed(std::strerror(errno));
  }
  if (!handshake_begun_) {
    handshake_begun_ = true;
    loop_.counters.handshakes_begun.add();
    set_opening_deadline();
  }
  auto outcome = tls_->handshake();
  tls_->stash();
  loop_.counters.bytes_written.add(tls_->take_sent());
  switch (outcome) {
    case TlsSession::Outcome::ok:
      loop_.counters.handshakes.add();
      peer_.encrypted = true;
      peer_.certificate_name =
          tls_->peer_name(listener_ ? listener_->options.certificate_field : port::CertificateField::common_name);
      peer_.psk_identity = tls_->psk_identity();
      stream_ready({});
      break;
    case TlsSession::Outcome::want_read:
      wait_readable();
      break;
    case TlsSession::Outcome::want_write:
      wait_writable();
      break;
    case TlsSession::Outcome::closed:
    case TlsSession::Outcome::failed:
      handshake_failed(tls_->failure());
      break;
  }
}

/// Whoever connects to us learns little from an alert and may be a misconfigured node of ours, so it is told here. A
/// peer that said nothing, as one that only looks whether the port is open, is no news; nor is a failure of our own
/// connection, which its owner tells.
void Socket::tell_failed_handshake(std::string_view why) {
  loop_.counters.handshake_failures.add();
  if (!listener_ || !heard_) return log_debug("tls_handshake_failed", {{"peer", peer_.address}, {"reason", why}});
  loop_.counters.clients_refused_by_tls.add();
  const std::string here = address_text(end_of(descriptor_, ::getsockname).value_or(tcp::endpoint()));
  log_info("tls_handshake_failed", {{"listener", here}, {"peer", peer_.address}, {"reason", why}});
}

void Socket::handshake_failed(std::string_view why) {
  tell_failed_handshake(why);
  why_ = std::make_unique<Error>(Error{port::net_errors::tls, peer_.address + ": " + std::string(why), 0});
  // The alert is on its way: let it arrive before the socket goes.
  phase_ = Phase::draining;
  ::shutdown(descriptor_, SHUT_WR);
  set_deadline(kAlertLinger);
  wait_readable();
}

void Socket::opened() {
  auto self = shared_from_this();
  phase_ = Phase::open;
  deadline_.reset();
  attempt_.reset();
  if (auto listener = listener_) {
    if (listener->stopped) return release();  // its handshake outlived the listener
    auto connection = std::make_unique<ConnectionHandle>(self);
    handle_ = connection.get();
    if (!loop_.opening.empty()) loop_.opening.erase(this);
    handler_ = listener->accept(std::move(connection));
    if (!handler_ || !handle_) {
      loop_.counters.refused_by_handler.add();
      return abandon();
    }
    loop_.counters.accepted.add();
  } else {
    loop_.counters.connected.add();
  }
  if (phase_ == Phase::closed) return;
  handler_->on_open(*handle_);
  if (phase_ != Phase::open) return;
  if (unsent_bytes() > 0 || notify_armed_) mark_dirty();
  if (!paused_) wait_readable();
}

void Socket::set_deadline(Duration after) {
  if (!deadline_) deadline_ = std::make_unique<SteadyTimer>(loop_.context);
  deadline_->expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(after));
  deadline_->async_wait([self = shared_from_this(), number = ++deadline_number_](error_code cancelled) {
    if (!cancelled && number == self->deadline_number_) self->deadline_passed();
  });
}

void Socket::set_opening_deadline() {
  if (open_by_ == Instant{}) return set_deadline(loop_.handshake_timeout);
  set_deadline(std::clamp(open_by_ - steady_now(), Duration::zero(), loop_.handshake_timeout));
}

void Socket::deadline_passed() {
  switch (phase_) {
    case Phase::connecting:
      try_next_address();
      break;
    case Phase::announcing:
      finish(Error{port::net_errors::proxy, peer_.address + ": the PROXY header took too long", 0});
      break;
    case Phase::handshaking:
      if (handshake_queued_) {                  // it is we who are late
        set_deadline(loop_.handshake_timeout);  // handshake_now() counts anew
        break;
      }
      tell_failed_handshake("it took too long");
      finish(Error{port::net_errors::tls, peer_.address + ": the TLS handshake took too long", 0});
      break;
    case Phase::upgrading:
      finish(Error{port::net_errors::websocket, peer_.address + ": the WebSocket upgrade took too long", 0});
      break;
    case Phase::flushing:
    case Phase::draining:
      finish(closed_here());
      break;
    default:
      break;
  }
}

void Socket::release() {
  phase_ = Phase::closed;
  ++deadline_number_;
  deadline_.reset();
  attempt_.reset();
  close_descriptor();
  if (auto self = weak_from_this().lock()) {  // null: nobody knows us any more
    if (!loop_.opening.empty()) loop_.opening.erase(this);
    loop_.closed.push_back(std::move(self));
  }
  tls_.reset();
  if (output_) loop_.return_output(std::move(output_));
  if (websocket_ && websocket_->staged) loop_.return_output(std::move(websocket_->staged));
  if (!showing_) drop_tail(tail_.size());
  if (listener_) listener_->options.live->fetch_sub(1, std::memory_order_relaxed);
  listener_.reset();
}

void Socket::close_descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);  // leaves the epoll, too
  descriptor_ = -1;
  watched_ = 0;
  waiting_readable_ = waiting_writable_ = false;
}

void Socket::abandon() {
  handle_ = nullptr;
  handler_ = nullptr;
  if (phase_ != Phase::closed) release();
}

Error Socket::closed_here() const {
  return why_ ? *why_ : Error{port::net_errors::closed_here, peer_.address, 0};
}

void Socket::finish(Error why) {
  if (phase_ == Phase::closed) return;
  auto self = shared_from_this();
  if (phase_ == Phase::announcing) loop_.counters.proxy_failures.add();
  if (phase_ == Phase::upgrading) loop_.counters.upgrade_failures.add();
  release();
  if (auto* handler = std::exchange(handler_, nullptr)) handler->on_close(*handle_, why);
}

void Socket::finish_later(Error why) {
  release();
  loop_.later([self = shared_from_this(), error = std::move(why)] {
    if (auto* handler = std::exchange(self->handler_, nullptr)) handler->on_close(*self->handle_, error);
  });
}

}  // namespace ph::io
