// The inside of Sender: its state, and what each of its files does with it. Private to core/link/sender*.cc.
//
//   sender.cc          the inputs: frames, connections, time; effects out
//   sender_window.cc   batches: offered, covered, cut, acknowledged, settled
//   sender_balance.cc  who gets what in turns: pending batches to ready receivers; launching
//   sender_hash.cc     who gets what by a hash: runs, their owners, fences
//   sender_pace.cc     how much: room, credit, the length of batches, rate, compression
//   sender_resume.cc   connections: probing, asking by RESUME, what is lost, what is resolved
//   sender_strict.cc   strict: owners of what is staged, publish and discard
//
// Where a batch is:
//   pending     to be sent; in no receiver's hands as far as anybody knows
//   in flight   at one receiver (`at`), over the connection of the moment
//   uncertain   was in flight at the receivers in `maybe`, whose connections were lost since, and which were not asked
//               yet. With all of these expired (resume_timeout) it becomes pending as well, and counts as rerouted
//   acked       covered; it stays without its bytes until everything before it is, too
//   waiting     strict: part of it has an owner that may publish it, and that is not connected or has not answered yet
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "codec/link/compression.h"
#include "core/link/pace.h"
#include "core/link/range_set.h"
#include "core/link/sender.h"

namespace ph::link {

inline constexpr ReceiverIndex kNowhere = SIZE_MAX;
inline constexpr size_t kBatchCost = 256;  // bookkeeping of a batch, charged to the window
/// Batches of one stream that may lie above its settled position: a receiver must remember each hole between them.
inline constexpr uint64_t kSpanMax = limits::kRangesMax / 2;
/// Of an EVENTS frame, at most, without its blocks.
inline constexpr size_t kFrameHead = 112;
inline constexpr size_t kResumeStreams = 32;  // per RESUME frame, so that the answer stays far below kFrameMax

struct SenderQueue;

struct Flying {
  SenderQueue* stream = nullptr;
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t events = 0;
  uint64_t rejected_events = 0;
  Slice packed;
  size_t size = 0;       // of packed, also after that is gone
  uint64_t ordinal = 0;  // in its stream
  ReceiverIndex at = kNowhere;
  uint64_t flight = 0;  // key in the receiver's in_flight
  std::vector<ReceiverIndex> maybe;
  // with a hash
  ReceiverIndex owner = kNowhere;
  uint64_t owned_at = 0;             // SenderCore::owners_epoch_ that it is for; 0: not known
  std::vector<uint16_t> partitions;  // of its keys
  bool fenced = false;               // it counts in its stream's fences
  uint32_t counted = 0;              // further copies that ReroutedUnasked has accounted for
  bool pending = false;
  bool sent = false;
  bool acked = false;
  size_t charge() const { return size + kBatchCost; }
};

/// What a stream has to do with one receiver.
struct Use {
  enum class State : uint8_t { unused, requested, durable } state = State::unused;
  bool unasked = false;      // used by an earlier run; what it holds is not known yet
  bool held = false;         // HOLD on this connection
  uint32_t hold_epoch = 0;   // HOLDs seen on this connection
  uint64_t uncertain = 0;    // batches with this receiver among `maybe`
  uint64_t sent_below = 0;   // one past the greatest position sent to it by this run
  uint64_t known_below = 0;  // one past the greatest position it told of in RESUMED
};

/// Strict: who alone may publish a range, from the moment it said that it staged it.
struct Publisher {
  uint64_t last = 0;
  ReceiverIndex receiver = kNowhere;  // kNowhere: it is configured no more,
  std::string address;                // and is this one
  uint64_t attempt = 0;
  bool durable = false;  // recorded: it may be told
  bool told = false;     // on its present connection
};

/// One stream.
struct SenderQueue {
  StreamId id;
  SourceIndex source = 0;
  uint64_t settled = 0;
  uint64_t next = 0;      // end of the last batch offered
  uint64_t assigned = 0;  // SenderStream::assigned
  uint64_t far = 0;
  RangeSet acked;  // above settled; also what RESUMED told of positions not offered yet
  RangeSet far_acked;
  RangeSet rejected;                         // above settled, reported as Rejected
  std::map<uint64_t, Reject> early_rejects;  // told in RESUMED, not offered yet
  /// Rejects that receivers must go on reporting: first -> when they were settled, if they are.
  struct Lingering {
    uint64_t last = 0;
    std::optional<Instant> settled_at;
  };
  std::map<uint64_t, Lingering> lingering;
  /// With a hash: what is pending, by owner; which receiver has unacknowledged events of a partition, and how many
  /// runs.
  std::map<ReceiverIndex, std::set<uint64_t>> owned;
  struct Fence {
    ReceiverIndex at = kNowhere;
    uint32_t runs = 0;
  };
  std::unordered_map<uint16_t, Fence> fences;
  uint64_t owned_at = 0;               // all that is pending is for this owners_epoch_
  std::map<uint64_t, Flying> batches;  // by first position; from settled on without a gap
  std::set<uint64_t> pending;          // first positions
  size_t pending_charge = 0;
  std::map<uint64_t, Publisher> publishers;  // strict, by first position; they do not overlap
  std::set<uint64_t> waiting;                // strict: first positions of batches that wait for an owner
  RangeSet given_up;                         // strict: their owner was given up, and may have published them
  uint64_t next_ordinal = 0;
  uint64_t duplicates = 0;            // to be told in Advanced
  std::vector<Use> use;               // by receiver
  size_t unasked = 0;                 // receivers of an earlier run not asked yet, removed ones included
  ReceiverIndex intended = kNowhere;  // its turn was spent on waiting for WillUse
  bool counting = false;              // ReroutedUnasked is not on disk yet
  bool active = false;                // in active_
  bool dirty = false;                 // in dirty_
  bool closing = false;
  bool stretched = false;               // counted in its source's `stretched`
  bool taken_back = false;              // its source waits for Released
  std::optional<uint64_t> parked_from;  // as said to the source
  bool stretches() const { return batches.size() >= kSpanMax; }
};

/// One connection.
struct SenderPeer {
  SenderOptions::Receiver options;
  size_t place = 0;  // index of its address
  ReceiverState state = ReceiverState::idle;
  NodeId node;  // as last heard
  // this connection
  uint64_t credit = 0;
  uint64_t sent = 0;                      // as credit counts: compressed frames by what they become
  uint64_t allowance = 0;                 // how much may be unanswered, as the latest CREDIT says
  bool inflates = false;                  // it knows compressed EVENTS
  bool hears_need = false;                // it knows NEED,
  bool said_need = false;                 // which was said since the latest CREDIT
  std::map<uint64_t, Flying*> in_flight;  // in the order of sending
  size_t in_flight_bytes = 0;
  std::deque<std::vector<StreamId>> asked;  // RESUMEs that wait for their RESUMED
  Instant progress_at{};                    // progress, or the beginning of what is waited for
  Instant heard_at{};
  bool pinged = false;
  uint64_t acked_flight = 0;      // the latest of its batches that it acknowledged
  uint64_t owed = 0;              // strict: owners told to publish, over this connection
  uint64_t overtaken_flight = 0;  // the oldest in flight, when later ones are acknowledged already; 0: none
  Instant overtaken_at{};
  // across connections
  Pace pace;
  uint32_t plain_left = 0;  // batches to be sent as they are: compressing the last one was not worth it
  Instant retry_at{};
  Duration retry_delay{};
  Instant away_since{};     // when it was last ready, or the start
  bool reached = false;     // this attempt became a connection
  bool dropped_us = false;  // it ended a connection since, before it was ready
  uint64_t uncertain = 0;   // batches with this receiver among `maybe`
  Instant lost_at{};
  bool keyless = false;  // away for so long that its partitions went to others
  bool expired = false;  // uncertain ones may go elsewhere
  int64_t turn = 0;      // smooth weighted round robin
  uint64_t connects = 0;
  uint64_t failures = 0;
  std::string last_error;
};

struct SenderSource {
  bool wants_far = false;
  size_t parked = 0;
  uint64_t stretched = 0;
  bool starving = true;  // room() was 0 when it was last looked at
};

class SenderCore final : public Sender {
 public:
  SenderCore(SenderOptions options, Random& random);

