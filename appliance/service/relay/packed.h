// Walks the blocks of a packed batch (port::Batch::packed, link::Events::packed).
#pragma once

#include "base/bytes.h"
#include "base/coding.h"

namespace ph::relay {

/// Calls visit(first, last, Slice encoded block) for each entry, in order. False where the bytes do not hold exactly
/// the positions [first, last); entries before the fault have been visited.
template <class Visit>
bool for_each_block(const Slice& packed, uint64_t first, uint64_t last, Visit&& visit) {
  Reader in(packed.view());
  while (!in.at_end()) {
    uint64_t span = in.varint();
    ByteView bytes = in.sized();
    if (!in.ok() || span == 0 || span > last - first) return false;
    visit(first, first + span, packed.sub(static_cast<size_t>(bytes.data() - packed.data()), bytes.size()));
    first += span;
  }
  return in.ok() && first == last;
}

}  // namespace ph::relay
