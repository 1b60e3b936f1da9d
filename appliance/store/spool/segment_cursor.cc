// Cursors of the segment log: from segment to segment, with what is lost in between given back as gap records. How many
// events a lost place held is the difference of the totals that the records around it carry.
#include <algorithm>

#include "base/log.h"
#include "codec/event/block.h"
#include "store/spool/segment_log_impl.h"

namespace ph::spool {
namespace {
constexpr int kReadErrorsMax = 3;  // then an unreadable page counts as damage: nothing blocks for ever
}

Result<std::optional<Record>> LogCursor::next() {
  while (position_ < log_.durable_end()) {
    PH_ASSIGN(bool open, ensure_open());
    if (!open) {  // nothing is left that could hold it
      if (!damage_) damage_ = Place{segment_, 0, 0, "segment file missing"};
      return gap(log_.durable_end(), log_.durable_events(), last_accepted_, 0);
    }
    auto segment = log_.segments().find(segment_);
    if (segment != log_.segments().end()) reader_->set_limit(segment->second.bytes);
    auto item = reader_->next(position_);
    if (!item) {
      if (++read_errors_ >= kReadErrorsMax) reader_->tolerate_read_errors();
      return std::unexpected(item.error());
    }
    read_errors_ = 0;
    if (auto record = take(*item)) return record;
  }
  return std::nullopt;
}

/// What an item of the current segment means at this position; nullopt: go on.
std::optional<Record> LogCursor::take(const SegmentReader::Item& item) {
  using What = SegmentReader::What;
  const RecordHeader& h = item.header;
  if (item.damaged_end)
    log_warn("spool_batch_end_damaged",
             {{"spool", log_.name()}, {"segment", segment_name(segment_)}, {"offset", item.damaged_end->offset}});
  if (item.what == What::damaged_bytes) {
    damage_ = Place{segment_, item.offset, item.bytes, item.zeros ? "zeros" : "no record header"};
    return std::nullopt;
  }
  if (item.what == What::end || h.sequence >= std::min(bound_, log_.durable_end())) {
    if (leave_segment("records missing")) return std::nullopt;
    return gap(log_.durable_end(), log_.durable_events(), last_accepted_, item.offset);
  }
  if (h.sequence < position_) {
    if (!events_given_) events_ = h.events_after();
    damage_.reset();
    return std::nullopt;
  }
  if (h.covers_from() > position_) {
    if (!damage_) damage_ = Place{segment_, item.offset, 0, "records missing"};
    Record lost = gap(h.covers_from(), h.events_before, h.accepted_at, item.offset);
    reader_->put_back(item);  // it comes next, behind the gap
    return lost;
  }
  damage_.reset();
  // A gap record may stand for events that its writer could not count; who has read up to it can.
  // And who stands in the middle of several that are lost together knows what precedes him, if anybody does.
  const bool inside = item.what == What::damaged_record && h.covers_from() < position_;
  if (h.kind == RecordKind::block && !inside) events_ = h.events_before;
  last_accepted_ = h.accepted_at;
  if (auto s = log_.segments().find(segment_); s != log_.segments().end())
    s->second.mark({item.entry.sequence, item.entry.offset, item.entry.events_before});
  if (item.what == What::damaged_record) {
    damage_ = Place{segment_, item.offset, item.bytes, "checksum"};
    return gap(h.sequence + 1, h.events_after(), h.accepted_at, item.offset + item.bytes);
  }
  if (h.kind == RecordKind::gap) {  // counted when it was found, and when it was repaired
    return gap(h.sequence + 1, h.events_after(), h.accepted_at, item.offset + item.bytes);
  }
  Record r;
  r.first = position_;
  r.sequence = h.sequence;
  r.events = h.events;
  r.events_before = h.events_before;
  r.accepted_at = h.accepted_at;
  r.block = item.payload;
  r.bytes = item.bytes;
  r.end_byte = byte_at(item.offset + item.bytes);
  position_ = h.sequence + 1;
  events_ = h.events_after();
  return r;
}

/// Positions from here up to `until` are lost.
Record LogCursor::gap(uint64_t until, uint64_t events_after, WallTime accepted_at, uint64_t end_offset) {
  Record r;
  r.first = position_;
  r.sequence = until - 1;
  r.events = events_after > events_ ? events_after - events_ : 0;
  r.events_before = events_;
  r.accepted_at = accepted_at;
  r.end_byte = byte_at(end_offset);
  r.damaged = true;
  event::Block block;
  block.gap = true;
  block.topic = "damaged";
  block.id = {NodeId{}, StreamId{log_.epoch()}, r.first, until};
  block.events = r.events;
  block.accepted_at = accepted_at;
  r.block = Slice(event::encode(block));
  if (damage_ && !log_.released(r.first, until))
    log_.found({damage_->segment, damage_->offset, damage_->bytes, r.first, until, r.events, events_, damage_->reason});
  damage_.reset();
  position_ = until;
  events_ = events_after;
  return r;
}

uint64_t LogCursor::byte_at(uint64_t offset) const {
  return file_ ? base_ + offset : log_.end_byte();
}

void LogCursor::let_go(uint64_t segment, uint64_t end) {
  if (segment_ != segment || position_ < end) return;
  reader_.reset();
  file_.reset();
}

/// Moves to the next segment; false if there is none.
bool LogCursor::leave_segment(std::string reason) {
  auto following = log_.segments().upper_bound(segment_);
  if (following == log_.segments().end()) {
    if (!damage_) damage_ = Place{segment_, reader_ ? reader_->offset() : 0, 0, std::move(reason)};
    return false;
  }
  file_.reset();
  reader_.reset();
  return true;
}

/// False when no segment is left to look at.
Result<bool> LogCursor::ensure_open() {
  while (!file_) {
    auto& segments = log_.segments();
    auto segment = segments.upper_bound(segment_ != 0 ? segment_ : position_);
    if (segment_ == 0 && segment != segments.begin()) --segment;
    if (segment == segments.end()) return false;
    auto opened = open_at(segment);
    if (opened) break;
    if (opened.error().code != port::file_errors::not_found) return std::unexpected(opened.error());
    segment_ = segment->first;
    damage_ = Place{segment_, 0, segment->second.bytes, "segment file missing"};
  }
  return true;
}

Result<> LogCursor::open_at(LogImpl::Segments::iterator segment) {
  uint64_t first = segment->first;
  PH_ASSIGN(auto opened, open_segment(log_.files(), log_.path(first)));
  auto following = std::next(segment);
  bound_ = following == log_.segments().end() ? UINT64_MAX : log_.begins(following);
  RecordSeed seed{log_.epoch(), first};
  if (opened.header.header) {
    const SegmentHeader& h = *opened.header.header;
    seed.epoch = h.epoch;
    segment->second.begins = h.begins;
    if (segment_ == 0 && !events_given_) events_ = h.events_before;
  }
  if (opened.header.damaged)
    log_warn("spool_segment_header_damaged", {{"spool", log_.name()}, {"segment", segment_name(first)}});
  uint64_t offset = kRecordsOffset;
  if (segment_ == 0) {  // only the first one may hold records before our position
    for (const auto& mark : segment->second.marks) {
      if (mark.sequence > position_) break;
      offset = mark.offset;
      if (!events_given_) events_ = mark.events_before;
    }
  }
  segment_ = first;
  base_ = segment->second.base;
  file_ = std::move(opened.file);
  reader_.emplace(*file_, seed, offset, segment->second.bytes);
  return {};
}

}  // namespace ph::spool
