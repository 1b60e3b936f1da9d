// Handlers for this room's socket tests: they record what they are told and can be scripted.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/loop.h"
#include "port/network.h"

namespace ph::io {

/// Takes everything, remembers it, and runs a script if there is one.
class Recorder final : public port::ConnectionHandler {
 public:
  void on_open(port::Connection& self) override {
    EXPECT_FALSE(opened) << "on_open comes once";
    EXPECT_FALSE(closed) << "nothing comes after on_close";
    opened = true;
    if (at_open) at_open(self);
  }
  port::Consumed on_data(port::Connection& self, ByteView bytes) override {
    EXPECT_TRUE(opened) << "on_open comes first";
    EXPECT_FALSE(closed) << "nothing comes after on_close";
    ++calls;
    if (at_data) return at_data(self, bytes);
    data += bytes;
    return {bytes.size(), 0};
  }
  void on_drained(port::Connection& self) override {
    ++drained;
    if (at_drained) at_drained(self);
  }
  bool hears_last_words() const override { return last_words; }
  bool waits_for_turn() const override { return in_turns; }
  void on_close(port::Connection&, const Error& why) override {
    EXPECT_FALSE(closed) << "on_close comes once";
    closed = why;
    if (at_close) at_close();
  }

  std::unique_ptr<port::Connection> connection;
  std::string data;
  int calls = 0;
  int drained = 0;
  bool opened = false;
  bool last_words = false;
  bool in_turns = false;
  std::optional<Error> closed;
  std::function<void(port::Connection&)> at_open;
  std::function<port::Consumed(port::Connection&, ByteView)> at_data;
  std::function<void(port::Connection&)> at_drained;
  std::function<void()> at_close;
};

/// A listener on a free loopback port whose connections are recorded.
class Server {
 public:
  explicit Server(IoLoop& loop, port::ListenOptions options = {}, std::function<void(Recorder&)> prepare = {}) {
    auto made = loop.listen({"127.0.0.1", 0}, std::move(options),
                            [this, prepare](std::unique_ptr<port::Connection>&& connection) {
                              auto recorder = std::make_unique<Recorder>();
                              recorder->connection = std::move(connection);
                              if (prepare) prepare(*recorder);
                              clients.push_back(std::move(recorder));
                              return clients.back().get();
                            });
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().to_string());
    if (made) listener = std::move(*made);
  }
  port::Endpoint at() const { return listener->local(); }

  std::vector<std::unique_ptr<Recorder>> clients;
  std::unique_ptr<port::Listener> listener;
};

inline constexpr Duration kTestBound = 120s;  // never waited for when all is well

/// Runs the loop until `done`; a test that gets there late fails with the name of what did not come.
#define PH_EXPECT_SOON(loop, ...) \
  ASSERT_TRUE((loop).run_until([&] { return (__VA_ARGS__); }, kTestBound)) << "did not come: " #__VA_ARGS__

/// Frames of the tests: 4 bytes of length, little-endian, then as many bytes. Appends the payloads to `frames`.
inline port::Consumed take_frames(ByteView bytes, std::vector<std::string>& frames) {
  size_t at = 0;
  while (bytes.size() - at >= 4) {
    uint32_t size = 0;
    bytes.copy(reinterpret_cast<char*>(&size), 4, at);
    if (bytes.size() - at - 4 < size) return {at, 4 + static_cast<size_t>(size)};
    frames.emplace_back(bytes.substr(at + 4, size));
    at += 4 + size;
  }
  return {at, 4};
}

inline std::string frame(std::string_view payload) {
  auto size = static_cast<uint32_t>(payload.size());
  std::string bytes(reinterpret_cast<const char*>(&size), 4);
  bytes += payload;
  return bytes;
}

/// Bytes that differ everywhere, from a seed.
inline std::string noise(size_t size, uint64_t seed) {
  Random random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random.next());
  return bytes;
}

}  // namespace ph::io
