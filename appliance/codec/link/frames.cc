// Bodies, in order; integers varint unless said otherwise, "sized" = varint length then bytes, spans = varint count,
// then each varint first, varint length (> 0):
//   1 HELLO    varint protocol min, max; 16 node; sized name, site, target; fixed u64 incarnation, channel; varint
//   attempt,
//              features, wall clock in ms
//   2 REFUSE   sized reason
//   3 RESUME   varint count, each: fixed u64 stream, varint settled
//   4 RESUMED  varint count, each: fixed u64 stream, varint settled, highest, spans accepted, spans far, rejects
//   5 EVENTS   fixed u64 stream; varint settled, hold epoch, first, length, events; u8 codec (bits 0-3), wants_far (bit
//   7);
//              rest: packed blocks
//   6 ACK      fixed u64 stream, spans accepted, spans far, varint duplicates, rejects
//   7 CREDIT   varint bytes
//   8 HOLD     fixed u64 stream, sized reason          9 RELEASE  fixed u64 stream
//  10 CLOSE    fixed u64 stream                        11 PING, 12 PONG  varint token
//  13 GOODBYE  sized reason
//   rejects = varint count, each varint first, varint length, sized reason
#include "codec/link/frames.h"

#include "base/coding.h"
#include "base/limits.h"

namespace ph::link {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr uint8_t kFormat = 1;
constexpr size_t kListMax = 1'000'000;
constexpr size_t kTextMax = 4096;
constexpr uint8_t kWantsFar = 0x80;
constexpr const char* kNames[] = {"?",      "HELLO", "REFUSE",  "RESUME", "RESUMED", "EVENTS", "ACK",
                                  "CREDIT", "HOLD",  "RELEASE", "CLOSE",  "PING",    "PONG",   "GOODBYE"};

void put_spans(std::string& out, const std::vector<Span>& spans) {
  put_varint(out, spans.size());
  // Spans need not ascend (an ACK lists them as they came), so each is written by itself.
  for (const Span& s : spans) {
    put_varint(out, s.first);
    put_varint(out, s.last - s.first);
  }
}

void put_rejects(std::string& out, const std::vector<Reject>& rejects) {
  put_varint(out, rejects.size());
  for (const Reject& r : rejects) {
    put_varint(out, r.first);
    put_varint(out, r.last - r.first);
    put_sized(out, ByteView(r.reason).substr(0, kTextMax));
  }
}

struct BodyWriter {
  std::string& out;
  void operator()(const Hello& f) const {
    put_varint(out, f.protocol_min);
    put_varint(out, f.protocol_max);
    out.append(f.node.bytes());
    for (const std::string* text : {&f.name, &f.site, &f.target}) put_sized(out, ByteView(*text).substr(0, kTextMax));
    put_fixed(out, f.incarnation);
    put_fixed(out, f.channel);
    put_varint(out, f.attempt);
    put_varint(out, f.features);
    put_varint(out, static_cast<uint64_t>(to_unix_ms(f.wall_time)));
  }
  void operator()(const Refuse& f) const { put_sized(out, ByteView(f.reason).substr(0, kTextMax)); }
  void operator()(const Resume& f) const {
    put_varint(out, f.streams.size());
    for (const auto& s : f.streams) {
      put_fixed(out, s.stream.value);
      put_varint(out, s.settled);
    }
  }
  void operator()(const Resumed& f) const {
    put_varint(out, f.streams.size());
    for (const auto& s : f.streams) {
      put_fixed(out, s.stream.value);
      put_varint(out, s.settled);
      put_varint(out, s.highest);
      put_spans(out, s.accepted);
      put_spans(out, s.far);
      put_rejects(out, s.rejects);
    }
  }
  void operator()(const Events& f) const {  // the packed blocks follow as the shared body
    put_fixed(out, f.stream.value);
    put_varint(out, f.settled);
    put_varint(out, f.hold_epoch);
    put_varint(out, f.first);
    put_varint(out, f.last - f.first);
    put_varint(out, f.events);
    out.push_back(static_cast<char>((f.codec & 0x0F) | (f.wants_far ? kWantsFar : 0)));
  }
  void operator()(const Ack& f) const {
    put_fixed(out, f.stream.value);
    put_spans(out, f.accepted);
    put_spans(out, f.far);
    put_varint(out, f.duplicates);
    put_rejects(out, f.rejects);
  }
  void operator()(const Credit& f) const { put_varint(out, f.bytes); }
  void operator()(const Hold& f) const {
    put_fixed(out, f.stream.value);
    put_sized(out, ByteView(f.reason).substr(0, kTextMax));
  }
  void operator()(const Release& f) const { put_fixed(out, f.stream.value); }
  void operator()(const CloseStream& f) const { put_fixed(out, f.stream.value); }
  void operator()(const Ping& f) const { put_varint(out, f.token); }
  void operator()(const Pong& f) const { put_varint(out, f.token); }
  void operator()(const Goodbye& f) const { put_sized(out, ByteView(f.reason).substr(0, kTextMax)); }
};

/// Reads bodies; each read leaves `ok` false when the bytes are not what the type asks for.
struct BodyReader {
  Reader in;
  bool ok = true;

