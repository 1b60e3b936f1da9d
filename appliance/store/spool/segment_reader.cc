#include "store/spool/segment_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ph::spool {
namespace {
constexpr size_t kPage = 4096;
constexpr ByteView kMagicStem = "PH";  // of everything that may stand behind a segment's header

bool only_zeros(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}
}  // namespace

Result<OpenSegment> open_segment(port::Files& files, const std::string& path) {
  OpenSegment out;
  PH_ASSIGN(out.file, files.open(path, port::OpenMode::read));
  PH_ASSIGN(auto stat, out.file->stat());
  out.size = stat.size;
  std::string head(kRecordsOffset, '\0');
  // A header that cannot be read counts as damaged: the records behind it may well be readable.
  auto got = out.file->read_at(0, head.data(), head.size());
  head.resize(got ? *got : 0);
  PH_ASSIGN(out.header, decode_segment_header(head));
  return out;
}

SegmentReader::SegmentReader(port::File& file, RecordSeed seed, uint64_t offset, uint64_t limit)
    : file_(file), seed_(seed), offset_(offset), limit_(limit) {}

Result<size_t> SegmentReader::read(uint64_t offset, char* into, size_t size) {
  auto got = file_.read_at(offset, into, size);
  if (got || !tolerant_) return got;
  size_t done = 0;
  while (done < size) {
    size_t piece = std::min(kPage - (offset + done) % kPage, size - done);
    auto part = file_.read_at(offset + done, into + done, piece);
    if (part && *part < piece) return done + *part;
    if (!part) std::memset(into + done, 0, piece);
    done += piece;
  }
  return done;
}

Result<ByteView> SegmentReader::fill(uint64_t offset, size_t size) {
  if (offset >= limit_) return ByteView();
  size = static_cast<size_t>(std::min<uint64_t>(size, limit_ - offset));
  if (!buffer_ || offset < buffer_at_ || offset + size > buffer_at_ + buffer_->size()) {
    auto wanted = static_cast<size_t>(std::min<uint64_t>(std::max(size, kReadSize), limit_ - offset));
    auto fresh = std::make_shared<std::string>(wanted, '\0');
    PH_ASSIGN(size_t got, read(offset, fresh->data(), wanted));
    fresh->resize(got);
    buffer_ = std::move(fresh);
    buffer_at_ = offset;
  }
  return ByteView(*buffer_).substr(offset - buffer_at_, size);
}

Result<SegmentReader::Item> SegmentReader::next(uint64_t from) {
  if (put_back_) return *std::exchange(put_back_, std::nullopt);
  if (batch_ && batch_->number < batch_->head.records) return next_in_batch(from);
  batch_.reset();
  PH_ASSIGN(ByteView window, fill(offset_, kRecordHeaderSize));
  if (window.empty()) return Item{};
  if (auto header = decode_record_header(window, seed_, offset_)) return next_record(*header, from);
  std::optional<BatchHead> head;
  if (auto end = decode_batch_end(window, seed_, offset_); end && !end->is_foot) {
    PH_ASSIGN(window, fill(offset_, end->own));
    head = decode_batch_head(window, seed_, offset_);
  }
  const bool head_whole = head.has_value();
  if (!head && foot_found_ && foot_found_->head.offset == offset_) head = foot_found_->head;
  if (!head) return resync();
  PH_TRY(load(std::move(*head), head_whole));
  return next_in_batch(from);
}

