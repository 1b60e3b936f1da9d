// Frames of the link protocol as bytes. The header of every frame is in frames.h; here are the bodies, version 1.
// Integers are varint (LEB128) unless a width is given; fixed widths are little-endian; "sized" is a varint length,
// then bytes; "span" is varint first, varint length (> 0); "list" is a varint count, then the elements.
//
//   1 HELLO    u16 protocol_min, u16 protocol_max, 16 node, sized name, sized site, sized target, u64 incarnation,
//              u64 channel, attempt, features, i64 wall time (ms since the epoch)
//   2 REFUSE   sized reason
//   3 RESUME   list of { u64 stream, settled, far }
//   4 RESUMED  list of { u64 stream, settled, highest, list of span accepted, list of span far, list of reject };
//              then for each of these streams, in order: list of { u64 attempt, span } staged
//   5 EVENTS   u64 stream, settled, far, hold_epoch, first, length (> 0), events, u8 codec, u8 flags, u64 attempt (if
//              bit 1 of flags), sized packed
//              flags: bit 0 wants_far, bit 1 attempt; others 0, a reader ignores them
//   6 ACK      u64 stream, list of span accepted, list of span far, duplicates, list of reject, list of u64 staged
//   7 CREDIT   bytes
//   8 HOLD     u64 stream, sized reason
//   9 RELEASE  u64 stream
//  10 CLOSE    u64 stream
//  11 PING     token
//  12 PONG     token
//  13 GOODBYE  sized reason
//  14 DECIDE   u64 stream, list of u64 publish, list of u64 discard
//  20 INTEREST_ASK  list of sized category
//  21 INTEREST  u8 flags (bit 0 reset, bit 1 more), list of sized category, list of entry added, list of entry removed
//   entry      sized filter, list of sized site (at most kHopsMax)
//   reject     varint first, varint length (> 0), sized reason
//
// Bounds: a list's count is checked against the bytes that are left before anything is allocated; texts are cut to
// kReasonMax when written and refused above kTextMax when read.
#include "codec/link/frames.h"

#include <algorithm>

#include "base/coding.h"
#include "base/limits.h"