  SourceIndex add_source(std::vector<SenderStream> streams, bool wants_far) override;
  void start(Instant now) override;
  void reached(ReceiverIndex receiver) override { peers_[receiver].reached = true; }
  void connected(ReceiverIndex receiver, const Hello& peer, Instant now) override;
  void disconnected(ReceiverIndex receiver, std::string reason, Instant now) override;
  void received(ReceiverIndex receiver, const Frame& frame, Instant now) override;
  void progressed(ReceiverIndex receiver, Instant now) override;
  void durable(SourceIndex source, StreamId stream, ReceiverIndex receiver, Instant now) override;
  void counted(SourceIndex source, StreamId stream, Instant now) override;
  bool still_parked(StreamId stream, uint64_t from) override;
  void taken_back(StreamId stream, uint64_t from, Instant now) override;
  void owned(SourceIndex source, StreamId stream, uint64_t first, uint64_t attempt, Instant now) override;
  void stored(SourceIndex source, StreamId stream, uint64_t settled, Instant now) override;
  size_t room() const override;
  size_t room(SourceIndex source) const override;
  size_t batch_bytes() const override;
  void set_rate(std::optional<uint64_t> rate, Instant now) override;
  void offer(SourceIndex source, SenderBatch batch, Instant now) override;
  void close_stream(StreamId stream) override;
  void tick(Instant now) override;
  Instant deadline() const override;
  std::vector<SenderEffect> take_effects() override;
  std::vector<ReceiverStatus> receivers() const override;
  uint64_t unacked_events() const override { return unacked_events_; }
  uint64_t unacked_bytes() const override { return unacked_bytes_; }
  uint64_t stranded_batches() const override;
  std::vector<AwayOwner> away_owners() const override;
  uint64_t give_up(const std::string& address, Instant now) override;
  uint64_t given_up_batches() const override { return given_up_batches_; }

