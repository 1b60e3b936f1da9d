// Staging: what strict senders brought and nobody decided on yet (amendment 17). Behind the link server, before the
// intake; on the event plane's loop.
//
//   EVENTS with an attempt -> one record of the staging log and one entry in the store, in a group commit -> ACK.staged
//   DECIDE publish         -> the record goes through the intake as if it had just come; its entry goes with that
//   DECIDE discard         -> the entry goes
//
// Nothing staged is published otherwise, however long it stays. It stays over restarts, is told of in RESUMED, and goes
// when its stream is closed, when its sender is back and has not asked about the stream (it has given up the stream
// while it could not say so here, or lost power), or when its sender has not spoken of it for stream_ttl: counted as
// swept, and nothing is lost, since a sender that comes back later is told that it is not here and sends it again.
//
// In the store: g/ <the stream's key as in r/...> <u64 attempt, big-endian>, value:
//   u8 version 1, varint record's sequence in the log, varint first, varint length, then maybe varint when it was
//   staged or last told of to its sender (Unix seconds; absent: as of the start that found it)
// A record of the log: u8 version 1, u8 flags (bit 0 wants_far), varint settled, varint far, varint first, varint
// length,
//   varint events, sized site of the peer, then the packed blocks to the end.
//
// Bounds: the log up to `bytes_max` (over it streams are held); a batch that nobody decides on takes the room of the
// segment that it stands in, so segments are small beside it. Copies in memory up to kMemory (then read again).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "service/relay/intake.h"

namespace ph::relay {

struct StagingStats {
  uint64_t batches = 0;
  uint64_t bytes = 0;      // of the log, on disk
  uint64_t staged = 0;     // batches, since the start
  uint64_t published = 0;  // of those
  uint64_t discarded = 0;
  uint64_t swept = 0;  // of those discarded: their senders spoke of them no more
  uint64_t lost = 0;   // records that could not be read again: the sender was told that they are not here
};

class Staging {
 public:
  static constexpr Duration kRetryAfter = std::chrono::seconds(1);
  static constexpr Duration kSweepInterval = std::chrono::hours(1);
  static constexpr Duration kLookInterval = std::chrono::seconds(10);  // for what nobody asks about, when it is full
  static constexpr Duration kAskedAfter = std::chrono::minutes(1);     // a sender asks as soon as it is connected
  static constexpr size_t kMemory = 32 * 1024 * 1024;

  Staging(std::unique_ptr<spool::SegmentLog> log, uint64_t bytes_max, Intake& intake, port::Loop& loop,
          port::KeyedStore& store, commit::Committer& committer, Duration stream_ttl = limits::kStreamTtl);
  ~Staging();
  /// Reads what the store knows. Errors: of the store, link.malformed (names the key).
  Result<> load();

  /// Senders, each with the hash of its target.
  using Senders = std::set<std::pair<NodeId, uint64_t>>;
  /// Tells who is connected and has asked about all of the streams that they still have. Null: nobody can tell.
  void asked_by(std::function<Senders()> asked) { asked_ = std::move(asked); }

  /// Takes an EVENTS frame with an attempt. False: it is malformed and the session must end.
  bool stage(const link::StreamKey& key, const std::string& peer_site, const link::Events& events, uint64_t frame_bytes,
             const std::shared_ptr<IntakeClient>& client);
  void decide(const link::StreamKey& key, const link::Decide& decide);
  /// Whether something of the stream is being staged.
  bool writing(const link::StreamKey& key) const;
  std::vector<link::Resumed::Staged> staged(const link::StreamKey& key) const;
  /// The stream is no more.
  void close(const link::StreamKey& key);
  StagingStats stats() const;

 private:
  struct Entry {
    uint64_t sequence = 0;
    link::Range range;
    int64_t heard = 0;  // Unix seconds: when its sender last spoke of the stream
    Instant since{};    // staged, or found at the start
    Slice record;       // shares what the log appends; empty: to be read from there
    bool durable = false;
    bool publishing = false;
  };
  using Entries = std::map<uint64_t, Entry>;  // by attempt
  void publish(const link::StreamKey& key, uint64_t attempt);
  void published(const link::StreamKey& key, uint64_t attempt, bool durable);
  void discard(const link::StreamKey& key, uint64_t attempt);
  Entry* find(const link::StreamKey& key, uint64_t attempt);
  Result<Slice> read(const Entry& entry);
  std::optional<uint64_t> take_out(const link::StreamKey& key, uint64_t attempt);
  void forget(const link::StreamKey& key, uint64_t attempt);
  void release(uint64_t sequence);
  void release_around(uint64_t sequence);
  void retry();
  int64_t now_seconds() const;
  void sweep();
  void sweep(const link::StreamKey& key, std::string_view why);
  void drop_abandoned();

  std::unique_ptr<spool::SegmentLog> log_;
  uint64_t bytes_max_;
  const Duration stream_ttl_;
  Intake& intake_;
  port::Loop& loop_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  std::map<link::StreamKey, Entries> streams_;
  std::set<uint64_t> kept_;  // sequences of records with an entry, durable or on its way
  size_t in_memory_ = 0;
  /// Told to publish, and the commit failed: by stream, position and attempt. Attempts of two runs of a sender follow
  /// no order, positions do.
  std::set<std::tuple<link::StreamKey, uint64_t, uint64_t>> again_;
  std::unique_ptr<port::Timer> retry_;
  std::unique_ptr<port::Timer> sweep_;
  std::function<Senders()> asked_;
  Instant look_at_{};
  StagingStats stats_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
