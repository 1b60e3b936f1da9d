// LsdServer: the receiving side of LSD's protocol (codec/lsd/frames.h), beside the link server and before the same
// stores. Owned by the event plane's loop.
//
//   request -> checked whole -> its lines as blocks -> route -> chunk or segment log -> one group commit -> the answer
//
// One LsdSession a connection, one request at a time on it; what a client sends ahead waits and is answered in order.
// The answer leaves when every line is durable, and holds exactly the (inode, offset) pairs of the request.
//   - A request is taken whole or not at all. One that can't be (a category that is no name or has something foreign in
//     its place, gzip that does not inflate) is answered "Failed to write results", and none of it is written.
//   - A full disk or spool is no error: the answer waits, and the lines are tried again every second as long as the
//     client does. A client that gave up will send them again, so they are dropped here.
//   - A line without a newline at its end gets one. Empty elements are acknowledged and not written.
// The protocol has no origin: what a client repeats is written again (at least once).
//
// Bounds: connections_max; a frame's 16 MiB; all frames above kSmallFrame together kFramesBytes, others wait unread, in
// the order of coming; a large one must arrive within kFrameTimeout; inflated lines of a request kInflatedMax.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "port/keyed_store.h"
#include "port/loop.h"
#include "port/network.h"
#include "service/relay/intake.h"
#include "store/chunk/files_sink.h"
#include "store/commit/committer.h"

namespace ph::relay {

struct LsdServerOptions {
  port::Endpoint bind;
  NodeId self;
  std::vector<IntakeRoute> routes;
  std::function<size_t(std::string_view category)> route_of;  // index into routes; there is always a default
  size_t connections_max = limits::kLinkConnectionsMax;
  std::function<bool()> room = [] { return true; };  // the disk of the logs has some: DiskFloor::room()
};

struct LsdServerStats {
  uint64_t connections = 0;  // open now
  uint64_t held = 0;         // requests that wait for room
  // Since the start.
  uint64_t accepted = 0;
  uint64_t requests = 0;         // answered with their offsets
  uint64_t refused = 0;          // answered with an error
  uint64_t protocol_errors = 0;  // connections ended for a length or a frame that never came whole
  uint64_t abandoned = 0;        // clients that went before their answer
  // Since ever, durable.
  uint64_t events = 0;
  uint64_t bytes = 0;
};

class LsdServer {
 public:
  static constexpr size_t kSmallFrame = 256 * 1024;
  static constexpr size_t kFramesBytes = 32 * 1024 * 1024;
  static constexpr size_t kInflatedMax = 32 * 1024 * 1024;
  static constexpr Duration kFrameTimeout = 60s;
  static constexpr Duration kRetryAfter = 1s;

  LsdServer(LsdServerOptions options, port::Loop& loop, port::Network& network, port::KeyedStore& store,
            commit::Committer& committer, chunk::FilesSink* sink);
  ~LsdServer();
  /// Reads the counters. Errors: of the store.
  Result<> load();
  Result<> start();
  /// Accepts nobody from now on, and answers who is not being written "Server is shutting down".
  void stop();
  port::Endpoint local() const;
  LsdServerStats stats() const;
  /// Of routes that lead to files alone: in == delivered. Durable ones.
  std::map<std::string, IntakeCounters> direct_counters() const;

 private:
  class Session;
  struct Request;
  port::ConnectionHandler* accepted(std::unique_ptr<port::Connection>&& connection);
  void ended(Session& session);
  std::string_view fault(const Request& request) const;
  bool full(const Request& request) const;
  void place(Request& request);
  static void append_to_log(spool::SegmentLog& log, const event::Block& block);
  static void append_pieces(spool::SegmentLog& log, const event::Block& block, size_t at, size_t size);
  void count(const Request& request, port::WriteBatch& entries);
  void committed(const std::shared_ptr<Request>& request, const Result<>& outcome);
  bool reserve(uint64_t session, size_t frame_bytes);
  bool fits(size_t frame_bytes) const;
  void give_back(size_t room);
  void tick();

  LsdServerOptions options_;
  port::Loop& loop_;
  port::Network& network_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  chunk::FilesSink* sink_;
  StreamId ingress_;
  uint64_t position_ = 0;
  std::unique_ptr<port::Listener> listener_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // in the order in which they came
  size_t reserved_ = 0;                                    // bytes of large frames that are arriving or being written
  std::deque<std::pair<uint64_t, size_t>> waiting_;        // sessions that wait to read one, and its size
  bool stopping_ = false;
  std::unique_ptr<port::Timer> ticker_;
  LsdServerStats stats_;
  IntakeCounters counters_;  // with what is on its way to the disk
  IntakeCounters durable_;
  std::vector<IntakeCounters> direct_, direct_durable_;  // by route
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
