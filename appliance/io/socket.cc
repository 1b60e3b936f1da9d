#include "io/socket.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "io/net_error.h"

namespace ph::io {
namespace {

constexpr uint32_t kAwaited = EPOLLIN | EPOLLOUT;
constexpr uint32_t kPeersEnd = EPOLLRDHUP | EPOLLET;  // told once; EPOLLHUP and EPOLLERR come unasked
constexpr size_t kVectorsPerWrite = 64;
constexpr int kWritesPerTurn = 8;          // sendmsg calls for one connection in one turn
constexpr size_t kTailGrowth = 64 * 1024;  // a tail grows by its own size, at least by this

/// Room behind the `have` bytes of a tail that waits for `wanted`. It follows what arrives, not what a peer announces:
/// a header that claims 16 MiB costs 64 KiB until the bytes are really sent.
size_t tail_room(size_t have, size_t wanted) {
  if (wanted <= have) return 0;
  return std::min({wanted - have, std::max(have, kTailGrowth), kReadBufferBytes});
}

}  // namespace

bool is_transient(int os_error) {
  return os_error == EAGAIN || os_error == EWOULDBLOCK || os_error == EINTR;
}

ConnectionHandle::~ConnectionHandle() {
  socket_->abandon();
}
void ConnectionHandle::send(Slice bytes) {
  socket_->send(std::move(bytes));
}
void ConnectionHandle::send_copy(ByteView bytes) {
  socket_->send_copy(bytes);
}
size_t ConnectionHandle::unsent_bytes() const {
  return socket_->unsent_bytes();
}
void ConnectionHandle::notify_below(size_t mark) {
  socket_->notify_below(mark);
}
void ConnectionHandle::pause_reading(bool paused) {
  socket_->pause_reading(paused);
}
void ConnectionHandle::close(Duration linger) {
  socket_->close(linger);
}
const port::Peer& ConnectionHandle::peer() const {
  return socket_->peer();
}
uint64_t ConnectionHandle::bytes_acked() const {
  return socket_->bytes_acked();
}

// --- what the user asks for

OutputQueue& Socket::output() {
  if (!output_) output_ = loop_.take_output();
  return *output_;
}

OutputQueue& Socket::user_output() {
  if (!websocket_) return output();
  if (!websocket_->staged) websocket_->staged = loop_.take_output();
  return *websocket_->staged;
}

size_t Socket::unsent_bytes() const {
  size_t bytes = output_ ? output_->bytes() : 0;
  if (websocket_ && websocket_->staged) bytes += websocket_->staged->bytes();
  return bytes;
}

void Socket::mark_dirty() {
  if (dirty_) return;
  dirty_ = true;
  loop_.write_later(shared_from_this(), showing_);
}

void Socket::send(Slice bytes) {
  if (!can_send() || bytes.empty()) return;
  user_output().push(std::move(bytes));
  if (phase_ == Phase::open) mark_dirty();
}

void Socket::send_copy(ByteView bytes) {
  if (!can_send() || bytes.empty()) return;
  user_output().push_copy(bytes);
  if (phase_ == Phase::open) mark_dirty();
}

void Socket::notify_below(size_t mark) {
  low_mark_ = mark;
  notify_armed_ = true;
  if (phase_ == Phase::open && unsent_bytes() <= mark) mark_dirty();
}

void Socket::pause_reading(bool paused) {
  if (paused_ == paused) return;
  paused_ = paused;
  if (phase_ != Phase::open) return;
  if (paused) {  // who never waited has no watch that could turn into one for the end
    if (unread() && (watched_ & (EPOLLIN | EPOLLRDHUP)) == 0) set_watched(wanted_events());
    return;
  }
  // What the handler left when it paused is shown again without waiting for more. When it resumes from inside on_data,
  // received() goes on by itself.
  if (!showing_ && (end_due_ || (!tail_.empty() && tail_.size() >= wanted_))) {
    if (reshow_posted_) return;
    reshow_posted_ = true;
    loop_.later([self = shared_from_this()] { self->show_tail_again(); });
    return;
  }
  wait_readable();
}

void Socket::close(Duration linger) {
  if (!can_send()) return;
  if (phase_ != Phase::open || linger <= Duration::zero()) return finish_later(closed_here());
  begin_flushing(linger);
}

void Socket::begin_flushing(Duration linger) {
  phase_ = Phase::flushing;
  paused_ = false;
  set_deadline(linger);
  mark_dirty();
  if (!showing_) {
    drop_tail(tail_.size());
    wait_readable();
  }
}

uint64_t Socket::bytes_acked() const {
  return descriptor_ >= 0 ? tcp_bytes_acked(descriptor_) : 0;
}

// --- reading

void Socket::wait_readable() {
  if (waiting_readable_ || input_ended_) return;
  waiting_readable_ = true;
  if ((phase_ == Phase::open || phase_ == Phase::upgrading) && tls_ && tls_->stashed()) {
    loop_.later([self = shared_from_this()] {
      if (std::exchange(self->waiting_readable_, false)) self->readable();
    });
    return;
  }
  watch();
}

uint32_t Socket::wanted_events() const {
  return (waiting_readable_ ? EPOLLIN : 0U) | (waiting_writable_ ? EPOLLOUT : 0U) | (unread() ? kPeersEnd : 0U);
}

/// Asks for the events that somebody waits for now. What nobody waits for is left as it is: on_event() finds out.
void Socket::watch() {
  const uint32_t wanted = wanted_events();
  if ((wanted & kAwaited & ~watched_) == 0) return;
  // Edges are for who does not read: never of EPOLLIN.
  set_watched(unread() ? wanted : wanted | (watched_ & kAwaited));
}

void Socket::set_watched(uint32_t events) {
  if (events == watched_) return;
  const int what = events == 0 ? EPOLL_CTL_DEL : watched_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = events;
  event.data.ptr = this;
  if (::epoll_ctl(loop_.poll, what, descriptor_, &event) != 0) return finish_later(net_error(peer_.address, errno));
  watched_ = events;
}

/// Closed in this turn by somebody else's event: not for us any more; the loop keeps us until the turn's end.
void Socket::on_event(uint32_t events) {
  constexpr uint32_t kFailed = EPOLLERR | EPOLLHUP;
  if (waiting_readable_ && (events & (EPOLLIN | kFailed)) != 0) {
    waiting_readable_ = false;
    readable();
  }
  if (waiting_writable_ && (events & (EPOLLOUT | kFailed)) != 0) {
    waiting_writable_ = false;
    writable();
  }
  if (phase_ == Phase::closed) return;
  const uint32_t wanted = wanted_events();
  if ((events & ~wanted) != 0) set_watched(wanted);  // it would come again at once
  if (unread()) peer_seen_to_end(events);
}

/// The kernel tells of the peer's end while reading is paused. Broken, by either side's kernel: it is over, there is
/// nobody to hold back. Ended in order: what lies in front of the end is read when reading goes on, as it would have
/// been before.
void Socket::peer_seen_to_end(uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    if (handler_->waits_for_turn()) return set_watched(0);  // it would come again at once; then reading finds out
    loop_.counters.ended_unread.add();
    if (handler_->hears_last_words()) {
      paused_ = false;
      received({});
      if (phase_ == Phase::open) read_once();
      if (phase_ != Phase::open) return;
    }
    int os_error = 0;
    socklen_t size = sizeof os_error;
    if (::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &os_error, &size) != 0 || os_error == 0) os_error = ECONNRESET;
    finish(net_error(peer_.address, os_error));
  } else if ((events & EPOLLRDHUP) != 0 && !input_waits()) {
    loop_.counters.ended_unread.add();
    end_of_input({});
  }
}