 private:
  // sender.cc
  void finish();
  void send(ReceiverIndex r, const Frame& frame);
  SenderQueue* find(StreamId stream);
  SenderQueue& open(SourceIndex source, const SenderStream& stream);
  void on(ReceiverIndex r, const Ack& ack);
  void on(ReceiverIndex r, const Hold& hold);
  void on(ReceiverIndex r, const Release& release);
  void check_answers(ReceiverIndex r);
  bool awaits_answer(ReceiverIndex r) const;
  uint64_t known_below(ReceiverIndex r, const SenderQueue& s) const;

  // sender_window.cc
  void add_batch(SenderQueue& s, SenderBatch&& batch);
  void begin(Flying& b);
  Flying& add_run(SenderQueue& s, SenderBatch&& batch);
  static uint64_t refused_events(const SenderQueue& s, const Flying& b);
  void replace(Flying& b, std::vector<Flying>&& pieces);
  void add_oversize(SenderQueue& s, const SenderBatch& batch);
  void cover(SenderQueue& s, uint64_t first, uint64_t last);
  void acknowledge(Flying& b);
  void make_pending(Flying& b);
  bool split(Flying& b);
  void no_longer_pending(Flying& b);
  void take_from_flight(Flying& b);
  /// It is not among the unacknowledged any more.
  void uncount(const Flying& b);
  void forget_maybe(Flying& b);
  void note_reject(SenderQueue& s, const Reject& reject);
  void report_reject(Flying& b, uint64_t first, uint64_t last, const std::string& reason);
  void advance(SenderQueue& s);
  uint64_t told(SenderQueue& s) const;
  void mark_dirty(SenderQueue& s);
  void forget_batches(SenderQueue& s);
  void drop_stream(SenderQueue& s);
  void send_close(SenderQueue& s);

  // sender_balance.cc
  void pump_in_turns(SenderQueue& s, size_t& full);
  enum class Pick : uint8_t { found, stream_waits, receivers_full };
  void activate(SenderQueue& s);
  void activate_all();
  void pump();
  Pick pick(SenderQueue& s, const Flying& b, ReceiverIndex& chosen);
  void request_use(SenderQueue& s, ReceiverIndex r);
  std::optional<ReceiverIndex> next_turn(const std::vector<ReceiverIndex>& candidates);
  uint32_t copies(const Flying& b) const;
  bool count_copies(SenderQueue& s, const Flying& next);
  void launch(Flying& b, ReceiverIndex r);
  bool waits_for_resume(const SenderQueue& s) const;

