#include "codec/event/block.h"

#include "base/coding.h"
#include "base/limits.h"

namespace ph::event {
namespace {

constexpr uint8_t kVersion = 1;
constexpr size_t kSiteMax = 255;

enum Flag : uint8_t { newline_added = 1, truncated = 2, piece = 4, retain = 8, qos_shift = 4, gap = 64, joined = 128 };

struct Head {
  Block block;
  size_t hops_at = 0;   // offset of the hop count
  size_t hops_end = 0;  // offset behind the last hop
};

Result<Head> decode_head(ByteView bytes, ByteView& payload) {
  Reader r(bytes);
  Head head;
  Block& b = head.block;
  auto tag = r.fixed<uint8_t>();
  if (r.ok() && tag >> 4 > kVersion) return fail(errors::newer_version, "block version " + std::to_string(tag >> 4));
  auto kind = static_cast<uint8_t>(tag & 15);
  if (!r.ok() || tag >> 4 != kVersion || (kind != 1 && kind != 2)) return fail(errors::malformed, "block tag");
  b.kind = static_cast<BlockKind>(kind);
  auto flags = r.fixed<uint8_t>();
  b.newline_added = flags & Flag::newline_added;
  b.truncated = flags & Flag::truncated;
  b.piece = flags & Flag::piece;
  b.retain = flags & Flag::retain;
  b.gap = flags & Flag::gap;
  b.joined = flags & Flag::joined;
  b.qos = static_cast<uint8_t>(flags >> Flag::qos_shift & 3);
  b.category = r.sized(UINT16_MAX);
  ByteView origin = r.take(16);
  if (r.ok()) b.id.origin = *NodeId::from_bytes(origin);
  b.id.stream = StreamId{r.fixed<uint64_t>()};
  b.id.first = r.varint();
  uint64_t span = r.varint();
  if (b.id.first + span < b.id.first) return fail(errors::malformed, "position range");
  b.id.last = b.id.first + span;
  b.events = r.varint();
  b.accepted_at = from_unix_ms(static_cast<int64_t>(r.varint()));
  head.hops_at = bytes.size() - r.rest().size();
  uint64_t hops = r.varint();
  if (!r.ok() || hops > limits::kHopsMax) return fail(errors::malformed, "hop list");
  for (uint64_t i = 0; i < hops; ++i) b.hops.emplace_back(r.sized(kSiteMax));
  head.hops_end = bytes.size() - r.rest().size();
  if (b.kind == BlockKind::message || b.gap) b.topic = r.sized(UINT16_MAX);
  if (b.kind == BlockKind::message) {
    b.expiry_seconds_plus_one = r.varint();
    b.properties = r.sized();
  }
  if (!r.ok() || b.qos == 3) return fail(errors::malformed, "block header");
  payload = r.rest();
  return head;
}

/// A varint in as few bytes as it takes.
bool shortest(Reader& in, uint64_t& value) {
  const size_t before = in.rest().size();
  value = in.varint();
  return in.ok() && before - in.rest().size() == varint_size(value);
}

Result<> check(const Block& b) {
  uint64_t span = b.id.last - b.id.first;
  ByteView p = b.payload.view();
  if (b.gap) return p.empty() ? Result<>() : fail(errors::malformed, "a gap marker with a payload");
  if (b.kind == BlockKind::message)
    return b.events == 1 ? Result<>() : fail(errors::malformed, "a message counts one event");
  if (p.empty() || p.back() != '\n') return fail(errors::malformed, "lines that do not end with a newline");
  if (b.events != count_newlines(p)) return fail(errors::malformed, "number of lines");
  if (b.atomic() ? b.events != 1 : span != p.size())
    return fail(errors::malformed, "position range and payload disagree");
  return {};
}

}  // namespace

void encode_header(const Block& b, std::string& out) {
  out.push_back(static_cast<char>(kVersion << 4 | static_cast<uint8_t>(b.kind)));
  out.push_back(static_cast<char>((b.newline_added ? Flag::newline_added : 0) | (b.truncated ? Flag::truncated : 0) |
                                  (b.piece ? Flag::piece : 0) | (b.retain ? Flag::retain : 0) |
                                  (b.gap ? Flag::gap : 0) | (b.joined ? Flag::joined : 0) |
                                  (b.qos & 3) << Flag::qos_shift));
  put_sized(out, b.category);
  out.append(b.id.origin.bytes());
  put_fixed<uint64_t>(out, b.id.stream.value);
  put_varint(out, b.id.first);
  put_varint(out, b.id.last - b.id.first);
  put_varint(out, b.events);
  put_varint(out, static_cast<uint64_t>(to_unix_ms(b.accepted_at)));
  put_varint(out, b.hops.size());
  for (const std::string& hop : b.hops) put_sized(out, hop);
  if (b.kind == BlockKind::message || b.gap) put_sized(out, b.topic);
  if (b.kind == BlockKind::message) {
    put_varint(out, b.expiry_seconds_plus_one);
    put_sized(out, b.properties);
  }
}

std::string encode(const Block& block) {
  std::string out;
  out.reserve(128 + block.category.size() + block.topic.size() + block.properties.size() + block.payload.size());
  encode_header(block, out);
  out.append(block.payload.view());
  return out;
}

Result<Block> decode(const Slice& bytes) {
  ByteView payload;
  PH_ASSIGN(Head head, decode_head(bytes.view(), payload));
  head.block.payload = bytes.sub(bytes.size() - payload.size());
  PH_TRY(check(head.block));
  return std::move(head.block);
}

Result<Block> decode_header(ByteView bytes) {
  ByteView payload;
  PH_ASSIGN(Head head, decode_head(bytes, payload));
  return std::move(head.block);
}

std::optional<Parts> split(ByteView encoded) {
  Reader in(encoded);
  const auto tag = in.fixed<uint8_t>(), flags = in.fixed<uint8_t>();
  if (!in.ok() || (tag != (kVersion << 4 | 1) && tag != (kVersion << 4 | 2))) return std::nullopt;
  const bool message = (tag & 15) == static_cast<uint8_t>(BlockKind::message);
  in.sized(UINT16_MAX);
  in.take(16 + 8);
  Parts parts;
  parts.head = encoded.substr(0, encoded.size() - in.rest().size());
  if (!shortest(in, parts.first) || !shortest(in, parts.span) || !shortest(in, parts.events) ||
      !shortest(in, parts.accepted_ms))
    return std::nullopt;
  parts.tail = in.rest();
  uint64_t hops = in.varint();
  if (hops > limits::kHopsMax) return std::nullopt;
  for (; hops > 0; --hops) in.sized(kSiteMax);
  if (message || (flags & Flag::gap) != 0) in.sized(UINT16_MAX);
  if (message) {
    in.varint();
    in.sized();
  }
  if (!in.ok()) return std::nullopt;
  parts.payload = in.rest();
  parts.tail.remove_suffix(parts.payload.size());
  return parts;
}

void join(const Parts& parts, std::string& out) {
  out.append(parts.head);
  for (uint64_t number : {parts.first, parts.span, parts.events, parts.accepted_ms}) put_varint(out, number);
  out.append(parts.tail);
  out.append(parts.payload);
}

Block cut(const Block& block, uint64_t first, uint64_t last) {
  PH_ASSERT(!block.atomic() && first >= block.id.first && last <= block.id.last && first < last, "cut within a block");
  Block part = block;
  part.payload = block.payload.sub(first - block.id.first, last - first);
  part.id.first = first;
  part.id.last = last;
  part.events = count_newlines(part.payload.view());
  return part;
}

Result<std::string> with_hop(ByteView encoded, std::string_view site) {
  ByteView payload;
  PH_ASSIGN(Head head, decode_head(encoded, payload));
  if (head.block.hops.size() >= limits::kHopsMax) return fail(errors::hop_limit, std::string(site));
  std::string out;
  out.reserve(encoded.size() + site.size() + 2);
  out.append(encoded.substr(0, head.hops_at));
  put_varint(out, head.block.hops.size() + 1);
  for (const std::string& hop : head.block.hops) put_sized(out, hop);
  put_sized(out, site.substr(0, kSiteMax));
  out.append(encoded.substr(head.hops_end));
  return out;
}

std::string_view category_fault(std::string_view name) {
  if (name.empty()) return "category is empty";
  if (name.size() > limits::kCategoryMax) return "category is longer than 200 bytes";
  if (name.front() == '.') return "category begins with a dot";
  for (unsigned char c : name) {
    if (c == '/') return "category holds a slash";
    if (c < 0x20 || c == 0x7F) return "category holds a control character";
  }
  return {};
}

}  // namespace ph::event
