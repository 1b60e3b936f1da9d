// One application message on its way from a publisher to many sessions of a worker.
//
// In a fan-out a message is first a MessageView into the read buffer. It is copied once, when the first session has to
// keep it (share()), and encoded once per protocol version for all who get it plain (QoS 0, no subscription
// identifier). So a QoS 0 message to connected clients allocates nothing, and a payload exists once however many
// sessions queue it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/time.h"
#include "codec/mqtt/packet.h"

namespace ph::session {

/// Where packets leave: one client's connection, appended to during a turn and written once at its end.
class Output {
 public:
  virtual ~Output() = default;
  virtual void send(Slice bytes) = 0;
  virtual void send_copy(ByteView bytes) = 0;
  virtual size_t unsent_bytes() const = 0;
  /// Session::on_drained() is to be called once unsent_bytes() <= mark.
  virtual void notify_below(size_t mark) = 0;
};

/// Shape of a message with borrowed bytes. `properties` are encoded, as mqtt::forwarded() gives them.
struct MessageView {
  ByteView topic;
  ByteView payload;
  ByteView properties;
  uint8_t qos = 0;
  bool retain = false;
  std::optional<uint32_t> expiry;  // seconds from `received`
  Instant received{};
};

/// What an event is called over restarts of the node that publishes it: a place in its source's stream.
struct Origin {
  uint64_t stream = 0;  // 0: not an event
  uint64_t position = 0;
  uint64_t part = 0;   // of what stands at the position
  bool again = false;  // a process before this one may have published it
};

/// The same, owned and immutable; shared by every session that keeps it.
struct Message {
  std::string topic;
  Slice payload;
  std::string properties;
  uint8_t qos = 0;
  bool retain = false;
  std::optional<uint32_t> expiry;
  Instant received{};
  uint64_t number = 0;  // its name in the store, unique for ever; 0: it can be in no durable session
  bool redo = false;    // the record of its packet id names it: should we die, it is routed again (m/h/ in records.h)
  Origin origin;        // sessions that get it leave a record, which its source ends (m/k/ in records.h)

  MessageView view() const { return {topic, payload.view(), properties, qos, retain, expiry, received}; }
  /// What a queue accounts for it.
  size_t bytes() const { return topic.size() + payload.size() + properties.size(); }
};
using MessagePtr = std::shared_ptr<const Message>;

/// The message for who gets it later than its fan-out, and must leave no records of that.
MessagePtr without_records(const MessagePtr& message);

inline size_t bytes_of(const MessagePtr& message) {
  return message ? message->bytes() : 0;
}

inline bool expired(const MessageView& m, Instant now) {
  return m.expiry && now - m.received >= std::chrono::seconds(*m.expiry);
}

/// The shared subscription ($share/<group>/<filter>) that brought a message; null for an ordinary one.
using SharedKey = std::shared_ptr<const std::string>;

/// What differs from receiver to receiver.
struct Copy {
  uint8_t qos = 0;  // at most the message's and the subscription's
  bool retain = false;
  bool dup = false;
  uint16_t packet_id = 0;
  std::span<const uint32_t> subscription_ids;
  const SharedKey* shared = nullptr;
  size_t topic_skip = 0;     // bytes of the topic that the client does not see: its mountpoint
  uint16_t topic_alias = 0;  // 0: none
  bool topic_known = false;  // the client knows the alias: the topic is left out
  bool plain() const {
    return qos == 0 && !retain && !dup && subscription_ids.empty() && topic_skip == 0 && topic_alias == 0;
  }
};

/// Gives numbers that are never given twice, over restarts too.
class MessageNumbers {
 public:
  virtual ~MessageNumbers() = default;
  virtual uint64_t next() = 0;
};

/// A message during its fan-out. One per worker, reused: its buffers keep their capacity.
class Outgoing {
 public:
  /// Payloads up to this size are copied into each connection's output: cheaper than a reference and an iovec.
  static constexpr size_t kInlinePayload = 1024;

  /// Borrows the view's bytes until the next reset. `payload` may hold the payload already, as a shared slice.
  void reset(const MessageView& view, Slice payload = {});
  void reset(MessagePtr message);

  const MessageView& view() const { return view_; }
  /// Messages made by share() are numbered from here on; 0: they are not.
  void set_numbers(MessageNumbers* numbers) { numbers_ = numbers; }
  const MessagePtr& share();
  bool shared() const { return shared_ != nullptr; }
  /// The payload as shared memory, copied at most once.
  const Slice& payload();

  /// Bytes of the packet for this receiver; expired() must be false.
  size_t size(mqtt::Version version, const Copy& copy, Instant now) const;
  void write(Output& output, mqtt::Version version, const Copy& copy, Instant now);

 private:
  mqtt::PublishHead head(const Copy& copy, Instant now) const;

  MessageView view_;
  MessagePtr shared_;
  Slice payload_;
  bool payload_kept_ = false;
  std::string plain_[2];  // encoded for 3.x and for 5; with the payload if that is small
  bool plain_valid_[2] = {false, false};
  std::string scratch_;
  MessageNumbers* numbers_ = nullptr;
};

}  // namespace ph::session
