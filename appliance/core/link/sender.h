// Sender: the sending half of the link as a pure core. It keeps the window of unacknowledged batches of one upstream
// over all its receivers, decides who gets what, what must be asked before it is sent again, and how far each stream is
// settled. The driver (service/relay) carries its effects out in order: persist, then send, then apply.
//
// Rules (events.md, amendments 1-4, 6, 11, 14-16, 18):
//   - A receiver's state is a set of ranges. A batch is acknowledged when ranges of ACK or RESUMED cover it.
//   - settled = end of the contiguous acknowledged prefix; told in every EVENTS; never goes back.
//   - Before the first bytes of a stream go to a receiver, WillUse must have been answered by durable().
//   - After start, nothing of any stream is sent before every receiver that the stream may have used answered RESUME,
//     or was unreachable for resume_timeout.
//   - A lost receiver's batches are uncertain: resent to it after it is back and asked; to another one only after
//     resume_timeout, counted as rerouted unasked: they leave once counted() says that the count is on disk, so that no
//     crash forgets a copy that may exist. With one configured receiver they simply wait.
//   - Within one receiver a stream is sent in ascending order; resends precede newer batches.
//   - No progress (ACK, CREDIT or TCP-acked bytes) for request_timeout while something is in flight: disconnect.
//   - Probing: back-off probe_min .. probe_max with jitter; the back-off is reset by the first ACK or RESUMED, not by a
//     TCP connect or HELLO, so that a receiver that drops sessions right after HELLO is backed off as well (L2).
//   - A receiver that knows positions above all this stream ever handed out: Renew (amendment 3).
//   - A batch is at most about a second of the rate at which receivers acknowledge (amendment 18); see batch_bytes().
//   - An address may have several connections. Each is a receiver with a flow of its own; what a stream's first use and
//     an earlier run are concerned, they are one. Order within a stream then holds within each connection only.
//   - With a rate, frames leave only while its bucket has tokens; resends count.
//   - Health and window follow hop acknowledgements only; far ones only release sources.
//   - Strict (sender_strict.cc): receivers only stage; one owner of each range is made durable (Own, owned()) before it
//     alone is told to publish. So a lost receiver's staged batches go elsewhere at once, and an owner is waited for.
//   - A batch is cut to the credit of who gets it; only what cannot be cut goes over it.
//   - Balancing: smooth weighted round robin among receivers that are resumed, have credit and room in their window.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/limits.h"
#include "base/random.h"
#include "base/time.h"
#include "codec/link/frames.h"
#include "core/link/hash.h"

