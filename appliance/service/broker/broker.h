// Broker: MQTT on as many workers as there are loops. It only makes the workers, adds up their figures, and takes
// messages from the event plane; all the work is in worker.h.
//
// Life: construct, start() before the loops run, stop() at any time, destroy after the loops have stopped. The tap must
// outlive the loops, too: its answers come back to them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "port/loop.h"
#include "port/message_sink.h"
#include "port/network.h"
#include "service/broker/options.h"
#include "service/broker/throttle.h"

namespace ph::broker {

class Journal;
struct Receivers;
class Worker;

/// A thread for the broker: each loop with the network that lives on it.
struct WorkerPlace {
  port::Loop* loop = nullptr;
  port::Network* network = nullptr;
};

class Broker final : public port::MessageSink {
 public:
  /// At most 64 workers. `tap` may be null. `event_loop`: the event plane's, where done callbacks of publish() run.
  /// `journal`: where durable sessions live; null: they live as long as the process.
  Broker(BrokerOptions options, const std::vector<WorkerPlace>& places, port::MessageTap* tap, port::Loop* event_loop,
         Journal* journal = nullptr);
  ~Broker() override;

  /// Brings back what the journal has, then listens on every worker. Called once, before the loops run or from the only
  /// loop that does.
  Result<> start();
  /// Any thread: stops accepting and closes every connection, version 5 with 0x8B. Sessions and wills end silently.
  void stop();

  /// Where it listens, in the order of options.listeners; known after start().
  const std::vector<port::Endpoint>& endpoints() const { return endpoints_; }
  /// Any thread: from now on this decides. Clients that it keeps out are disconnected.
  void set_policy(const security::PolicyPtr& policy);
  /// Any thread: how tokens are checked from now on. Who is in stays.
  void set_tokens(const TokenOptionsPtr& tokens);
  /// Any thread.
  BrokerStats stats() const;

  /// port::MessageSink, on the event loop. Messages of one topic keep their order. Errors: broker.busy (the worker does
  /// not keep up: again later), broker.bad_topic.
  void publish(port::Message message, std::move_only_function<void(Result<>)> done) override;
  bool remembers() const override { return journal_ != nullptr; }
  void settle(StreamId stream, uint64_t upto, port::WriteBatch cursor, port::Task done) override;

  /// The topic filters of all sessions, those that are away included, without $share groups, at most `max`; `rest`:
  /// there are more. `got` runs on the event loop. After it options.on_filters is called once for any number of
  /// changes.
  void filters(size_t max, std::function<void(std::vector<std::string> filters, bool rest)> got);

  /// After stop(): nothing of the workers is on its way to the disk any more.
  bool drained() const;

 private:
  struct Ending;
  Result<> recover();
  Result<> recover_sessions(std::vector<Ending>& ending);
  Result<> recover_retained();
  void recover_delayed();
  void recover_events();
  void await_far();
  std::optional<Receivers> receivers_of(uint64_t number);
  void redo_cut_short();

  const BrokerOptions options_;
  std::vector<ListenerRates> rates_;  // by listener
  std::vector<std::unique_ptr<Worker>> workers_;
  port::Loop* event_loop_;
  Journal* journal_;
  /// Found at start: QoS 2 messages, and such for later, that were not routed to the end.
  struct CutShort {
    Worker* worker = nullptr;  // of the publisher's session
    std::string client_id;
    uint64_t uid = 0;
    uint16_t packet_id = 0;
    uint64_t number = 0;
    bool delayed = false;  // a message for later, of nobody: the rest is unused
  };
  std::vector<CutShort> cut_short_;
  /// Found at start: messages that wait for far ends before they are acknowledged.
  struct AwaitsFar {
    CutShort message;
    std::string waits_for;
  };
  std::vector<AwaitsFar> await_far_;
  std::unordered_map<uint64_t, uint64_t>
      published_;                   // by stream: the last position that was published before the start
  std::atomic<size_t> stopped_{0};  // workers
  std::vector<port::Endpoint> endpoints_;
};

}  // namespace ph::broker
