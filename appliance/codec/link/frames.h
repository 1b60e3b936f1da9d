// The link protocol, version 1: frames between two posthouse nodes.
//
// Every frame:
//   u32  length of the body, little-endian; over kFrameMax: link.frame_too_long, the connection is closed
//   u8   version of the frame format: 1
//   u8   type
//   u16  reserved, 0; a reader ignores it
//   u32  CRC-32C over version, type, reserved and body; wrong: link.bad_crc, the connection is closed
//   body
// A reader that meets an unknown type skips the frame: new types need a feature bit before they may be relied upon. A
// reader ignores bytes behind what it knows of a body, so that fields can be added at the end.
//
// Order on a connection: both send HELLO at once. The accepting side answers a HELLO that it cannot take by REFUSE and
// closes. The connecting side is the sender: RESUME, then EVENTS, CLOSE, NEED; the other answers RESUMED, ACK, CREDIT,
// HOLD, RELEASE, and INTEREST once it was asked. Either may send PING when idle (PONG repeats its token) and GOODBYE
// before an orderly end.
//
// Strict (feature bit 1, amendment 17): EVENTS with an attempt are only staged: durable, and in no file. ACK.staged
// says so. The sender then records the one owner of these positions and sends DECIDE, which publishes (answered by
// ACK.accepted) or discards. What is staged stays so over a lost connection, is told of in RESUMED, and is published by
// DECIDE alone.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace ph::link {

struct Span {  // positions [first, last)
  uint64_t first = 0;
  uint64_t last = 0;
  bool operator==(const Span&) const = default;
};

struct Reject {
  uint64_t first = 0;
  uint64_t last = 0;
  std::string reason;
  bool operator==(const Reject&) const = default;
};

namespace features {
inline constexpr uint64_t zstd = 1;           // EVENTS with codecs::zstd are understood
inline constexpr uint64_t strict = 1 << 1;    // EVENTS.attempt, ACK.staged, RESUMED.staged, DECIDE
inline constexpr uint64_t interest = 1 << 4;  // of a receiver: INTEREST_ASK is answered
inline constexpr uint64_t need = 1 << 5;      // of a receiver: credit follows NEED
}  // namespace features

struct Hello {
  uint16_t protocol_min = 1;
  uint16_t protocol_max = 1;
  NodeId node;
  std::string name;  // node.name; under TLS equal to the certificate's CN
  std::string site;
  std::string target;        // sender only: its upstream's name. Streams are told apart by (node, target, stream)
  uint64_t incarnation = 0;  // random per process start
  uint64_t channel = 0;      // sender only: names this (upstream, address, connection slot) across reconnects
  uint64_t attempt = 0;      // sender only: grows with each connection of the channel within an incarnation. A receiver
                             // drops an older connection of the same (node, channel) as soon as a newer one says HELLO
  uint64_t features = 0;
  WallTime wall_time{};
  bool operator==(const Hello&) const = default;
};
struct Refuse {
  std::string reason;
  bool operator==(const Refuse&) const = default;
};
/// Sender: what it is about to send or may have sent, before any EVENTS of these streams.
struct Resume {
  struct Stream {
    StreamId stream;
    uint64_t settled = 0;
    uint64_t far = 0;  // as in EVENTS
    bool operator==(const Stream&) const = default;
  };
  std::vector<Stream> streams;
  bool operator==(const Resume&) const = default;
};
/// Receiver: for each stream asked about, in the same order, what it holds; one RESUMED for each RESUME, also for an
/// empty one. It is answered when nothing of these streams is being written: what an older connection brought is either
/// accepted or given up by then, so that "not here" is final.
struct Resumed {
  /// Durable here and not published; to be named in a DECIDE.
  struct Staged {
    uint64_t attempt = 0;
    uint64_t first = 0;
    uint64_t last = 0;
    bool operator==(const Staged&) const = default;
  };
  struct Stream {
    StreamId stream;
    uint64_t settled = 0;        // what a sender told it before; everything below counts as accepted
    uint64_t highest = 0;        // one past the greatest position it ever accepted
    std::vector<Span> accepted;  // above settled
    std::vector<Span> far;
    std::vector<Reject> rejects;  // not yet settled
    std::vector<Staged> staged;
    bool operator==(const Stream&) const = default;
  };
  std::vector<Stream> streams;
  bool operator==(const Resumed&) const = default;
};
struct Events {
  StreamId stream;
  uint64_t settled = 0;     // the sender will never again send below it on this target
  uint32_t hold_epoch = 0;  // number of HOLDs of this stream that the sender has seen on this connection
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t events = 0;
  uint8_t codec = 0;       // 0 none, 1 zstd (feature bit 0)
  bool wants_far = false;  // the source is released by far acknowledgements: ACK.far is asked for
  Slice packed;            // as port::Batch::packed
  uint64_t far = 0;        // everything below is far already as the sender knows, also what went to other receivers: a
                           // receiver marks it far, so that its set of far ranges collapses
  uint64_t attempt = 0;    // not 0: only to be staged, under this number, which the sender gives once per stream
};
struct Ack {
  StreamId stream;
  std::vector<Span> accepted;    // durable here since the last ACK of this stream
  std::vector<Span> far;         // durable at the end since the last ACK
  uint64_t duplicates = 0;       // events among `accepted` that were here already
  std::vector<Reject> rejects;   // permanent; also listed in accepted
  std::vector<uint64_t> staged;  // attempts: durable here, not published
  bool operator==(const Ack&) const = default;
};
/// Cumulative from zero per connection: EVENTS frames (header and body bytes, compressed ones by what they become) the
/// sender may have sent in all; at least 8 KiB more than what the receiver has dealt with. It cuts its batches to that;
/// what cannot be cut it may begin whenever it has sent less than this, so no frame size can dead-lock. A frame that is
/// begun without any credit left ends the connection.
struct Credit {
  uint64_t bytes = 0;
  bool operator==(const Credit&) const = default;
};
/// Sender: it has something to send and no credit for it; `bytes` as in CREDIT, what it has sent in all. At most one
/// for each CREDIT; to be sent only to a receiver whose HELLO has features::need.
struct Need {
  uint64_t bytes = 0;
  bool operator==(const Need&) const = default;
};
/// Receiver: it took nothing of this stream that is not acknowledged, and drops EVENTS of it with an older hold_epoch;
/// nothing is to be sent before RELEASE. For a route whose spool is full: other streams go on.
struct Hold {
  StreamId stream;
  std::string reason;
  bool operator==(const Hold&) const = default;
};
struct Release {
  StreamId stream;
  bool operator==(const Release&) const = default;
};
/// Sender: the stream has ended and is settled; the receiver forgets it.
struct CloseStream {
  StreamId stream;
  bool operator==(const CloseStream&) const = default;
};
/// Sender: the fate of what is staged. Every attempt of `publish` is published, all of it or nothing: its ranges and
/// data are one commit. Attempts that are not known are ignored: they were decided before.
struct Decide {
  StreamId stream;
  std::vector<uint64_t> publish;
  std::vector<uint64_t> discard;
  bool operator==(const Decide&) const = default;
};
struct Ping {
  uint64_t token = 0;
  bool operator==(const Ping&) const = default;
};
struct Pong {
  uint64_t token = 0;
  bool operator==(const Pong&) const = default;
};
struct Goodbye {
  std::string reason;
  bool operator==(const Goodbye&) const = default;
};

