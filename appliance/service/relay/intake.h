// Intake: what a node does with EVENTS from its peers. Owned by the event plane's loop; behind the link server, before
// the route spools and the files sink.
//
//   EVENTS -> what of it is new (core/link/receiver_streams) -> per block: good category? own site on its hop list? ->
//   route -> chunk (a route that leads to files alone) or segment log -> one group commit together with the ranges ->
//   acknowledgement to the session that brought it
//
// Nothing is acknowledged before the group that holds it is durable. A group that fails (full disk) gives its ranges
// back and holds the streams until the disk has room again: back-pressure, not an error loop. While it has none, what
// comes is held before it costs a commit. A route whose spool is full holds the streams that need it; others go on
// (amendment 15). So does a category whose file or directory cannot be there because something else is.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/limits.h"
#include "codec/link/frames.h"
#include "core/link/receiver_streams.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "service/relay/seen_events.h"
#include "store/chunk/files_sink.h"
#include "store/commit/committer.h"
#include "store/spool/segment_log.h"

namespace ph::relay {

/// Where a session takes what the intake says of its streams. Called on the loop.
class IntakeClient {
 public:
  virtual ~IntakeClient() = default;
  virtual void acknowledge(StreamId stream, const link::Ack& ack) = 0;
  virtual void hold(StreamId stream, std::string_view reason) = 0;
  virtual void release(StreamId stream) = 0;
  /// `bytes` of frames are done with: committed, dropped or refused.
  virtual void consumed(uint64_t bytes) = 0;
};

struct IntakeRoute {
  std::string name;
  spool::SegmentLog* log = nullptr;                   // null: the route leads to files alone
  std::function<bool()> full = [] { return false; };  // spool.max reached and full = "block"
  bool by_category = true;  // targets tell categories apart: an event that comes under two of them is kept twice
};

struct IntakeOptions {
  NodeId self;
  std::string site;
  std::vector<IntakeRoute> routes;
  std::function<size_t(std::string_view category)> route_of;  // index into routes; there is always a default
  std::function<bool()> room = [] { return true; };           // the disk of the logs has some: DiskFloor::room()
  Duration stream_ttl = limits::kStreamTtl;                   // untouched for that long: forgotten
  SeenEvents* seen = nullptr;                                 // null: an event that comes by two ways is kept twice
};

struct IntakeCounters {
  uint64_t events = 0;      // new, durable
  uint64_t bytes = 0;       // payload of those
  uint64_t duplicates = 0;  // here already, by this link or another: acknowledged, not written
  uint64_t rejected = 0;    // refused for good
  uint64_t looped = 0;      // had passed this site: acknowledged, not written
  uint64_t gaps = 0;        // gap markers
  uint64_t gap_events = 0;  // events that their senders lost or dropped, as the markers say
  uint64_t recut = 0;       // of `events`: in blocks of which a part came before, cut to other events
};

/// A gap marker: what a sender will never send, and why.
struct GapSeen {
  NodeId sender;
  StreamId stream;
  link::Range range;
  uint64_t events = 0;  // 0: unknown
  std::string reason;
  WallTime at{};
};

/// As kept in the store: u8 version 1, then varints in the order of the struct.
std::string encode_counters(const IntakeCounters& counters);
/// What the store has under `key`, and under `key`/<route> for each route. Absent ones stay as they are.
Result<> load_counters(port::KeyedStore& store, const std::string& key, const std::vector<IntakeRoute>& routes,
                       IntakeCounters& total, std::vector<IntakeCounters>& by_route);

class Intake : private commit::Participant {
 public:
  static constexpr Duration kRetryAfter = std::chrono::seconds(1);
  static constexpr Duration kClosingFor = std::chrono::hours(24);  // at most, once one connection closed the stream

  Intake(IntakeOptions options, port::Loop& loop, port::KeyedStore& store, commit::Committer& committer,
         chunk::FilesSink* sink);
  ~Intake();

  /// Reads what the store knows. Errors: of the store, link.malformed (names the key).
  Result<> load();

  /// Whether something of the stream is being written.
  bool writing(const link::StreamKey& key) const { return streams_->writing(key); }
  /// Runs `task` when all that is being written now, or waits for it, is durable or given up.
  void after_writes(port::Task task);
  /// A session that speaks for a stream from now on, beside others that may (connections of one sender).
  /// Of a stream that is not known here nothing is kept: it is introduced by what comes of it.
  link::Resumed::Stream resume(const link::StreamKey& key, uint64_t settled, std::weak_ptr<IntakeClient> client);
  void introduce(const link::StreamKey& key, const std::shared_ptr<IntakeClient>& client) { speaker(key, client); }
  /// Takes an EVENTS frame of `frame_bytes`, whose `packed` owns its bytes and is not compressed. False: it breaks a
  /// bound (holes without end) and the session must end.
  bool take(const link::StreamKey& key, const std::string& peer_site, const link::Events& events, uint64_t frame_bytes,
            const std::shared_ptr<IntakeClient>& client);
  /// The sender is done with the stream, says this session. The stream is forgotten (true) when all that speak for it
  /// have said so or are gone: what was taken back from another connection by HOLD, or sent again by this one because
  /// that did not answer, may still be on its way here, and has to find that it was.
  bool close(const link::StreamKey& key, const std::shared_ptr<IntakeClient>& client);
  /// Whether close() was called for it by some session and it is not forgotten yet.
  bool closing(const link::StreamKey& key) const { return closing_.contains(key); }
  bool known(const link::StreamKey& key) const { return streams_->known(key); }

