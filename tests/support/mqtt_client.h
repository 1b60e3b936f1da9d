// MqttClient: a client over MemoryNetwork that speaks in lines of mqtt_text.h. It answers nothing by itself: a test
// says each packet, and reads what came.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port/network.h"
#include "support/mqtt_text.h"

namespace ph::test {

class MqttClient final : public port::ConnectionHandler {
 public:
  MqttClient(port::Network& network, const port::Endpoint& to) { socket_ = network.connect(to, {}, *this); }

  /// The version of what follows is that of the first "connect" line.
  MqttClient& send(const std::string& line) {
    if (line.starts_with("connect")) version_ = version_in(line);
    send_raw(packet_bytes(line, version_));
    return *this;
  }
  void send_raw(const std::string& bytes) {
    if (open_)
      socket_->send_copy(bytes);
    else
      before_open_ += bytes;
  }
  /// Everything received since the last call.
  std::vector<std::string> take() { return std::exchange(received_, {}); }
  const std::vector<std::string>& received() const { return received_; }
  bool closed() const { return closed_; }
  void pause(bool paused) { socket_->pause_reading(paused); }
  /// Cuts the connection without a word.
  void drop() {
    socket_.reset();
    closed_ = true;
  }
  mqtt::Version version() const { return version_; }

  void on_open(port::Connection& c) override {
    open_ = true;
    if (!before_open_.empty()) c.send_copy(std::exchange(before_open_, {}));
  }
  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    buffer_.append(bytes);
    for (auto& line : describe_all(buffer_, version_)) {
      if (on_packet) on_packet(line);
      received_.push_back(std::move(line));
    }
    return {bytes.size(), 0};
  }
  void on_close(port::Connection&, const Error&) override { closed_ = true; }

  std::function<void(const std::string& line)> on_packet;

 private:
  std::unique_ptr<port::Connection> socket_;
  mqtt::Version version_ = mqtt::Version::v5;
  std::string buffer_;
  std::string before_open_;
  std::vector<std::string> received_;
  bool open_ = false;
  bool closed_ = false;
};

}  // namespace ph::test
