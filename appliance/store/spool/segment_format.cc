#include "store/spool/segment_format.h"

#include <algorithm>

#include "base/coding.h"
#include "store/spool/segment_log.h"

namespace ph::spool {
namespace {

constexpr char kSegmentMagic[] = "PHSEGMT\n";
constexpr uint8_t kEndVersion = 2;
constexpr uint8_t kDamageVersion = 1;
constexpr size_t kReasonMax = 256;

std::optional<SegmentHeader> decode_copy(ByteView copy) {
  if (copy.size() < kSegmentHeaderSize || !copy.starts_with(kSegmentMagic)) return std::nullopt;
  if (load_fixed<uint32_t>(copy.data() + 8) != crc32c(copy.substr(12, kSegmentHeaderSize - 12))) return std::nullopt;
  SegmentHeader h;
  h.version = load_fixed<uint32_t>(copy.data() + 12);
  h.epoch = load_fixed<uint64_t>(copy.data() + 16);
  h.first = load_fixed<uint64_t>(copy.data() + 24);
  h.begins = load_fixed<uint64_t>(copy.data() + 32);
  h.events_before = load_fixed<uint64_t>(copy.data() + 40);
  h.made_at = from_unix_ms(load_fixed<int64_t>(copy.data() + 48));
  return h;
}

}  // namespace

uint32_t seed_crc(RecordSeed seed, uint64_t offset) {
  uint64_t words[3] = {seed.epoch, seed.segment, offset};
  return crc32c({reinterpret_cast<const char*>(words), sizeof words});
}

std::string encode(const SegmentHeader& h) {
  std::string body;
  put_fixed<uint32_t>(body, h.version);
  put_fixed<uint64_t>(body, h.epoch);
  put_fixed<uint64_t>(body, h.first);
  put_fixed<uint64_t>(body, h.begins);
  put_fixed<uint64_t>(body, h.events_before);
  put_fixed<int64_t>(body, to_unix_ms(h.made_at));
  put_fixed<uint64_t>(body, 0);
  std::string copy(kSegmentMagic);
  put_fixed<uint32_t>(copy, crc32c(body));
  copy += body;
  return copy + copy;
}

Result<DecodedSegmentHeader> decode_segment_header(ByteView bytes) {
  bytes = bytes.substr(0, kRecordsOffset);
  DecodedSegmentHeader out;
  for (size_t at : {size_t{0}, kSegmentHeaderSize}) {
    auto copy = decode_copy(bytes.substr(std::min(at, bytes.size())));
    if (!copy) {
      out.damaged = true;
      continue;
    }
    if (copy->version > kSegmentVersion)
      return fail(errors::newer_version, "segment version " + std::to_string(copy->version));
    if (!out.header) out.header = copy;
  }
  out.all_zero = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
  return out;
}

void encode(const RecordHeader& h, RecordSeed seed, uint64_t offset, std::string& out) {
  size_t at = out.size();
  out.append(kRecordMagic, 4);
  put_fixed<uint32_t>(out, 0);
  put_fixed<uint32_t>(out, h.size);
  put_fixed<uint32_t>(out, h.payload_crc);
  put_fixed<uint64_t>(out, h.sequence);
  put_fixed<uint64_t>(out, h.events_before);
  put_fixed<uint64_t>(out, h.events);
  put_fixed<int64_t>(out, to_unix_ms(h.accepted_at));
  put_fixed<uint32_t>(out, h.skipped);
  put_fixed<uint32_t>(out, static_cast<uint32_t>(h.kind));
  uint32_t crc = crc32c(ByteView(out).substr(at + 8), seed_crc(seed, offset));
  std::memcpy(out.data() + at + 4, &crc, sizeof crc);
}

std::optional<RecordHeader> decode_record_header(ByteView bytes, RecordSeed seed, uint64_t offset) {
  if (bytes.size() < kRecordHeaderSize || !bytes.starts_with(kRecordMagic)) return std::nullopt;
  uint32_t crc = crc32c(bytes.substr(8, kRecordHeaderSize - 8), seed_crc(seed, offset));
  if (load_fixed<uint32_t>(bytes.data() + 4) != crc) return std::nullopt;
  const char* p = bytes.data();
  RecordHeader h;
  h.size = load_fixed<uint32_t>(p + 8);
  h.payload_crc = load_fixed<uint32_t>(p + 12);
  h.sequence = load_fixed<uint64_t>(p + 16);
  h.events_before = load_fixed<uint64_t>(p + 24);
  h.events = load_fixed<uint64_t>(p + 32);
  h.accepted_at = from_unix_ms(load_fixed<int64_t>(p + 40));
  h.skipped = load_fixed<uint32_t>(p + 48);
  uint32_t kind = load_fixed<uint32_t>(p + 52);
  if (kind != 1 && kind != 2) return std::nullopt;
  h.kind = static_cast<RecordKind>(kind);
  // A gap may be as long as the damage that it covers; a block may not.
  if (h.kind == RecordKind::block && h.size > limits::kRecordMax) return std::nullopt;
  if (h.sequence == UINT64_MAX || h.skipped >= h.sequence || h.events_after() < h.events) return std::nullopt;
  return h;
}

std::string encode(const DurableEnd& e) {
  std::string out(1, static_cast<char>(kEndVersion));
  for (uint64_t word : {e.epoch, e.segment, e.offset, e.end, e.next, e.events}) put_varint(out, word);
  return out;
}

Result<DurableEnd> decode_durable_end(ByteView bytes) {
  Reader r(bytes);
  auto version = r.fixed<uint8_t>();
  if (r.ok() && version > kEndVersion) return fail(errors::newer_version, "durable end");
  DurableEnd e;
  for (uint64_t* word : {&e.epoch, &e.segment, &e.offset, &e.end, &e.next, &e.events})
    *word = version == 1 ? r.fixed<uint64_t>() : r.varint();
  if (!r.ok() || !r.at_end() || version == 0 || e.end < kFirstSequence || e.next < e.end || e.segment > e.end)
    return fail(errors::damaged, "durable end");
  return e;
}

std::string encode(const Damage& d) {
  std::string out(1, static_cast<char>(kDamageVersion));
  for (uint64_t word : {d.segment, d.offset, d.bytes, d.first, d.last, d.events, d.events_before})
    put_varint(out, word);
  put_sized(out, ByteView(d.reason).substr(0, kReasonMax));
  return out;
}

Result<Damage> decode_damage(ByteView bytes) {
  Reader r(bytes);
  auto version = r.fixed<uint8_t>();
  Damage d;
  for (uint64_t* word : {&d.segment, &d.offset, &d.bytes, &d.first, &d.last, &d.events, &d.events_before})
    *word = r.varint();
  d.reason = r.sized(kReasonMax);
  if (!r.ok() || version != kDamageVersion) return fail(errors::damaged, "damage entry");
  return d;
}

std::string segment_name(uint64_t first) {
  std::string key;
  put_key(key, first);
  return to_hex(key) + ".seg";
}

std::optional<uint64_t> parse_segment_name(std::string_view name) {
  if (name.size() != 20 || !name.ends_with(".seg")) return std::nullopt;
  uint64_t value = 0;
  for (char c : name.substr(0, 16)) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return value ? std::optional(value) : std::nullopt;
}

std::string store_prefix(std::string_view log_name) {
  return "s/" + std::string(log_name) + "/";
}

}  // namespace ph::spool
