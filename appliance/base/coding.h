// Fixed and variable-length integers for disk and wire formats: little-endian fixed, LEB128 varint, length-prefixed
// bytes. Readers never trust a length: every get_* checks what is left and fails without reading past the end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace ph {

static_assert(std::endian::native == std::endian::little, "formats are written as the host lays them out");

template <class T>
void put_fixed(std::string& out, T value) {
  static_assert(std::is_integral_v<T>);
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

template <class T>
T load_fixed(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

inline void put_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

/// Bytes that put_varint() takes for it.
constexpr size_t varint_size(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

/// Signed numbers near 0 as unsigned ones near 0, for put_varint().
constexpr uint64_t zigzag(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ (value < 0 ? UINT64_MAX : 0);
}
constexpr int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1 ^ (value & 1 ? UINT64_MAX : 0));
}

inline void put_sized(std::string& out, ByteView bytes) {
  put_varint(out, bytes.size());
  out.append(bytes);
}

/// Big-endian, for keys of an ordered store: byte order equals number order.
inline void put_key(std::string& out, uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

inline uint64_t load_key(const char* p) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | static_cast<unsigned char>(p[i]);
  return value;
}

/// Reads from the front of a view. After a failed get, ok() is false, all further gets fail and values are zero.
class Reader {
 public:
  explicit Reader(ByteView bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  ByteView rest() const { return rest_; }

  template <class T>
  T fixed() {
    if (rest_.size() < sizeof(T)) return failed<T>();
    T value = load_fixed<T>(rest_.data());
    rest_.remove_prefix(sizeof(T));
    return value;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned i = 0; i < 10 && i < rest_.size(); ++i) {
      auto byte = static_cast<unsigned char>(rest_[i]);
      if (i == 9 && byte > 1) break;  // would not fit 64 bits
      value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
      if (!(byte & 0x80)) {
        rest_.remove_prefix(i + 1);
        return value;
      }
    }
    return failed<uint64_t>();
  }

  /// Length-prefixed bytes of at most `max`.
  ByteView sized(uint64_t max = UINT32_MAX) {
    uint64_t size = varint();
    if (!ok_ || size > rest_.size() || size > max) return failed<ByteView>();
    return take(size);
  }

  ByteView take(size_t size) {
    if (!ok_ || size > rest_.size()) return failed<ByteView>();
    ByteView value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return value;
  }

 private:
  template <class T>
  T failed() {
    ok_ = false;
    rest_ = {};
    return T{};
  }
  ByteView rest_;
  bool ok_ = true;
};

}  // namespace ph