namespace ph::link {

using ReceiverIndex = size_t;  // a connection, see SenderOptions::connections
using SourceIndex = size_t;

/// Compression of EVENTS for receivers that know it. automatic: while a receiver is slower than compressing is.
enum class Compress : uint8_t { none, zstd, automatic };

struct SenderOptions {
  struct Receiver {
    std::string address;
    uint32_t weight = 1;
  };
  std::vector<Receiver> receivers;
  /// Connections to each: connection i is of receivers[i / connections].
  size_t connections = 1;
  Compress compress = Compress::none;
  /// No batch is cut to less credit than this; receivers give more (CREDIT).
  size_t frame_min = 4096;
  /// Set: who gets what is decided by a hash of each event (hash.h) and not in turns. A key's order within its stream
  /// holds, over moves as well: nothing of a partition leaves for its new owner while the old one may still have some
  /// of it unacknowledged. A receiver that is away for resume_timeout loses its partitions until it is back.
  std::optional<HashRule> hash;
  size_t window_bytes = limits::kWindowDefault;  // unacknowledged bytes in all
  Duration request_timeout = limits::kRequestTimeout;
  Duration resume_timeout = limits::kResumeTimeout;
  Duration probe_min = limits::kProbeMin;
  Duration probe_max = limits::kProbeMax;
  Duration probe_quick = 1s;  // longest delay while an outage is young; later a share of it, up to probe_max
  /// Receivers report a reject again until they are told a `settled` above it. They are told so only when the source's
  /// cursor is stored behind it, so that a crash loses neither the dead letter nor its count (amendment 14): when
  /// stored() says so, or, without `confirms_stored`, this long after Advanced. Sources store within a second.
  bool confirms_stored = false;
  Duration reject_linger = 10s;
  /// Nothing is published twice, whatever is lost (amendment 17); costs a round trip and a sync more per batch.
  bool strict = false;
  /// Earlier runs were strict as well: nobody has published anything that no Owned or `published` tells of.
  bool strict_before = false;
  /// An owner unreachable for so long is given up: its ranges go elsewhere, counted as rerouted unasked.
  Duration strict_give_up = Duration::max();
};

/// A run of consecutive blocks of one stream (port::Batch, kept apart because a core knows no port).
struct SenderBatch {
  StreamId stream;
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t events = 0;
  Slice packed;
};
/// Positions that one receiver alone may publish, as recorded by Own.
struct SenderOwned {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t attempt = 0;
  std::string receiver;   // its address
  bool given_up = false;  // it is not waited for, and may have published them
};
struct SenderStream {
  StreamId stream;
  uint64_t settled = 0;
  uint64_t far = 0;
  /// One past the last position that an earlier run may have given out (the end of the log or file as found at start
  /// will do). Bounds what counts as rerouted unasked after a restart, and tells a rolled back node (Renew).
  /// UINT64_MAX: the source cannot tell.
  uint64_t assigned = UINT64_MAX;
  std::vector<std::string> receivers;
  std::vector<SenderOwned> owned;  // strict
  uint64_t published = 0;          // strict: everything below is published, also if the source's cursor lags behind
};

namespace effect {
struct Connect {
  ReceiverIndex receiver;
};
/// Final: the driver does not answer it by disconnected(), and nothing of the old connection is passed in any more.
struct Disconnect {
  ReceiverIndex receiver;
  std::string reason;
};
struct Send {
  ReceiverIndex receiver;
  Encoded frame;
};
struct WillUse {
  SourceIndex source;
  StreamId stream;
  ReceiverIndex receiver;
};
struct Advanced {
  SourceIndex source;
  StreamId stream;
  uint64_t settled;
  uint64_t events;
  uint64_t duplicates;
};
struct FarAdvanced {
  SourceIndex source;
  StreamId stream;
  uint64_t far;
};
/// One encoded block (with its position range) that the receiver refuses for good. Precedes the Advanced that passes
/// it.
struct Rejected {
  SourceIndex source;
  StreamId stream;
  uint64_t first;
  uint64_t last;
  Slice block;
  std::string reason;
};
/// So many events of the stream may come to be at two receivers. Nothing of the stream leaves before counted().
struct ReroutedUnasked {
  SourceIndex source;
  StreamId stream;
  uint64_t events;
};
/// Strict: record durably that this receiver alone may publish [first, last), in place of whatever was recorded of
/// these positions, then say owned().
struct Own {
  SourceIndex source;
  StreamId stream;
  ReceiverIndex receiver;
  uint64_t first;
  uint64_t last;
  uint64_t attempt;
};
struct Renew {
  SourceIndex source;
  StreamId stream;
};
/// Receivers hold the stream, and nothing from `from` on is anywhere but here. If it is still_parked(), a source that
/// can read it again takes it back: then say taken_back(). It hands out no more of it until Released.
struct Parked {
  SourceIndex source;
  StreamId stream;
  uint64_t from;
};
struct Released {
  SourceIndex source;
  StreamId stream;
};
/// A source that had no room has some again, or may begin: pull.
struct Wanted {};
}  // namespace effect
using SenderEffect = std::variant<effect::Connect, effect::Disconnect, effect::Send, effect::WillUse, effect::Advanced,
                                  effect::FarAdvanced, effect::Rejected, effect::ReroutedUnasked, effect::Own,
                                  effect::Renew, effect::Parked, effect::Released, effect::Wanted>;

enum class ReceiverState : uint8_t { idle, connecting, resuming, ready };
struct ReceiverStatus {
  std::string address;
  ReceiverState state = ReceiverState::idle;
  uint64_t in_flight_batches = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t uncertain_batches = 0;
  uint64_t owned_batches = 0;  // strict: it alone may publish them, and has not said that it did
  uint64_t connects = 0;       // attempts
  uint64_t failures = 0;
  std::string last_error;
};

/// Who is waited for.
struct AwayOwner {
  std::string address;
  bool configured = true;
  uint64_t batches = 0;
  std::vector<StreamId> streams;  // at most kAwayStreamsShown of them
};
inline constexpr size_t kAwayStreamsShown = 3;

class Sender {
 public:
  /// `random` must outlive the sender.
  static std::unique_ptr<Sender> make(SenderOptions options, Random& random);
  virtual ~Sender() = default;

