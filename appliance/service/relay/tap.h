// Tap: turns local publishes into events. A publish that matches a route's topics is appended to that route's spool;
// its PUBACK waits for the group commit ("local") or for the end of its way ("far"). Called by broker workers, works on
// the event plane's loop.
//
// What an {mqtt} target publishes is offered to the routes as well: pass_on(). It keeps its identity and its hop list,
// so that no way of a mesh of sites leads back, and no route of this node takes an event twice.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "codec/event/block.h"
#include "port/loop.h"
#include "port/message_sink.h"
#include "service/relay/seen_events.h"
#include "store/commit/committer.h"
#include "store/spool/segment_log.h"

namespace ph::relay {

struct TapRoute {
  std::string name;
  std::string category;  // of the events it makes
  spool::SegmentLog* log = nullptr;
  std::function<bool()> full;
  std::function<bool()> room = [] { return true; };  // the disk of the log has some: DiskFloor::room()
  bool far = false;
};

struct TapCounters {
  uint64_t events = 0;     // durable
  uint64_t refused = 0;    // spool full or disk failed: nothing kept
  uint64_t shed = 0;       // of these: QoS 0, for which nobody waits, while the disk did not keep up
  uint64_t passed_on = 0;  // durable: of events that an {mqtt} target published, each with each route that took it
};

class Tap : public port::MessageTap {
 public:
  static constexpr size_t kMessageMax = limits::kFrameMax - 64 * 1024;       // with topic and properties
  using Match = std::function<std::vector<size_t>(std::string_view topic)>;  // indices into routes; thread-safe
  /// `seen`: needed for pass_on() alone.
  Tap(NodeId self, std::vector<TapRoute> routes, Match match, port::Loop& loop, commit::Committer& committer,
      SeenEvents* seen = nullptr);
  ~Tap() override;

  bool wants(std::string_view topic) const override { return !match_(topic).empty(); }
  void take(port::Message message, port::WriteBatch with, std::move_only_function<void(Result<>)> done) override;

  /// An event of `route` is published under `topic` at this node: every other route that wants the topic and did not
  /// have the event takes it. `block` is the event as a message with its own topic. False: none does, `done` is not
  /// called. Else it is, once the event is durable in their spools, or with an error: nothing was kept, ask again.
  /// Loop only.
  bool pass_on(event::Block block, const std::string& topic, const std::string& route,
               std::move_only_function<void(Result<>)> done);
  /// What `take` wrote under a far_key: varint number of routes, each: sized name, varint sequence. A route that is
  /// gone, or is asked for a sequence that its log never had, holds nothing back.
  void resume_far(std::string waits_for, port::Task done) override;

  /// Records of a route below `sequence` are durable at the end of their way.
  void far_reached(const std::string& route, uint64_t sequence);
  const TapCounters& counters() const { return counters_; }

 private:
  /// One publish that waits for its routes.
  struct Waiting {
    std::move_only_function<void(Result<>)> done;
    size_t parts = 0;
    Result<> outcome;
    void part_done(const Result<>& part);
  };
  void forget_far(const std::string& route, uint64_t sequence, const std::shared_ptr<Waiting>& waiting,
                  const Result<>& why);
  void await_far(const std::string& waits_for, port::Task done);
  void accept(port::Message message, port::WriteBatch with, std::move_only_function<void(Result<>)> done);

  NodeId self_;
  StreamId ingress_;  // random per process: event ids are (self, ingress, number), given before the fan-out
  uint64_t next_number_ = 0;
  std::vector<TapRoute> routes_;
  Match match_;
  port::Loop& loop_;
  commit::Committer& committer_;
  SeenEvents* seen_;
  std::map<std::string, std::multimap<uint64_t, std::shared_ptr<Waiting>>> far_;  // route -> sequence -> who waits
  std::map<std::string, uint64_t> far_done_;                                      // by route: as far_reached() said
  size_t waiting_bytes_ = 0;                                                      // on their way to the disk
  TapCounters counters_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