/// Whether the peer sent anything that was not read and handled yet. What says no more than that TLS ends is nothing.
bool Socket::input_waits() const {
  if (!tail_.empty() || handler_->holds_input() || (tls_ && tls_->stashed())) return true;
  int waiting = 0;
  if (::ioctl(descriptor_, FIONREAD, &waiting) != 0 || waiting <= 0) return false;
  constexpr unsigned char kAlert = 21;  // RFC 5246 6.2.1: type, version of two bytes, length of two
  unsigned char head[5];
  if (!tls_ || ::recv(descriptor_, head, sizeof head, MSG_PEEK | MSG_DONTWAIT) != sizeof head) return true;
  return head[0] != kAlert || waiting != 5 + (head[3] << 8 | head[4]);
}

void Socket::readable() {
  switch (phase_) {
    case Phase::announcing:
      read_announcement();
      break;
    case Phase::handshaking:
      handshake_soon();
      break;
    case Phase::upgrading:
    case Phase::open:
      if (!paused_) read_once();
      break;
    case Phase::flushing:
    case Phase::draining:
      discard_input();
      break;
    default:
      break;
  }
}

void Socket::read_once() {
  if (tls_)
    read_tls();
  else
    read_plain();
  if (phase_ == Phase::open && tail_.size() > kTailMax)
    return finish(Error{port::net_errors::too_long,
                        peer_.address + ": " + std::to_string(tail_.size()) + " bytes without a whole frame", 0});
  if ((phase_ == Phase::open && !paused_) || phase_ == Phase::flushing || phase_ == Phase::upgrading) wait_readable();
}

