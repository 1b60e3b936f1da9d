#include "core/session/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ph::session {
namespace {

const Clock kClock{Instant(std::chrono::hours(5)), from_unix_ms(1'790'000'000'000)};

SessionRecord a_session() {
  SessionRecord r;
  r.client_id = "client/1";
  r.expiry = 3600;
  r.detached_at = kClock.now - 90s;
  r.next_sequence = 70'000;
  r.queued = 12;
  r.queued_bytes = 3456;
  r.maybe_sent = 3;
  r.owner = "user\nmount/";
  return r;
}

Message a_message() {
  Message m;
  m.topic = "a/b";
  m.properties = std::string("\x26\0\1k\0\1v", 7);
  m.payload = Slice(std::string("payload"));
  m.qos = 2;
  m.retain = true;
  m.expiry = 60;
  m.received = kClock.now - 10s;
  return m;
}

/// Every value that the broker writes, by how it is read.
struct Case {
  std::string name;
  std::string bytes;
  std::function<std::string(ByteView)> again;  // decoded and encoded; "-" where it is refused
};

std::vector<Case> cases() {
  auto via = [](auto decode, auto encode_again) {
    return [=](ByteView v) {
      auto r = decode(v);
      return r ? encode_again(*r) : std::string("-");
    };
  };
  auto entry = [](const EntryRecord& e) {
    return encode_entry(e.qos, e.retain, e.released, e.packet_id, e.number, e.subscription_ids);
  };
  const std::vector<uint32_t> ids{1, 300, 268'435'455};
  Subscription s;
  s.qos = 2;
  s.no_local = true;
  s.retain_as_published = true;
  s.id = 77;
  const SessionWill will{std::make_shared<Message>(a_message()), 30};
  return {
      {"session", encode(a_session(), kClock),
       via([](ByteView v) { return decode_session(v, kClock); }, [](const auto& r) { return encode(r, kClock); })},
      {"subscription", encode(s), via(decode_subscription, [](const auto& r) { return encode(r); })},
      {"entry", encode_entry(1, true, false, 7, 1 << 20, ids), via(decode_entry, entry)},
      {"released", encode_entry(2, false, true, 0, 0, {}), via(decode_entry, entry)},
      {"will", encode(will, kClock),
       via([](ByteView v) { return decode_will(v, kClock); }, [](const auto& r) { return encode(r, kClock); })},
      {"message", encode(a_message(), kClock),
       [](ByteView v) {
         const auto m = decode_message(v, kClock);
         return m ? encode(*m, kClock) : std::string("-");
       }},
      {"retained", encode_retained(99, a_message(), kClock),
       via([](ByteView v) { return decode_retained(v, kClock); },
           [](const auto& r) { return encode_retained(r.version, *r.message, kClock); })},
      {"delayed", encode(DelayedRecord{true, kClock.now + 70s, 90, {}}, kClock),
       via([](ByteView v) { return decode_delayed(v, kClock); }, [](const auto& r) { return encode(r, kClock); })},
      {"delayed_of", encode(DelayedRecord{false, kClock.now + 70s, 90, {"c", "u\nm/", "10.0.0.1:7"}}, kClock),
       via([](ByteView v) { return decode_delayed(v, kClock); }, [](const auto& r) { return encode(r, kClock); })},
      {"number", encode_number(1ULL << 40), via(decode_number, encode_number)},
  };
}

TEST(SessionRecords, survive_a_round_trip) {
  for (const Case& c : cases()) EXPECT_EQ(c.again(c.bytes), c.bytes) << c.name;
}

/// A payload has no length of its own: what ends within it is a shorter message. LevelDB's checksums are for that.
TEST(SessionRecords, cut_ones_are_refused) {
  for (const Case& c : cases()) {
    const bool payload = c.name == "message" || c.name == "will" || c.name == "retained";
    const size_t end = c.bytes.size() - (payload ? std::string("payload").size() : 0);
    for (size_t n = 0; n < end; ++n) EXPECT_EQ(c.again(c.bytes.substr(0, n)), "-") << c.name << " cut to " << n;
    if (!payload) {
      EXPECT_EQ(c.again(c.bytes + "x"), "-") << c.name;
    }
  }
}

TEST(SessionRecords, zeros_and_flipped_bits_do_no_harm) {
  for (const Case& c : cases()) {
    (void)c.again(std::string(c.bytes.size(), '\0'));
    for (size_t bit = 0; bit < c.bytes.size() * 8; ++bit) {
      std::string flipped = c.bytes;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
      const std::string again = c.again(flipped);
      if (again != "-") {
        EXPECT_EQ(c.again(again), again) << c.name << " bit " << bit;
      }
    }
  }
}

TEST(SessionRecords, a_newer_session_record_is_refused) {
  std::string bytes = encode(a_session(), kClock);
  bytes[0] = 3;
  EXPECT_FALSE(decode_session(bytes, kClock).has_value());
}

// The node was down for an hour, and its clock and uptime began anew.
TEST(SessionRecords, time_goes_on_while_nothing_runs) {
  const std::string bytes = encode(a_session(), kClock);
  const Clock later{Instant(5s), kClock.wall + std::chrono::hours(1)};
  EXPECT_EQ(decode_session(bytes, later)->detached_at, later.now - std::chrono::hours(1) - 90s);
  // A clock of 1970 makes nothing expire.
  const Clock reset{Instant(5s), from_unix_ms(1000)};
  EXPECT_EQ(decode_session(bytes, reset)->detached_at, reset.now);
}

// Due ones come at once, others when it was said; never later than they were put off for, whatever the clock says.
TEST(SessionRecords, a_message_for_later_comes_in_its_time) {
  const std::string bytes = encode(DelayedRecord{false, kClock.now + 70s, 90, {}}, kClock);
  const auto due = [&](Clock clock) { return decode_delayed(bytes, clock)->due - clock.now; };
  EXPECT_EQ(due({Instant(5s), kClock.wall + 30s}), 40s);
  EXPECT_EQ(due({Instant(5s), kClock.wall + 100s}), -30s);
  EXPECT_EQ(due({Instant(5s), from_unix_ms(1000)}), 90s);
  std::string newer = bytes;
  newer[0] = 2;
  EXPECT_FALSE(decode_delayed(newer, kClock).has_value());
}

TEST(SessionRecords, an_attached_session_says_so) {
  SessionRecord r = a_session();
  r.detached_at.reset();
  EXPECT_FALSE(decode_session(encode(r, kClock), kClock)->detached_at.has_value());
}

TEST(SessionRecords, keys_are_in_the_order_of_their_numbers) {
  EXPECT_LT(keys::of(keys::kEntry, 1, 255), keys::of(keys::kEntry, 1, 256));
  EXPECT_LT(keys::of(keys::kEntry, 1, ~uint64_t{0}), keys::of(keys::kEntry, 2, uint64_t{0}));
  EXPECT_EQ(keys::second_in(keys::of(keys::kEntry, 3, 4), keys::kEntry), 4U);
  EXPECT_EQ(keys::number_in(keys::inbound(3, 4), keys::kInbound), 3U);
  EXPECT_EQ(keys::number_in("m/q/short", keys::kEntry), std::nullopt);
}

}  // namespace
}  // namespace ph::session
