#include "codec/ws/frame.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"

namespace ph::ws {
namespace {

constexpr uint8_t kFin = 0x80;
constexpr uint8_t kReserved = 0x70;
constexpr uint8_t kMasked = 0x80;
constexpr uint8_t kLength16 = 126;
constexpr uint8_t kLength64 = 127;

bool is_control(Opcode opcode) {
  return static_cast<uint8_t>(opcode) >= 8;
}

/// RFC 6455 7.4: what may stand in a Close frame.
bool close_code_valid(uint16_t code) {
  if (code >= 3000 && code <= 4999) return true;
  return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
}

std::array<uint8_t, 4> rotated(std::array<uint8_t, 4> mask, size_t by) {
  std::rotate(mask.begin(), mask.begin() + static_cast<ptrdiff_t>(by % 4), mask.end());
  return mask;
}

}  // namespace

std::string frame_header(Opcode opcode, uint64_t size, std::optional<std::array<uint8_t, 4>> mask) {
  std::string out;
  out += static_cast<char>(kFin | static_cast<uint8_t>(opcode));
  const uint8_t masked = mask ? kMasked : 0;
  int length_bytes = 0;
  if (size < kLength16) {
    out += static_cast<char>(masked | size);
  } else {
    length_bytes = size <= UINT16_MAX ? 2 : 8;
    out += static_cast<char>(masked | (length_bytes == 2 ? kLength16 : kLength64));
  }
  for (int i = length_bytes - 1; i >= 0; --i) out += static_cast<char>(size >> (8 * i));
  if (mask)
    for (uint8_t m : *mask) out += static_cast<char>(m);
  return out;
}

std::string control_frame(Opcode opcode, ByteView payload) {
  PH_ASSERT(is_control(opcode) && payload.size() <= kControlMax, "a control frame is short");
  return frame_header(opcode, payload.size()).append(payload);
}

std::string close_frame(uint16_t code) {
  if (code == kNoStatus) return control_frame(Opcode::close, {});
  const char payload[2] = {static_cast<char>(code >> 8), static_cast<char>(code & 0xFF)};
  return control_frame(Opcode::close, {payload, 2});
}

void apply_mask(char* bytes, size_t size, std::array<uint8_t, 4> mask) {
  uint64_t wide = 0;
  std::memcpy(&wide, mask.data(), 4);
  std::memcpy(reinterpret_cast<char*>(&wide) + 4, mask.data(), 4);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    word ^= wide;
    std::memcpy(bytes + i, &word, 8);
  }
  for (; i < size; ++i) bytes[i] = static_cast<char>(bytes[i] ^ mask[i % 4]);
}

bool FrameDecoder::fail(uint16_t code, std::string_view why) {
  failed_ = code;
  fault_ = why;
  return false;
}

std::optional<std::string> FrameDecoder::take_ping() {
  return std::exchange(ping_, std::nullopt);
}

/// Looks at what there is of a header; sets header_need_ to what it needs in all. False when the frame is refused.
bool FrameDecoder::take_header() {
  const uint8_t first = header_[0];
  const uint8_t length = header_[1] & 0x7F;
  if (header_have_ == 2) {
    opcode_ = static_cast<Opcode>(first & 0x0F);
    if (first & kReserved) return fail(kProtocolError, "a reserved bit is set");
    if (!(header_[1] & kMasked)) return fail(kProtocolError, "a client's frame is not masked");
    switch (opcode_) {
      case Opcode::text:
        return fail(kUnacceptable, "a text frame");  // [MQTT-6.0.0-1]
      case Opcode::binary:
        if (in_message_) return fail(kProtocolError, "a new message inside of a fragmented one");
        break;
      case Opcode::continuation:
        if (!in_message_) return fail(kProtocolError, "a continuation of nothing");
        break;
      case Opcode::close:
      case Opcode::ping:
      case Opcode::pong:
        if (!(first & kFin)) return fail(kProtocolError, "a fragmented control frame");
        if (length > kControlMax) return fail(kProtocolError, "a control frame that is too long");
        break;
      default:
        return fail(kProtocolError, "an unknown opcode");
    }
    header_need_ = static_cast<uint8_t>(2 + (length == kLength16 ? 2 : length == kLength64 ? 8 : 0) + 4);
    return true;
  }
  uint64_t size = length;
  const size_t length_bytes = header_need_ - 6u;
  if (length_bytes > 0) {
    size = 0;
    for (size_t i = 0; i < length_bytes; ++i) size = size << 8 | header_[2 + i];
    if (size < kLength16 || (length_bytes == 8 && size <= UINT16_MAX))
      return fail(kProtocolError, "a length in more bytes than it needs");
    if (size >> 63) return fail(kProtocolError, "a length with its highest bit set");
  }
  std::copy_n(header_.begin() + header_need_ - 4, 4, mask_.begin());
  left_ = size;
  in_payload_ = true;
  if (!is_control(opcode_)) in_message_ = !(first & kFin);
  header_have_ = 0;
  header_need_ = 2;
  return true;
}

/// Acts on a whole control frame. False when nothing is to be read after it.
bool FrameDecoder::control_frame_ended() {
  std::string payload = std::exchange(control_, {});
  if (opcode_ == Opcode::ping) ping_ = std::move(payload);
  if (opcode_ != Opcode::close) return true;
  if (payload.empty()) {
    closed_ = kNoStatus;
    return false;
  }
  if (payload.size() == 1) return fail(kProtocolError, "half a close code");
  const auto code = static_cast<uint16_t>(static_cast<uint8_t>(payload[0]) << 8 | static_cast<uint8_t>(payload[1]));
  if (!close_code_valid(code)) return fail(kProtocolError, "a close code that does not exist");
  closed_ = code;
  return false;
}

size_t FrameDecoder::decode(char* bytes, size_t size) {
  size_t out = 0;
  size_t at = 0;
  while (!failed_ && !closed_) {
    if (!in_payload_) {
      const size_t n = std::min<size_t>(header_need_ - header_have_, size - at);
      std::memcpy(header_.data() + header_have_, bytes + at, n);
      header_have_ = static_cast<uint8_t>(header_have_ + n);
      at += n;
      if (header_have_ < header_need_ || !take_header()) break;
      continue;
    }
    const auto n = static_cast<size_t>(std::min<uint64_t>(left_, size - at));
    apply_mask(bytes + at, n, mask_);
    mask_ = rotated(mask_, n);
    if (is_control(opcode_)) {
      control_.append(bytes + at, n);
    } else {
      std::memmove(bytes + out, bytes + at, n);
      out += n;
    }
    at += n;
    left_ -= n;
    if (left_ > 0) break;
    in_payload_ = false;
    if (is_control(opcode_) && !control_frame_ended()) break;
  }
  return out;
}

}  // namespace ph::ws