/// Sender: it asks to be told which topics are wanted of messages that it sends under these categories; the last one
/// counts. To be sent only to a receiver whose HELLO has features::interest.
struct InterestAsk {
  std::vector<std::string> categories;
  bool operator==(const InterestAsk&) const = default;
};
/// Receiver: an answer to InterestAsk, and what changed since. Nothing else is wanted.
struct Interest {
  struct Entry {
    std::string filter;            // of topics; empty: everything, also what `#` does not match
    std::vector<std::string> via;  // sites by which it came here, the one where it is wanted first; not this one
    auto operator<=>(const Entry&) const = default;
  };
  bool reset = false;                   // what was told before on this connection, or any, is void
  std::vector<std::string> categories;  // with reset: those that it answers for
  bool more = false;                    // the next frame goes on: not to be used before it has come
  std::vector<Entry> added;
  std::vector<Entry> removed;
  bool operator==(const Interest&) const = default;
};

namespace codecs {
inline constexpr uint8_t none = 0;
inline constexpr uint8_t zstd = 1;  // see compression.h
}  // namespace codecs

using Frame = std::variant<Hello, Refuse, Resume, Resumed, Events, Ack, Credit, Hold, Release, CloseStream, Ping, Pong,
                           Goodbye, Decide, InterestAsk, Interest, Need>;

/// A frame ready to send: small fields first, then (EVENTS only) the packed blocks, shared and not copied.
struct Encoded {
  std::string head;
  Slice body;
  size_t size() const { return head.size() + body.size(); }
};
Encoded encode(const Frame& frame);

/// Takes frames off the front of received bytes.
struct Decoded {
  size_t consumed = 0;                        // bytes of the frame; 0: not whole yet
  size_t wanted = 0;                          // when consumed is 0: total bytes needed
  bool events = false;                        // whole or not: it is EVENTS; known from the sixth byte on
  std::variant<std::monostate, Frame> frame;  // monostate with consumed > 0: unknown type, skipped
};
/// EVENTS.packed is a view into `bytes` without an owner: copy or use it before `bytes` goes.
/// Errors: link.frame_too_long, link.bad_crc, link.newer_format, link.malformed; the detail names the frame type.
Result<Decoded> decode(ByteView bytes);

namespace errors {
inline constexpr ErrorCode frame_too_long{"link.frame_too_long"};
inline constexpr ErrorCode bad_crc{"link.bad_crc"};
inline constexpr ErrorCode newer_format{"link.newer_format"};
inline constexpr ErrorCode malformed{"link.malformed"};
inline constexpr ErrorCode refused{"link.refused"};
}  // namespace errors

}  // namespace ph::link