namespace ph::link {
namespace {

constexpr uint8_t kVersion = 1;
constexpr size_t kHeader = 12;
constexpr size_t kReasonMax = 1024;
constexpr size_t kTextMax = UINT16_MAX;
constexpr char kWantsFar = 1;
constexpr char kAttempt = 2;
constexpr char kReset = 1;
constexpr char kMore = 2;

enum class Type : uint8_t {
  hello = 1,
  refuse,
  resume,
  resumed,
  events,
  ack,
  credit,
  hold,
  release,
  close,
  ping,
  pong,
  goodbye,
  decide,
  need,
  interest_ask = 20,
  interest
};
constexpr const char* kNames[] = {"",     "HELLO",   "REFUSE", "RESUME", "RESUMED",      "EVENTS",  "ACK",    "CREDIT",
                                  "HOLD", "RELEASE", "CLOSE",  "PING",   "PONG",         "GOODBYE", "DECIDE", "NEED",
                                  "",     "",        "",       "",       "INTEREST_ASK", "INTEREST"};
bool is_known(uint8_t type) {
  return type < std::size(kNames) && *kNames[type];
}

// --- writing

void put_reason(std::string& out, std::string_view reason) {
  put_sized(out, reason.substr(0, kReasonMax));
}
void put_stream(std::string& out, StreamId stream) {
  put_fixed<uint64_t>(out, stream.value);
}
void put_range(std::string& out, uint64_t first, uint64_t last) {
  PH_ASSERT(first < last, "a range on the wire is never empty");
  put_varint(out, first);
  put_varint(out, last - first);
}
void put_spans(std::string& out, const std::vector<Span>& spans) {
  put_varint(out, spans.size());
  for (const Span& s : spans) put_range(out, s.first, s.last);
}
void put_rejects(std::string& out, const std::vector<Reject>& rejects) {
  put_varint(out, rejects.size());
  for (const Reject& r : rejects) {
    put_range(out, r.first, r.last);
    put_reason(out, r.reason);
  }
}

void put_attempts(std::string& out, const std::vector<uint64_t>& attempts) {
  put_varint(out, attempts.size());
  for (uint64_t a : attempts) put_fixed(out, a);
}

Type put(std::string& out, const Hello& f) {
  put_fixed(out, f.protocol_min);
  put_fixed(out, f.protocol_max);
  out.append(f.node.bytes());
  put_sized(out, std::string_view(f.name).substr(0, kReasonMax));
  put_sized(out, std::string_view(f.site).substr(0, kReasonMax));
  put_sized(out, std::string_view(f.target).substr(0, kReasonMax));
  put_fixed(out, f.incarnation);
  put_fixed(out, f.channel);
  put_varint(out, f.attempt);
  put_varint(out, f.features);
  put_fixed(out, to_unix_ms(f.wall_time));
  return Type::hello;
}
Type put(std::string& out, const Refuse& f) {
  put_reason(out, f.reason);
  return Type::refuse;
}
Type put(std::string& out, const Resume& f) {
  put_varint(out, f.streams.size());
  for (const Resume::Stream& s : f.streams) {
    put_stream(out, s.stream);
    put_varint(out, s.settled);
    put_varint(out, s.far);
  }
  return Type::resume;
}
Type put(std::string& out, const Resumed& f) {
  put_varint(out, f.streams.size());
  for (const Resumed::Stream& s : f.streams) {
    put_stream(out, s.stream);
    put_varint(out, s.settled);
    put_varint(out, s.highest);
    put_spans(out, s.accepted);
    put_spans(out, s.far);
    put_rejects(out, s.rejects);
  }
  for (const Resumed::Stream& s : f.streams) {
    put_varint(out, s.staged.size());
    for (const Resumed::Staged& staged : s.staged) {
      put_fixed(out, staged.attempt);
      put_range(out, staged.first, staged.last);
    }
  }
  return Type::resumed;
}
Type put(std::string& out, const Events& f) {
  put_stream(out, f.stream);
  put_varint(out, f.settled);
  put_varint(out, f.far);
  put_varint(out, f.hold_epoch);
  put_range(out, f.first, f.last);
  put_varint(out, f.events);
  out.push_back(static_cast<char>(f.codec));
  out.push_back(static_cast<char>((f.wants_far ? kWantsFar : 0) | (f.attempt ? kAttempt : 0)));
  if (f.attempt) put_fixed(out, f.attempt);
  put_varint(out, f.packed.size());
  return Type::events;
}
Type put(std::string& out, const Ack& f) {
  put_stream(out, f.stream);
  put_spans(out, f.accepted);
  put_spans(out, f.far);
  put_varint(out, f.duplicates);
  put_rejects(out, f.rejects);
  put_attempts(out, f.staged);
  return Type::ack;
}
Type put(std::string& out, const Credit& f) {
  put_varint(out, f.bytes);
  return Type::credit;
}
Type put(std::string& out, const Hold& f) {
  put_stream(out, f.stream);
  put_reason(out, f.reason);
  return Type::hold;
}
Type put(std::string& out, const Release& f) {
  put_stream(out, f.stream);
  return Type::release;
}
Type put(std::string& out, const CloseStream& f) {
  put_stream(out, f.stream);
  return Type::close;
}
Type put(std::string& out, const Ping& f) {
  put_varint(out, f.token);
  return Type::ping;
}
Type put(std::string& out, const Pong& f) {
  put_varint(out, f.token);
  return Type::pong;
}
Type put(std::string& out, const Goodbye& f) {
  put_reason(out, f.reason);
  return Type::goodbye;
}
Type put(std::string& out, const Decide& f) {
  put_stream(out, f.stream);
  put_attempts(out, f.publish);
  put_attempts(out, f.discard);
  return Type::decide;
}
void put_texts(std::string& out, const std::vector<std::string>& texts) {
  put_varint(out, texts.size());
  for (const std::string& text : texts) put_sized(out, text);
}
Type put(std::string& out, const Need& f) {
  put_varint(out, f.bytes);
  return Type::need;
}
Type put(std::string& out, const InterestAsk& f) {
  put_texts(out, f.categories);
  return Type::interest_ask;
}
void put_entries(std::string& out, const std::vector<Interest::Entry>& entries) {
  put_varint(out, entries.size());
  for (const Interest::Entry& e : entries) {
    put_sized(out, e.filter);
    put_texts(out, e.via);
  }
}
Type put(std::string& out, const Interest& f) {
  out.push_back(static_cast<char>((f.reset ? kReset : 0) | (f.more ? kMore : 0)));
  put_texts(out, f.categories);
  put_entries(out, f.added);
  put_entries(out, f.removed);
  return Type::interest;
}

// --- reading: get() fills a frame and clears `good` for a value out of range; the caller checks r.ok() once at the end

std::string get_text(Reader& r) {
  return std::string(r.sized(kTextMax));
}
StreamId get_stream(Reader& r) {
  return StreamId{r.fixed<uint64_t>()};
}
/// Length of a list whose elements take at least `least` bytes; 0 when it cannot be true.
uint64_t get_count(Reader& r, size_t least, bool& good) {
  uint64_t count = r.varint();
  if (count <= r.rest().size() / least) return count;
  good = false;
  return 0;
}
void get_range(Reader& r, uint64_t& first, uint64_t& last, bool& good) {
  first = r.varint();
  uint64_t length = r.varint();
  last = first + length;
  if (last <= first) good = false;
}
void get_spans(Reader& r, std::vector<Span>& spans, bool& good) {
  uint64_t count = get_count(r, 2, good);
  spans.resize(count);
  for (Span& s : spans) get_range(r, s.first, s.last, good);
}
void get_rejects(Reader& r, std::vector<Reject>& rejects, bool& good) {
  uint64_t count = get_count(r, 3, good);
  for (uint64_t i = 0; i < count && good && r.ok(); ++i) {
    Reject& reject = rejects.emplace_back();
    get_range(r, reject.first, reject.last, good);
    reject.reason = get_text(r);
  }
}

void get_attempts(Reader& r, std::vector<uint64_t>& attempts, bool& good) {
  attempts.resize(get_count(r, 8, good));
  for (uint64_t& a : attempts) a = r.fixed<uint64_t>();
}

void get(Reader& r, Hello& f, bool& good) {
  f.protocol_min = r.fixed<uint16_t>();
  f.protocol_max = r.fixed<uint16_t>();
  if (auto node = NodeId::from_bytes(r.take(16))) f.node = *node;
  f.name = get_text(r);
  f.site = get_text(r);
  f.target = get_text(r);
  f.incarnation = r.fixed<uint64_t>();
  f.channel = r.fixed<uint64_t>();
  f.attempt = r.varint();
  f.features = r.varint();
  f.wall_time = from_unix_ms(r.fixed<int64_t>());
  if (f.protocol_min > f.protocol_max) good = false;
}
void get(Reader& r, Refuse& f, bool&) {
  f.reason = get_text(r);
}
void get(Reader& r, Resume& f, bool& good) {
  uint64_t count = get_count(r, 10, good);
  f.streams.resize(count);
  for (Resume::Stream& s : f.streams) {
    s.stream = get_stream(r);
    s.settled = r.varint();
    s.far = r.varint();
  }
}
void get(Reader& r, Resumed& f, bool& good) {
  uint64_t count = get_count(r, 13, good);
  for (uint64_t i = 0; i < count && good && r.ok(); ++i) {
    Resumed::Stream& s = f.streams.emplace_back();
    s.stream = get_stream(r);
    s.settled = r.varint();
    s.highest = r.varint();
    get_spans(r, s.accepted, good);
    get_spans(r, s.far, good);
    get_rejects(r, s.rejects, good);
  }
  for (Resumed::Stream& s : f.streams) {
    if (!good || !r.ok()) return;
    s.staged.resize(get_count(r, 10, good));
    for (Resumed::Staged& staged : s.staged) {
      staged.attempt = r.fixed<uint64_t>();
      get_range(r, staged.first, staged.last, good);
    }
  }
}
void get(Reader& r, Events& f, bool& good) {
  f.stream = get_stream(r);
  f.settled = r.varint();
  f.far = r.varint();
  uint64_t epoch = r.varint();
  if (epoch > UINT32_MAX) good = false;
  f.hold_epoch = static_cast<uint32_t>(epoch);
  get_range(r, f.first, f.last, good);
  f.events = r.varint();
  f.codec = r.fixed<uint8_t>();
  const char flags = r.fixed<char>();
  f.wants_far = flags & kWantsFar;
  if (flags & kAttempt) {
    f.attempt = r.fixed<uint64_t>();
    if (f.attempt == 0) good = false;
  }
  f.packed = Slice(nullptr, r.sized());
}
void get(Reader& r, Ack& f, bool& good) {
  f.stream = get_stream(r);
  get_spans(r, f.accepted, good);
  get_spans(r, f.far, good);
  f.duplicates = r.varint();
  get_rejects(r, f.rejects, good);
  get_attempts(r, f.staged, good);
}
void get(Reader& r, Credit& f, bool&) {
  f.bytes = r.varint();
}
void get(Reader& r, Hold& f, bool&) {
  f.stream = get_stream(r);
  f.reason = get_text(r);
}
void get(Reader& r, Release& f, bool&) {
  f.stream = get_stream(r);
}
void get(Reader& r, CloseStream& f, bool&) {
  f.stream = get_stream(r);
}
void get(Reader& r, Ping& f, bool&) {
  f.token = r.varint();
}
void get(Reader& r, Pong& f, bool&) {
  f.token = r.varint();
}
void get(Reader& r, Goodbye& f, bool&) {
  f.reason = get_text(r);
}
void get(Reader& r, Decide& f, bool& good) {
  f.stream = get_stream(r);
  get_attempts(r, f.publish, good);
  get_attempts(r, f.discard, good);
}
void get_texts(Reader& r, std::vector<std::string>& texts, bool& good, size_t most = SIZE_MAX) {
  uint64_t count = get_count(r, 1, good);
  if (count > most) good = false;
  for (uint64_t i = 0; i < count && good && r.ok(); ++i) texts.push_back(get_text(r));
}
void get(Reader& r, Need& f, bool&) {
  f.bytes = r.varint();
}
void get(Reader& r, InterestAsk& f, bool& good) {
  get_texts(r, f.categories, good);
}
void get_entries(Reader& r, std::vector<Interest::Entry>& entries, bool& good) {
  uint64_t count = get_count(r, 2, good);
  for (uint64_t i = 0; i < count && good && r.ok(); ++i) {
    Interest::Entry& entry = entries.emplace_back();
    entry.filter = get_text(r);
    get_texts(r, entry.via, good, limits::kHopsMax);
  }
}
void get(Reader& r, Interest& f, bool& good) {
  const char flags = r.fixed<char>();
  f.reset = flags & kReset;
  f.more = flags & kMore;
  get_texts(r, f.categories, good);
  get_entries(r, f.added, good);
  get_entries(r, f.removed, good);
}

template <class F>
Result<Frame> parse(Type type, ByteView body) {
  Reader r(body);
  F frame;
  bool good = true;
  get(r, frame, good);
  if (!good || !r.ok()) return fail(errors::malformed, kNames[static_cast<size_t>(type)]);
  return Frame(std::move(frame));
}

Result<Frame> parse_any(Type type, ByteView body) {
  switch (type) {
    case Type::hello:
      return parse<Hello>(type, body);
    case Type::refuse:
      return parse<Refuse>(type, body);
    case Type::resume:
      return parse<Resume>(type, body);
    case Type::resumed:
      return parse<Resumed>(type, body);
    case Type::events:
      return parse<Events>(type, body);
    case Type::ack:
      return parse<Ack>(type, body);
    case Type::credit:
      return parse<Credit>(type, body);
    case Type::hold:
      return parse<Hold>(type, body);
    case Type::release:
      return parse<Release>(type, body);
    case Type::close:
      return parse<CloseStream>(type, body);
    case Type::ping:
      return parse<Ping>(type, body);
    case Type::pong:
      return parse<Pong>(type, body);
    case Type::goodbye:
      return parse<Goodbye>(type, body);
    case Type::decide:
      return parse<Decide>(type, body);
    case Type::need:
      return parse<Need>(type, body);
    case Type::interest_ask:
      return parse<InterestAsk>(type, body);
    case Type::interest:
      return parse<Interest>(type, body);
  }
  return fail(errors::malformed, "type");
}

std::string type_name(uint8_t type) {
  return is_known(type) ? kNames[type] : "type " + std::to_string(type);
}

}  // namespace

Encoded encode(const Frame& frame) {
  Encoded out;
  out.head.reserve(96);
  out.head.resize(kHeader);
  Type type = std::visit([&](const auto& f) { return put(out.head, f); }, frame);
  if (const auto* events = std::get_if<Events>(&frame)) out.body = events->packed;
  size_t length = out.size() - kHeader;
  PH_ASSERT(length <= limits::kFrameMax, "whoever makes a frame keeps it below kFrameMax");
  char* p = out.head.data();
  auto length32 = static_cast<uint32_t>(length);
  std::memcpy(p, &length32, 4);
  p[4] = static_cast<char>(kVersion);
  p[5] = static_cast<char>(type);
  p[6] = p[7] = 0;
  ByteView head = out.head;
  uint32_t crc = crc32c(out.body.view(), crc32c(head.substr(kHeader), crc32c(head.substr(4, 4))));
  std::memcpy(p + 8, &crc, 4);
  return out;
}

Result<Decoded> decode(ByteView bytes) {
  Decoded out;
  if (bytes.size() < 4) {
    out.wanted = kHeader;
    return out;
  }
  size_t length = load_fixed<uint32_t>(bytes.data());
  if (length > limits::kFrameMax) return fail(errors::frame_too_long, std::to_string(length) + " bytes");
  out.wanted = kHeader + (bytes.size() < 6 ? 0 : length);
  if (bytes.size() < 6) return out;
  out.events = static_cast<Type>(bytes[5]) == Type::events;
  auto version = static_cast<uint8_t>(bytes[4]);
  auto type = static_cast<uint8_t>(bytes[5]);
  if (version > kVersion) return fail(errors::newer_format, type_name(type) + " in format " + std::to_string(version));
  if (version == 0) return fail(errors::malformed, type_name(type) + " in format 0");
  if (bytes.size() < out.wanted) return out;
  ByteView body = bytes.substr(kHeader, length);
  if (crc32c(body, crc32c(bytes.substr(4, 4))) != load_fixed<uint32_t>(bytes.data() + 8))
    return fail(errors::bad_crc, type_name(type));
  out.consumed = out.wanted;
  out.wanted = 0;
  if (!is_known(type)) return out;
  PH_ASSIGN(Frame frame, parse_any(static_cast<Type>(type), body));
  out.frame = std::move(frame);
  return out;
}

}  // namespace ph::link
