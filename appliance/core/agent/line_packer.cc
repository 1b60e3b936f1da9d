#include "core/agent/line_packer.h"

#include <algorithm>

#include "base/coding.h"
#include "base/result.h"

namespace ph::agent {

LineCut cut_lines(ByteView bytes, size_t line_max) {
  if (bytes.size() <= line_max) {
    size_t last = bytes.rfind('\n');
    return {last == ByteView::npos ? 0 : last + 1, false};
  }
  // A window of line_max + 1 bytes that begins with a line and holds a newline holds no over-long line before its last
  // newline; the next window begins behind it.
  LineCut cut;
  while (cut.size < bytes.size()) {
    ByteView window = bytes.substr(cut.size, line_max + 1);
    size_t last = window.rfind('\n');
    if (last == ByteView::npos) {
      cut.oversize = window.size() > line_max;
      break;
    }
    cut.size += last + 1;
  }
  return cut;
}

size_t first_line(ByteView bytes) {
  size_t at = bytes.find('\n');
  return at == ByteView::npos ? 0 : at + 1;
}

BlockBuffer::BlockBuffer(size_t capacity)
    : memory_(std::make_shared_for_overwrite<char[]>(kReserve + capacity)), capacity_(capacity) {}

Slice BlockBuffer::pack(const event::Block& head, size_t payload_size) && {
  std::string block_head;
  event::encode_header(head, block_head);
  std::string front;
  put_varint(front, head.id.last - head.id.first);
  put_varint(front, block_head.size() + payload_size);
  front += block_head;
  PH_ASSERT(front.size() <= kReserve && payload_size <= capacity_, "a block's head fits the reserve");
  if (front.size() + payload_size < (kReserve + capacity_) / 2) {
    std::string fitting;
    fitting.reserve(front.size() + payload_size);
    fitting.append(front).append(payload(), payload_size);
    return Slice(std::move(fitting));
  }
  char* begin = before_payload(front.size());
  std::copy_n(front.data(), front.size(), begin);
  return Slice(std::shared_ptr<const void>(std::move(memory_)), ByteView(begin, front.size() + payload_size));
}

}  // namespace ph::agent