void Socket::read_plain() {
  size_t before = tail_.size();
  bool as_it_comes = phase_ == Phase::open && !websocket_;  // what is read is what the user gets
  size_t room = as_it_comes ? tail_room(before, wanted_) : 0;
  iovec into[2] = {{nullptr, 0}, {loop_.read_buffer.get(), kReadBufferBytes - room}};
  if (room > 0) {
    tail_.resize_and_overwrite(before + room, [](char*, size_t size) { return size; });
    into[0] = {tail_.data() + before, room};
  }
  // While the tail still grows, nothing may land behind its gap.
  bool all_wanted = room == 0 || before + room >= wanted_;
  ssize_t got = ::readv(descriptor_, into, all_wanted ? 2 : 1);
  int os_error = errno;
  size_t size = got > 0 ? static_cast<size_t>(got) : 0;
  if (room > 0) tail_.resize(before + std::min(size, room));
  if (got < 0) {
    if (!is_transient(os_error)) read_failed(os_error);
    return;
  }
  if (got == 0) return end_of_input({});
  loop_.counters.bytes_read.add(size);
  ingest(loop_.read_buffer.get(), size > room ? size - room : 0);
}

void Socket::read_tls() {
  if (!tls_->stashed()) {
    ssize_t got = ::recv(descriptor_, loop_.read_buffer.get(), kReadBufferBytes, MSG_DONTWAIT);
    if (got < 0) {
      if (!is_transient(errno)) read_failed(errno);
      return;
    }
    if (got == 0) tls_->end_input();
    tls_->feed({loop_.read_buffer.get(), static_cast<size_t>(got)});
    loop_.counters.bytes_read.add(static_cast<size_t>(got));
  }
  if (!loop_.plain_buffer) loop_.plain_buffer = std::make_unique_for_overwrite<char[]>(kPlainBufferBytes);
  size_t have = 0;
  auto outcome = TlsSession::Outcome::ok;
  while (outcome == TlsSession::Outcome::ok && have < kPlainBufferBytes) {
    size_t got = 0;
    outcome = tls_->read(loop_.plain_buffer.get() + have, kPlainBufferBytes - have, got);
    have += got;
  }
  tls_->stash();
  if (have > 0) ingest(loop_.plain_buffer.get(), have);
  if (phase_ != Phase::open && phase_ != Phase::upgrading) return;
  if (outcome == TlsSession::Outcome::closed) return stream_ended();
  if (outcome == TlsSession::Outcome::failed)
    return finish(Error{port::net_errors::tls, peer_.address + ": " + tls_->failure(), 0});
}

void Socket::received(ByteView fresh) {
  while (!tail_.empty()) {
    if (wanted_ > tail_.size()) {
      size_t missing = std::min(wanted_ - tail_.size(), fresh.size());
      tail_.append(fresh.substr(0, missing));
      fresh.remove_prefix(missing);
      if (tail_.size() < wanted_) return;
    } else if (wanted_ == 0) {
      tail_.append(fresh);
      fresh = {};
    }
    if (paused_) {
      tail_.append(fresh);
      return;
    }
    port::Consumed took = show(tail_);
    if (phase_ != Phase::open) return;
    wanted_ = took.wanted;
    drop_tail(took.bytes);
    if (tail_.empty()) break;
    if (fresh.empty()) return;
    if (wanted_ <= tail_.size()) wanted_ = 0;  // join with fresh and show once more
  }
  if (fresh.empty()) return;
  if (paused_) {
    tail_.assign(fresh);
    wanted_ = 0;
    return;
  }
  port::Consumed took = show(fresh);
  if (phase_ != Phase::open || took.bytes == fresh.size()) return;
  tail_.assign(fresh.substr(took.bytes));
  wanted_ = took.wanted;
}

port::Consumed Socket::show(ByteView bytes) {
  showing_ = true;
  port::Consumed took = handler_->on_data(*handle_, bytes);
  showing_ = false;
  PH_ASSERT(took.bytes <= bytes.size(), "a handler consumed more than it was shown");
  if (phase_ != Phase::open) drop_tail(tail_.size());
  return took;
}

/// The front of the tail was consumed. Its memory goes, too, so that a connection does not keep for ever what its
/// largest frame took; assigning an empty string would keep it.
void Socket::drop_tail(size_t size) {
  if (tail_.size() - size < tail_.capacity() / 4)
    std::string(tail_, size).swap(tail_);
  else
    tail_.erase(0, size);
}

void Socket::show_tail_again() {
  reshow_posted_ = false;
  if (phase_ != Phase::open || paused_) return;
  received({});
  if (phase_ == Phase::open && paused_) return;
  if (phase_ == Phase::open && std::exchange(end_due_, false)) return stream_ended();
  if (phase_ == Phase::open || phase_ == Phase::flushing) wait_readable();
}