  uint64_t end_of(uint64_t first, uint64_t length) {
    if (length > UINT64_MAX - first) ok = false;
    return first + length;
  }
  std::string text() { return std::string(in.sized(kTextMax)); }
  uint64_t count() {
    uint64_t n = in.varint();
    // Every element takes at least two bytes: a count that cannot be there is refused before anything is reserved.
    if (n > kListMax || n > in.rest().size()) ok = false;
    return ok ? n : 0;
  }
  std::vector<Span> spans() {
    std::vector<Span> out(count());
    for (Span& s : out) {
      s.first = in.varint();
      s.last = end_of(s.first, in.varint());
      if (!in.ok() || s.first == s.last) ok = false;
      if (!ok) return {};
    }
    return out;
  }
  std::vector<Reject> rejects() {
    std::vector<Reject> out(count());
    for (Reject& r : out) {
      r.first = in.varint();
      r.last = end_of(r.first, in.varint());
      r.reason = text();
      if (!in.ok() || r.first == r.last) ok = false;
      if (!ok) return {};
    }
    return out;
  }
  StreamId stream() { return StreamId{in.fixed<uint64_t>()}; }

  Frame hello() {
    Hello f;
    f.protocol_min = static_cast<uint16_t>(in.varint());
    f.protocol_max = static_cast<uint16_t>(in.varint());
    if (auto node = NodeId::from_bytes(in.take(16))) f.node = *node;
    f.name = text();
    f.site = text();
    f.target = text();
    f.incarnation = in.fixed<uint64_t>();
    f.channel = in.fixed<uint64_t>();
    f.attempt = in.varint();
    f.features = in.varint();
    f.wall_time = from_unix_ms(static_cast<int64_t>(in.varint()));
    return f;
  }
  Frame resume() {
    Resume f;
    f.streams.resize(count());
    for (auto& s : f.streams) {
      s.stream = stream();
      s.settled = in.varint();
      if (!in.ok()) break;
    }
    return f;
  }
  Frame resumed() {
    Resumed f;
    f.streams.resize(count());
    for (auto& s : f.streams) {
      s.stream = stream();
      s.settled = in.varint();
      s.highest = in.varint();
      s.accepted = spans();
      s.far = spans();
      s.rejects = rejects();
      if (!in.ok() || !ok) break;
    }
    return f;
  }
  Frame events() {
    Events f;
    f.stream = stream();
    f.settled = in.varint();
    f.hold_epoch = static_cast<uint32_t>(in.varint());
    f.first = in.varint();
    f.last = end_of(f.first, in.varint());
    f.events = in.varint();
    auto bits = in.fixed<uint8_t>();
    f.codec = bits & 0x0F;
    f.wants_far = bits & kWantsFar;
    if (f.first == f.last) ok = false;
    f.packed = Slice(nullptr, in.rest());
    return f;
  }
  Frame ack() {
    Ack f;
    f.stream = stream();
    f.accepted = spans();
    f.far = spans();
    f.duplicates = in.varint();
    f.rejects = rejects();
    return f;
  }
  std::optional<Frame> read(uint8_t type) {
    switch (type) {
      case 1:
        return hello();
      case 2:
        return Refuse{text()};
      case 3:
        return resume();
      case 4:
        return resumed();
      case 5:
        return events();
      case 6:
        return ack();
      case 7:
        return Credit{in.varint()};
      case 8: {
        StreamId s = stream();
        return Hold{s, text()};
      }
      case 9:
        return Release{stream()};
      case 10:
        return CloseStream{stream()};
      case 11:
        return Ping{in.varint()};
      case 12:
        return Pong{in.varint()};
      case 13:
        return Goodbye{text()};
      default:
        return std::nullopt;
    }
  }
};

}  // namespace

Encoded encode(const Frame& frame) {
  Encoded out;
  out.head.assign(kHeaderBytes, '\0');
  std::visit(BodyWriter{out.head}, frame);
  if (const auto* events = std::get_if<Events>(&frame)) out.body = events->packed;
  size_t body = out.head.size() - kHeaderBytes + out.body.size();
  PH_ASSERT(body <= limits::kFrameMax, "a sender keeps its frames below the limit");
  char* p = out.head.data();
  auto length = static_cast<uint32_t>(body);
  std::memcpy(p, &length, 4);
  p[4] = static_cast<char>(kFormat);
  p[5] = static_cast<char>(frame.index() + 1);
  ByteView head(out.head);
  uint32_t crc = crc32c(out.body.view(), crc32c(head.substr(kHeaderBytes), crc32c(head.substr(4, 4))));
  std::memcpy(p + 8, &crc, 4);
  return out;
}

Result<Decoded> decode(ByteView bytes) {
  Decoded out;
  if (bytes.size() < kHeaderBytes) {
    out.wanted = kHeaderBytes;
    return out;
  }
  auto length = load_fixed<uint32_t>(bytes.data());
  auto format = static_cast<uint8_t>(bytes[4]);
  auto type = static_cast<uint8_t>(bytes[5]);
  const char* name = type < std::size(kNames) ? kNames[type] : kNames[0];
  if (format != kFormat) {
    if (format > kFormat && format < 32) return fail(errors::newer_format, "frame format " + std::to_string(format));
    return fail(errors::malformed, "these are not frames of the link protocol");
  }
  if (length > limits::kFrameMax)
    return fail(errors::frame_too_long, std::string(name) + " of " + std::to_string(length) + " bytes");
  if (bytes.size() < kHeaderBytes + length) {
    out.wanted = kHeaderBytes + length;
    return out;
  }
  ByteView body = bytes.substr(kHeaderBytes, length);
  if (crc32c(body, crc32c(bytes.substr(4, 4))) != load_fixed<uint32_t>(bytes.data() + 8))
    return fail(errors::bad_crc, name);
  out.consumed = kHeaderBytes + length;
  BodyReader reader{Reader(body)};
  auto frame = reader.read(type);
  if (!frame) return out;  // unknown type: skipped
  if (!reader.ok || !reader.in.ok()) return fail(errors::malformed, name);
  out.frame = std::move(*frame);
  return out;
}

}  // namespace ph::link
