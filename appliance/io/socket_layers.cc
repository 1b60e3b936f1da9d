// What can lie between an accepted TCP connection and the user's bytes, beside TLS: a PROXY header in front of
// everything, and WebSocket on top. The rest of the socket is in socket.cc and socket_open.cc.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "codec/proxy/header.h"
#include "io/net_error.h"
#include "io/socket.h"

namespace ph::io {
namespace {

constexpr Duration kRefusalLinger = 1s;  // for the peer to read why, and to close

}  // namespace

// --- PROXY header

void Socket::read_announcement() {
  ssize_t got = ::recv(descriptor_, loop_.read_buffer.get(), kReadBufferBytes, MSG_DONTWAIT);
  if (got < 0 && !is_transient(errno)) return finish(net_error(peer_.address, errno));
  if (got == 0)
    return finish(Error{port::net_errors::proxy, peer_.address + ": closed before its PROXY header was whole", 0});
  if (got > 0) {
    loop_.counters.bytes_read.add(static_cast<size_t>(got));
    tail_.append(loop_.read_buffer.get(), static_cast<size_t>(got));
    auto header = proxy::decode(tail_);
    if (!header) {
      log_info("proxy_header_refused", {{"peer", peer_.address}, {"reason", header.error()}});
      return finish(Error{port::net_errors::proxy, peer_.address + ": " + std::string(header.error()), 0});
    }
    if (*header) {
      if ((*header)->source) peer_.address = *(*header)->source;
      return announced(std::exchange(tail_, {}).substr((*header)->size));
    }
  }
  wait_readable();
}

/// Who is there is known; `rest` came behind it.
void Socket::announced(std::string rest) {
  if (!listener_->options.tls) return stream_ready(std::move(rest));
  secure(*listener_->options.tls, true, {});
  if (phase_ != Phase::handshaking || rest.empty()) return;
  heard_ = true;
  tls_->feed(rest);
  tls_->stash();
  handshake_soon();
}

/// The bytes of the stream can flow; `rest` of them is here already.
void Socket::stream_ready(std::string rest) {
  if (listener_ && !listener_->options.websocket_path.empty()) {
    phase_ = Phase::upgrading;
    set_opening_deadline();
    if (!rest.empty()) upgrade_input(rest);
    if (phase_ == Phase::upgrading) wait_readable();
    return;
  }
  opened();
  if (phase_ == Phase::open && !rest.empty()) received(rest);
}

// --- WebSocket

void Socket::ingest(char* bytes, size_t size) {
  if (phase_ == Phase::upgrading) return upgrade_input({bytes, size});
  if (!websocket_) return received({bytes, size});
  received({bytes, websocket_->decoder.decode(bytes, size)});
  if (phase_ != Phase::open) return;
  ws::FrameDecoder& decoder = websocket_->decoder;
  if (auto ping = decoder.take_ping()) {
    websocket_->pong = std::move(ping);
    mark_dirty();
  }
  if (decoder.failed() || decoder.closed()) stream_ended();
}

void Socket::stream_ended() {
  if (phase_ == Phase::open && paused_ && (!tail_.empty() || handler_->holds_input())) {
    end_due_ = true;
    return;
  }
  const ws::FrameDecoder* frames = websocket_ ? &websocket_->decoder : nullptr;
  if (frames && frames->failed()) {
    loop_.counters.websocket_faults.add();
    end_websocket(frames->failed(),
                  {port::net_errors::websocket, peer_.address + ": " + std::string(frames->fault()), 0});
  } else if (frames && frames->closed()) {
    // Its code comes back to it (RFC 6455 5.5.1).
    end_websocket(*frames->closed(), {port::net_errors::closed,
                                      peer_.address + ": closed with code " + std::to_string(*frames->closed()), 0});
  } else {
    end_of_input(tls_->failure());
  }
}

/// Sends what is queued and a Close frame; on_close follows when the peer closed, too, or is late.
void Socket::end_websocket(uint16_t code, Error why) {
  websocket_->close_code = code;
  why_ = std::make_unique<Error>(std::move(why));
  begin_flushing(kRefusalLinger);
}

void Socket::upgrade_input(ByteView fresh) {
  const size_t before = tail_.size();
  const size_t room = std::min(kUpgradeHeadMax - before, fresh.size());
  tail_.append(fresh.substr(0, room));
  const size_t end = tail_.find("\r\n\r\n", before < 3 ? 0 : before - 3);
  if (end == tail_.npos) {
    if (tail_.size() >= kUpgradeHeadMax) refuse(refuse_upgrade(431, "the request is too long"));
    return;
  }
  std::string head = std::exchange(tail_, {});
  std::string rest = head.substr(end + 4);
  rest.append(fresh.substr(room));
  head.resize(end + 4);
  UpgradeAnswer answer = answer_upgrade(head, listener_->options.websocket_path, listener_->options.websocket_origins);
  if (answer.status != 101) return refuse(answer);
  websocket_ = std::make_unique<WebSocketState>();
  output().push_copy(answer.response);
  opened();
  if (phase_ == Phase::closed) return;
  loop_.counters.upgrades.add();
  if (phase_ == Phase::open && !rest.empty()) ingest(rest.data(), rest.size());
}

void Socket::refuse(const UpgradeAnswer& answer) {
  loop_.counters.upgrade_failures.add();
  log_info("websocket_refused", {{"peer", peer_.address}, {"status", answer.status}, {"reason", answer.why}});
  why_ = std::make_unique<Error>(Error{port::net_errors::websocket, peer_.address + ": " + answer.why, 0});
  output().push_copy(answer.response);
  begin_flushing(kRefusalLinger);
}

/// Makes frames of what the user sent in this turn, and of what is owed to the peer.
void Socket::frame_output() {
  WebSocketState& state = *websocket_;
  if (state.pong && state.pong_ahead == 0 && !state.close_sent) {
    output().push_copy(ws::control_frame(ws::Opcode::pong, *state.pong));
    state.pong.reset();
    state.pong_ahead = output().bytes();
  }
  if (state.staged) {
    while (!state.staged->empty()) {
      const size_t size = std::min(state.staged->bytes(), ws::kDataFrameMax);
      output().push_copy(ws::frame_header(ws::Opcode::binary, size));
      output().take_from(*state.staged, size);
    }
    loop_.return_output(std::move(state.staged));
  }
  if (phase_ == Phase::flushing && !std::exchange(state.close_sent, true))
    output().push_copy(ws::close_frame(state.close_code));
}

}  // namespace ph::io