void Socket::discard_input() {
  ssize_t got = ::recv(descriptor_, loop_.read_buffer.get(), kReadBufferBytes, MSG_DONTWAIT);
  if (got > 0 || (got < 0 && is_transient(errno))) return wait_readable();
  input_ended_ = true;
  // The peer's end while we still write: it may have closed one half only and wait for our last bytes.
  if (phase_ == Phase::draining || got < 0) finish(closed_here());
}

void Socket::end_of_input(std::string_view how) {
  if (write_error_) return finish(net_error(peer_.address, write_error_));
  std::string detail = peer_.address;
  if (!how.empty()) detail += ": " + std::string(how);
  if (!tail_.empty()) detail += ": closed with " + std::to_string(tail_.size()) + " bytes of an unfinished frame";
  finish(Error{port::net_errors::closed, std::move(detail), 0});
}

void Socket::read_failed(int os_error) {
  finish(net_error(peer_.address, os_error));
}

// --- writing

void Socket::wait_writable() {
  if (waiting_writable_) return;
  waiting_writable_ = true;
  watch();
}

void Socket::writable() {
  if (phase_ == Phase::connecting) return connect_answered();
  if (phase_ == Phase::handshaking) return handshake_soon();
  mark_dirty();
}

void Socket::write_now() {
  dirty_ = false;
  if ((phase_ != Phase::open && phase_ != Phase::flushing) || write_error_) return;
  if (websocket_) frame_output();
  for (int writes = 0; unsent_bytes() > 0 && !waiting_writable_; ++writes) {
    if (writes == kWritesPerTurn) {
      mark_dirty();
      break;
    }
    loop_.counters.writes.add();
    if (!(tls_ ? write_tls() : write_plain())) return;
  }
  if (websocket_ && phase_ == Phase::open && websocket_->pong && websocket_->pong_ahead == 0) mark_dirty();
  if (unsent_bytes() == 0) output_written();
  if (phase_ == Phase::open && notify_armed_ && unsent_bytes() <= low_mark_) {
    notify_armed_ = false;
    handler_->on_drained(*handle_);
  }
}

bool Socket::write_plain() {
  iovec vectors[kVectorsPerWrite];
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = output_->gather(vectors, kVectorsPerWrite);
  size_t offered = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) offered += vectors[i].iov_len;
  ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !is_transient(errno)) {
    write_failed(errno);
    return false;
  }
  size_t size = sent > 0 ? static_cast<size_t>(sent) : 0;
  loop_.counters.bytes_written.add(size);
  written(size);
  if (size < offered) wait_writable();
  return true;
}

bool Socket::write_tls() {
  // One record: from one slice if it is long enough, else gathered, so that many small sends are one record.
  char gathered[kTlsRecordMax];
  iovec front{};
  output_->gather(&front, 1);
  ByteView record(static_cast<const char*>(front.iov_base), std::min(front.iov_len, kTlsRecordMax));
  if (record.size() < kTlsRecordMax && record.size() < output_->bytes())
    record = {gathered, output_->peek(gathered, kTlsRecordMax)};
  if (record_pending_ > 0) record = record.substr(0, record_pending_);
  size_t taken = 0;
  auto outcome = tls_->write(record, taken);
  loop_.counters.bytes_written.add(tls_->take_sent());
  switch (outcome) {
    case TlsSession::Outcome::ok:
      record_pending_ = 0;
      written(taken);
      return true;
    case TlsSession::Outcome::want_write:
      record_pending_ = static_cast<uint32_t>(record.size());
      wait_writable();
      return true;
    default:
      if (tls_->os_error() != 0)
        write_failed(tls_->os_error());
      else
        finish(Error{port::net_errors::tls, peer_.address + ": " + tls_->failure(), 0});
      return false;
  }
}

void Socket::written(size_t size) {
  output_->consume(size);
  if (websocket_) websocket_->pong_ahead -= std::min(websocket_->pong_ahead, size);
}

void Socket::output_written() {
  if (output_) loop_.return_output(std::move(output_));
  if (phase_ != Phase::flushing) return;
  phase_ = Phase::draining;
  if (tls_) tls_->close_notify();
  ::shutdown(descriptor_, SHUT_WR);
  if (input_ended_) return finish(closed_here());
  wait_readable();
}

void Socket::write_failed(int os_error) {
  // The peer may have said why it closes before it did: read that first. The socket is dead, so its input ends soon.
  bool dead = os_error == EPIPE || os_error == ECONNRESET;
  if (!dead || phase_ != Phase::open || paused_) return finish(net_error(peer_.address, os_error));
  write_error_ = os_error;
  output_->clear();
  wait_readable();
}

}  // namespace ph::io
