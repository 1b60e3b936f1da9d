#include "service/relay/files_target.h"

#include "base/log.h"
#include "service/relay/packed.h"

namespace ph::relay {

FilesTarget::FilesTarget(port::EventSource& source, chunk::FilesSink& sink, commit::Committer& committer,
                         port::Loop& loop)
    : source_(source), sink_(sink), committer_(committer), loop_(loop), retry_(loop.make_timer()) {}

FilesTarget::~FilesTarget() {
  *alive_ = false;
  source_.on_ready([] {});
}

void FilesTarget::start() {
  // Nobody else to ask: the cursor is exact, and what it passed is at the end of its way. A crash between the commit
  // that moved it and the note of that would otherwise leave the far end untold until the next event.
  for (const port::OpenStream& open : source_.open_streams()) source_.far_advanced(open.stream, open.settled);
  source_.on_ready([this] { soon(); });
  source_.on_closed([](StreamId) {});
  soon();
}

void FilesTarget::soon() {
  if (posted_) return;
  posted_ = true;
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    posted_ = false;
    pump();
  });
}

void FilesTarget::pump() {
  if (!group_.empty()) return;
  for (size_t bytes = 0; bytes < kGroupBytes;) {
    auto batch = source_.next(kGroupBytes - bytes);
    if (!batch) break;
    bytes += batch->packed.size();
    // What can never be written is taken out first: it is no part of the cursor's `events`.
    for_each_block(batch->packed, batch->first, batch->last, [&](uint64_t first, uint64_t last, const Slice& encoded) {
      auto block = event::decode(encoded);
      std::string fault = block ? std::string(sink_.refuses(block->category)) : block.error().to_string();
      if (block && block->gap) fault.clear();
      if (fault.empty()) return;
      batch->events -= block ? block->events : 0;
      source_.rejected(batch->stream, first, last, encoded, fault);
    });
    entries_.append(source_.advance_entries(batch->stream, batch->last, batch->events));
    group_.push_back(std::move(*batch));
  }
  if (!group_.empty()) write();
}

void FilesTarget::write() {
  for (const port::Batch& batch : group_)
    for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t, uint64_t, const Slice& encoded) {
      auto block = event::decode(encoded);
      if (block && !block->gap && sink_.refuses(block->category).empty()) sink_.append(*block);
    });
  committer_.request({&sink_}, entries_, [this, alive = alive_](const Result<>& outcome) {
    if (!*alive) return;
    if (!outcome) {
      log_warn("files_target_waits", {{"route", source_.route()}, {"error", outcome.error().to_string()}});
      return retry_->start(kRetryAfter, [this] { write(); });
    }
    for (const port::Batch& batch : group_) source_.far_advanced(batch.stream, batch.last);
    group_.clear();
    entries_ = {};
    soon();
  });
}

}  // namespace ph::relay
