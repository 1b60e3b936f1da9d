// Session: what a client leaves with the broker and finds again when it reconnects: subscriptions, messages in flight,
// the mqueue, the state of QoS 2. A pure core: it is handed `now` and an Output, and belongs to one worker at a time
// (it moves as a value of its own, docs/sessions_move.md in service/broker).
//
// Outbound order: inflight_ (packet ids given, in the order of first sending), then mqueue_. What is sent goes from
// mqueue_ to inflight_ and leaves it with the last ack. Repeats happen after a reconnect only, in the original order
// [MQTT-4.4.0-1]. Bounds: limits.h, each with a Drop reason.
//
// A durable session (keep()) tells its changes to the context's Keeper. While its client is away all of it lies in the
// store alone, what was in flight first; while it is far behind, its queue does. It comes back in pages: memory does
// not grow with the backlog. Packet ids follow from
// the entries' sequences, so that they are the same after a restart without having been written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/time.h"
#include "core/session/counters.h"
#include "core/session/keeper.h"
#include "core/session/message.h"
#include "core/session/ring.h"
#include "core/session/topic_aliases.h"

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
  Outgoing outgoing;         // for messages that come out of queues
  Keeper* keeper = nullptr;  // null: nothing is durable
};

struct SessionRecord;

/// Wire value of "never expires" (section 3.1.2.11.2).
inline constexpr uint32_t kNeverExpires = 0xFFFFFFFF;

struct Subscription {
  uint8_t qos = 0;
  bool no_local = false;
  bool retain_as_published = false;
  uint32_t id = 0;         // 0: none
  uint32_t place = 0;      // the router's: node of the filter index
  uint32_t slot = 0;       // the router's: position there
  bool exclusive = false;  // the router's: nobody else may have this filter
  SharedKey shared;  // the router's: set while the session is a member of the group; place and slot are unused then
};

/// Session::owner(): user name and mountpoint in one text. Neither can hold a control character.
struct Owner {
  ByteView username, mountpoint;
};
inline std::string owner_of(ByteView username, ByteView mountpoint) {
  return std::string(username).append("\n").append(mountpoint);
}
inline Owner owner_parts(ByteView owner) {
  const size_t end = std::min(owner.find('\n'), owner.size());
  return {owner.substr(0, end), owner.substr(std::min(end + 1, owner.size()))};
}

struct SharedMessage {
  MessagePtr message;
  SharedKey shared;
  uint64_t sequence = 0;  // of its entry in the store; 0: none
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
  uint16_t topic_alias_max = 0;  // of aliases towards the client
  std::string mountpoint;        // in front of every topic, not for the client to see
};

class Session {
 public:
  Session(std::string client_id, SessionContext& context) : context_(&context), client_id_(std::move(client_id)) {}

  const std::string& client_id() const { return client_id_; }
  /// Whose it is: user name and mountpoint. What waits in it is for nobody else who comes with the client id.
  const std::string& owner() const { return owner_; }
  void set_owner(std::string owner) { owner_ = std::move(owner); }
  /// After a move to another worker.
  void set_context(SessionContext& context);

  // --- durability
  /// From now on everything that must survive is told to the context's Keeper, under this uid.
  void keep(uint64_t uid);
  bool durable() const { return uid_ != 0; }
  uint64_t uid() const { return uid_; }
  SessionRecord record() const;
  /// A fresh session becomes the one of the record; its queue stays in the store until it is needed.
  void restore(uint64_t uid, const SessionRecord& record, Instant now);
  /// The Keeper's own.
  struct {
    bool touched = false;
    bool waking = false;
  } marks;

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
  /// Before end(): takes out, in order, what shared subscriptions brought and the client may not have, for other
  /// members of their groups: what was not sent, and QoS 1 that was not acknowledged. QoS 2 that was sent is for this
  /// client only [MQTT-4.8.2-5].
  std::vector<SharedMessage> take_shared();
  /// Counts what is lost with the session.
  void end();
  size_t queued() const { return mqueue_.size() + stored_.count; }
  size_t queued_bytes() const { return mqueue_bytes_ + stored_.bytes; }
  /// More would soon be dropped: who can wait should.
  bool over_half_full() const;
  /// Messages of the queue that are in memory.
  size_t resident() const { return mqueue_.size(); }
  size_t in_flight() const { return inflight_.size(); }

