#include "store/spool/segment_reader.h"

#include <algorithm>
#include <cstring>

namespace ph::spool {
namespace {
constexpr size_t kPage = 4096;

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

Result<SegmentReader::Item> SegmentReader::next(uint64_t check_from) {
  PH_ASSIGN(ByteView head, fill(offset_, kRecordHeaderSize));
  if (head.empty()) return Item{};
  auto header = decode_record_header(head, seed_, offset_);
  if (!header) return resync();
  Item item;
  item.what = What::record;
  item.header = *header;
  item.offset = offset_;
  item.bytes = kRecordHeaderSize + header->size;
  uint64_t body = offset_ + kRecordHeaderSize;
  bool wants_payload = header->kind == RecordKind::block && header->sequence >= check_from;
  if (wants_payload) {
    PH_ASSIGN(ByteView payload, fill(body, header->size));
    if (payload.size() < header->size || crc32c(payload) != header->payload_crc)
      item.what = What::damaged_record;
    else
      item.payload = Slice(buffer_, payload);
  } else if (body + header->size > limit_) {
    item.what = What::damaged_record;
  } else if (header->size > 0) {
    // Its last byte tells whether the file holds all of it.
    char last = 0;
    PH_ASSIGN(size_t got, read(body + header->size - 1, &last, 1));
    if (got == 0) item.what = What::damaged_record;
  }
  if (item.what == What::damaged_record) item.bytes = std::min<uint64_t>(item.bytes, limit_ - offset_);
  offset_ += item.bytes;
  return item;
}

Result<SegmentReader::Item> SegmentReader::resync() {
  Item item;
  item.what = What::damaged_bytes;
  item.offset = offset_;
  uint64_t at = offset_;  // everything below was looked at
  for (;;) {
    PH_ASSIGN(ByteView window, fill(at, kReadSize));
    bool last = window.size() < kReadSize;
    size_t from = at == offset_ ? 1 : 0;
    size_t found = ByteView::npos;
    for (size_t p = window.find(kRecordMagic, from); p != ByteView::npos; p = window.find(kRecordMagic, p + 1)) {
      if (window.size() - p < kRecordHeaderSize && !last) break;  // looked at again in the next window
      if (decode_record_header(window.substr(p), seed_, at + p)) {
        found = p;
        break;
      }
    }
    size_t passed = found != ByteView::npos ? found : last ? window.size() : window.size() - (kRecordHeaderSize - 1);
    item.zeros = item.zeros && only_zeros(window.substr(0, passed));
    at += passed;
    if (found != ByteView::npos || last) break;
  }
  item.bytes = at - offset_;
  offset_ = at;
  return item;
}

}  // namespace ph::spool
