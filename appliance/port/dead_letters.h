// DeadLetters: where events go that a receiver or a sink refused for good. Durable, one file per route; an operator
// reads them with `posthouse spool dead-letter`. store/dead_letter implements it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace ph::port {

struct DeadLetter {
  WallTime at{};
  std::string route;
  std::string target;
  std::string category;
  std::string reason;
  StreamId stream;  // with [first, last): which part of the source it was
  uint64_t first = 0;
  uint64_t last = 0;
  Slice block;  // encoded (codec/event/block.h)
};

/// u8 version 1, varint time in milliseconds since the epoch, sized route, target, category, reason, varint stream,
/// first, last - first, then the block to the end.
std::string encode(const DeadLetter& letter);
/// Errors: dead_letter.malformed, dead_letter.newer_version. The block shares `bytes`.
Result<DeadLetter> decode_dead_letter(const Slice& bytes);

class DeadLetters {
 public:
  virtual ~DeadLetters() = default;
  /// Disk thread: durable when it returns. A letter of the same route, target, stream and first position as one of the
  /// latest ones is not written again: a crash between the letter and the cursor brings it back.
  virtual Result<> append(const std::vector<DeadLetter>& letters) = 0;
};

namespace dead_letter_errors {
inline constexpr ErrorCode malformed{"dead_letter.malformed"};
inline constexpr ErrorCode newer_version{"dead_letter.newer_version"};
}  // namespace dead_letter_errors

}  // namespace ph::port
