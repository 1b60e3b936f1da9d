#include "core/session/records.h"

#include <algorithm>

#include "base/coding.h"
#include "base/limits.h"

namespace ph::session {
namespace {

constexpr uint64_t kSessionVersion = 2;
constexpr size_t kTextMax = 65'535;             // of a topic, a client id: MQTT's own bound
constexpr size_t kPropertiesMax = 256UL << 20;  // of a packet
constexpr uint8_t kQosMask = 3;

/// Flags whose QoS is one: 0, 1 or 2.
bool qos_fits(uint8_t flags, uint8_t known) {
  return (flags & ~known) == 0 && (flags & kQosMask) < 3;
}

template <class T>
bool fits(uint64_t value) {
  return value <= std::numeric_limits<T>::max();
}

}  // namespace

namespace keys {

std::string of(ByteView prefix, uint64_t number) {
  std::string out(prefix);
  put_key(out, number);
  return out;
}

std::string of(ByteView prefix, uint64_t number, uint64_t second) {
  std::string out = of(prefix, number);
  put_key(out, second);
  return out;
}

std::string of(ByteView prefix, uint64_t number, ByteView rest) {
  std::string out = of(prefix, number);
  out.append(rest);
  return out;
}

namespace {
std::string of_packet(ByteView prefix, uint64_t uid, uint16_t packet_id) {
  std::string out = of(prefix, uid);
  out.push_back(static_cast<char>(packet_id >> 8));
  out.push_back(static_cast<char>(packet_id));
  return out;
}
}  // namespace

std::string inbound(uint64_t uid, uint16_t packet_id) {
  return of_packet(kInbound, uid, packet_id);
}

std::string far(uint64_t uid, uint16_t packet_id) {
  return of_packet(kFar, uid, packet_id);
}

std::string got(const Origin& origin) {
  std::string out = of(kGot, origin.stream, origin.position);
  put_key(out, origin.part);
  return out;
}

std::optional<uint64_t> number_in(ByteView key, ByteView prefix) {
  if (key.size() < prefix.size() + 8) return std::nullopt;
  return load_key(key.data() + prefix.size());
}

std::optional<uint64_t> second_in(ByteView key, ByteView prefix) {
  if (key.size() != prefix.size() + 16) return std::nullopt;
  return load_key(key.data() + prefix.size() + 8);
}

}  // namespace keys

int64_t Clock::to_ms(Instant t) const {
  return to_unix_ms(wall) - std::chrono::duration_cast<std::chrono::milliseconds>(now - t).count();
}

Instant Clock::from_ms(int64_t ms) const {
  // A century bounds what a damaged or foreign clock can do to arithmetic in nanoseconds.
  constexpr int64_t kAgeMax = int64_t{100} * 366 * 86'400'000;
  const int64_t wall_ms = to_unix_ms(wall);
  const int64_t age = wall_ms - std::clamp(ms, wall_ms - kAgeMax, wall_ms);
  return now - std::chrono::milliseconds(age);
}

std::string encode(const SessionRecord& record, const Clock& clock) {
  std::string out;
  put_varint(out, kSessionVersion);
  put_sized(out, record.client_id);
  put_varint(out, record.expiry);
  // 0 says attached; the one millisecond of 1970 that this takes is nobody's.
  put_fixed<int64_t>(out, record.detached_at ? std::max<int64_t>(1, clock.to_ms(*record.detached_at)) : 0);
  put_varint(out, record.next_sequence);
  put_varint(out, record.queued);
  put_varint(out, record.queued_bytes);
  put_varint(out, record.maybe_sent);
  put_sized(out, record.owner);
  return out;
}

std::optional<SessionRecord> decode_session(ByteView value, const Clock& clock) {
  Reader in(value);
  SessionRecord out;
  const uint64_t version = in.varint();
  out.client_id = in.sized(kTextMax);
  const uint64_t expiry = in.varint();
  const auto detached = in.fixed<int64_t>();
  out.next_sequence = in.varint();
  out.queued = in.varint();
  out.queued_bytes = in.varint();
  out.maybe_sent = in.varint();
  out.owner = in.sized(kTextMax);
  if (!in.ok() || !in.at_end() || version != kSessionVersion || !fits<uint32_t>(expiry) || detached < 0)
    return std::nullopt;
  out.expiry = static_cast<uint32_t>(expiry);
  if (detached != 0) out.detached_at = clock.from_ms(detached);
  return out;
}

std::string encode(const Subscription& s) {
  std::string out;
  out.push_back(static_cast<char>(s.qos | (s.no_local ? 4 : 0) | (s.retain_as_published ? 8 : 0)));
  put_varint(out, s.id);
  return out;
}

std::optional<Subscription> decode_subscription(ByteView value) {
  Reader in(value);
  const auto flags = in.fixed<uint8_t>();
  const uint64_t id = in.varint();
  if (!in.ok() || !in.at_end() || !qos_fits(flags, 15) || !fits<uint32_t>(id)) return std::nullopt;
  Subscription out;
  out.qos = flags & kQosMask;
  out.no_local = (flags & 4) != 0;
  out.retain_as_published = (flags & 8) != 0;
  out.id = static_cast<uint32_t>(id);
  return out;
}

std::string encode_entry(uint8_t qos, bool retain, bool released, uint16_t packet_id, uint64_t number,
                         std::span<const uint32_t> subscription_ids, ByteView shared) {
  std::string out;
  out.push_back(static_cast<char>(qos | (retain ? 4 : 0) | (released ? 8 : 0) | (shared.empty() ? 0 : 16)));
  put_varint(out, packet_id);
  put_varint(out, number);
  put_varint(out, subscription_ids.size());
  for (uint32_t id : subscription_ids) put_varint(out, id);
  if (!shared.empty()) put_sized(out, shared);
  return out;
}

std::optional<EntryRecord> decode_entry(ByteView value) {
  Reader in(value);
  EntryRecord out;
  const auto flags = in.fixed<uint8_t>();
  const uint64_t packet_id = in.varint();
  out.number = in.varint();
  const uint64_t count = in.varint();
  // An identifier takes a byte at least, so the count is bounded by what is there.
  if (!in.ok() || !qos_fits(flags, 31) || !fits<uint16_t>(packet_id) || count > in.rest().size()) return std::nullopt;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t id = in.varint();
    if (!fits<uint32_t>(id)) return std::nullopt;
    out.subscription_ids.push_back(static_cast<uint32_t>(id));
  }
  if (flags & 16) out.shared = in.sized();
  if (!in.ok() || !in.at_end() || out.shared.empty() != !(flags & 16)) return std::nullopt;
  out.qos = flags & kQosMask;
  out.retain = (flags & 4) != 0;
  out.released = (flags & 8) != 0;
  out.packet_id = static_cast<uint16_t>(packet_id);
  return out;
}

