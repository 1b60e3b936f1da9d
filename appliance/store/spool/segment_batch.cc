#include "store/spool/segment_batch.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/coding.h"

namespace ph::spool {
namespace {

enum Flag : uint8_t {
  taken_apart = 1,
  position_follows = 2,
  counts_follow = 4,
  time_follows = 8,
  events_follow = 16,
  accepted_follows = 32
};
constexpr uint8_t kFlags = 63;
constexpr size_t kInternAt = 3;  // twice in the ends is shorter than in so many records
constexpr size_t kRecordMin = 4 + 1 + 1;
constexpr size_t kFootSpare = 2;

uint32_t batch_seed(RecordSeed seed, uint64_t batch_offset, uint64_t first) {
  return crc32c({reinterpret_cast<const char*>(&first), sizeof first}, seed_crc(seed, batch_offset));
}
uint32_t record_crc(ByteView bytes, uint32_t batch, uint64_t offset) {
  return crc32c(bytes, crc32c({reinterpret_cast<const char*>(&offset), sizeof offset}, batch));
}

uint32_t end_crc(ByteView magic, ByteView sizes, RecordSeed seed, uint64_t offset) {
  return crc32c(sizes, crc32c(magic, seed_crc(seed, offset)));
}

std::string encode_common(const BatchHead& h) {
  std::string out;
  for (uint64_t n : {h.first, uint64_t{h.skipped}, uint64_t{h.records}, h.events_before, h.events,
                     zigzag(to_unix_ms(h.accepted_at)), h.position, uint64_t{h.strings.size()}})
    put_varint(out, n);
  for (const std::string& s : h.strings) put_sized(out, s);
  return out;
}

bool decode_common(Reader& in, BatchHead& h) {
  h.first = in.varint();
  const uint64_t skipped = in.varint(), records = in.varint();
  h.events_before = in.varint();
  h.events = in.varint();
  h.accepted_at = from_unix_ms(unzigzag(in.varint()));
  h.position = in.varint();
  uint64_t strings = in.varint();
  if (!in.ok() || strings > in.rest().size() || records == 0 || records > h.bytes / kRecordMin) return false;
  if (h.first >= UINT64_MAX - records || skipped >= h.first || skipped > UINT32_MAX) return false;
  if (h.events_before + h.events < h.events) return false;
  h.skipped = static_cast<uint32_t>(skipped);
  h.records = static_cast<uint32_t>(records);
  h.strings.reserve(strings);
  for (; strings > 0; --strings) h.strings.emplace_back(in.sized());
  return in.ok();
}

/// An end whose content is `rest`.
std::string encode_end(const char* magic, ByteView rest, uint32_t other, uint32_t batch, RecordSeed seed,
                       uint64_t offset) {
  std::string body;
  put_fixed(body, static_cast<uint32_t>(kBatchEndSize + rest.size()));
  put_fixed(body, other);
  put_fixed(body, batch);
  put_fixed(body, crc32c(rest));
  std::string out(magic, 4);
  put_fixed(out, end_crc(out, body, seed, offset));
  out += body;
  out += rest;
  return out;
}

/// The content of the end that stands there, if all of it is whole.
std::optional<ByteView> rest_of(ByteView bytes, const BatchEnd& end) {
  if (bytes.size() < end.own) return std::nullopt;
  ByteView rest = bytes.substr(kBatchEndSize, end.own - kBatchEndSize);
  if (load_fixed<uint32_t>(bytes.data() + 20) != crc32c(rest)) return std::nullopt;
  return rest;
}

void put_index(std::string& out, std::span<const IndexEntry> index) {
  put_varint(out, index.size());
  for (const IndexEntry& e : index) {
    put_varint(out, uint64_t{e.bytes} * 4 + (e.gap ? 2 : 0) + (e.events != 1 ? 1 : 0));
    if (e.events != 1) put_varint(out, e.events);
  }
}

bool decode_index(Reader& in, const BatchHead& h, std::vector<IndexEntry>& index) {
  const uint64_t entries = in.varint();
  if (!in.ok() || entries == 0 || entries > h.records) return false;
  index.reserve(entries);
  uint64_t bytes = 0, events = 0;
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t word = in.varint();
    IndexEntry e{static_cast<uint32_t>(word / 4), (word & 2) != 0, (word & 1) != 0 ? in.varint() : 1};
    if (!in.ok() || word / 4 > h.bytes || e.events > h.events - events) return false;
    bytes += e.bytes;
    events += e.events;
    index.push_back(e);
  }
  if (entries < h.records && !index.back().gap) return false;
  return events == h.events && bytes == h.foot_at() - h.records_at();
}

/// The strings that many records of a batch begin and end with, and their numbers.
class Strings {
 public:
  void count(const event::Parts& p) {
    ++of_[p.head].count;
    ++of_[p.tail].count;
  }
  /// 0: it stands in the record.
  uint64_t number(ByteView s, std::vector<std::string>& strings) {
    Use& use = of_[s];
    if (use.count < kInternAt || s.empty()) return 0;
    if (use.number == 0) {
      strings.emplace_back(s);
      use.number = strings.size();
    }
    return use.number;
  }