  // For what is staged before it is published (staging.h).
  /// Whether somebody is connected who asked about the stream, or brought something of it.
  bool spoken_for(const link::StreamKey& key) const { return anybody(key) != nullptr; }
  /// Whether all of [first, last) is accepted here.
  bool has(const link::StreamKey& key, uint64_t first, uint64_t last) const;
  /// Whether frames of the stream are taken from this session now; false: it was told HOLD, and this one is dropped.
  bool open_to(const link::StreamKey& key, const link::Events& events, const std::shared_ptr<IntakeClient>& client);
  /// Whether the disk of the logs has room for what comes in.
  bool room() const { return options_.room(); }
  /// Holds the stream for kRetryAfter.
  void hold_for_retry(const link::StreamKey& key, std::string_view reason);
  /// Takes what was staged (as take() wants it), whoever speaks for its stream now; `with` becomes durable in the same
  /// commit. `done` gets whether it did. If not, the stream is held, and the caller asks again.
  void publish(const link::StreamKey& key, const std::string& peer_site, const link::Events& events,
               port::WriteBatch with, std::move_only_function<void(bool)> done);

  /// Records of a route below `sequence` are durable at the end of their way: tells the senders that asked, once that
  /// is durable here. To be called at the start as well: what a crash kept from being told is told then.
  void far_reached(const std::string& route, uint64_t sequence);

  /// Durable ones only.
  const IntakeCounters& counters() const { return durable_; }
  /// Of routes that lead to files alone: in == delivered.
  std::map<std::string, IntakeCounters> direct_counters() const;
  /// The latest kGapsShown since the start, oldest first.
  static constexpr size_t kGapsShown = 20;
  const std::deque<GapSeen>& gaps() const { return gaps_; }
  size_t streams() const { return streams_->size(); }
  size_t held_streams() const { return held_.size(); }

 private:
  struct Placed;
  struct Arrival;
  /// A session that brought something of a stream, or asked about it.
  struct Speaker {
    std::weak_ptr<IntakeClient> client;
    uint32_t epoch = 0;  // HOLDs of the stream said to it
    bool told = false;   // of the present HOLD
  };
  struct Held {
    size_t route = SIZE_MAX;  // waits until its spool is not full; SIZE_MAX: for none
    uint64_t serial = 0;      // which hold
    std::string blocked;      // category: waits until nothing stands in its place
    bool logs = false;        // waits until the disk of the logs has room
    bool files = false;       // waits until that of the files has
    bool said = false;        // HOLD waits for what of the stream is being written, and RELEASE for HOLD
  };
  bool held_back(const link::StreamKey& key, const link::Events& events, std::vector<Result<event::Block>>& decoded);
  bool enter(const std::shared_ptr<Arrival>& arrival, const link::Events& events,
             std::vector<Result<event::Block>>& decoded);
  void place(const event::Block& block, const Slice& encoded, link::Range at, Arrival& arrival);
  void place_unseen(const event::Block& block, const Slice& encoded, link::Range at, Arrival& arrival);
  bool store(const event::Block& block, const Slice& encoded, link::Range at, Arrival& arrival, bool whole);
  void place_new(link::Range position, const Slice& encoded, const Result<event::Block>& block,
                 const std::vector<link::Range>& fresh, Arrival& arrival);
  static void recut(const event::Block& block, link::Range at, Arrival& arrival);
  void reject(Arrival& arrival, link::Range at, uint64_t events, std::string reason);
  void committed(const std::shared_ptr<Arrival>& arrival, const Result<>& outcome);
  bool looped(const event::Block& block) const;
  struct Hindrance {
    std::string_view reason;
    Held held;
  };
  std::optional<Hindrance> hindrance(const link::Events& events, std::vector<Result<event::Block>>& decoded) const;
  bool hindered(const Held& held) const;
  void hold(const link::StreamKey& key, std::string_view reason, Held held);
  void say_hold(const link::StreamKey& key, uint64_t serial, const std::string& reason);
  static void tell_hold(Speaker& speaker, StreamId stream, std::string_view reason);
  Speaker& speaker(const link::StreamKey& key, const std::shared_ptr<IntakeClient>& client);
  std::shared_ptr<IntakeClient> anybody(const link::StreamKey& key) const;
  void release_held();
  void tell_far(const std::map<link::StreamKey, link::Ack>& acks);
  void arm_retry();
  // --- commit::Participant: what a group changed of the streams and counters is written once
  void begin(port::WriteBatch& entries) override;
  Result<> flush() override { return {}; }
  void finished(const Result<>&) override {}
  void dirty(const link::StreamKey& key);
  void sweep_idle();
  void forget(const link::StreamKey& key);

  IntakeOptions options_;
  port::Loop& loop_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  chunk::FilesSink* sink_;
  std::unique_ptr<link::ReceiverStreams> streams_;
  std::map<link::StreamKey, std::vector<Speaker>> speakers_;
  std::map<link::StreamKey, Held> held_;
  std::map<link::StreamKey, Instant> closing_;  // the sender is done with them, not all of its connections are
  uint64_t next_hold_ = 1;
  std::set<link::StreamKey> dirty_;  // to be written with the next group
  std::set<size_t> dirty_routes_;
  bool dirty_counters_ = false;
  std::map<std::string, uint64_t> far_again_;  // by route: far_reached() whose commit failed
  IntakeCounters counters_;                    // with what is on its way to the disk: what a commit will store
  std::vector<IntakeCounters> direct_;
  IntakeCounters durable_;
  std::vector<IntakeCounters> direct_durable_;
  std::deque<GapSeen> gaps_;
  std::unique_ptr<port::Timer> retry_;
  std::unique_ptr<port::Timer> sweep_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