  // sender_hash.cc
  void add_hashed(SenderQueue& s, SenderBatch&& batch);
  void pump_hashed(SenderQueue& s, size_t& full);
  void find_owners(SenderQueue& s);
  bool fits_owner(const SenderQueue& s, Flying& b) const;  // with b brought up to date if it does
  Flying* next_run(SenderQueue& s, ReceiverIndex r, const std::set<uint64_t>& runs);
  bool fenced_off(const SenderQueue& s, const Flying& b, ReceiverIndex r) const;
  bool fenced_apart(const SenderQueue& s, uint16_t partition) const;
  void fence(Flying& b, ReceiverIndex r);
  void unfence(Flying& b);
  void watch_presence();

  // sender_pace.cc
  Slice compressed(const Flying& b, SenderPeer& peer);
  bool takes(const SenderPeer& peer, const Flying& b) const;
  void cut_to_credit(Flying& b, const SenderPeer& peer);
  void say_need(ReceiverIndex r);
  void on(ReceiverIndex r, const Credit& credit);
  void count_parked();
  bool any_ready() const;
  bool is_held(const SenderQueue& s) const;
  void park(SenderQueue& s);
  void release(SenderQueue& s);

  // sender_resume.cc
  void connect(ReceiverIndex r);
  void ask(ReceiverIndex r);
  void on(ReceiverIndex r, const Resumed& resumed);
  bool resume_stream(ReceiverIndex r, SenderQueue& s, const Resumed::Stream& told);
  void resolve(ReceiverIndex r, SenderQueue& s);
  bool may_go_elsewhere(const Flying& b) const;
  void drop(ReceiverIndex r, std::string reason);
  void lost(ReceiverIndex r, std::string reason);
  Duration longest_delay(const SenderPeer& peer) const;
  void expire(ReceiverIndex r);

  // sender_strict.cc
  void load_publishers(SenderQueue& s, const SenderStream& stream);
  static std::vector<SenderBatch> parts_by_publisher(const SenderQueue& s, SenderBatch&& batch);
  void wait_for_publisher(Flying& b);
  void staged(ReceiverIndex r, SenderQueue& s, uint64_t attempt);
  void tell_publishers(ReceiverIndex r);
  void publish(SenderQueue& s, Publisher& publisher);
  void discard(ReceiverIndex r, StreamId stream, uint64_t attempt);
  std::map<uint64_t, Publisher>::iterator forget_publisher(SenderQueue& s, std::map<uint64_t, Publisher>::iterator it);
  void forget_publishers(SenderQueue& s);
  bool has_publisher(const SenderQueue& s, uint64_t first, uint64_t last) const;
  bool publishes(const Flying& b, ReceiverIndex r) const;
  void settle_publishers(SenderQueue& s);
  void release_waiting(SenderQueue& s);
  void resume_owned(ReceiverIndex r, SenderQueue& s, const Resumed::Stream& told);
  void lose_publishers(ReceiverIndex r);
  void lose_staged(ReceiverIndex r);
  void give_up_publishers();
  template <class Gone>
  uint64_t give_up_if(Gone gone);
  bool is_away(ReceiverIndex r) const;
  bool holds_any(ReceiverIndex r) const;
  void flush_decisions();

  SenderOptions options_;
  Random& random_;
  Instant now_{};
  bool started_ = false;
  Instant resume_until_{};
  bool resume_over_ = false;
  std::vector<SenderSource> sources_;
  std::vector<SenderPeer> peers_;
  std::map<StreamId, SenderQueue> streams_;
  std::set<StreamId> renewed_;
  std::set<StreamId> held_streams_;
  std::deque<StreamId> active_;  // streams with something pending that may be sendable
  std::vector<StreamId> dirty_;
  uint64_t next_flight_ = 1;
  uint64_t attempt_base_;  // attempt = base + flight; random, so that runs do not share numbers
  Instant started_at_{};
  std::map<std::pair<ReceiverIndex, StreamId>, Decide> decisions_;  // of this input
  uint64_t given_up_batches_ = 0;
  uint64_t unacked_events_ = 0;
  uint64_t unacked_bytes_ = 0;
  size_t charged_ = 0;
  Bucket bucket_;
  Compressor compressor_;
  std::unique_ptr<KeyFinder> keys_;  // with a hash
  std::unique_ptr<Owners> owners_;
  uint64_t owners_epoch_ = 1;
  size_t parked_ = 0;
  std::set<StreamId> parked_streams_;  // their sources were told
  std::vector<SenderEffect> effects_;
};

}  // namespace ph::link
