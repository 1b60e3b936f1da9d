#include "core/agent/records.h"

#include <utility>

namespace ph::agent {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kGenerationVersion = 2;
constexpr uint8_t kCursorVersion = 2;
constexpr uint64_t kPastMax = 4096;
constexpr uint8_t kEnded = 1;
constexpr uint8_t kTruncated = 1;
constexpr uint8_t kCopy = 2;
constexpr uint64_t kReceiversMax = 4096;

std::string id_key(std::string_view prefix, StreamId id) {
  std::string key(prefix);
  put_key(key, id.value);
  return key;
}

Result<uint8_t> check_version(Reader& in, std::string_view what, uint8_t newest = kVersion) {
  auto version = in.fixed<uint8_t>();
  if (in.ok() && version > newest) return fail(errors::newer_version, std::string(what));
  if (!in.ok() || version == 0) return fail(errors::malformed, std::string(what));
  return version;
}

Result<> check_end(const Reader& in, std::string_view what) {
  if (in.ok() && in.at_end()) return {};
  return fail(errors::malformed, std::string(what));
}

void put_names(std::string& out, const std::vector<std::string>& names) {
  put_varint(out, names.size());
  for (const std::string& name : names) put_sized(out, name);
}

bool take_names(Reader& in, std::vector<std::string>& names) {
  uint64_t count = in.varint();
  if (!in.ok() || count > kReceiversMax) return false;
  for (; count > 0 && in.ok(); --count) names.emplace_back(in.sized());
  return in.ok();
}

}  // namespace

std::string generation_key(StreamId id) {
  return id_key(kGenerationPrefix, id);
}
std::string cursor_key(StreamId id, std::string_view target) {
  return id_key(kCursorPrefix, id).append(target);
}
std::string counter_key(std::string_view route, std::string_view target) {
  return std::string("c/a/").append(route).append("/").append(target);
}

std::optional<CursorName> decode_cursor_key(ByteView key) {
  if (!key.starts_with(kCursorPrefix) || key.size() < kCursorPrefix.size() + 8) return std::nullopt;
  key.remove_prefix(kCursorPrefix.size());
  return CursorName{StreamId{load_key(key.data())}, std::string(key.substr(8))};
}

std::string encode(const GenerationRecord& r) {
  std::string out;
  put_fixed<uint8_t>(out, kGenerationVersion);
  put_fixed<uint8_t>(out, static_cast<uint8_t>(r.state));
  put_fixed<uint64_t>(out, r.identity.device);
  put_fixed<uint64_t>(out, r.identity.inode);
  put_fixed<int64_t>(out, r.identity.birth_ns);
  put_fixed<uint64_t>(out, r.boot);
  put_varint(out, r.order);
  put_varint(out, r.size);
  r.prefix.encode(out);
  put_sized(out, r.lane);
  put_sized(out, r.category);
  put_sized(out, r.directory);
  put_sized(out, r.name);
  put_fixed<uint8_t>(out, static_cast<uint8_t>((r.truncated ? kTruncated : 0) | (r.copy ? kCopy : 0)));
  return out;
}

Result<GenerationRecord> decode_generation(ByteView key, ByteView value) {
  constexpr std::string_view kWhat = "generation record";
  if (!key.starts_with(kGenerationPrefix) || key.size() != kGenerationPrefix.size() + 8)
    return fail(errors::malformed, std::string(kWhat));
  GenerationRecord r;
  r.id = StreamId{load_key(key.data() + kGenerationPrefix.size())};
  Reader in(value);
  PH_ASSIGN(uint8_t version, check_version(in, kWhat, kGenerationVersion));
  auto state = in.fixed<uint8_t>();
  if (state > static_cast<uint8_t>(GenerationState::ended)) return fail(errors::malformed, std::string(kWhat));
  r.state = static_cast<GenerationState>(state);
  r.identity.device = in.fixed<uint64_t>();
  r.identity.inode = in.fixed<uint64_t>();
  r.identity.birth_ns = in.fixed<int64_t>();
  r.boot = in.fixed<uint64_t>();
  r.order = in.varint();
  r.size = in.varint();
  r.prefix = Prefix::decode(in);
  r.lane = in.sized();
  r.category = in.sized();
  r.directory = in.sized();
  r.name = in.sized();
  uint8_t flags = version == 1 ? 0 : in.fixed<uint8_t>();
  if (flags > (kTruncated | kCopy)) return fail(errors::malformed, std::string(kWhat));
  r.truncated = (flags & kTruncated) != 0;
  r.copy = (flags & kCopy) != 0;
  PH_TRY(check_end(in, kWhat));
  return r;
}

