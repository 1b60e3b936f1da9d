// MqttTarget: publishes a source's events to this node's subscribers: `to = [{ mqtt = "events/{category}" }]`.
// A message keeps its payload, QoS, retain flag, properties and what is left of its expiry; a line becomes a QoS 1
// message. The cursor moves when the broker has the messages in its sessions' queues: at least once across a crash of
// this node.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "port/event_source.h"
#include "port/loop.h"
#include "port/message_sink.h"

namespace ph::relay {

/// Fills {topic} and {category}; a line's {topic} is its category. Wildcards and NUL that would come in by a value are
/// replaced by '_', since a topic name cannot hold them.
std::string fill_topic(std::string_view topic_template, std::string_view topic, std::string_view category);

class MqttTarget {
 public:
  static constexpr size_t kBatchBytes = 64 * 1024;
  static constexpr Duration kRetryAfter = std::chrono::seconds(1);

  MqttTarget(std::string topic_template, port::EventSource& source, port::MessageSink& sink, port::Loop& loop);
  ~MqttTarget();
  void start();

 private:
  void soon();
  void pump();
  void unpack(port::Batch& batch);
  void publish_all();
  void finish();

  std::string template_;
  port::EventSource& source_;
  port::MessageSink& sink_;
  port::Loop& loop_;
  std::optional<port::Batch> batch_;
  std::deque<port::Message> waiting_;  // of batch_, in order
  size_t outstanding_ = 0;
  uint64_t expired_ = 0;
  std::unique_ptr<port::Timer> retry_;
  bool posted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ph::relay
