// Any bytes as the broker's stored records: decoded within their bounds or refused, and what was decoded encodes to
// something that decodes to the same.
#include "base/result.h"
#include "core/session/records.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph::session;
  const ph::ByteView bytes(reinterpret_cast<const char*>(data), size);
  const Clock clock{ph::Instant(std::chrono::hours(1)), ph::from_unix_ms(1'790'000'000'000)};
  auto same = [](const std::string& once, const std::string& twice) {
    PH_ASSERT(once == twice, "a record survives a round trip");
  };
  if (auto r = decode_session(bytes, clock)) {
    const std::string once = encode(*r, clock);
    same(once, encode(*decode_session(once, clock), clock));
  }
  if (auto r = decode_subscription(bytes)) {
    const std::string once = encode(*r);
    same(once, encode(*decode_subscription(once)));
  }
  if (auto r = decode_entry(bytes)) {
    auto again = [](const EntryRecord& e) {
      return encode_entry(e.qos, e.retain, e.released, e.packet_id, e.number, e.subscription_ids);
    };
    const std::string once = again(*r);
    same(once, again(*decode_entry(once)));
  }
  if (auto r = decode_message(bytes, clock)) {
    const std::string once = encode(*r, clock);
    same(once, encode(*decode_message(once, clock), clock));
  }
  if (auto r = decode_will(bytes, clock)) {
    const std::string once = encode(*r, clock);
    same(once, encode(*decode_will(once, clock), clock));
  }
  if (auto r = decode_retained(bytes, clock)) {
    const std::string once = encode_retained(r->version, *r->message, clock);
    auto twice = decode_retained(once, clock);
    same(once, encode_retained(twice->version, *twice->message, clock));
  }
  if (auto r = decode_delayed(bytes, clock)) {
    const std::string once = encode(*r, clock);
    same(once, encode(*decode_delayed(once, clock), clock));
  }
  (void)decode_number(bytes);
  return 0;
}
