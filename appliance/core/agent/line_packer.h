// Packing lines into blocks without looking at each: where a read buffer's last whole line ends, and the frame around a
// payload that was read to its final place. Pure; on the hot path: one memrchr and one newline count a block.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "codec/event/block.h"

namespace ph::agent {

/// What happens to a line longer than line_max.
enum class Oversize : uint8_t {
  split,        // delivered as pieces of line_max bytes, each with a newline added and flagged
  truncate,     // its first line_max bytes are delivered, flagged; the rest is dropped, counted in bytes
  dead_letter,  // its first line_max bytes go to the dead letters with the reason; nothing is delivered
};

struct LineCut {
  size_t size = 0;        // bytes of whole lines at the front
  bool oversize = false;  // the line behind them is longer than line_max
};
/// The longest run of whole lines of at most `line_max` bytes each (without their newline) at the front of `bytes`.
/// Cost: one memrchr when line_max covers `bytes`, else about one per line_max bytes. No per-line work either way.
LineCut cut_lines(ByteView bytes, size_t line_max);

/// The first newline's offset plus one; 0 if there is none.
size_t first_line(ByteView bytes);

/// Memory for one block. The payload is read to its final place; what goes before it (and, while reading, the window of
/// bytes before the cursor) is put into a reserve in front, so nothing is copied.
class BlockBuffer {
 public:
  explicit BlockBuffer(size_t capacity);

  char* payload() { return memory_.get() + kReserve; }
  /// `size` bytes directly before the payload; at most kWindowMax.
  char* before_payload(size_t size) { return payload() - size; }
  size_t capacity() const { return capacity_; }

  /// Writes the batch entry around the first `payload_size` bytes: varint span, then the sized encoded block (its head
  /// as in `head`, whose payload is ignored). A payload much smaller than the buffer is copied to fitting memory, so
  /// that what waits for acknowledgement never holds more than about twice its size.
  Slice pack(const event::Block& head, size_t payload_size) &&;

 private:
  static constexpr size_t kReserve = 4096 + 1024;
  std::shared_ptr<char[]> memory_;
  size_t capacity_;
};

}  // namespace ph::agent
