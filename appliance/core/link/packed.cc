#include "core/link/packed.h"

#include <algorithm>

#include "codec/event/block.h"

namespace ph::link {
namespace {

/// The part of a block of lines at hop positions [first, last); nullopt if it cannot be cut there.
std::optional<event::Block> part_of(const event::Block& block, const PlacedBlock& at, uint64_t first, uint64_t last) {
  uint64_t span = at.last - at.first;
  ByteView payload = block.payload.view();
  if (block.atomic() || block.id.last - block.id.first != span || payload.size() != span) return std::nullopt;
  auto line_end = [&](uint64_t position) { return position == at.first || payload[position - at.first - 1] == '\n'; };
  if (!line_end(first) || !line_end(last)) return std::nullopt;
  return event::cut(block, block.id.first + (first - at.first), block.id.first + (last - at.first));
}

}  // namespace

std::vector<PlacedBlock> blocks_within(const Slice& packed, uint64_t batch_first, uint64_t batch_last, uint64_t first,
                                       uint64_t last) {
  std::vector<PlacedBlock> out;
  for_each_block(packed, batch_first, batch_last, [&](uint64_t from, uint64_t to, const Slice& bytes) {
    if (to <= first || from >= last) return;
    PlacedBlock placed{from, to, 0, bytes};
    auto block = event::decode(bytes);
    if (block) {
      placed.events = block->events;
      uint64_t begin = std::max(from, first), end = std::min(to, last);
      if (begin > from || end < to) {
        if (auto part = part_of(*block, placed, begin, end))
          placed = {begin, end, part->events, Slice(event::encode(*part))};
      }
    }
    out.push_back(std::move(placed));
  });
  return out;
}

std::optional<PackedPart> cut_packed(const Slice& packed, uint64_t batch_first, uint64_t batch_last, uint64_t first,
                                     uint64_t last) {
  std::vector<PlacedBlock> blocks = blocks_within(packed, batch_first, batch_last, first, last);
  if (blocks.empty() || blocks.front().first != first || blocks.back().last != last) return std::nullopt;
  PackedPart part;
  for (const PlacedBlock& b : blocks) part.events += b.events;
  // Whole entries lie together in the bytes of the batch; a cut block has bytes of its own.
  std::optional<size_t> from, to;
  size_t offset = 0, whole = 0;
  for_each_block(packed, batch_first, batch_last, [&](uint64_t begin, uint64_t end, const Slice& bytes) {
    size_t entry = offset;
    offset = static_cast<size_t>(bytes.data() - packed.data()) + bytes.size();
    if (begin < first || end > last) return;
    if (!from) from = entry;
    to = offset;
    ++whole;
  });
  if (whole == blocks.size()) {
    part.packed = packed.sub(*from, *to - *from);
    return part;
  }
  std::string bytes;
  for (const PlacedBlock& b : blocks) {
    put_varint(bytes, b.last - b.first);
    put_sized(bytes, b.block.view());
  }
  part.packed = Slice(std::move(bytes));
  return part;
}

std::optional<uint64_t> cut_point(const Slice& packed, uint64_t first, uint64_t last, size_t bytes) {
  constexpr size_t kGrowth = 16;  // of a header whose numbers became others
  uint64_t at = first;
  size_t used = 0;
  bool over = false;
  for_each_block(packed, first, last, [&](uint64_t from, uint64_t to, const Slice& encoded) {
    if (over) return;
    const size_t end = static_cast<size_t>(encoded.data() - packed.data()) + encoded.size();
    if (end <= bytes) {
      at = to;
      used = end;
      return;
    }
    over = true;
    auto block = event::decode(encoded);
    if (!block || block->atomic() || block->payload.size() != to - from ||
        block->id.last - block->id.first != to - from)
      return;
    const size_t around = end - used - block->payload.size() + kGrowth;
    if (bytes - used <= around) return;
    const size_t line_end = block->payload.view().substr(0, bytes - used - around).rfind('\n');
    if (line_end != ByteView::npos) at = from + line_end + 1;
  });
  if (at <= first || at >= last) return std::nullopt;
  return at;
}

}  // namespace ph::link
