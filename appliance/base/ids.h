// Strong identifiers. A NodeId is random, made together with data_dir and kept there, so a wiped or cloned node is a
// different node (amendment 3). A StreamId is random too: minted per file generation or per spool epoch, never derived.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace ph {

struct NodeId {
  std::array<unsigned char, 16> raw{};
  auto operator<=>(const NodeId&) const = default;
  std::string hex() const { return to_hex(bytes()); }
  ByteView bytes() const { return {reinterpret_cast<const char*>(raw.data()), raw.size()}; }
  bool is_zero() const { return *this == NodeId{}; }
  /// From exactly 16 bytes; nullopt for any other length.
  static std::optional<NodeId> from_bytes(ByteView bytes);
};

/// One integer type per meaning: a StreamId cannot be passed where a Sequence is wanted.
template <class Tag>
struct StrongU64 {
  uint64_t value = 0;
  auto operator<=>(const StrongU64&) const = default;
};

using StreamId = StrongU64<struct StreamIdTag>;

/// Size of something, in bytes.
struct Bytes {
  uint64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
  Bytes& operator+=(Bytes b) {
    value += b.value;
    return *this;
  }
  Bytes& operator-=(Bytes b) {
    value -= b.value;
    return *this;
  }
  friend Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
};
constexpr Bytes operator""_KiB(unsigned long long n) {
  return {n * 1024};
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return {n * 1024 * 1024};
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return {n * 1024 * 1024 * 1024};
}

}  // namespace ph

template <>
struct std::hash<ph::NodeId> {
  size_t operator()(const ph::NodeId& id) const noexcept { return std::hash<std::string_view>{}(id.bytes()); }
};
template <class Tag>
struct std::hash<ph::StrongU64<Tag>> {
  size_t operator()(ph::StrongU64<Tag> id) const noexcept { return std::hash<uint64_t>{}(id.value); }
};
