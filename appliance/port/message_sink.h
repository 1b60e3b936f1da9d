// Where MQTT and events meet: the tap (publishes become events) and the sink (events become publishes). The broker and
// the event plane know each other only through these.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "port/keyed_store.h"
#include "port/loop.h"

namespace ph::port {

/// An MQTT application message between broker and event plane.
struct Message {
  std::string topic;
  Slice payload;
  uint8_t qos = 0;
  bool retain = false;
  uint64_t expiry_seconds_plus_one = 0;  // 0: none
  std::string properties;                // MQTT 5 properties, encoded, without length, alias, subscription id, expiry
  // To a tap: the key under which it writes, in the same commit, what the message waits for at far ends. Empty: none.
  std::string far_key;
  // To a sink: what it is called over restarts: its place in its source's stream. 0: nobody remembers it.
  StreamId stream{};
  uint64_t position = 0;
  uint64_t part = 0;
};

namespace errors {
/// A tap's answer to what it can take at no time: it does not fit the event plane.
inline constexpr ErrorCode never_taken{"relay.message_too_large"};
}  // namespace errors

/// Implemented by the event plane, called by broker workers.
class MessageTap {
 public:
  virtual ~MessageTap() = default;
  /// Whether a route wants this topic. Cheap, callable from any worker: matched against an immutable snapshot.
  virtual bool wants(std::string_view topic) const = 0;
  /// Takes a message for every matching route. `done` runs on the event plane's loop, once the message is as durable as
  /// its routes ask ("local": the group commit; "far": the end of its way); the caller posts back to its own loop. An
  /// error (spool full, disk) means that nothing was kept: no PUBACK, or 0x97 to a version 5 client.
  /// `with`: store entries that become durable together with it, or not at all (amendment 21: what remembers the packet
  /// id of a QoS 2 message).
  virtual void take(Message message, WriteBatch with, std::move_only_function<void(Result<>)> done) = 0;
  /// After a restart: goes on waiting for what stands under a far_key. `done` runs on the event plane's loop when it
  /// has come, or when nothing is known of it any more.
  virtual void resume_far(std::string waits_for, Task done) {
    (void)waits_for;
    done();
  }
};

/// Implemented by the broker, called on the event plane's loop.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// Publishes to local subscribers. `done` runs on the event plane's loop when it is in the sessions' queues, which is
  /// while none of these queues is over half full: a message for a connected client that keeps reading waits for room,
  /// one for a client that is offline or has stalled does not, and is subject to its queue's bounds. So who has little
  /// outstanding never overruns anybody who reads. The hop
  /// list stays with the event plane: a message from a sink is not tapped again unless a route leads to a site that
  /// is not on it.
  virtual void publish(Message message, std::move_only_function<void(Result<>)> done) = 0;
  /// Whether durable sessions remember what they got by its stream and position, so that a message that is published
  /// again after a restart reaches nobody twice. Then the cursor is moved by settle().
  virtual bool remembers() const { return false; }
  /// All of the stream below `upto` is answered: `cursor` is committed, in one batch with the end of what was
  /// remembered of it. `done` runs on the event plane's loop.
  virtual void settle(StreamId stream, uint64_t upto, WriteBatch cursor, Task done) {
    (void)stream, (void)upto, (void)cursor, (void)done;
  }
};

}  // namespace ph::port
