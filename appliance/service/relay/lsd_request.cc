#include "service/relay/lsd_request.h"

#include <algorithm>

#include "codec/event/block.h"
#include "service/relay/packed.h"
#include "store/chunk/message_line.h"

namespace ph::relay {
namespace {

/// What a block's events are in a file: its lines, or the message as one.
std::string lines_of(const event::Block& block, bool json) {
  if (block.kind == event::BlockKind::lines) return std::string(block.payload.view());
  if (json) return chunk::to_json_line(block);
  std::vector<Slice> parts;
  chunk::append_raw_line(block, parts);
  std::string line;
  for (const Slice& p : parts) line += p.view();
  return line;
}

}  // namespace

/// Lines of one category that become one event.
struct LsdRequest::Run {
  std::string category;
  std::string lines;
  lsd::Token token;
};

LsdRequest::LsdRequest() {
  lsd::begin_frame(frame_);
}

void LsdRequest::put(ByteView category, lsd::Token token, ByteView lines, const LsdRequestOptions& options) {
  if (options.gzip && lines.size() >= kGzipMin)
    lsd::put_compressed_event(frame_, category, token, lsd::gzip(lines));
  else
    lsd::put_event(frame_, category, token, lines);
  tokens_.push_back(token);
}

void LsdRequest::put(Run& run, const LsdRequestOptions& options) {
  if (run.lines.empty()) return;
  put(run.category, run.token, run.lines, options);
  run.lines.clear();
}

void LsdRequest::add(const port::Batch& batch, const LsdRequestOptions& options,
                     std::vector<LsdUnsendable>& unsendable) {
  Run run;
  for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t first, uint64_t last, const Slice& encoded) {
    auto block = event::decode(encoded);
    if (!block) {
      unsendable.push_back({first, last, 0, encoded, block.error().to_string()});
      return;
    }
    if (block->gap) return;
    // An agent's blocks are large and go as they are; what is small is gathered.
    const bool large = block->kind == event::BlockKind::lines && block->payload.size() >= kRunBytes / 8;
    std::string gathered = large ? std::string() : lines_of(*block, options.json);
    const ByteView lines = large ? block->payload.view() : ByteView(gathered);
    if (lsd::event_bytes_max(block->category.size(), lines.size(), block->events) > lsd::kLengthMax - 4) {
      unsendable.push_back({first, last, block->events, encoded, "longer than a frame of LSD's protocol"});
      return;
    }
    const lsd::Token token{batch.stream.value, last};
    if (large || run.category != block->category || run.lines.size() + lines.size() > kRunBytes) put(run, options);
    if (large) return put(block->category, token, lines, options);
    run.category = block->category;
    run.token = token;
    run.lines += lines;
  });
  put(run, options);
}

Slice LsdRequest::take_frame() {
  lsd::end_frame(frame_, 0, lsd::kRequestNewEvents);
  return Slice(std::exchange(frame_, {}));
}

bool LsdRequest::answered_by(std::vector<lsd::Token> answer) const {
  if (answer.size() != tokens_.size()) return false;
  std::vector<lsd::Token> asked = tokens_;
  std::sort(asked.begin(), asked.end());
  std::sort(answer.begin(), answer.end());
  return asked == answer;
}

}  // namespace ph::relay