/// A single record, as version 1 has them.
Result<SegmentReader::Item> SegmentReader::next_record(const RecordHeader& header, uint64_t from) {
  Item item;
  item.what = What::record;
  item.header = header;
  item.offset = offset_;
  item.bytes = kRecordHeaderSize + header.size;
  item.entry = {offset_, header.sequence, header.events_before};
  uint64_t body = offset_ + kRecordHeaderSize;
  bool wants_payload = header.kind == RecordKind::block && header.sequence >= from;
  if (wants_payload) {
    PH_ASSIGN(ByteView payload, fill(body, header.size));
    if (payload.size() < header.size || crc32c(payload) != header.payload_crc)
      item.what = What::damaged_record;
    else
      item.payload = Slice(buffer_, payload);
  } else if (body + header.size > limit_) {
    item.what = What::damaged_record;
  } else if (header.size > 0) {
    // Its last byte tells whether the file holds all of it.
    char last = 0;
    PH_ASSIGN(size_t got, read(body + header.size - 1, &last, 1));
    if (got == 0) item.what = What::damaged_record;
  }
  if (item.what == What::damaged_record) {
    item.torn = item.bytes > limit_ - offset_;
    item.bytes = std::min<uint64_t>(item.bytes, limit_ - offset_);
  }
  offset_ += item.bytes;
  return item;
}

// --- batches

Result<> SegmentReader::load(BatchHead head, bool head_whole) {
  PH_ASSIGN(ByteView view, fill(head.offset, head.bytes));
  Batch& batch = batch_.emplace();
  batch.bytes = Slice(buffer_, view);
  batch.head_whole = head_whole;
  batch.foot_whole =
      view.size() == head.bytes && batch_end_whole(view.substr(head.bytes - head.foot_bytes), seed_, head.foot_at());
  batch.head = std::move(head);
  begin_batch(batch);
  return {};
}

void SegmentReader::begin_batch(Batch& batch) const {
  batch.number = 0;
  batch.at = batch.entry_at = batch.head.records_at();
  batch.events = 0;
  batch.entry = 0;
}

SegmentReader::Step SegmentReader::step(Batch& b) const {
  const BatchHead& head = b.head;
  const uint64_t foot_at = head.foot_at();
  Step s;
  s.offset = b.at;
  s.number = b.number;
  s.events_before = b.events;
  const uint64_t from = std::min<uint64_t>(b.at - head.offset, b.bytes.size());
  s.record = decode_batch_record(b.bytes.view().substr(from, foot_at - b.at), head, seed_, b.at, b.number);
  if (s.record) {
    s.bytes = s.record->bytes;
    s.events = s.record->events;
  } else {
    if (!std::exchange(b.foot_asked, true) && b.foot_whole)
      b.foot = decode_batch_foot(b.bytes.view().substr(foot_at - head.offset), seed_, foot_at);
    // The index says where the next one stands.
    while (b.foot && b.entry < b.foot->index.size() && b.entry_at < b.at) b.entry_at += b.foot->index[b.entry++].bytes;
    if (b.foot && b.entry < b.foot->index.size() && b.entry == b.number && b.entry_at == b.at) {
      const IndexEntry& e = b.foot->index[b.entry];
      s.state = e.gap ? Step::State::gap : Step::State::damaged;
      s.bytes = e.bytes;
      s.events = e.events;
      if (b.entry + 1 == b.foot->index.size()) s.count = head.records - b.number;
    } else {
      s.state = Step::State::damaged;
      s.bytes = foot_at - b.at;
      s.events = head.events - std::min(b.events, head.events);
      s.count = head.records - b.number;
    }
  }
  b.at += s.bytes;
  b.events += s.events;
  b.number += s.count;
  return s;
}