std::string encode(const CursorRecord& r) {
  std::string out;
  put_fixed<uint8_t>(out, kCursorVersion);
  put_fixed<uint64_t>(out, r.stream.value);
  put_varint(out, r.settled);
  put_varint(out, r.far);
  put_varint(out, r.read - r.settled);
  put_fixed<uint8_t>(out, r.end ? kEnded : 0);
  if (r.end) put_varint(out, *r.end - r.settled);
  put_varint(out, r.window.end);
  put_varint(out, r.window.length);
  put_fixed<uint64_t>(out, r.window.hash);
  put_names(out, r.receivers);
  put_varint(out, r.reserved);
  put_varint(out, r.past.size());
  for (const PastStream& p : r.past) {
    put_fixed<uint64_t>(out, p.stream.value);
    put_varint(out, p.until);
    put_names(out, p.receivers);
  }
  return out;
}

Result<CursorRecord> decode_cursor(ByteView value) {
  constexpr std::string_view kWhat = "cursor record";
  Reader in(value);
  PH_ASSIGN(uint8_t version, check_version(in, kWhat, kCursorVersion));
  CursorRecord r;
  r.stream = StreamId{in.fixed<uint64_t>()};
  r.settled = in.varint();
  r.far = in.varint();
  r.read = r.settled + in.varint();
  auto flags = in.fixed<uint8_t>();
  if (flags & kEnded) r.end = r.settled + in.varint();
  r.window.end = in.varint();
  uint64_t length = in.varint();
  r.window.length = static_cast<uint32_t>(length);
  r.window.hash = in.fixed<uint64_t>();
  bool names = take_names(in, r.receivers);
  if (!names || flags > kEnded || r.read < r.settled || (r.end && *r.end < r.settled) || length > kWindowMax ||
      length > r.window.end)
    return fail(errors::malformed, std::string(kWhat));
  r.reserved = version == 1 ? UINT64_MAX : in.varint();
  uint64_t past = version == 1 ? 0 : in.varint();
  if (past > kPastMax) return fail(errors::malformed, std::string(kWhat));
  for (uint64_t before = 0; past > 0 && in.ok(); --past) {
    PastStream& p = r.past.emplace_back();
    p.stream = StreamId{in.fixed<uint64_t>()};
    p.until = in.varint();
    if (!take_names(in, p.receivers) || p.until <= before) return fail(errors::malformed, std::string(kWhat));
    before = p.until;
  }
  PH_TRY(check_end(in, kWhat));
  return r;
}

std::string encode(const CounterRecord& r) {
  std::string out;
  put_fixed<uint8_t>(out, kVersion);
  for (uint64_t value : {r.delivered, r.duplicate, r.maybe_duplicate, r.dropped, r.dropped_bytes, r.dead_lettered})
    put_varint(out, value);
  return out;
}

Result<CounterRecord> decode_counters(ByteView value) {
  constexpr std::string_view kWhat = "counter record";
  Reader in(value);
  PH_TRY(check_version(in, kWhat));
  CounterRecord r;
  for (uint64_t* field :
       {&r.delivered, &r.duplicate, &r.maybe_duplicate, &r.dropped, &r.dropped_bytes, &r.dead_lettered})
    *field = in.varint();
  PH_TRY(check_end(in, kWhat));
  return r;
}

}  // namespace ph::agent
