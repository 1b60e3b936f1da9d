// Records: what the broker keeps of its sessions on disk, byte by byte. Pure: keys and values only; who writes them and
// when is service/broker's (docs/durability.md there).
//
// Keys begin with "m/" and a letter. u64 and u16 in keys are big-endian, so that byte order is number order. A session
// is known by its uid (never used twice), a message by its number (likewise), whatever worker has them.
//
//   m/v                      format version of all of this: one byte, kFormat. A greater one is not opened.
//   m/n                      fixed u64: uids and message numbers below it may have been used
//   m/s/ uid                 session: varint version 2, sized client id, varint expiry, fixed i64 detached at (ms since
//                            1970; 0: attached), varint next sequence, varint queued messages, varint queued bytes,
//                            varint how many of the queue's first may have been sent before, sized owner
//   m/u/ uid filter          subscription: byte flags (0-1 QoS, 2 no local, 3 retain as published), varint identifier
//   m/q/ uid sequence        queue entry, in flight or waiting: byte flags (0-1 QoS, 2 retain, 3 released, 4 shared),
//                            varint packet id (0: it follows from the sequence), varint message number, varint n, n
//                            varint subscription identifiers, sized filter of the shared subscription (only if shared)
//   m/i/ uid packet id(u16)  inbound QoS 2 message that awaits PUBREL: varint number of the message that still has to
//                            be routed; 0: it was
//   m/w/ uid                 will: varint delay in seconds, message
//   m/e/ uid                 an ended session whose shared messages are still being handed on: as m/s/, which it
//                            replaces
//   m/x/ uid                 an ended session whose records are being erased: empty
//   m/d/ number              message for later: byte flags (0 the tap has it, 1 its publisher follows), fixed i64 due
//                            (ms since 1970), varint seconds that it was put off for; of the publisher sized client
//                            id, sized owner (as a session's), sized address
//   m/m/ number              message: byte flags (0-1 QoS, 2 retain, 3 expires), fixed i64 received (ms since 1970; of
//                            one for later: due), varint expiry in seconds (only if it expires), sized topic, sized
//                            properties, the rest is the payload
//   m/c/ number              varint: how many entries name the message; missing: one
//   m/h/ number uid [filter] the session has got the message that m/i/ or m/d/ still names, by the shared subscription
//                            or, without, its own: empty
//   m/k/ stream position part uid [filter]   the session has got that event, as for m/h/; goes with the commit that
//   moves
//                            the cursor of the event's source past it: empty
//   m/f/ uid packet id(u16)  what the message that m/i/ names waits for at far ends, in the tap's own words
//   m/r/ topic               retained: varint version, message
//
// A value with bytes left over or missing is undecodable: it costs that record, counted by who reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "core/session/message.h"
#include "core/session/session.h"

namespace ph::session {

inline constexpr uint8_t kFormat = 1;

namespace keys {
inline constexpr ByteView kFormat = "m/v";
inline constexpr ByteView kNumbers = "m/n";
inline constexpr ByteView kSession = "m/s/";
inline constexpr ByteView kSubscription = "m/u/";
inline constexpr ByteView kEntry = "m/q/";
inline constexpr ByteView kInbound = "m/i/";
inline constexpr ByteView kWill = "m/w/";
inline constexpr ByteView kEnding = "m/e/";
inline constexpr ByteView kErasing = "m/x/";
inline constexpr ByteView kDelayed = "m/d/";
inline constexpr ByteView kMessage = "m/m/";
inline constexpr ByteView kCount = "m/c/";
inline constexpr ByteView kHas = "m/h/";
inline constexpr ByteView kGot = "m/k/";
inline constexpr ByteView kFar = "m/f/";
inline constexpr ByteView kRetained = "m/r/";

/// prefix + number, for any of the above.
std::string of(ByteView prefix, uint64_t number);
std::string of(ByteView prefix, uint64_t number, uint64_t second);
std::string of(ByteView prefix, uint64_t number, ByteView rest);
std::string inbound(uint64_t uid, uint16_t packet_id);
std::string far(uint64_t uid, uint16_t packet_id);
/// Without a uid; it and the filter follow.
std::string got(const Origin& origin);
/// The number behind a prefix; nullopt if the key is too short.
std::optional<uint64_t> number_in(ByteView key, ByteView prefix);
std::optional<uint64_t> second_in(ByteView key, ByteView prefix);
}  // namespace keys

/// Both clocks at one moment: records hold wall time, sessions hold Instants.
struct Clock {
  Instant now{};
  WallTime wall{};
  int64_t to_ms(Instant t) const;
  /// Never later than now: a clock that was set back makes things younger, not of the future.
  Instant from_ms(int64_t ms) const;
};

struct SessionRecord {
  std::string client_id;
  uint32_t expiry = 0;
  std::optional<Instant> detached_at;  // nullopt: attached when it was written
  uint64_t next_sequence = 1;
  uint64_t queued = 0;
  uint64_t queued_bytes = 0;
  uint64_t maybe_sent = 0;
  std::string owner;
};

struct EntryRecord {
  uint64_t sequence = 0;  // from the key
  uint64_t number = 0;
  uint8_t qos = 0;
  bool retain = false;
  bool released = false;
  uint16_t packet_id = 0;
  std::vector<uint32_t> subscription_ids;
  std::string shared;  // empty: none
};

/// Who sent a message that is published later: the rules of that time are asked about it.
struct Publisher {
  std::string client_id;  // empty: not known, it was stored by a version that did not keep it
  std::string owner;      // as Session::owner()
  std::string address;    // empty: not known
  size_t bytes() const { return client_id.size() + owner.size() + address.size(); }
  bool operator==(const Publisher&) const = default;
};

struct DelayedRecord {
  bool tapped = false;  // the event plane has it: only sessions do not
  Instant due{};
  uint32_t seconds = 0;  // between its PUBLISH and `due`
  Publisher publisher;
};

struct RetainedRecord {
  uint64_t version = 0;
  std::shared_ptr<Message> message;
};

std::string encode(const SessionRecord& record, const Clock& clock);
std::optional<SessionRecord> decode_session(ByteView value, const Clock& clock);

std::string encode(const Subscription& subscription);
std::optional<Subscription> decode_subscription(ByteView value);

std::string encode_entry(uint8_t qos, bool retain, bool released, uint16_t packet_id, uint64_t number,
                         std::span<const uint32_t> subscription_ids, ByteView shared = {});
std::optional<EntryRecord> decode_entry(ByteView value);

std::string encode(const Message& message, const Clock& clock);
/// The message's number stays 0: it is in the key.
std::shared_ptr<Message> decode_message(ByteView value, const Clock& clock);

std::string encode(const SessionWill& will, const Clock& clock);
std::optional<SessionWill> decode_will(ByteView value, const Clock& clock);

std::string encode_retained(uint64_t version, const Message& message, const Clock& clock);
std::optional<RetainedRecord> decode_retained(ByteView value, const Clock& clock);

std::string encode(const DelayedRecord& record, const Clock& clock);
/// Never due later than it was put off for, from now on: whatever became of the clock, it comes.
std::optional<DelayedRecord> decode_delayed(ByteView value, const Clock& clock);

/// A lone varint: m/c/ and m/i/.
std::string encode_number(uint64_t number);
std::optional<uint64_t> decode_number(ByteView value);

}  // namespace ph::session
