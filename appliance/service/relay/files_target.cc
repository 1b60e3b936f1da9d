#include "service/relay/files_target.h"

#include "base/log.h"
#include "service/relay/packed.h"

namespace ph::relay {

FilesTarget::FilesTarget(port::EventSource& source, chunk::FilesSink& sink, commit::Committer& committer,
                         port::Loop& loop)
    : source_(source),
      sink_(sink),
      committer_(committer),
      loop_(loop),
      retry_(loop.make_timer()),
      look_again_(loop.make_timer()) {}

FilesTarget::~FilesTarget() {
  *alive_ = false;
  source_.on_ready([] {});
  source_.on_closed([](StreamId) {});
}

void FilesTarget::start() {
  // Nobody else to ask: the cursor is exact, and what it passed is at the end of its way. A crash between the commit
  // that moved it and the note of that would otherwise leave the far end untold until the next event.
  for (const port::OpenStream& open : source_.open_streams()) source_.far_advanced(open.stream, open.settled);
  source_.on_ready([this] { soon(); });
  source_.on_closed([this](StreamId stream) { held_.erase(stream); });
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
  if (!sink_.room()) {
    if (!look_again_->pending()) look_again_->start(kRetryAfter, [this] { soon(); });
    return;
  }
  if (!waiting_.empty() && !look_again_->pending()) {
    waiting_streams_.clear();
    waiting_bytes_ = 0;
    for (port::Batch& batch : std::exchange(waiting_, {})) place(std::move(batch));
  }
  if (!look_again_->pending()) resume_held();
  size_t kept = 0, back = 0;
  while (kept < kGroupBytes && back < kGroupBytes && waiting_bytes_ < kWaitingBytes) {
    auto batch = source_.next(kGroupBytes - kept);
    if (!batch) break;
    const size_t bytes = batch->packed.size();
    (place(std::move(*batch)) ? kept : back) += bytes;
  }
  if (back >= kGroupBytes && group_.empty()) soon();  // others are still to be asked for theirs
  if ((!waiting_.empty() || !held_.empty()) && !look_again_->pending())
    look_again_->start(kRetryAfter, [this] { soon(); });
  if (!group_.empty()) write();
}

/// Those whose category is free again: to find that out by what they have would be to read it over and over.
void FilesTarget::resume_held() {
  for (auto it = held_.begin(); it != held_.end();) {
    if (!sink_.obstacle(it->second).empty()) {
      ++it;
      continue;
    }
    const StreamId stream = it->first;
    it = held_.erase(it);
    source_.resume(stream);
  }
}

/// The category in whose way something is; empty: none.
std::string FilesTarget::blocked(const port::Batch& batch) const {
  std::string found;
  for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t, uint64_t, const Slice& encoded) {
    if (!found.empty()) return;
    auto block = event::decode(encoded);
    if (block && !block->gap && !sink_.obstacle(block->category).empty()) found = block->category;
  });
  return found;
}

/// Into the group, behind what of its stream waits, or back to its source (false).
bool FilesTarget::place(port::Batch batch) {
  const bool behind = waiting_streams_.contains(batch.stream);
  std::string category = behind ? std::string() : blocked(batch);
  if (!category.empty() && source_.take_back(batch.stream, batch.first)) {
    held_[batch.stream] = std::move(category);
    return false;
  }
  if (behind || !category.empty()) {
    waiting_streams_.insert(batch.stream);
    waiting_bytes_ += batch.packed.size();
    waiting_.push_back(std::move(batch));
    return true;
  }
  // What can never be written is taken out first: it is no part of the cursor's `events`.
  for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t first, uint64_t last, const Slice& encoded) {
    auto block = event::decode(encoded);
    std::string fault = block ? std::string(sink_.refuses(block->category)) : block.error().to_string();
    if (block && block->gap) fault.clear();
    if (fault.empty()) return;
    batch.events -= block ? block->events : 0;
    refused_.emplace(batch.stream, first);
    source_.rejected(batch.stream, first, last, encoded, fault);
  });
  entries_.append(source_.advance_entries(batch.stream, batch.last, batch.events));
  group_.push_back(std::move(batch));
  return true;
}

void FilesTarget::write() {
  if (!sink_.room()) return retry_->start(kRetryAfter, [this] { write(); });
  for (const port::Batch& batch : group_)
    for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t first, uint64_t, const Slice& encoded) {
      if (refused_.contains({batch.stream, first})) return;  // as it was answered then: it may be another one now
      if (auto block = event::decode(encoded); block && !block->gap) sink_.append(*block);
    });
  committer_.request({&sink_}, entries_, [this, alive = alive_](const Result<>& outcome) {
    if (!*alive) return;
    if (!outcome) {
      log_warn("files_target_waits", {{"route", source_.route()}, {"error", outcome.error().to_string()}});
      return retry_->start(kRetryAfter, [this] { write(); });
    }
    for (const port::Batch& batch : group_) source_.far_advanced(batch.stream, batch.last);
    group_.clear();
    refused_.clear();
    entries_ = {};
    soon();
  });
}

}  // namespace ph::relay
