#include "store/spool/segment_log.h"

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "store/spool/segment_log_impl.h"

namespace ph::spool {
namespace {
constexpr size_t kWriteSize = 4 << 20;       // bytes gathered for one write
constexpr size_t kDamageKeysMax = 10'000;    // damaged places remembered one by one; more are only counted
constexpr uint64_t kDrainedBytes = 1 << 20;  // an active segment longer than this goes as soon as all of it is released
/// For what may fail without harm: it is said, nothing more.
void tolerate(const Result<>& outcome) {
  if (!outcome) log_warn("spool_cleanup_failed", {{"error", outcome.error().to_string()}});
}

}  // namespace

Result<std::unique_ptr<SegmentLog>> SegmentLog::open(SegmentLogOptions options, port::Files& files,
                                                     port::KeyedStore& store, Random& random) {
  PH_ASSIGN(auto recovered, recover(options, files, store, random));
  return std::make_unique<LogImpl>(std::move(options), files, store, std::move(recovered));
}

LogImpl::LogImpl(SegmentLogOptions options, port::Files& files, port::KeyedStore& store, Recovered recovered)
    : options_(std::move(options)),
      files_(files),
      store_(store),
      end_(recovered.end),
      next_(recovered.end.next),
      floor_(std::min(recovered.floor, recovered.end.end)),
      released_(std::move(recovered.released)),
      quarantined_(recovered.quarantined),
      looked_after_(recovered.looked_after),
      active_(std::move(recovered.active)) {
  uint64_t base = 0;
  for (const auto& s : recovered.segments) {
    segments_[s.first] = {s.bytes, base, 0, {}};
    base += s.bytes;
  }
  end_byte_ = base;
  for (const Damage& d : recovered.known_damage) damage_.insert({d.segment, d.offset});
  retire_released();  // a power cut may bring deleted names back
}

uint64_t LogImpl::append(Slice block, uint64_t events, WallTime accepted_at) {
  PH_ASSERT(block.size() <= limits::kRecordMax, "a record fits a frame");
  pending_.push_back({next_, events, accepted_at, std::move(block)});
  return next_++;
}

// --- group commit

void LogImpl::begin(port::WriteBatch& entries) {
  if (group_) {
    PH_ASSERT(!doomed_, "at most one group fails together with the one before it");
    doomed_ = true;
    pending_.clear();
    return;
  }
  group_ = std::make_unique<Group>();
  Group& group = *group_;
  group.records = std::exchange(pending_, {});
  group.end = end_;
  group.end.next = next_;
  group.active = active_;
  if (!group.records.empty()) name_leftovers(entries, group);
}

commit::Growth LogImpl::growth() const {
  uint64_t bytes = 0;
  for (const Pending& p : group_->records) bytes += batch_room(p.block.size());
  if (bytes > 0) bytes += kBatchRoom + (active_ ? 0 : kRecordsOffset);
  return {options_.floor, bytes};
}

void LogImpl::name_leftovers(port::WriteBatch& entries, Group& group) {
  for (uint64_t segment : leftovers_cleaned_) entries.remove(leftover_key(options_.name, segment));
  group.leftovers = leftovers_named_;
  leftovers_naming_.merge(leftovers_new_);
  leftovers_new_.clear();
  for (const auto& [segment, bytes] : leftovers_naming_) {
    std::string number;
    put_key(number, bytes);
    entries.put(leftover_key(options_.name, segment), number);
  }
}

// --- on the disk thread

/// The segment that the next batch goes to. Those before it are finished.
Result<LogImpl::Part*> LogImpl::part_for(Group& group, const Pending& record) {
  auto fits = [&](uint64_t end) {
    return end + kBatchRoom + batch_room(record.block.size()) <= options_.segment_bytes || end <= kRecordsOffset;
  };
  if (!group.parts.empty() && fits(group.parts.back().end)) return &group.parts.back();
  if (!group.parts.empty()) PH_TRY(finish(group.parts.back()));
  const bool first = group.parts.empty();
  Part& part = group.parts.emplace_back();
  if (first && group.active && fits(group.end.offset)) {
    part.segment = group.end.segment;
    part.offset = part.end = group.end.offset;
    part.file = group.active;
    return &part;
  }
  part.segment = record.sequence;
  part.is_new = true;
  part.begins = group.end.end;
  part.offset = part.end = kRecordsOffset;
  part.buffer = encode(SegmentHeader{group.end.epoch, record.sequence, group.end.end, group.end.events,
                                     group.records.front().accepted_at});
  PH_ASSIGN(part.file, files_.open(path(part.segment), port::OpenMode::write_new));
  return &part;
}

/// One batch of the group's records from `from` on: as many as it and the segment take. Gives their number.
size_t LogImpl::encode_into(Part& part, Group& group, size_t from) {
  std::vector<BatchInput> batch;
  uint64_t bytes = kBatchRoom;
  for (size_t i = from; i < group.records.size(); ++i) {
    const Pending& p = group.records[i];
    bytes += batch_room(p.block.size());
    if (i > from && (bytes > kBatchTarget || part.end + bytes > options_.segment_bytes)) break;
    batch.push_back({p.events, p.accepted_at, p.block.view()});
  }
  const Pending& first = group.records[from];
  if (part.marks.empty() || part.end >= part.marks.back().offset + SegmentReader::kReadSize)
    part.marks.push_back({first.sequence, part.end, group.end.events});
  const auto skipped = static_cast<uint32_t>(std::min<uint64_t>(first.sequence - group.end.end, UINT32_MAX));
  const size_t before = part.buffer.size();
  encode_batch(batch, {part.end, first.sequence, skipped, group.end.events}, {group.end.epoch, part.segment},
               part.buffer);
  part.end += part.buffer.size() - before;
  for (const BatchInput& b : batch) group.end.events += b.events;
  group.end.segment = part.segment;
  group.end.offset = part.end;
  group.end.end = first.sequence + batch.size();
  return batch.size();
}

Result<> LogImpl::write_out(Part& part) {
  if (part.buffer.empty()) return {};
  PH_TRY(part.file->write_at(part.end - part.buffer.size(), part.buffer));
  part.buffer.clear();
  return {};
}

Result<> LogImpl::finish(Part& part) {
  PH_TRY(write_out(part));
  PH_TRY(part.file->sync());
  if (part.is_new) PH_TRY(files_.sync_directory(options_.directory));
  return {};
}

Result<> LogImpl::write_group(Group& group) {
  for (size_t at = 0; at < group.records.size();) {
    PH_ASSIGN(Part* const part, part_for(group, group.records[at]));
    at += encode_into(*part, group, at);
    if (part->buffer.size() >= kWriteSize) PH_TRY(write_out(*part));
  }
  return group.parts.empty() ? Result<>() : finish(group.parts.back());
}

Result<> LogImpl::flush() {
  Group& group = *group_;
  group.touched = true;
  group.cleaned = clean_leftovers(files_, options_.directory, group.leftovers).has_value();
  auto written = write_group(group);
  if (!written) undo_parts(group.parts);
  return written;
}

void LogImpl::add_flushed(port::WriteBatch& entries) {
  if (!group_->records.empty()) entries.put(key("end"), encode(group_->end));
}

// Disk thread. No entry of the group reaches the store, so its bytes can go at once; on a full disk they must. That it
// may fail does not matter: they are leftovers.
void LogImpl::undo_parts(std::vector<Part>& parts) {
  for (Part& part : parts) {
    if (!part.file) continue;
    if (part.is_new)
      tolerate(files_.unlink(path(part.segment)));
    else
      tolerate(part.file->truncate(part.offset));
  }
}

void LogImpl::finished(const Result<>& outcome) {
  if (!group_) {
    PH_ASSERT(doomed_ && !outcome, "finished() follows begin()");
    doomed_ = false;
    return;
  }
  auto group = std::move(group_);
  if (group->records.empty()) return;
  if (!outcome) {
    log_error("spool_write_failed", {{"spool", options_.name}, {"error", outcome.error().to_string()}});
    if (!group->touched) return;
    active_.reset();
    for (const Part& part : group->parts) leftovers_new_[part.segment] = part.is_new ? 0 : part.offset;
    return;
  }
  leftovers_cleaned_.clear();
  if (group->cleaned) {
    for (const auto& [segment, bytes] : group->leftovers) {
      leftovers_cleaned_.push_back(segment);
      leftovers_named_.erase(segment);
    }
  }
  leftovers_named_.merge(leftovers_naming_);
  leftovers_naming_.clear();
  for (Part& part : group->parts) {
    auto [it, fresh] = segments_.try_emplace(part.segment);
    if (fresh) it->second = {0, end_byte_, part.begins, {}};
    it->second.bytes = part.end;
    end_byte_ = it->second.base + part.end;
    for (const Mark& m : part.marks) it->second.mark(m);
  }
  end_ = group->end;
  active_ = group->parts.back().file;
  auto watchers = watchers_;
  watchers_.remove_if([](const auto& w) { return w.expired(); });
  for (auto& w : watchers)
    if (auto grown = w.lock()) (*grown)();
}

std::shared_ptr<void> LogImpl::watch(std::function<void()> grown) {
  auto handle = std::make_shared<std::function<void()>>(std::move(grown));
  watchers_.emplace_back(handle);
  return handle;
}

// --- reading

std::unique_ptr<SegmentLog::Cursor> LogImpl::read_from(uint64_t sequence, std::optional<uint64_t> events_before) {
  return std::make_unique<LogCursor>(*this, std::min(std::max(sequence, kFirstSequence), end_.end), events_before);
}

uint64_t LogImpl::begins(Segments::iterator segment) {
  uint64_t& known = segment->second.begins;
  if (known != 0) return known;
  auto opened = open_segment(files_, path(segment->first));
  if (!opened) return segment->first;
  return known = opened->header.header ? opened->header.header->begins : segment->first;
}

void LogImpl::found(const Damage& d) {
  if (damage_.contains({d.segment, d.offset})) return;
  if (damage_.size() < kDamageKeysMax) damage_.insert({d.segment, d.offset});
  quarantined_ += d.last - d.first;
  log_error("spool_record_damaged", {{"spool", options_.name},
                                     {"segment", segment_name(d.segment)},
                                     {"offset", d.offset},
                                     {"bytes", d.bytes},
                                     {"records", d.last - d.first},
                                     {"events", d.events},
                                     {"reason", d.reason}});
  port::WriteBatch batch;
  std::string number, place = key("q/");
  put_key(number, quarantined_);
  put_key(place, d.segment);
  put_key(place, d.offset);
  batch.put(key("quarantined"), number);
  batch.put(place, encode(d));
  // Ordered before the cursor that passes it; if this is lost, the place is found again.
  if (auto written = store_.write(batch, false); !written)
    log_error("spool_store_write_failed", {{"spool", options_.name}, {"error", written.error().to_string()}});
}

// --- retirement

void LogImpl::release_below(uint64_t sequence) {
  sequence = std::min(sequence, end_.end);
  if (sequence <= floor_) return;
  floor_ = sequence;
  port::WriteBatch batch;
  std::string number;
  put_key(number, floor_);
  batch.put(key("floor"), number);
  while (!released_.empty() && released_.begin()->second <= floor_) {
    batch.remove(released_key(options_.name, released_.begin()->first));
    released_.erase(released_.begin());
  }
  if (auto written = store_.write(batch, false); !written) return;  // nothing is deleted on a store that fails
  retire_released();
}

void LogImpl::retire_released() {
  while (segments_.size() > 1 && std::next(segments_.begin())->first <= floor_) retire(segments_.begin());
  // Drained: the disk is given back, and the next record begins a new segment.
  if (segments_.size() == 1 && !group_ && floor_ == end_.end &&
      segments_.begin()->second.bytes >= std::min(kDrainedBytes, options_.segment_bytes / 2)) {
    active_.reset();
    retire(segments_.begin());
  }
}

void LogImpl::release_range(uint64_t first, uint64_t last) {
  last = std::min(last, end_.end);
  if (first >= last || released(first, last)) return;
  Ranges before = released_;
  add(released_, first, last);
  port::WriteBatch batch;
  for (const auto& [old_first, old_last] : before)
    if (!released_.contains(old_first)) batch.remove(released_key(options_.name, old_first));
  auto merged = std::prev(released_.upper_bound(first));
  std::string number;
  put_key(number, merged->second);
  batch.put(released_key(options_.name, merged->first), number);
  if (auto written = store_.write(batch, false); !written) {
    released_ = std::move(before);
    return;
  }
  auto segment = segments_.lower_bound(merged->first);
  while (segment != segments_.end()) {
    auto following = std::next(segment);
    if (following == segments_.end() || following->first > merged->second) return;
    retire(std::exchange(segment, following));
  }
}

void LogImpl::retire(Segments::iterator segment) {
  uint64_t first = segment->first;
  auto from = damage_.lower_bound({first, 0});
  auto until = damage_.upper_bound({first, UINT64_MAX});
  bool damaged = from != until;
  auto gone = damaged ? files_.rename(path(first), path(first) + ".damaged") : files_.unlink(path(first));
  if (!gone && gone.error().code != port::file_errors::not_found)
    log_warn("spool_segment_not_deleted",
             {{"spool", options_.name}, {"segment", segment_name(first)}, {"error", gone.error().to_string()}});
  auto following = segments_.erase(segment);
  for (LogCursor* cursor : *cursors_) cursor->let_go(first, following == segments_.end() ? end_.end : following->first);
  if (!damaged) return;
  port::WriteBatch batch;
  for (auto it = from; it != until; ++it) {
    std::string place = key("q/");
    put_key(place, it->first);
    put_key(place, it->second);
    batch.remove(place);
  }
  damage_.erase(from, until);
  tolerate(store_.write(batch, false));  // a leftover entry names a segment that is gone: harmless
  prune_damaged();
}

void LogImpl::prune_damaged() {
  auto entries = files_.list(options_.directory);
  if (!entries) return;
  std::vector<std::string> kept;
  for (const auto& e : *entries)
    if (e.name.ends_with(".seg.damaged")) kept.push_back(e.name);
  if (kept.size() <= kDamagedKept) return;
  std::sort(kept.begin(), kept.end());
  for (size_t i = 0; i + kDamagedKept < kept.size(); ++i) {
    log_warn("spool_damaged_segment_dropped", {{"spool", options_.name}, {"segment", kept[i]}});
    tolerate(files_.unlink(options_.directory + "/" + kept[i]));
  }
}

// --- figures

SpoolStats LogImpl::stats() const {
  SpoolStats s;
  s.first_sequence = floor_;
  s.next_sequence = end_.end;
  for (const auto& [first, segment] : segments_) s.bytes += segment.bytes;
  s.segments = segments_.size();
  s.quarantined = quarantined_;
  s.unrepaired = quarantined_ - std::min(looked_after_, quarantined_);
  return s;
}

uint64_t LogImpl::bytes_from(uint64_t sequence) const {
  if (sequence >= end_.end || segments_.empty()) return 0;
  auto segment = segments_.upper_bound(sequence);
  if (segment != segments_.begin()) --segment;
  uint64_t offset = kRecordsOffset;
  for (const Mark& m : segment->second.marks)
    if (m.sequence <= sequence) offset = m.offset;
  return end_byte_ - segment->second.base - std::min(offset, segment->second.bytes);
}

}  // namespace ph::spool