  /// Registers a source before start(); `streams` as of EventSource::open_streams().
  virtual SourceIndex add_source(std::vector<SenderStream> streams, bool wants_far) = 0;
  virtual void start(Instant now) = 0;

  // From the driver. After Connect: connected() once HELLO went both ways, or disconnected() if that failed or later.
  /// The connection stands and HELLO is on its way: who ends it now is backed off from further each time.
  virtual void reached(ReceiverIndex receiver) = 0;
  virtual void connected(ReceiverIndex receiver, const Hello& peer, Instant now) = 0;
  virtual void disconnected(ReceiverIndex receiver, std::string reason, Instant now) = 0;
  /// RESUMED, ACK, CREDIT, HOLD, RELEASE, PING, PONG, GOODBYE. A frame that breaks the protocol (ACK of what was never
  /// sent, say) gives Disconnect with a reason.
  virtual void received(ReceiverIndex receiver, const Frame& frame, Instant now) = 0;
  /// The peer's kernel acknowledged further bytes.
  virtual void progressed(ReceiverIndex receiver, Instant now) = 0;
  virtual void durable(SourceIndex source, StreamId stream, ReceiverIndex receiver, Instant now) = 0;

  /// What ReroutedUnasked told of the stream is on disk.
  virtual void counted(SourceIndex source, StreamId stream, Instant now) = 0;

  /// Whether what Parked named is still here alone: frames may have come since. If not, it may be offered anew.
  virtual bool still_parked(StreamId stream, uint64_t from) = 0;
  /// The source took back what Parked named, and still_parked() said yes: at once, before any other input.
  virtual void taken_back(StreamId stream, uint64_t from, Instant now) = 0;

  /// What Own asked for is on disk.
  virtual void owned(SourceIndex source, StreamId stream, uint64_t first, uint64_t attempt, Instant now) = 0;

  /// The source's cursor of the stream is durable up to `settled`, and so are the dead letters below it.
  virtual void stored(SourceIndex source, StreamId stream, uint64_t settled, Instant now) = 0;

  /// Bytes that offer() may bring now; 0 while no receiver is ready or the window is full. Memory stays below twice the
  /// window: up to one window more may be parked for streams that every ready receiver holds.
  virtual size_t room() const = 0;
  /// The same for one source: 0 also while much of it is parked (HOLD), so that the others' share of the window stays
  /// free, and while one of its streams has kSpanMax batches above its settled position.
  virtual size_t room(SourceIndex source) const = 0;
  /// How long the next batch should be at most: about a second of what the slowest receiver takes.
  virtual size_t batch_bytes() const = 0;
  /// Bytes per second that may leave, over all receivers; nullopt: no bound, 0: nothing.
  virtual void set_rate(std::optional<uint64_t> rate, Instant now) = 0;
  /// The next batch of a source; positions follow the stream's last batch (or its settled position).
  virtual void offer(SourceIndex source, SenderBatch batch, Instant now) = 0;
  /// The stream has ended: as soon as it is settled, CLOSE goes to every receiver that used it and is connected.
  virtual void close_stream(StreamId stream) = 0;

  virtual void tick(Instant now) = 0;
  /// When tick() is due at the latest; Instant::max() if never.
  virtual Instant deadline() const = 0;
  /// What to do, in order; clears the list.
  virtual std::vector<SenderEffect> take_effects() = 0;

  virtual std::vector<ReceiverStatus> receivers() const = 0;
  virtual uint64_t unacked_events() const = 0;
  virtual uint64_t unacked_bytes() const = 0;
  /// Strict: batches owned by a receiver that is configured no more. They wait for it, for strict_give_up, or
  /// give_up().
  virtual uint64_t stranded_batches() const = 0;
  /// Strict: receivers that are waited for, since they alone may publish something.
  virtual std::vector<AwayOwner> away_owners() const = 0;
  /// Strict: gives up what the receivers at this address own, unless they are connected: it goes elsewhere, counted as
  /// rerouted unasked first. Returns how many batches. The caller has recorded it.
  virtual uint64_t give_up(const std::string& address, Instant now) = 0;
  /// Batches whose owner was given up, since the start.
  virtual uint64_t given_up_batches() const = 0;
};

}  // namespace ph::link
