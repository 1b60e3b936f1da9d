// Frames of WebSocket (RFC 6455 5), as a server reads and writes them. Between the socket and the MQTT codec: what
// comes out is the byte stream that the frames carry, because frames and MQTT packets need not begin together
// [MQTT-6.0.0-2]. Owned by a socket.
//
//   byte 0   FIN 0x80, RSV 0x70 (zero: no extension is agreed on), opcode 0x0F
//   byte 1   MASK 0x80 (set by clients, never by servers), length 0..125, or 126: 16 bits follow, 127: 64 bits follow
//   ...      the length in as many bytes as were said, big-endian, in the shortest form that holds it
//   ...      4 bytes of mask when MASK is set; payload byte i is XORed with mask byte i mod 4
//   ...      payload
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace ph::ws {

enum class Opcode : uint8_t { continuation = 0, text = 1, binary = 2, close = 8, ping = 9, pong = 10 };

/// Status codes of Close frames (RFC 6455 7.4.1).
inline constexpr uint16_t kNormal = 1000;
inline constexpr uint16_t kProtocolError = 1002;
inline constexpr uint16_t kUnacceptable = 1003;  // a data frame of a kind that is not taken: text
inline constexpr uint16_t kNoStatus = 1005;      // never sent: stands for a Close frame without a code

inline constexpr size_t kControlMax = 125;      // payload of a control frame
inline constexpr size_t kHeaderMax = 14;        // of a masked frame
inline constexpr size_t kDataFrameMax = 65535;  // payload of the frames that we send: some clients take no longer ones

/// A frame of ours: its header. `mask`: as a client would (tests and tools); the caller masks the payload.
std::string frame_header(Opcode opcode, uint64_t size, std::optional<std::array<uint8_t, 4>> mask = {});
/// A whole control frame. Requires payload.size() <= kControlMax.
std::string control_frame(Opcode opcode, ByteView payload);
/// A whole Close frame; kNoStatus makes one without a code.
std::string close_frame(uint16_t code);
/// XORs `bytes` with the mask, whose byte 0 belongs to bytes[0].
void apply_mask(char* bytes, size_t size, std::array<uint8_t, 4> mask);

/// What a client sends. Feed every byte that arrives, in order; the decoder keeps at most kHeaderMax + kControlMax of
/// them. Once it has failed or seen a Close frame it takes nothing more.
class FrameDecoder {
 public:
  /// Unmasks the payload of data frames in place and moves it to the front: bytes [0, result) are the stream.
  size_t decode(char* bytes, size_t size);

  /// The payload of the last Ping since the last call: the only one that has to be answered (RFC 6455 5.5.3).
  std::optional<std::string> take_ping();
  /// Set when the client closes: its code, kNoStatus if it gave none.
  std::optional<uint16_t> closed() const { return closed_; }
  /// Nonzero when the client broke the protocol: the code to close with, and in fault() why, for people.
  uint16_t failed() const { return failed_; }
  std::string_view fault() const { return fault_; }

 private:
  bool take_header();
  bool control_frame_ended();
  bool fail(uint16_t code, std::string_view why);

  uint64_t left_ = 0;    // payload bytes of the current frame that are still to come
  std::string control_;  // payload so far of a control frame
  std::optional<std::string> ping_;
  std::string_view fault_;
  std::array<uint8_t, kHeaderMax> header_{};
  std::array<uint8_t, 4> mask_{};  // rotated, so that byte 0 is for the next payload byte
  std::optional<uint16_t> closed_;
  uint16_t failed_ = 0;
  uint8_t header_have_ = 0;
  uint8_t header_need_ = 2;
  Opcode opcode_ = Opcode::binary;
  bool in_payload_ = false;
  bool in_message_ = false;  // a data frame without FIN was the last one
};

}  // namespace ph::ws
