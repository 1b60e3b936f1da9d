// A simulation of the link's two cores under everything that goes wrong: one sending node with several sources, one to
// four receivers, a network that cuts, stalls and delivers late, crashes on both sides. One thread, virtual time, all
// randomness from one seed, so a failing seed repeats exactly.
//
// What is checked, at every step: nothing settled is missing, nothing is published twice by one receiver, nothing twice
// over all receivers beyond what the sender counted as rerouted unasked, settled only grows, events are counted
// exactly, a cursor never passes a refused event before its dead letter is durable, order holds with one receiver, and
// each key's over all of them with a hash. At the end, faults stop and everything must arrive.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/link/receiver_streams.h"
#include "core/link/sender.h"

namespace ph::link_sim {

/// A broken promise. The message says which, and when.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Clock {
 public:
  Instant now() const { return now_; }
  void after(Duration delay, std::function<void()> what) { queue_.push({now_ + delay, next_++, std::move(what)}); }
  /// Runs what is due until `until`. False when more than `steps_max` steps were needed: something spins.
  bool run(Instant until, uint64_t steps_max);

 private:
  struct Due {
    Instant at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Due& o) const { return std::tie(o.at, o.order) < std::tie(at, order); }
  };
  Instant now_{};
  uint64_t next_ = 0;
  std::priority_queue<Due> queue_;
};

/// The smallest thing that can be lost or doubled: a line of a file, or a record of a log.
struct Unit {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t events = 1;
  std::string bytes;
  enum class Fate : uint8_t { deliver, refuse_block, refuse_line } fate = Fate::deliver;
};

/// What the sending node has on one stream. The node's memory is lost with it, the stored half is not.
struct SourceStream {
  StreamId id;
  size_t source = 0;
  bool log = false;  // positions are record numbers; else byte offsets of a file that grows
  std::vector<Unit> units;
  size_t available = 0;  // units written so far
  struct Cursor {
    uint64_t settled = 0;
    uint64_t far = 0;
    uint64_t delivered = 0;
  };
  Cursor stored, memory;
  std::set<std::string> receivers;  // stored before use
  std::set<size_t> dead_letters;    // units; durable
  std::set<size_t> refused;         // reported by the sender in this run
  size_t read = 0;                  // units handed out in this run
  bool closed = false;
  std::vector<uint32_t> copies;        // published, over all receivers
  std::map<char, size_t> last_of_key;  // unit published last

  uint64_t position(size_t unit) const { return unit < units.size() ? units[unit].first : units.back().last; }
  /// The unit that begins at a position; throws if none does.
  size_t unit_at(uint64_t position) const;
};

class World;
class Receiver;

/// One connection. Each direction is a queue whose front arrives when the network lets it.
struct Connection : std::enable_shared_from_this<Connection> {
  World* world = nullptr;
  size_t receiver = 0;
  uint64_t run = 0;          // of the sending process
  uint64_t incarnation = 0;  // of the receiver
  bool sender_open = true;
  bool receiver_open = true;
  struct Pipe {
    std::deque<std::string> frames;
    bool draining = false;
    Instant stalled_until{};
  };
  Pipe up, down;  // up: to the receiver
  // the receiver's session
  bool introduced = false;
  bool saw_events = false;
  uint64_t consumed = 0;
  uint64_t granted = 0;
  uint64_t received = 0;  // as credit counts
  size_t resumes_waiting = 0;

  void push(bool to_receiver, const link::Encoded& frame);
  void drain(bool to_receiver);
  void stall(Duration time);
};

struct Profile {
  size_t receivers = 1;
  size_t sources = 1;
  size_t streams = 1;  // per source
  size_t units = 100;  // per stream
  size_t window = 16 * 1024;
  Duration latency = 5ms;
  Duration chaos_gap = 500ms;  // between faults, on average
  Duration chaos_time = 30s;
  double sender_crashes = 0.1;  // shares of the faults
  double receiver_crashes = 0.2;
  double cuts = 0.3;
  double stalls = 0.2;
  double starvation = 0.1;
  double full_disks = 0.05;
  double holds = 0.05;
  uint64_t allowance = 3000;  // credit beyond what is consumed; a batch has up to 600 bytes
  bool refuse = true;
  bool hash = false;            // by the first digit of a unit's number, so that each stream has ten keys
  bool key_order = false;       // checked: nothing is rerouted unasked
  bool sender_notices = false;  // every cut; otherwise some only when nothing is heard for the request timeout
  static Profile of_seed(uint64_t seed);
  /// The sender crashes and connections break, but every receiver can be asked again soon.
  static Profile receivers_stay(uint64_t seed);
  /// No process and no connection ends; receivers hold streams, fail commits and withhold credit.
  static Profile connections_stay(uint64_t seed);
};

/// One frame as a line of text, for traces and transcripts.
std::string describe(const link::Frame& frame);

/// What a run came to; a test asserts that the faults that it is about did happen.
struct Outcome {
  uint64_t units = 0, published = 0, extra_copies = 0, rerouted = 0, duplicates = 0, dead_letters = 0;
  uint64_t sender_crashes = 0, receiver_crashes = 0, connections = 0, holds = 0, failed_groups = 0, late_bytes = 0;
  uint64_t fingerprint = 0;  // of everything published, in order: equal for equal seeds
};