 private:
  struct Use {
    size_t count = 0;
    uint64_t number = 0;
  };
  std::unordered_map<ByteView, Use> of_;
};

struct Prepared {
  std::optional<event::Parts> parts;
  uint64_t head = 0;  // numbers of strings
  uint64_t tail = 0;
};

void put_string(std::string& out, uint64_t number, ByteView s) {
  put_varint(out, number);
  if (number == 0) put_sized(out, s);
}

/// What of a record stands before the payload.
std::string encode_meta(const BatchInput& r, const Prepared& p, const BatchHead& h, uint64_t number) {
  uint8_t flags = 0;
  const int64_t accepted = to_unix_ms(r.accepted_at);
  if (accepted != to_unix_ms(h.accepted_at)) flags |= Flag::accepted_follows;
  if (r.events != 1) flags |= Flag::events_follow;
  if (p.parts) {
    flags |= Flag::taken_apart;
    if (p.parts->first != h.position + number) flags |= Flag::position_follows;
    if (p.parts->span != 1 || p.parts->events != 1) flags |= Flag::counts_follow;
    if (p.parts->accepted_ms != static_cast<uint64_t>(accepted)) flags |= Flag::time_follows;
  }
  std::string out(1, static_cast<char>(flags));
  if (flags & Flag::accepted_follows) put_varint(out, zigzag(accepted - to_unix_ms(h.accepted_at)));
  if (flags & Flag::events_follow) put_varint(out, r.events);
  if (!p.parts) return out;
  put_string(out, p.head, p.parts->head);
  put_string(out, p.tail, p.parts->tail);
  if (flags & Flag::position_follows)
    put_varint(out, zigzag(static_cast<int64_t>(p.parts->first - h.position - number)));
  if (flags & Flag::counts_follow) {
    put_varint(out, p.parts->span);
    put_varint(out, p.parts->events);
  }
  if (flags & Flag::time_follows) put_varint(out, p.parts->accepted_ms);
  return out;
}

std::optional<ByteView> take_string(Reader& in, const BatchHead& h) {
  const uint64_t number = in.varint();
  if (number == 0) return in.sized();
  if (number > h.strings.size()) return std::nullopt;
  return ByteView(h.strings[number - 1]);
}

bool decode_parts(Reader& in, uint8_t flags, const BatchHead& h, uint32_t number, BatchRecord& r) {
  event::Parts& p = r.parts.emplace();
  auto head = take_string(in, h);
  auto tail = take_string(in, h);
  if (!head || !tail) return false;
  p.head = *head;
  p.tail = *tail;
  p.first = h.position + number;
  if (flags & Flag::position_follows) p.first += static_cast<uint64_t>(unzigzag(in.varint()));
  p.span = p.events = 1;
  if (flags & Flag::counts_follow) {
    p.span = in.varint();
    p.events = in.varint();
  }
  p.accepted_ms = flags & Flag::time_follows ? in.varint() : static_cast<uint64_t>(to_unix_ms(r.accepted_at));
  p.payload = in.rest();
  return in.ok();
}

}  // namespace

