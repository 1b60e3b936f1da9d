// LsdUpstream::Link: one connection of an address and the request in flight on it.
#pragma once

#include "service/relay/lsd_upstream.h"

namespace ph::relay {

class LsdUpstream::Link : public port::ConnectionHandler {
 public:
  Link(LsdUpstream& up, size_t address) : up_(up), address_(address) {}

  void open();
  void close();
  void send(std::unique_ptr<Flight> flight);
  /// No answer and no progress for request_timeout: gives up.
  void check_time(Instant now);

  bool opening() const { return connection_ && !open_; }
  bool is_open() const { return connection_ && open_; }
  bool free() const { return is_open() && !flight_; }
  const Flight* flight() const { return flight_.get(); }

  // --- port::ConnectionHandler
  void on_open(port::Connection&) override;
  port::Consumed on_data(port::Connection&, ByteView bytes) override;
  void on_close(port::Connection&, const Error& why) override;

 private:
  void on_answer(const lsd::Frame& frame);
  void fail(std::string reason);
  void gone(const std::string& reason);

  LsdUpstream& up_;
  size_t address_;
  std::unique_ptr<port::Connection> connection_;
  std::unique_ptr<port::Connection> dead_;  // not destroyed from inside its own callback
  std::unique_ptr<Flight> flight_;
  bool open_ = false;
  Instant progress_at_{};
  uint64_t acked_ = 0;
};

}  // namespace ph::relay
