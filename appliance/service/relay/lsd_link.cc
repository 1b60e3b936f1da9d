#include "service/relay/lsd_link.h"

#include "base/log.h"

namespace ph::relay {

void LsdUpstream::Link::open() {
  open_ = false;
  ++up_.addresses_[address_].connects;
  connection_ = up_.network_.connect(up_.options_.addresses[address_].endpoint,
                                     {.connect_timeout = up_.options_.connect_timeout}, *this);
}

void LsdUpstream::Link::close() {
  connection_.reset();
  flight_.reset();
  open_ = false;
}

void LsdUpstream::Link::send(std::unique_ptr<Flight> flight) {
  flight_ = std::move(flight);
  progress_at_ = up_.loop_.now();
  acked_ = connection_->bytes_acked();
  connection_->send(flight_->request.take_frame());
}

void LsdUpstream::Link::check_time(Instant now) {
  if (!flight_ || !connection_) return;
  if (uint64_t acked = connection_->bytes_acked(); acked > acked_) {
    acked_ = acked;
    progress_at_ = now;
  }
  if (now - progress_at_ > up_.options_.request_timeout) fail("no answer within the request timeout");
}

void LsdUpstream::Link::on_open(port::Connection&) {
  open_ = true;
  up_.soon();
}

port::Consumed LsdUpstream::Link::on_data(port::Connection&, ByteView bytes) {
  size_t taken = 0;
  while (connection_ && taken < bytes.size()) {
    if (!flight_) {
      fail("bytes that nobody asked for");
      break;
    }
    auto frame = lsd::decode_frame(bytes.substr(taken));
    if (!frame) {
      fail(frame.error().to_string());
      break;
    }
    progress_at_ = up_.loop_.now();
    if (frame->consumed == 0) return {taken, frame->wanted};
    taken += frame->consumed;
    on_answer(*frame);
  }
  return {bytes.size(), 0};
}

void LsdUpstream::Link::on_answer(const lsd::Frame& frame) {
  auto answer = lsd::decode_response(frame.id, frame.body, flight_->request.events());
  if (!answer) return fail(answer.error().to_string());
  Address& address = up_.addresses_[address_];
  if (const auto* generic = std::get_if<lsd::Generic>(&*answer)) {
    ++up_.stats_.refused;
    ++address.failed;
    address.last_error = "error " + std::to_string(generic->code) + ": " + generic->text.substr(0, 200);
    log_warn("lsd_request_refused", {{"upstream", up_.options_.name},
                                     {"address", up_.options_.addresses[address_].endpoint.to_string()},
                                     {"error", address.last_error}});
    if (++address.refusals >= kRefusalsInRow)
      address.not_before = up_.loop_.now() + up_.back_off(address.refusals - kRefusalsInRow + 1, kRefusedMax);
    up_.failed(*std::exchange(flight_, nullptr), true);
    return;
  }
  if (!flight_->request.answered_by(std::move(std::get<std::vector<lsd::Token>>(*answer))))
    return fail("an answer to something else than was asked");
  address.failures = address.refusals = 0;
  address.not_before = {};
  ++up_.stats_.requests;
  up_.succeeded(*std::exchange(flight_, nullptr));
}

void LsdUpstream::Link::on_close(port::Connection&, const Error& why) {
  if (!connection_) return;  // fail() was faster
  dead_ = std::move(connection_);
  gone(why.to_string());
}

void LsdUpstream::Link::fail(std::string reason) {
  if (!connection_) return;
  connection_->close(Duration::zero());
  dead_ = std::move(connection_);
  up_.loop_.post([this, alive = up_.alive_] {
    if (*alive) dead_.reset();
  });
  gone(reason);
}

void LsdUpstream::Link::gone(const std::string& reason) {
  open_ = false;
  up_.address_failed(address_, reason);
  if (!flight_) return;
  ++up_.stats_.failed;
  up_.failed(*std::exchange(flight_, nullptr), false);
}

}  // namespace ph::relay
