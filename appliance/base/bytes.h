// Bytes in memory: views, and shared immutable slices that several owners (a window, a socket queue, a commit) hold
// without copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ph {

using ByteView = std::string_view;

/// An immutable slice of shared memory. Copying shares; the bytes live until the last slice goes.
class Slice {
 public:
  Slice() = default;
  /// Takes ownership of `bytes`.
  explicit Slice(std::string bytes)
      : owner_(std::make_shared<const std::string>(std::move(bytes))),
        view_(*static_cast<const std::string*>(owner_.get())) {}
  Slice(std::shared_ptr<const void> owner, ByteView view) : owner_(std::move(owner)), view_(view) {}

  ByteView view() const { return view_; }
  const char* data() const { return view_.data(); }
  size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  /// A part of this slice that shares its memory. Requires offset <= size().
  Slice sub(size_t offset, size_t count = std::string_view::npos) const {
    return {owner_, view_.substr(offset, count)};
  }

 private:
  std::shared_ptr<const void> owner_;
  ByteView view_;
};

/// CRC-32C (Castagnoli), as in RFC 3720: crc32c("123456789") == 0xE3069283. Chain by passing the previous value.
uint32_t crc32c(ByteView bytes, uint32_t previous = 0);

/// Lower-case hex of bytes.
std::string to_hex(ByteView bytes);

/// Value of a hexadecimal digit, of either case; -1: none.
int hex_digit(char c);

/// Number of '\n' in bytes.
size_t count_newlines(ByteView bytes);

}  // namespace ph
