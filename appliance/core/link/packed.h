// Walks and cuts the blocks of a packed batch (port::Batch::packed, link::Events::packed): each entry is a varint span
// of positions, then a sized encoded block (codec/event/block.h); the first begins at the batch's first position.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"

namespace ph::link {

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

/// One block with its positions.
struct PlacedBlock {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t events = 0;
  Slice block;
};
/// The blocks of a batch that touch [first, last). A block of lines that reaches over an end of it is cut there if that
/// is a line end; any other block is given whole. A block that does not decode counts no events.
std::vector<PlacedBlock> blocks_within(const Slice& packed, uint64_t batch_first, uint64_t batch_last, uint64_t first,
                                       uint64_t last);

struct PackedPart {
  uint64_t events = 0;
  Slice packed;
};
/// The entries of [first, last) as a batch of their own; shares the bytes unless a block must be cut. nullopt where a
/// block that reaches over an end cannot be cut there.
std::optional<PackedPart> cut_packed(const Slice& packed, uint64_t batch_first, uint64_t batch_last, uint64_t first,
                                     uint64_t last);

/// Where to cut a batch so that what is before has at most `bytes`, as far as possible from its beginning: between
/// blocks, or at a line end. nullopt: nowhere.
std::optional<uint64_t> cut_point(const Slice& packed, uint64_t first, uint64_t last, size_t bytes);

}  // namespace ph::link
