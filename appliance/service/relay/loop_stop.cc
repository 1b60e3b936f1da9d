#include "service/relay/loop_stop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/coding.h"
#include "codec/event/block.h"
#include "service/relay/packed.h"

namespace ph::relay {
namespace {

bool passed(const Slice& encoded, const std::vector<std::string>& sites, event::Block& block) {
  auto decoded = event::decode_header(encoded.view());
  if (!decoded || decoded->hops.empty() || decoded->gap) return false;
  block = std::move(*decoded);
  return std::ranges::all_of(
      sites, [&](const std::string& site) { return std::ranges::find(block.hops, site) != block.hops.end(); });
}

void put_gap(std::string& out, uint64_t span, event::Block& gap) {
  gap.gap = true;
  gap.topic = kBeenThere;
  put_varint(out, span);
  put_sized(out, event::encode(gap));
  gap = {};
}

}  // namespace

port::Batch without_loops(port::Batch batch, const std::vector<std::string>& sites, uint64_t& looped) {
  if (sites.empty()) return batch;
  bool any = false;  // hardly ever: then nothing is copied
  for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t, uint64_t, const Slice& encoded) {
    event::Block block;
    any = any || passed(encoded, sites, block);
  });
  if (!any) return batch;
  std::string packed;
  uint64_t span = 0;  // of the run that is left out
  event::Block gap;
  const uint64_t before = looped;
  for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t first, uint64_t last, const Slice& encoded) {
    event::Block block;
    if (passed(encoded, sites, block)) {
      if (span == 0) gap.id = block.id;
      span += last - first;
      gap.events += block.events;
      looped += block.events;
      return;
    }
    if (span > 0) put_gap(packed, std::exchange(span, 0), gap);
    put_varint(packed, last - first);
    put_sized(packed, encoded.view());
  });
  if (looped == before) return batch;
  if (span > 0) put_gap(packed, span, gap);
  batch.packed = Slice(std::move(packed));
  return batch;
}

}  // namespace ph::relay
