// LsdUpstream: sends a node's events to receivers that speak LSD's protocol. Owned by the event plane's loop; before it
// the sources, behind it codec/lsd and the network.
//
// The protocol answers a request as a whole and knows no window, so several connections to each address work at once,
// one request in flight on each. A real receiver answers on a tick of 50 ms.
//   - Order: a stream has at most one request in flight, wherever that is. So the lines of a source file arrive in
//   order,
//     also when a request fails and goes to another receiver.
//   - Success is the answer with exactly the request's tokens. Everything else is a failure: an error answer, another
//     set of tokens, a lost connection, no progress for request_timeout. Its events are sent again, and counted as
//     maybe_duplicate, on disk, before they are: the protocol has no way to ask what a receiver has.
//   - An address that fails is tried again after 100 ms, doubling up to 10 s. One that answers errors keeps its
//     connection, but gets one request at a time, every second at most, until one succeeds.
//   - What was refused goes alone from then on, with its own back-off: a category that a receiver can't write delays no
//     other. (Events of a segment log are one stream: there it delays its route.)
//   - Each answer moves the cursor on disk at once, not within a second as for links: a killed node repeats at most
//   what
//     was in flight. After an unclean end the first window of each open stream is counted as maybe_duplicate.
// An answer is the end of the way: it releases a source with ack = "far" as well.
//
// Store: u/lsd/<name>: u8 version 1, u8 1 while something may be in flight.
// Bounds: window_bytes held in memory, waiting and in flight; a request about kRequestBytes.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "port/event_source.h"
#include "port/loop.h"
#include "port/network.h"
#include "service/relay/lsd_request.h"
#include "service/relay/upstream.h"
#include "store/commit/committer.h"

namespace ph::relay {

struct LsdUpstreamOptions {
  std::string name;
  std::vector<UpstreamOptions::Address> addresses;
  size_t connections = 4;  // to each address
  size_t window_bytes = limits::kWindowDefault;
  Duration connect_timeout = 1s;
  Duration request_timeout = limits::kRequestTimeout;
  bool gzip = false;
  std::vector<std::string> json_routes;  // whose MQTT messages become JSON lines
};

struct LsdUpstreamStats {
  uint64_t requests = 0;  // answered with their tokens
  uint64_t refused = 0;   // answered with an error
  uint64_t failed = 0;    // otherwise
};

class LsdUpstream {
 public:
  static constexpr size_t kBatchBytes = 256 * 1024;
  static constexpr size_t kRequestBytes = 4 * 1024 * 1024 - 64 * 1024;  // as large as those of real clients
  static constexpr Duration kRefusedMax = 1s;
  static constexpr unsigned kRefusalsInRow = 3;

  LsdUpstream(LsdUpstreamOptions options, port::Loop& loop, port::Network& network, port::KeyedStore& store,
              commit::Committer& committer, std::vector<port::EventSource*> sources);
  ~LsdUpstream();
  void start();
  /// Sends nothing more. What is in flight may still be answered: wait for drained() if there is time.
  void stop();
  bool drained() const;
  UpstreamStatus status() const;
  const LsdUpstreamStats& stats() const { return stats_; }

 private:
  class Link;
  struct Part {
    port::Batch batch;
    bool counted = false;  // as maybe_duplicate
  };
  struct Stream {
    StreamId id;
    size_t source = 0;
    std::deque<Part> waiting;
    bool usable = false;  // will_use() is durable
    bool asked = false;   // will_use() was called
    bool in_flight = false;
    bool listed = false;  // in ready_
    bool alone = false;   // was refused: takes no others with it
    size_t counting = 0;  // maybe_duplicates on their way to the disk
    unsigned failures = 0;
    Instant not_before{};
    uint64_t uncertain_bytes = 0;  // of what was open at an unclean end: may have been sent before
    uint64_t uncertain_until = 0;
  };
  struct Flight {
    LsdRequest request;
    std::vector<std::pair<Stream*, std::deque<Part>>> taken;
    uint64_t events = 0;
    uint64_t bytes = 0;
  };
  struct Address {
    std::vector<std::unique_ptr<Link>> links;
    unsigned failures = 0;  // in a row
    unsigned refusals = 0;  // in a row
    Instant not_before{};
    uint64_t connects = 0;
    uint64_t failed = 0;
    std::string last_error;
  };

  void mark(bool open);
  void ask_to_use();
  void count_again(Stream& stream, uint64_t events);
  void pump();
  bool pull();
  void dispatch();
  void take(Stream& stream, Part part);
  void list(Stream& stream);
  void ready(Stream& stream);
  bool eligible(const Stream& stream, Instant now) const;
  Link* free_link();
  void open_links(bool wanted);
  std::unique_ptr<Flight> load();
  void add_to(Flight& flight, Stream& stream);
  void succeeded(Flight& flight);
  void failed(Flight& flight, bool refused);
  void address_failed(size_t address, std::string reason);
  Duration back_off(unsigned failures, Duration most);
  void persist(size_t source);
  void watch();
  void soon();
  void rearm();

  LsdUpstreamOptions options_;
  port::Loop& loop_;
  port::Network& network_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  std::vector<port::EventSource*> sources_;
  std::vector<LsdRequestOptions> forms_;  // by source
  std::vector<Address> addresses_;
  std::map<std::pair<size_t, StreamId>, std::unique_ptr<Stream>> streams_;
  std::deque<Stream*> ready_;   // with something to send, in turn
  std::vector<bool> has_more_;  // sources that may have something
  std::vector<bool> persisting_, persist_again_;
  uint64_t held_bytes_ = 0;
  uint64_t held_events_ = 0;
  size_t next_source_ = 0;
  size_t next_address_ = 0;
  bool marking_ = false, marked_ = false;  // on disk that something may be in flight
  bool pump_posted_ = false;
  bool stopped_ = true;
  LsdUpstreamStats stats_;
  std::unique_ptr<port::Timer> timer_;
  std::unique_ptr<port::Timer> watch_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
