#include "codec/ws/frame.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace ph::ws {
namespace {

constexpr std::array<uint8_t, 4> kMask = {0x37, 0xFA, 0x21, 0x3D};

/// A frame as a client sends it. `first` overrides the first byte when it is not 0.
std::string client_frame(Opcode opcode, std::string payload, bool fin = true, uint8_t first = 0) {
  std::string out = frame_header(opcode, payload.size(), kMask);
  if (!fin) out[0] = static_cast<char>(out[0] & 0x7F);
  if (first) out[0] = static_cast<char>(first);
  apply_mask(payload.data(), payload.size(), kMask);
  return out + payload;
}

struct Decoded {
  std::string stream;
  std::vector<std::string> pings;
  uint16_t failed = 0;
  std::optional<uint16_t> closed;
  bool operator==(const Decoded&) const = default;
};

/// Decodes `bytes` in pieces of at most `piece`.
Decoded decode(const std::string& bytes, size_t piece = SIZE_MAX) {
  FrameDecoder decoder;
  Decoded out;
  for (size_t at = 0; at < bytes.size();) {
    std::string part = bytes.substr(at, piece);
    at += part.size();
    const size_t n = decoder.decode(part.data(), part.size());
    out.stream.append(part, 0, n);
    if (auto ping = decoder.take_ping()) out.pings.push_back(*ping);
  }
  out.failed = decoder.failed();
  out.closed = decoder.closed();
  return out;
}

std::string noise(size_t size) {
  Random random(size + 1);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random.next());
  return bytes;
}

