// Journal: the one writer of the broker's durable state, on the event plane's loop. Workers hand in what their sessions
// changed, a batch per turn; the node's group commit makes it durable; each worker is told what of its turns is on
// disk, and of whose messages. See docs/durability.md; the records are in core/session/records.h.
//
// A message is written with the first entry that names it and erased with the last one, whichever workers they are on:
// the counts live here. In memory are those that moved lately (kCountsMax); the store has them all.
//
// Threads: submit(), take_numbers() and stats() from any, the rest on the event loop or before the loops run.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/limits.h"
#include "core/session/records.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "store/commit/committer.h"

namespace ph::broker {

enum class Durability { fsync, lazy };

/// What one worker changed in one turn.
struct JournalBatch {
  /// An entry more, or less, that names a message.
  struct Reference {
    uint64_t number = 0;
    session::MessagePtr message;  // set: one more; null: one less
  };
  /// All messages of that worker up to the sequence are in the queues of this worker's sessions, and so in this batch.
  struct Cover {
    uint32_t source = 0;
    uint64_t sequence = 0;
  };
  /// A session that has got a message whose fan-out is noted (m/h/), by the shared subscription or, null, its own.
  struct Receiver {
    uint64_t number = 0;
    uint64_t uid = 0;
    session::SharedKey shared;
    std::string key() const {
      return session::keys::of(session::keys::kHas, number, uid) + (shared ? *shared : std::string());
    }
  };
  uint32_t worker = 0;
  uint64_t turn = 0;
  bool urgent = false;  // somebody waits for it, also where nobody has to
  port::WriteBatch entries;
  std::vector<Reference> references;
  std::vector<Receiver> receivers;
  std::vector<Cover> covers;
  std::vector<uint64_t> ended;   // uids of sessions whose records go
  std::vector<uint64_t> routed;  // numbers of messages that need no m/h/ records any more

  size_t bytes = 0;  // set by submit(): about what it takes in memory until it is on disk
};

/// Who has a message whose fan-out a crash cut short.
struct Receivers {
  std::set<uint64_t> direct;
  std::map<std::string, std::set<uint64_t>, std::less<>> shared;  // by the shared subscription
  bool empty() const { return direct.empty() && shared.empty(); }
};

/// A worker, as the journal knows it. Called on the worker's loop.
class JournalMember {
 public:
  virtual ~JournalMember() = default;
  virtual port::Loop& journal_loop() = 0;
  /// Everything up to this turn is on disk.
  virtual void on_durable(uint64_t turn) = 0;
  /// Worker `by` has all of this worker's messages up to `sequence` on disk.
  virtual void on_covered(uint32_t by, uint64_t sequence) = 0;
};

struct JournalStats {
  uint64_t batches = 0;
  uint64_t waiting = 0;          // batches that are not on disk yet, now
  uint64_t waiting_bytes = 0;    // of these
  uint64_t store_failures = 0;   // writes that the disk refused; they are repeated
  uint64_t damaged_records = 0;  // could not be read; each cost itself
  uint64_t recovered_sessions = 0;
  uint64_t recovered_retained = 0;
};

class Journal {
 public:
  static constexpr Duration kLazyInterval = std::chrono::milliseconds(500);
  static constexpr size_t kLazyBatches = 4096;           // more, or
  static constexpr size_t kLazyBytes = size_t{4} << 20;  // more: written at once
  static constexpr size_t kCountsMax = 256 * 1024;
  static constexpr uint64_t kNumbersAhead = uint64_t{1} << 32;
  static constexpr size_t kSettledMax = 4096;   // streams of which it is known how far they were cleared
  static constexpr size_t kEraseStep = 512;     // records in one turn,
  static constexpr size_t kEraseSessions = 64;  // and sessions: each costs some reads, also one without records

  /// Errors: broker.state_newer, and the store's own.
  static Result<std::unique_ptr<Journal>> open(Durability durability, port::Loop& loop, port::KeyedStore& store,
                                               commit::Committer& committer);
  ~Journal();

