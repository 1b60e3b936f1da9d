// MqttTarget: publishes a source's events to this node's subscribers: `to = [{ mqtt = "events/{category}" }]`.
// A message keeps its payload, QoS, retain flag, properties and what is left of its expiry; a line becomes a QoS 1
// message. The cursor moves when the broker has the messages in its sessions' queues. Each is published with its place
// in the source's stream; durable sessions remember it until the commit that moves the cursor, so that what a crash
// makes us publish again reaches none of them twice. Others get it at least once.
//
// Back-pressure: at most kSliceMessages are on their way to the broker, and the next ones follow when all of these are
// answered; the broker answers late while a subscriber that keeps reading has much in its queue (port::MessageSink).
// What is published is offered to the node's own routes on topics as well (Tap::pass_on), and the cursor waits for
// that. What has expired by then is told to the source as dropped, what can never be published as rejected: neither is
// delivered, and neither stops the route.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/event/block.h"
#include "port/event_source.h"
#include "port/loop.h"
#include "port/message_sink.h"
#include "service/relay/tap.h"

namespace ph::relay {

/// Fills {topic}, {category} and {origin}, the site where the event entered; a line's {topic} is its category.
/// Wildcards and NUL that would come in by a value are replaced by '_', since a topic name cannot hold them.
std::string fill_topic(std::string_view topic_template, std::string_view topic, std::string_view category,
                       std::string_view origin = {});
/// Fills {site} and {node}, this node's.
std::string fill_node(std::string topic_template, std::string_view site, std::string_view node);

class MqttTarget {
 public:
  static constexpr size_t kBatchBytes = 64 * 1024;
  static constexpr size_t kSliceMessages = 256;
  static constexpr size_t kSettlingMax = 8;
  static constexpr Duration kRetryAfter = std::chrono::seconds(1);

  /// `tap` may be null: no route of the node takes topics.
  /// `site`: this node's, where events entered that have not passed another.
  MqttTarget(std::string topic_template, port::EventSource& source, port::MessageSink& sink, port::Loop& loop,
             Tap* tap = nullptr, std::string site = {});
  ~MqttTarget();
  void start();

 private:
  /// A block of batch_ that is not published to its end yet.
  struct Piece {
    uint64_t first = 0;
    uint64_t last = 0;
    event::Block block;
    std::string topic;
    size_t offset = 0;  // lines: where the next one begins
    /// Lines of a file have places of their own; others share their block's.
    std::pair<uint64_t, uint64_t> place() const {
      const bool own = last - first >= block.payload.size();
      return own ? std::pair(first + offset, uint64_t{0}) : std::pair(first, uint64_t{offset});
    }
  };

  void soon();
  void pump();
  void unpack();
  void next_slice();
  void take_from(Piece& piece);
  void pass_on(const Piece& piece, event::EventId id, Slice payload);
  void pass_on_slice();
  void passed_on();
  void wait_and(port::Task then);
  void publish_batch();
  void settle(uint64_t upto, uint64_t events, port::Task then);
  void publish_slice();
  void answered(size_t index, const Result<>& outcome);
  void finish();

  std::string template_;
  port::EventSource& source_;
  port::MessageSink& sink_;
  port::Loop& loop_;
  Tap* tap_;
  std::string site_;
  std::optional<port::Batch> batch_;
  std::deque<Piece> pieces_;          // of batch_, in order, what is in slice_ no more
  std::vector<port::Message> slice_;  // what the broker is asked to take now
  std::vector<size_t> refused_;       // of it, to be offered again
  struct PassedOn {
    event::Block block;
    std::string topic;
  };
  std::vector<PassedOn> passing_;  // to the node's routes, before the slice is published
  size_t outstanding_ = 0;
  StreamId begun_;       // the stream whose beginning here is on disk: its name is the same after a crash
  size_t settling_ = 0;  // commits of the cursor on their way
  std::unique_ptr<port::Timer> retry_;
  bool posted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