SegmentReader::Item SegmentReader::next_in_batch(uint64_t from) {
  Batch& b = *batch_;
  const BatchHead& head = b.head;
  const Step s = step(b);
  const bool first = s.number == 0, last = b.number == head.records;
  Item item;
  item.what = s.state == Step::State::damaged ? What::damaged_record : What::record;
  RecordHeader& h = item.header;
  h.sequence = head.first + s.number + s.count - 1;
  h.skipped = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{first ? head.skipped : 0} + s.count - 1, UINT32_MAX));
  h.events_before = head.events_before + s.events_before;
  h.events = s.events;
  h.accepted_at = s.record ? s.record->accepted_at : head.accepted_at;
  h.kind = s.state == Step::State::gap ? RecordKind::gap : RecordKind::block;
  item.offset = first ? head.offset : s.offset;
  item.bytes = (last ? head.end() : s.offset + s.bytes) - item.offset;
  item.torn = s.state == Step::State::damaged && s.offset + s.bytes > head.offset + b.bytes.size();
  item.entry = {head.offset, head.first, head.events_before};
  item.batch_last = head.first + head.records - 1;
  if (first && !b.head_whole) item.damaged_end = {head.offset, head.head_bytes};
  if (first && !b.foot_whole) item.damaged_end = {head.foot_at(), head.foot_bytes};
  if (s.record && h.sequence >= from) {
    if (s.record->parts) {
      std::string block;
      block.reserve(s.record->bytes + s.record->parts->head.size() + s.record->parts->tail.size() + 40);
      event::join(*s.record->parts, block);
      item.payload = Slice(std::move(block));
    } else {
      item.payload = b.bytes.sub(static_cast<size_t>(s.record->block.data() - b.bytes.data()), s.record->block.size());
    }
  }
  offset_ = item.offset + item.bytes;
  return item;
}

std::optional<BatchFoot> SegmentReader::mended() const {
  if (!batch_) return std::nullopt;
  Batch b = *batch_;
  begin_batch(b);
  bool damaged = !b.head_whole || !b.foot_whole;
  std::vector<IndexEntry> index;
  while (b.number < b.head.records) {
    const Step s = step(b);
    damaged = damaged || s.state == Step::State::damaged;
    index.push_back({static_cast<uint32_t>(s.bytes), s.state != Step::State::whole, s.events});
  }
  if (!damaged) return std::nullopt;
  return BatchFoot{std::move(b.head), std::move(index)};
}

// --- damage

Result<ByteView> SegmentReader::reach(ByteView window, uint64_t at, size_t size, std::string& own) {
  if (window.size() >= size) return window.substr(0, size);
  if (at + size > limit_) return ByteView();
  own.resize(size);
  PH_ASSIGN(size_t got, read(at, own.data(), size));
  return ByteView(own).substr(0, got);
}

Result<bool> SegmentReader::unit_at(ByteView window, uint64_t at, uint64_t& begins) {
  begins = at;
  if (decode_record_header(window, seed_, at)) return true;
  auto end = decode_batch_end(window, seed_, at);
  if (!end || end->batch_at(at) < offset_) return false;
  std::string own;
  PH_ASSIGN(ByteView bytes, reach(window, at, end->own, own));
  if (!end->is_foot) return decode_batch_head(bytes, seed_, at).has_value();
  auto foot = decode_batch_foot(bytes, seed_, at);
  if (!foot) return false;
  begins = foot->head.offset;
  foot_found_ = std::move(foot);
  return true;
}

Result<SegmentReader::Item> SegmentReader::resync() {
  Item item;
  item.what = What::damaged_bytes;
  item.offset = offset_;
  uint64_t at = offset_;  // everything below was looked at
  uint64_t begins = 0;
  for (;;) {
    PH_ASSIGN(ByteView window, fill(at, kReadSize));
    bool last = window.size() < kReadSize;
    size_t found = ByteView::npos;
    for (size_t p = window.find(kMagicStem, at == offset_ ? 1 : 0); p != ByteView::npos;
         p = window.find(kMagicStem, p + 1)) {
      if (window.size() - p < kRecordHeaderSize && !last) break;  // looked at again in the next window
      PH_ASSIGN(bool unit, unit_at(window.substr(p), at + p, begins));
      if (!unit) continue;
      found = p;
      break;
    }
    size_t passed = found != ByteView::npos ? found : last ? window.size() : window.size() - (kRecordHeaderSize - 1);
    item.zeros = item.zeros && only_zeros(window.substr(0, passed));
    at += passed;
    if (found == ByteView::npos) begins = at;
    if (found != ByteView::npos || last) break;
  }
  if (begins == offset_) return next();  // only its head was not whole
  item.bytes = begins - offset_;
  offset_ = begins;
  return item;
}

}  // namespace ph::spool