  void set_members(std::vector<JournalMember*> members) { members_ = std::move(members); }
  Durability durability() const { return durability_; }
  port::KeyedStore& store() { return store_; }

  /// `count` numbers that nobody else gets or ever got; the first of them.
  uint64_t take_numbers(uint64_t count);
  /// Batches of one worker are written in the order of this call.
  void submit(JournalBatch batch);
  /// More waits for the disk than may: who submits more has to be held back, lest a slow disk becomes our memory.
  bool behind() const { return waiting_bytes_.load(std::memory_order_relaxed) > limits::kJournalBytesMax; }
  /// Much more, although those were held back: nobody comes in who would have something written down.
  bool far_behind() const { return waiting_bytes_.load(std::memory_order_relaxed) > 2 * limits::kJournalBytesMax; }
  /// Nothing is on its way to the disk.
  bool idle() const { return waiting_.load(std::memory_order_relaxed) == 0; }
  JournalStats stats() const;

  /// Event loop: commits the cursor of an event source, in one batch with the end of what sessions remember of the
  /// stream below `upto` (m/k/).
  void settle(uint64_t stream, uint64_t upto, port::WriteBatch cursor, port::Task done);

  /// Called where something was found that could not be read.
  void count_damaged(uint64_t records = 1) { damaged_.fetch_add(records, std::memory_order_relaxed); }
  void count_recovered(uint64_t sessions, uint64_t retained) {
    recovered_sessions_ = sessions;
    recovered_retained_ = retained;
  }
  /// A session whose own record is lost, or that was ended before the crash: its other records go.
  void erase(uint64_t uid);
  /// Before the loops run.
  Result<> write_now(port::WriteBatch entries) { return store_.write(entries, true); }

 private:
  struct Count {
    uint64_t entries = 0;
    uint64_t group = 0;  // last batch that changed it
  };
  Journal(Durability durability, port::Loop& loop, port::KeyedStore& store, commit::Committer& committer)
      : durability_(durability), loop_(loop), store_(store), committer_(committer), timer_(loop.make_timer()) {}
  void accept(JournalBatch batch);
  void write_held();
  void write(JournalBatch batch);
  void on_written(const JournalBatch& batch, uint64_t group);
  void apply(const JournalBatch::Reference& reference, port::WriteBatch& entries);
  Count& count_of(uint64_t number);
  void shrink_counts();
  void forget_receivers(uint64_t number, port::WriteBatch& entries);
  void extend_numbers();
  bool erase_records(uint64_t uid, size_t& left, port::WriteBatch& entries);
  void erase_some();
  session::Clock clock() const { return {loop_.now(), loop_.wall_now()}; }

  const Durability durability_;
  port::Loop& loop_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  std::vector<JournalMember*> members_;
  std::unique_ptr<port::Timer> timer_;
  std::vector<JournalBatch> held_;  // lazy: not asked for yet
  size_t held_bytes_ = 0;
  uint64_t last_group_ = 0;
  uint64_t written_group_ = 0;
  std::unordered_map<uint64_t, Count> counts_;
  uint64_t counts_from_ = 0;  // messages from this number on are all in counts_ while they are in the store
  std::unordered_multimap<uint64_t, std::string> receivers_;  // m/h/ records on their way to the store
  std::unordered_map<uint64_t, uint64_t> settled_;  // by stream: nothing is remembered below; saves reading, no more
  std::deque<uint64_t> erasing_;
  bool erase_running_ = false;

  std::atomic<uint64_t> next_number_{1};
  std::atomic<uint64_t> numbers_end_{1};
  std::atomic<bool> extending_{false};
  std::atomic<uint64_t> waiting_{0};
  std::atomic<uint64_t> waiting_bytes_{0};
  std::atomic<uint64_t> batches_{0};
  std::atomic<uint64_t> damaged_{0};
  uint64_t recovered_sessions_ = 0;
  uint64_t recovered_retained_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted tasks outlive us at shutdown
};

}  // namespace ph::broker