/// The sending node: sources, the core, its driver.
class SendingNode {
 public:
  explicit SendingNode(World& world);
  ~SendingNode();
  void start();
  void crash();
  bool up() const { return sender_ != nullptr; }
  uint64_t run() const { return run_; }
  void deliver(Connection& connection, const std::string& bytes);
  void broken(const std::shared_ptr<Connection>& connection);
  void data_available() { pump(); }
  bool settled() const;
  std::string state() const;
  void close_streams();
  uint64_t unacked() const { return sender_ ? sender_->unacked_events() : 0; }
  std::vector<std::shared_ptr<Connection>> connections() const;

 private:
  void pump();
  void pull();
  void apply(link::SenderEffect& effect);
  void on(const link::effect::Connect& e);
  void on(const link::effect::WillUse& e);
  void on(const link::effect::Advanced& e);
  void on(const link::effect::Rejected& e);
  void store();
  link::SenderBatch next_batch(SourceStream& s);
  void later(Duration delay, std::function<void()> what);

  World& world_;
  std::unique_ptr<link::Sender> sender_;
  std::vector<std::shared_ptr<Connection>> links_;
  uint64_t run_ = 0;
  uint64_t attempt_ = 0;
  Instant tick_at_ = Instant::max();
  bool pumping_ = false;
};

/// A receiver: ReceiverStreams, a group commit, a store that survives it, sessions.
class Receiver {
 public:
  Receiver(World& world, size_t index);
  void start();
  void crash();
  bool up() const { return streams_ != nullptr; }
  uint64_t incarnation() const { return incarnation_; }
  void accept(const std::shared_ptr<Connection>& connection);
  void deliver(Connection& connection, const std::string& bytes);
  void closed(Connection& connection);
  void starve(Duration time);
  void fail_next_group() { fail_next_ = true; }
  void hold_something();
  void slow_disk(Duration extra) { disk_extra_ = extra; }
  size_t streams() const { return streams_ ? streams_->size() : 0; }

 private:
  struct Arrival {
    link::StreamKey key;
    std::weak_ptr<Connection> session;
    link::Range whole;
    std::vector<link::Range> fresh;
    std::vector<link::Reject> rejects;
    std::vector<std::pair<SourceStream*, size_t>> units;
    uint64_t duplicates = 0;
    size_t bytes = 0;
    bool wants_far = false;
    std::string value;
    std::function<void()> after;  // not EVENTS: what waits for the writes before it
  };
  struct Held {
    uint32_t epoch = 0;
    bool said = false;
  };
  link::StreamKey key(StreamId stream) const;
  void take(Connection& c, const link::Events& events, size_t bytes);
  void place(Arrival& a, SourceStream& s, uint64_t first, uint64_t last, const Slice& block);
  void on_resume(Connection& c, const link::Resume& resume);
  void answer(Connection& c, const link::Resume& resume);
  void after_writes(std::function<void()> what);
  void schedule();
  void launch();
  void make_durable(Arrival& a);
  void complete(bool good);
  void acknowledge(Arrival& a);
  void hold(const link::StreamKey& key);
  void release(const link::StreamKey& key);
  void far_reached();
  void send(Connection& c, const link::Frame& frame);
  void grant(Connection& c);
  void later(Duration delay, std::function<void()> what);

  World& world_;
  size_t index_;
  uint64_t incarnation_ = 0;
  std::unique_ptr<link::ReceiverStreams> streams_;
  std::shared_ptr<Connection> current_;  // of the one channel
  std::map<link::StreamKey, std::weak_ptr<Connection>> owners_;
  std::map<link::StreamKey, Held> held_;
  std::map<link::StreamKey, uint32_t> epochs_;
  std::deque<Arrival> waiting_, writing_;
  bool busy_ = false, scheduled_ = false;
  bool fail_next_ = false;
  Duration disk_extra_{};
  Instant starved_until_{};
  // durable
  std::map<std::string, std::string> stored_;
  std::map<StreamId, uint64_t> published_to_;  // end of what was published last, for the order with one receiver
  std::set<std::pair<StreamId, size_t>> published_;
  std::vector<std::pair<link::StreamKey, link::Range>> pending_far_;
};

class World {
 public:
  World(uint64_t seed, Profile profile);
  ~World();
  /// Runs the whole life. Throws Violation.
  Outcome run();

  void violated(const std::string& what) const;
  /// With PH_SIM_TRACE in the environment: what happens, a line each, to standard error.
  void trace(const std::function<std::string()>& line) const;
  void publish(size_t receiver, SourceStream& s, size_t unit);
  SourceStream* find(StreamId id);
  Duration some(Duration most) { return Duration(random.below(static_cast<uint64_t>(most.count()) + 1)); }

  uint64_t seed;
  Profile profile;
  Random random;
  Clock clock;
  NodeId sender_id;
  std::vector<std::unique_ptr<SourceStream>> streams;
  std::vector<bool> wants_far;            // by source
  std::vector<uint64_t> rerouted, extra;  // by source
  std::vector<std::unique_ptr<Receiver>> receivers;
  std::unique_ptr<SendingNode> node;
  Outcome outcome;
  bool calm = false;

 private:
  std::string time() const;
  void write_data();
  void chaos();
  void finish();
};

}  // namespace ph::link_sim