 private:
  /// A message in flight or waiting. In inflight_ it has a packet id; `released` is PUBREL instead of PUBLISH, for
  /// QoS 2. `sequence` is its name in the store; 0: not durable.
  struct Entry : KeptEntry {
    bool sent = false;        // ever; in mqueue_: maybe, before a restart
    bool pubrel_due = false;  // PUBREL waits until `turn` is durable
    uint64_t turn = 0;        // that made it, or released it, durable
  };
  /// The part of the queue that is in the store only: behind all of mqueue_.
  struct Stored {
    uint64_t first = 0;  // no entry of it has a lower sequence
    size_t count = 0;
    size_t bytes = 0;
    uint64_t turn = 0;    // of the last change
    uint64_t quiet = 0;   // turn before which it is not read: what has left it may still be there
    uint64_t unsent = 0;  // no entry below it is one that was never sent; 0: not known
    bool unsure = false;  // after a restart: the count is what the record says, the store knows
    bool empty() const { return count == 0 && !unsure; }
  };
  struct Inbound {
    uint16_t packet_id = 0;
    uint8_t qos = 0;
    bool taking = false;
  };

  Keeper& keeper() const { return *context_->keeper; }
  bool may_send(uint64_t turn);
  void note(const Copy& copy, const MessagePtr& message, uint64_t sequence);
  Entry make_entry(Outgoing& message, const Copy& copy);
  void forget(const Entry& entry);
  void store_only(Entry entry);
  void spill();
  bool drop_stored();
  bool load_page();
  bool promote();
  void send_due_pubrels();
  bool congested();
  size_t window() const;
  /// `passing`: it does not wait for the client, so the queue's bounds do not count.
  void enqueue(Outgoing& message, const Copy& copy, bool passing = false);
  void drop_queued(size_t index, Drop reason);
  bool make_room(size_t bytes, uint8_t qos);
  uint16_t next_packet_id();
  size_t find(uint16_t packet_id) const;  // index in inflight_, or its size
  void erase_inflight(size_t index, Instant now);
  void send_inflight(Entry& entry, Instant now);
  void send_pubrel(uint16_t packet_id, ReasonCode reason);
  bool fits(const Outgoing& message, const Copy& copy, Instant now);
  void write(Outgoing& message, const Copy& copy, Instant now);
  size_t mount_size(ByteView topic) const;
  std::vector<Inbound>::iterator find_inbound(uint16_t packet_id, uint8_t qos);

  SessionContext* context_;
  std::string client_id_;
  std::string owner_;
  Output* output_ = nullptr;
  Attachment attachment_;
  std::unique_ptr<TopicAliases> aliases_;  // null: the client wants none
  uint32_t expiry_ = 0;
  Instant detached_at_{};
  std::optional<SessionWill> will_;
  std::map<std::string, Subscription, std::less<>> subscriptions_;
  Ring<Entry> inflight_;
  size_t resent_ = 0;  // inflight_[0, resent_) were sent on this connection
  Ring<Entry> mqueue_;
  size_t mqueue_bytes_ = 0;
  size_t mqueue_qos0_ = 0;
  Stored stored_;
  uint64_t uid_ = 0;  // 0: not durable
  uint64_t next_sequence_ = 1;
  size_t maybe_sent_ = 0;  // so many of the next entries from the store may have been sent before a restart
  size_t pubrels_due_ = 0;
  std::vector<Inbound> inbound_;
  size_t awaiting_release_ = 0;
  uint16_t last_packet_id_ = 0;
};

}  // namespace ph::session
