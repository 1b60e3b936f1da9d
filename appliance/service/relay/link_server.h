// LinkServer: the receiving side of the link protocol. One LinkSession a connection: handshake, frames in, acks and
// credit out. What the frames mean is the intake's business.
//
// Handshake: both say HELLO. The server refuses (REFUSE with the reason, then close): another protocol version, this
// node's own id (a loop, or a cloned data_dir), a name that the certificate does not carry. An older connection of the
// same (node, channel), and all of an older incarnation of (node, target), are closed before the newer one is answered:
// their bytes, still in some socket buffer, can then no longer arrive behind what the sender was told in RESUMED.
//
// Bounds: connections_max, handshake timeout, idle timeout; of events in memory, one budget for all sessions, by credit
// and by leaving unread what finds no room (core/link/receiver_memory.h). A frame that stands still within while others
// wait for its room ends its connection after kStallTimeout, counted.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "codec/link/compression.h"
#include "core/link/receiver_memory.h"
#include "port/loop.h"
#include "port/network.h"
#include "service/relay/intake.h"
#include "service/relay/staging.h"
#include "service/relay/twin_watch.h"
#include "service/relay/wishes.h"

namespace ph::relay {

struct LinkServerOptions {
  port::Endpoint bind;
  std::shared_ptr<port::TlsContext> tls;
  NodeId self;
  std::string name;
  std::string site;
  uint64_t incarnation = 0;
  size_t connections_max = limits::kLinkConnectionsMax;
  uint64_t memory = limits::kReceiverMemory;  // of events that are not committed yet, over all connections
  Wishes* wishes = nullptr;                   // null: peers are not told what is wanted
};

struct LinkServerStats {
  uint64_t connections = 0;  // open now, handshake done
  uint64_t accepted = 0;
  uint64_t refused = 0;          // by HELLO
  uint64_t protocol_errors = 0;  // garbage, bad CRC, frames out of order
  uint64_t handshake_timeouts = 0;
  uint64_t stalled = 0;       // connections ended in the middle of a frame, for the sake of others
  uint64_t memory = 0;        // bytes of events now,
  uint64_t memory_peak = 0;   // and at most
  uint64_t memory_waits = 0;  // frames that had to wait for room
  uint64_t over_credit = 0;   // frames that went over what their sender was granted
};

class LinkServer {
 public:
  static constexpr size_t kControlMax = 64 * 1024;     // of frames without events that are read as they come
  static constexpr size_t kProgressStep = 128 * 1024;  // so much of a frame over 50 kbit/s comes within kStallTimeout
  static constexpr Duration kStallTimeout = 30s;
  static constexpr size_t kResumeStreamsMax = 1024;  // in one RESUME
  static constexpr size_t kAcceptsASecond = 150;     // more wait in the kernel: 2,000 agents may come back at once (L2)
  static constexpr Duration kTellAfter = std::chrono::milliseconds(50);  // many changes, one frame
  static constexpr size_t kInterestFrameBytes = 256 * 1024;
  static constexpr Duration kIdleTimeout = 90s;  // a sender pings long before

  /// Without `staging` (nullable) strict senders are not served.
  LinkServer(LinkServerOptions options, port::Loop& loop, port::Network& network, Intake& intake, Staging* staging);
  ~LinkServer();
  Result<> start();
  /// Says GOODBYE to everybody and accepts nobody from now on.
  void stop();
  /// What is wanted may have changed: tells who asked, soon.
  void wishes_changed();
  port::Endpoint local() const;
  LinkServerStats stats() const;
  /// Nodes that go by one id.
  std::vector<Twins> twins() const { return twins_.twins(loop_.now()); }

 private:
  class Session;
  port::ConnectionHandler* accepted(std::unique_ptr<port::Connection>&& connection);
  void introduced(Session& session);
  void replace(Session& older);
  void ended(Session& session);
  void tick();
  void close(Session& session, const link::StreamKey& key);
  void forget_later(uint64_t number);
  void let_in();
  Staging::Senders asked() const;

  LinkServerOptions options_;
  port::Loop& loop_;
  port::Network& network_;
  Intake& intake_;
  Staging* staging_;
  std::shared_ptr<link::ReceiverMemory> memory_;  // sessions that are closed give back, too
  std::unique_ptr<port::Listener> listener_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // in the order in which they came
  std::map<std::pair<NodeId, uint64_t>, Session*> channels_;
  link::Decompressor decompressor_;
  std::unique_ptr<port::Timer> ticker_;
  std::unique_ptr<port::Timer> wishes_timer_;
  LinkServerStats stats_;
  TwinWatch twins_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