namespace {

void put_message(std::string& out, const Message& m, const Clock& clock) {
  out.reserve(out.size() + m.bytes() + 40);
  out.push_back(static_cast<char>(m.qos | (m.retain ? 4 : 0) | (m.expiry ? 8 : 0)));
  put_fixed<int64_t>(out, clock.to_ms(m.received));
  if (m.expiry) put_varint(out, *m.expiry);
  put_sized(out, m.topic);
  put_sized(out, m.properties);
  out.append(m.payload.view());
}

std::shared_ptr<Message> get_message(Reader& in, const Clock& clock) {
  auto out = std::make_shared<Message>();
  const auto flags = in.fixed<uint8_t>();
  const auto received = in.fixed<int64_t>();
  const uint64_t expiry = (flags & 8) != 0 ? in.varint() : 0;
  out->topic = in.sized(kTextMax);
  out->properties = in.sized(kPropertiesMax);
  if (!in.ok() || !qos_fits(flags, 15) || !fits<uint32_t>(expiry) || out->topic.empty()) return nullptr;
  out->qos = flags & kQosMask;
  out->retain = (flags & 4) != 0;
  if ((flags & 8) != 0) out->expiry = static_cast<uint32_t>(expiry);
  out->received = clock.from_ms(received);
  if (!in.rest().empty()) out->payload = Slice(std::string(in.rest()));
  return out;
}

}  // namespace

std::string encode(const Message& message, const Clock& clock) {
  std::string out;
  put_message(out, message, clock);
  return out;
}

std::shared_ptr<Message> decode_message(ByteView value, const Clock& clock) {
  Reader in(value);
  return get_message(in, clock);
}

std::string encode(const SessionWill& will, const Clock& clock) {
  std::string out;
  put_varint(out, will.delay);
  put_message(out, *will.message, clock);
  return out;
}

std::optional<SessionWill> decode_will(ByteView value, const Clock& clock) {
  Reader in(value);
  const uint64_t delay = in.varint();
  auto message = get_message(in, clock);
  if (!message || !fits<uint32_t>(delay)) return std::nullopt;
  return SessionWill{std::move(message), static_cast<uint32_t>(delay)};
}

std::string encode_retained(uint64_t version, const Message& message, const Clock& clock) {
  std::string out;
  put_varint(out, version);
  put_message(out, message, clock);
  return out;
}

std::optional<RetainedRecord> decode_retained(ByteView value, const Clock& clock) {
  Reader in(value);
  RetainedRecord out;
  out.version = in.varint();
  out.message = get_message(in, clock);
  if (!out.message) return std::nullopt;
  return out;
}

namespace {

constexpr uint8_t kTapped = 1, kPublisherKnown = 2;  // flags of a message for later

}  // namespace

std::string encode(const DelayedRecord& record, const Clock& clock) {
  std::string out;
  const Publisher& from = record.publisher;
  const bool known = !from.client_id.empty();
  out.push_back(static_cast<char>((record.tapped ? kTapped : 0) | (known ? kPublisherKnown : 0)));
  put_fixed<int64_t>(out, clock.to_ms(record.due));
  put_varint(out, record.seconds);
  if (!known) return out;
  put_sized(out, from.client_id);
  put_sized(out, from.owner);
  put_sized(out, from.address);
  return out;
}

std::optional<DelayedRecord> decode_delayed(ByteView value, const Clock& clock) {
  Reader in(value);
  DelayedRecord out;
  const auto flags = in.fixed<uint8_t>();
  const auto due = in.fixed<int64_t>();
  const uint64_t seconds = in.varint();
  const bool known = (flags & kPublisherKnown) != 0;
  if (known) {
    out.publisher.client_id = in.sized(kTextMax);
    out.publisher.owner = in.sized(kTextMax);
    out.publisher.address = in.sized(kTextMax);
  }
  if (!in.ok() || !in.at_end() || flags > (kTapped | kPublisherKnown) || due < 0 || !fits<uint32_t>(seconds) ||
      known == out.publisher.client_id.empty())
    return std::nullopt;
  out.tapped = (flags & kTapped) != 0;
  out.seconds = static_cast<uint32_t>(seconds);
  const int64_t left = due - to_unix_ms(clock.wall);
  const int64_t most = int64_t{out.seconds} * 1000;
  out.due = left > 0 ? clock.now + std::chrono::milliseconds(std::min(left, most)) : clock.from_ms(due);
  return out;
}

std::string encode_number(uint64_t number) {
  std::string out;
  put_varint(out, number);
  return out;
}

std::optional<uint64_t> decode_number(ByteView value) {
  Reader in(value);
  const uint64_t number = in.varint();
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return number;
}

}  // namespace ph::session
