// Block: the unit in which events travel and are stored: in EVENTS frames, in segment log records, between rooms. The
// same bytes serve wire and disk, so a relay never re-encodes: it only puts a position before them.
//
// A block of kind `lines` is a run of whole lines of one source file, exactly as the file holds them: an agent copies,
// never parses. A block of kind `message` is one MQTT message.
//
// Byte layout, version 1 (all integers varint unless said otherwise; "sized" = varint length, then bytes):
//   u8      version << 4 | kind; a reader that meets a newer version fails with event.newer_version
//   u8      flags: bit 0 newline_added, 1 truncated, 2 piece, 3 retain, 4-5 QoS, 6 gap marker, 7 joined
//   sized   category
//   16      origin node id
//   u64     origin stream id, fixed, little-endian
//   varint  first position; event id = (origin, stream, [first, last)): assigned once at ingress, never changed
//   varint  last - first
//   varint  number of events
//   varint  accepted at, milliseconds since the epoch
//   varint  number of hops (<= 8), then each sized: sites that the event has left, oldest first
//   message only:
//     sized   topic
//     varint  expiry, 0 = none, else (seconds remaining when accepted) + 1
//     sized   MQTT 5 properties to carry on (encoded as in a PUBLISH packet, without their length; no topic alias,
//             subscription identifier or expiry)
//   rest    payload
//
// Invariants: for kind lines, payload is empty or ends with '\n' and `events` is its number of '\n'. When none of
// newline_added, truncated, piece, joined is set, last - first == payload size, and the block may be cut at any line
// end. With one of them set it holds exactly one event and is never cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace ph::event {

enum class BlockKind : uint8_t { lines = 1, message = 2 };

/// Identity of a run of events: positions [first, last) in one stream of the node where they entered.
struct EventId {
  NodeId origin;
  StreamId stream;
  uint64_t first = 0;
  uint64_t last = 0;
  bool operator==(const EventId&) const = default;
};

struct Block {
  BlockKind kind = BlockKind::lines;
  bool newline_added = false;  // the last '\n' is not in the source
  bool truncated = false;      // the source range is longer than the payload: line_oversize = "truncate"
  bool piece = false;          // part of a line that was longer than line_max: line_oversize = "split"
  bool joined = false;         // one event of several lines of the source, escaped to one
  bool gap = false;            // no payload: the range was lost or dropped here, `topic` says why
  std::string category;
  EventId id;
  uint64_t events = 0;
  WallTime accepted_at{};
  std::vector<std::string> hops;
  // messages only
  std::string topic;
  uint8_t qos = 0;
  bool retain = false;
  uint64_t expiry_seconds_plus_one = 0;
  std::string properties;
  Slice payload;

  /// Whether the block holds exactly one event that cannot be cut.
  bool atomic() const { return kind == BlockKind::message || newline_added || truncated || piece || joined || gap; }
};

/// Appends the encoding of everything up to the payload; the payload's bytes follow it.
void encode_header(const Block& block, std::string& out);
/// The whole block as bytes.
std::string encode(const Block& block);

/// Decodes and checks a block (limits of base/limits.h, invariants above). The payload shares `bytes`.
/// Errors: event.malformed, event.newer_version.
Result<Block> decode(const Slice& bytes);

/// The same without a look at the payload, which is neither checked nor filled in: for who wants to know where an event
/// has been, of every event that passes.
Result<Block> decode_header(ByteView bytes);

/// An encoded block taken apart at what changes from event to event, for who stores many of them side by side: head and
/// tail are the same bytes for every message of one topic and category.
struct Parts {
  ByteView head;  // version to origin stream id
  uint64_t first = 0;
  uint64_t span = 0;  // last - first
  uint64_t events = 0;
  uint64_t accepted_ms = 0;
  ByteView tail;  // hops; of a message its topic, expiry and properties
  ByteView payload;
  bool operator==(const Parts&) const = default;
};
/// nullopt for what is no block, is newer, or has a number in more bytes than it needs: join() gives back the same
/// bytes.
std::optional<Parts> split(ByteView encoded);
/// Appends the block.
void join(const Parts& parts, std::string& out);

/// A `lines` block's part that holds positions [first, last), which must be line ends within the block. Not for
/// atomic().
Block cut(const Block& block, uint64_t first, uint64_t last);

/// Appends `site` to the hop list of an encoded block without touching the rest. Errors: event.malformed,
/// event.hop_limit when the list is full.
Result<std::string> with_hop(ByteView encoded, std::string_view site);

/// Whether a name may become a directory or file: 1..200 bytes, no '/', no byte below 0x20 or 0x7F, no leading dot
/// (findings on LSD, fault 9). The reason is static text for rejects and logs; empty if the name is good.
std::string_view category_fault(std::string_view name);

namespace errors {
inline constexpr ErrorCode malformed{"event.malformed"};
inline constexpr ErrorCode newer_version{"event.newer_version"};
inline constexpr ErrorCode hop_limit{"event.hop_limit"};
inline constexpr ErrorCode bad_category{"event.bad_category"};
}  // namespace errors

}  // namespace ph::event