void encode_batch(std::span<const BatchInput> records, const BatchStart& start, RecordSeed seed, std::string& out) {
  PH_ASSERT(!records.empty(), "a batch has records");
  BatchHead h;
  h.offset = start.offset;
  h.first = start.first;
  h.skipped = start.skipped;
  h.records = static_cast<uint32_t>(records.size());
  h.events_before = start.events_before;
  h.accepted_at = records.front().accepted_at;
  std::vector<Prepared> prepared(records.size());
  Strings strings;
  for (size_t i = 0; i < records.size(); ++i) {
    h.events += records[i].events;
    auto& parts = prepared[i].parts = event::split(records[i].block);
    if (!parts) continue;
    strings.count(*parts);
    if (h.position == 0) h.position = parts->first - i;
  }
  for (Prepared& p : prepared) {
    if (!p.parts) continue;
    p.head = strings.number(p.parts->head, h.strings);
    p.tail = strings.number(p.parts->tail, h.strings);
  }
  const std::string common = encode_common(h);
  h.head_bytes = static_cast<uint32_t>(kBatchEndSize + common.size());
  const size_t begin = out.size();
  out.append(h.head_bytes, '\0');
  const uint32_t crc_seed = batch_seed(seed, h.offset, h.first);
  std::vector<IndexEntry> index(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const std::string meta = encode_meta(records[i], prepared[i], h, i);
    ByteView payload = prepared[i].parts ? prepared[i].parts->payload : records[i].block;
    const size_t at = out.size();
    put_fixed<uint32_t>(out, 0);
    put_varint(out, meta.size() + payload.size());
    out += meta;
    out += payload;
    const uint32_t crc = record_crc(ByteView(out).substr(at + 4), crc_seed, h.offset + at - begin);
    std::memcpy(out.data() + at, &crc, sizeof crc);
    index[i] = {static_cast<uint32_t>(out.size() - at), false, records[i].events};
  }
  std::string foot = common;
  put_index(foot, index);
  foot.append(kFootSpare, '\0');
  h.foot_bytes = static_cast<uint32_t>(kBatchEndSize + foot.size());
  h.bytes = static_cast<uint32_t>(out.size() - begin + h.foot_bytes);
  PH_ASSERT(h.bytes <= kBatchMax, "a batch is bounded");
  out += encode_end(kBatchFootMagic, foot, h.head_bytes, h.bytes, seed, h.foot_at());
  out.replace(begin, h.head_bytes, encode_end(kBatchHeadMagic, common, h.foot_bytes, h.bytes, seed, h.offset));
}

std::string encode_batch_head(const BatchHead& h, RecordSeed seed) {
  return encode_end(kBatchHeadMagic, encode_common(h), h.foot_bytes, h.bytes, seed, h.offset);
}

std::string encode_batch_foot(const BatchHead& h, std::span<const IndexEntry> index, RecordSeed seed) {
  std::string rest = encode_common(h);
  put_index(rest, index);
  PH_ASSERT(kBatchEndSize + rest.size() <= h.foot_bytes, "a repaired index is not longer");
  rest.resize(h.foot_bytes - kBatchEndSize, '\0');
  return encode_end(kBatchFootMagic, rest, h.head_bytes, h.bytes, seed, h.foot_at());
}

