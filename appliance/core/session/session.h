// Session: what a client leaves with the broker and finds again when it reconnects: subscriptions, messages in flight,
// the mqueue, the state of QoS 2. A pure core: it is handed `now` and an Output, and belongs to one worker at a time
// (it moves as a value of its own, docs/sessions_move.md in service/broker).
//
// Outbound order: inflight_ (packet ids given, in the order of first sending), then mqueue_. What is sent goes from
// mqueue_ to inflight_ and leaves it with the last ack. Repeats happen after a reconnect only, in the original order
// [MQTT-4.4.0-1]. Bounds: limits.h, each with a Drop reason.
//
// For the durable driver to come: everything that must survive is in Inflight, Queued, Inbound and Subscription, and
// changes only in deliver(), pump(), on_*() and subscribe()/unsubscribe().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/time.h"
#include "core/session/counters.h"
#include "core/session/message.h"
#include "core/session/ring.h"

namespace ph::session {

using mqtt::ReasonCode;
using mqtt::Version;

struct SessionLimits {
  size_t inflight_max = limits::kInflightMax;  // and at most what the client's receive maximum says
  size_t mqueue_messages_max = limits::kMqueueMessagesMax;
  size_t mqueue_bytes_max = limits::kMqueueBytesMax;
  size_t receive_max = limits::kMqttReceiveMax;    // QoS 1 and 2 of a client not yet acknowledged
  size_t output_soft = limits::kMqttOutputBudget;  // unsent bytes above which QoS 0 is dropped and the rest queued
};

/// What the sessions of a worker share.
struct SessionContext {
  SessionLimits limits;
  Counters counters;
  Outgoing outgoing;  // for messages that come out of queues
};

/// Wire value of "never expires" (section 3.1.2.11.2).
inline constexpr uint32_t kNeverExpires = 0xFFFFFFFF;

struct Subscription {
  uint8_t qos = 0;
  bool no_local = false;
  bool retain_as_published = false;
  uint32_t id = 0;     // 0: none
  uint32_t place = 0;  // the router's: node of the filter index
  uint32_t slot = 0;   // the router's: position there
};

struct SessionWill {
  MessagePtr message;
  uint32_t delay = 0;  // seconds
};

/// What the connection allows, from CONNECT.
struct Attachment {
  Version version = Version::v5;
  uint16_t receive_max = 65535;
  uint32_t packet_max = 0xFFFFFFFF;
};

class Session {
 public:
  Session(std::string client_id, SessionContext& context) : context_(&context), client_id_(std::move(client_id)) {}

  const std::string& client_id() const { return client_id_; }
  /// After a move to another worker.
  void set_context(SessionContext& context) { context_ = &context; }

  // --- connection
  void attach(Output& output, const Attachment& attachment);
  /// Sends again what was in flight, in order, then what is queued. To be called after CONNACK.
  void resume(Instant now);
  void detach(Instant now);
  bool attached() const { return output_ != nullptr; }
  Instant detached_at() const { return detached_at_; }

  void set_expiry(uint32_t seconds) { expiry_ = seconds; }
  uint32_t expiry() const { return expiry_; }
  /// When an offline session ends; nullopt: never.
  std::optional<Instant> ends_at() const;

  void set_will(std::optional<SessionWill> will) { will_ = std::move(will); }
  const std::optional<SessionWill>& will() const { return will_; }
  std::optional<SessionWill> take_will() { return std::exchange(will_, std::nullopt); }

  // --- subscriptions
  std::map<std::string, Subscription, std::less<>>& subscriptions() { return subscriptions_; }

  // --- to the client
  /// Sends or queues a message. `copy.qos` is the subscription's; the lower of it and the message's counts. `hold`:
  /// queue also QoS 0 when the output is over its budget (retained messages after SUBSCRIBE).
  void deliver(Outgoing& message, Copy copy, Instant now, bool hold = false);
  /// Moves on after something has made room.
  void pump(Instant now);
  void on_drained(Instant now);
  /// Acks from the client. An error is a protocol error of the client.
  ReasonCode on_puback(uint16_t packet_id, Instant now);
  ReasonCode on_pubrec(uint16_t packet_id, ReasonCode reason, Instant now);
  ReasonCode on_pubcomp(uint16_t packet_id, Instant now);

  // --- from the client
  enum class Arrival {
    fresh,     // never seen: route it
    taking,    // a repeat of what the tap is still writing: acknowledge together with it
    received,  // a repeat of a QoS 2 message that was delivered: acknowledge only [MQTT-4.3.3-10]
  };
  Arrival arrival(uint16_t packet_id, uint8_t qos, bool dup) const;
  /// The tap has it; taken() follows, maybe when the client is gone or back again.
  void taking(uint16_t packet_id, uint8_t qos);
  /// accepted: delivered, to be acknowledged. Otherwise as if it had never come. False: it is not among those taken.
  bool taken(uint16_t packet_id, uint8_t qos, bool accepted);
  /// A QoS 2 message was delivered and awaits PUBREL.
  void received(uint16_t packet_id);
  /// packet_identifier_not_found for one that does not await PUBREL.
  ReasonCode on_pubrel(uint16_t packet_id);
  /// QoS 2 messages that await PUBREL.
  size_t awaiting_release() const { return awaiting_release_; }

  // --- the end, and figures
  /// Counts what is lost with the session.
  void end();
  size_t queued() const { return mqueue_.size(); }
  /// More would soon be dropped: who can wait should.
  bool over_half_full() const;
  size_t queued_bytes() const { return mqueue_bytes_; }
  size_t in_flight() const { return inflight_.size(); }

 private:
  struct Inflight {
    MessagePtr message;  // null once PUBREC has come
    std::vector<uint32_t> subscription_ids;
    uint16_t packet_id = 0;
    uint8_t qos = 0;
    bool retain = false;
    bool sent = false;      // ever
    bool released = false;  // QoS 2: PUBREL instead of PUBLISH
  };
  struct Queued {
    MessagePtr message;
    std::vector<uint32_t> subscription_ids;
    uint8_t qos = 0;
    bool retain = false;
  };
  struct Inbound {
    uint16_t packet_id = 0;
    uint8_t qos = 0;
    bool taking = false;
  };

  bool congested();
  size_t window() const;
  void enqueue(Outgoing& message, const Copy& copy);
  void drop_queued(size_t index, Drop reason);
  bool make_room(size_t bytes, uint8_t qos);
  uint16_t next_packet_id();
  size_t find(uint16_t packet_id) const;  // index in inflight_, or its size
  void erase_inflight(size_t index, Instant now);
  void send_inflight(Inflight& entry, Instant now);
  void send_pubrel(uint16_t packet_id, ReasonCode reason);
  bool fits(const Outgoing& message, const Copy& copy, Instant now);
  void write(Outgoing& message, const Copy& copy, Instant now);
  std::vector<Inbound>::iterator find_inbound(uint16_t packet_id, uint8_t qos);

  SessionContext* context_;
  std::string client_id_;
  Output* output_ = nullptr;
  Attachment attachment_;
  uint32_t expiry_ = 0;
  Instant detached_at_{};
  std::optional<SessionWill> will_;
  std::map<std::string, Subscription, std::less<>> subscriptions_;
  Ring<Inflight> inflight_;
  size_t resent_ = 0;  // inflight_[0, resent_) were sent on this connection
  Ring<Queued> mqueue_;
  size_t mqueue_bytes_ = 0;
  size_t mqueue_qos0_ = 0;
  std::vector<Inbound> inbound_;
  size_t awaiting_release_ = 0;
  uint16_t last_packet_id_ = 0;
};

}  // namespace ph::session