TEST(WsFrame, every_length_form_comes_back_whole_and_in_pieces) {
  for (size_t size : {0u, 1u, 125u, 126u, 127u, 65535u, 65536u, 100'000u}) {
    const std::string payload = noise(size);
    const std::string frame = client_frame(Opcode::binary, payload);
    for (size_t piece : {SIZE_MAX, size_t{1}, size_t{3}, size_t{4096}}) {
      const Decoded got = decode(frame, piece);
      EXPECT_EQ(got.stream, payload) << size << " in " << piece;
      EXPECT_EQ(got.failed, 0);
    }
  }
}

TEST(WsFrame, the_example_of_the_rfc) {
  // RFC 6455 5.7: a single-frame masked message; there it is text.
  EXPECT_EQ(client_frame(Opcode::text, "Hello"), "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
  EXPECT_EQ(control_frame(Opcode::ping, "Hello"), "\x89\x05Hello");
  EXPECT_EQ(frame_header(Opcode::binary, 256), std::string("\x82\x7E\x01\x00", 4));
  EXPECT_EQ(frame_header(Opcode::binary, 65536), std::string("\x82\x7F\0\0\0\0\0\1\0\0", 10));
  EXPECT_EQ(close_frame(kNormal), "\x88\x02\x03\xE8");
  EXPECT_EQ(close_frame(kNoStatus), std::string("\x88\0", 2));
}

TEST(WsFrame, fragments_with_control_frames_between_are_one_stream) {
  const std::string bytes = client_frame(Opcode::binary, "one", false) + client_frame(Opcode::ping, "p1") +
                            client_frame(Opcode::continuation, "two", false) + client_frame(Opcode::pong, "unasked") +
                            client_frame(Opcode::continuation, "", false) + client_frame(Opcode::ping, "") +
                            client_frame(Opcode::continuation, "three") + client_frame(Opcode::binary, "four");
  const Decoded bytewise = decode(bytes, 1);
  EXPECT_EQ(bytewise.stream, "onetwothreefour");
  EXPECT_EQ(bytewise.pings, (std::vector<std::string>{"p1", ""}));
  EXPECT_EQ(decode(bytes).stream, "onetwothreefour");
  EXPECT_EQ(decode(bytes).pings, std::vector<std::string>{""}) << "only the last one must be answered";
}

TEST(WsFrame, close_ends_the_stream_and_gives_its_code) {
  const std::string tail = client_frame(Opcode::binary, "late");
  EXPECT_EQ(decode(client_frame(Opcode::binary, "a") + client_frame(Opcode::close, "") + tail),
            (Decoded{"a", {}, 0, kNoStatus}));
  EXPECT_EQ(decode(client_frame(Opcode::close, "\x03\xE8 done") + tail, 1), (Decoded{"", {}, 0, kNormal}));
  EXPECT_EQ(decode(client_frame(Opcode::close, "\x0F\xA0") + tail), (Decoded{"", {}, 0, 4000}));
}

TEST(WsFrame, what_breaks_the_protocol_is_refused_with_its_code) {
  auto raw = [](std::string_view text) { return std::string(text); };
  const std::vector<std::pair<std::string, uint16_t>> broken = {
      {client_frame(Opcode::text, "x"), kUnacceptable},
      {frame_header(Opcode::binary, 1) + "x", kProtocolError},              // not masked
      {client_frame(Opcode::continuation, "x"), kProtocolError},            // of nothing
      {client_frame(Opcode::ping, "x", false), kProtocolError},             // fragmented control
      {client_frame(Opcode::ping, std::string(126, 'x')), kProtocolError},  // long control
      {client_frame(Opcode::close, "x"), kProtocolError},                   // half a code
      {client_frame(Opcode::close, raw({"\x03\xED", 2})), kProtocolError},  // 1005 must not be sent
      {client_frame(Opcode::close, raw({"\0\1", 2})), kProtocolError},
      {client_frame(Opcode::close, raw({"\x13\x88", 2})), kProtocolError},  // 5000
      {client_frame(Opcode::binary, "x", true, 0xC2), kProtocolError},      // RSV1: no extension
      {client_frame(Opcode::binary, "x", true, 0x83), kProtocolError},      // opcode 3
      {client_frame(Opcode::binary, "x", true, 0x8B), kProtocolError},      // opcode 11
      {client_frame(Opcode::binary, "a", false) + client_frame(Opcode::binary, "b"), kProtocolError},
      {raw({"\x82\xFE\x00\x05\0\0\0\0abcde", 13}), kProtocolError},         // 5 in 16 bits
      {raw({"\x82\xFF\0\0\0\0\0\0\xFF\xFF\0\0\0\0", 14}), kProtocolError},  // 65535 in 64 bits
      {raw({"\x82\xFF\x80\0\0\0\0\0\0\0\0\0\0\0", 14}), kProtocolError},    // 2^63
  };
  for (size_t i = 0; i < broken.size(); ++i)
    for (size_t piece : {SIZE_MAX, size_t{1}}) {
      const Decoded got =
          decode(client_frame(Opcode::pong, "") + broken[i].first + client_frame(Opcode::binary, "late"), piece);
      EXPECT_EQ(got.failed, broken[i].second) << i;
      EXPECT_TRUE(got.stream == "" || got.stream == "a") << i;
      EXPECT_FALSE(got.closed) << i;
    }
}

TEST(WsFrame, every_truncation_gives_a_prefix_and_no_fault) {
  const std::string bytes = client_frame(Opcode::binary, "stream", false) + client_frame(Opcode::ping, "ping") +
                            client_frame(Opcode::continuation, noise(200)) + client_frame(Opcode::close, "\x03\xE8");
  const std::string whole = decode(bytes).stream;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Decoded got = decode(bytes.substr(0, n), 7);
    EXPECT_EQ(got.stream, whole.substr(0, got.stream.size()));
    EXPECT_EQ(got.failed, 0) << n;
    EXPECT_FALSE(got.closed) << n;
  }
}

TEST(WsFrame, random_frames_cut_at_random_places_carry_the_same_stream) {
  Random random(4711);
  for (int round = 0; round < 200; ++round) {
    std::string wire, stream;
    bool open = false;
    for (int i = 0; i < 20; ++i) {
      if (random.chance(0.3)) {
        wire += client_frame(random.chance(0.5) ? Opcode::ping : Opcode::pong, noise(random.below(126)));
        continue;
      }
      const std::string payload = noise(random.chance(0.9) ? random.below(300) : random.below(70'000));
      const bool fin = random.chance(0.5);
      wire += client_frame(open ? Opcode::continuation : Opcode::binary, payload, fin);
      open = !fin;
      stream += payload;
    }
    FrameDecoder decoder;
    std::string got;
    for (size_t at = 0; at < wire.size();) {
      std::string part = wire.substr(at, 1 + random.below(5000));
      at += part.size();
      got.append(part, 0, decoder.decode(part.data(), part.size()));
    }
    ASSERT_EQ(got, stream) << round;
    ASSERT_EQ(decoder.failed(), 0);
  }
}

}  // namespace
}  // namespace ph::ws