std::optional<BatchEnd> decode_batch_end(ByteView bytes, RecordSeed seed, uint64_t offset) {
  if (bytes.size() < kBatchEndSize) return std::nullopt;
  BatchEnd end;
  end.is_foot = bytes.starts_with(kBatchFootMagic);
  if (!end.is_foot && !bytes.starts_with(kBatchHeadMagic)) return std::nullopt;
  const uint32_t crc = end_crc(bytes.substr(0, 4), bytes.substr(8, kBatchEndSize - 8), seed, offset);
  if (load_fixed<uint32_t>(bytes.data() + 4) != crc) return std::nullopt;
  end.own = load_fixed<uint32_t>(bytes.data() + 8);
  end.other = load_fixed<uint32_t>(bytes.data() + 12);
  end.batch = load_fixed<uint32_t>(bytes.data() + 16);
  if (end.own < kBatchEndSize || end.other < kBatchEndSize || end.batch > kBatchMax) return std::nullopt;
  if (uint64_t{end.own} + end.other + kRecordMin > end.batch) return std::nullopt;
  if (end.is_foot && offset + end.own < end.batch + kRecordsOffset) return std::nullopt;
  return end;
}

bool batch_end_whole(ByteView bytes, RecordSeed seed, uint64_t offset) {
  auto end = decode_batch_end(bytes, seed, offset);
  return end && rest_of(bytes, *end);
}

std::optional<BatchHead> decode_batch_head(ByteView bytes, RecordSeed seed, uint64_t offset) {
  auto end = decode_batch_end(bytes, seed, offset);
  if (!end || end->is_foot) return std::nullopt;
  auto rest = rest_of(bytes, *end);
  if (!rest) return std::nullopt;
  BatchHead h;
  h.offset = offset;
  h.bytes = end->batch;
  h.head_bytes = end->own;
  h.foot_bytes = end->other;
  Reader in(*rest);
  if (!decode_common(in, h) || !in.at_end()) return std::nullopt;
  return h;
}

std::optional<BatchFoot> decode_batch_foot(ByteView bytes, RecordSeed seed, uint64_t offset) {
  auto end = decode_batch_end(bytes, seed, offset);
  if (!end || !end->is_foot) return std::nullopt;
  auto rest = rest_of(bytes, *end);
  if (!rest) return std::nullopt;
  BatchFoot foot;
  foot.head.offset = end->batch_at(offset);
  foot.head.bytes = end->batch;
  foot.head.head_bytes = end->other;
  foot.head.foot_bytes = end->own;
  Reader in(*rest);
  if (!decode_common(in, foot.head) || !decode_index(in, foot.head, foot.index)) return std::nullopt;
  return foot;
}

std::optional<BatchRecord> decode_batch_record(ByteView bytes, const BatchHead& h, RecordSeed seed, uint64_t offset,
                                               uint32_t number) {
  Reader in(bytes);
  const auto crc = in.fixed<uint32_t>();
  const uint64_t size = in.varint();
  if (!in.ok() || size == 0 || size > in.rest().size()) return std::nullopt;
  BatchRecord r;
  r.bytes = static_cast<uint32_t>(bytes.size() - in.rest().size() + size);
  if (record_crc(bytes.substr(4, r.bytes - 4), batch_seed(seed, h.offset, h.first), offset) != crc) return std::nullopt;
  Reader body(in.take(size));
  const auto flags = body.fixed<uint8_t>();
  if (flags & ~kFlags) return std::nullopt;
  r.accepted_at = h.accepted_at;
  if (flags & Flag::accepted_follows)
    r.accepted_at = from_unix_ms(static_cast<int64_t>(static_cast<uint64_t>(to_unix_ms(h.accepted_at)) +
                                                      static_cast<uint64_t>(unzigzag(body.varint()))));
  r.events = flags & Flag::events_follow ? body.varint() : 1;
  if (!body.ok()) return std::nullopt;
  if (!(flags & Flag::taken_apart)) {
    r.block = body.rest();
    return r;
  }
  if (!decode_parts(body, flags, h, number, r)) return std::nullopt;
  return r;
}

}  // namespace ph::spool
