// Big-endian reading for the decoders of this room: a view that shrinks from the front. Unlike base/coding.h, which
// reads our own little-endian formats, integers here are as MQTT section 1.5 lays them out.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "codec/mqtt/text.h"

namespace ph::mqtt {

/// Largest value of a variable byte integer.
inline constexpr uint32_t kVarintMax = 268'435'455;

/// After a failed read ok() is false, all further reads fail and values are zero.
class Cursor {
 public:
  explicit Cursor(ByteView bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  ByteView rest() const { return rest_; }

  ByteView take(size_t size) {
    if (!ok_ || size > rest_.size()) return fail();
    ByteView value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return value;
  }
  uint8_t u8() {
    ByteView b = take(1);
    return b.empty() ? 0 : static_cast<uint8_t>(b[0]);
  }
  uint16_t u16() { return static_cast<uint16_t>(big_endian(take(2))); }
  uint32_t u32() { return big_endian(take(4)); }
  /// Variable byte integer in its shortest form [MQTT-1.5.5-1].
  uint32_t varint() {
    uint32_t value = 0;
    for (unsigned i = 0; i < 4 && i < rest_.size(); ++i) {
      const auto byte = static_cast<unsigned char>(rest_[i]);
      value |= static_cast<uint32_t>(byte & 0x7F) << (7 * i);
      if (byte & 0x80) continue;
      if (byte == 0 && i > 0) break;
      rest_.remove_prefix(i + 1);
      return value;
    }
    fail();
    return 0;
  }
  ByteView binary() { return take(u16()); }
  ByteView string() {
    ByteView text = binary();
    return utf8_valid(text) ? text : fail();
  }

 private:
  ByteView fail() {
    ok_ = false;
    rest_ = {};
    return {};
  }
  static uint32_t big_endian(ByteView bytes) {
    uint32_t value = 0;
    for (char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  ByteView rest_;
  bool ok_ = true;
};

inline void put_u16(std::string& out, uint16_t value) {
  out.push_back(static_cast<char>(value >> 8));
  out.push_back(static_cast<char>(value));
}
inline void put_u32(std::string& out, uint32_t value) {
  put_u16(out, static_cast<uint16_t>(value >> 16));
  put_u16(out, static_cast<uint16_t>(value));
}
inline void put_text(std::string& out, ByteView text) {
  put_u16(out, static_cast<uint16_t>(text.size()));
  out.append(text);
}

}  // namespace ph::mqtt
