// Keeper: where the durable sessions of a worker leave their changes, and where they find again what they do not hold
// in memory. Implemented by service/broker (docs/durability.md there); a session without expiry never calls it.
//
// Time is counted in turns: what is told during a turn becomes durable with it, all or nothing. Everything that must
// not be seen by a client before it is durable (PUBREC, PUBREL, a QoS 2 PUBLISH) remembers its turn and asks
// may_send().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/session/message.h"

namespace ph::session {

class Session;

/// An entry of a session's queue as the store has it.
struct KeptEntry {
  uint64_t sequence = 0;
  MessagePtr message;  // null: released
  std::vector<uint32_t> subscription_ids;
  uint8_t qos = 0;
  bool retain = false;
  bool released = false;
  uint16_t packet_id = 0;  // 0: it follows from the sequence
  SharedKey shared;        // the shared subscription that brought it; null: none
};

struct KeptPage {
  std::vector<KeptEntry> entries;
  uint64_t next = 0;  // where the page behind it begins
  bool end = false;   // nothing is behind it, as far as is on disk already
};

class Keeper {
 public:
  virtual ~Keeper() = default;

  // --- changes of a session's queue
  /// `message` has a number.
  virtual void add(uint64_t uid, uint64_t sequence, const MessagePtr& message, uint8_t qos, bool retain,
                   std::span<const uint32_t> subscription_ids, const SharedKey& shared) = 0;
  /// Something else about an entry; one that is released gives up its message, whose number was `number`.
  virtual void change(uint64_t uid, const KeptEntry& entry, uint64_t number) = 0;
  /// number 0: it had no message any more.
  virtual void remove(uint64_t uid, uint64_t sequence, uint64_t number) = 0;
  /// A QoS 2 message from the client awaits PUBREL, or does not any more.
  virtual void inbound(uint64_t uid, uint16_t packet_id, bool awaits) = 0;
  /// The session's own record is to be written with this turn.
  virtual void touch(Session& session) = 0;

  // --- turns
  virtual uint64_t turn() const = 0;
  /// Whether all that was told up to that turn is on disk.
  virtual bool durable(uint64_t turn) const = 0;
  /// durable(), or the operator does not want to wait for it.
  virtual bool may_send(uint64_t turn) const = 0;
  /// The session's pump() is to be called when this turn, and so all before it, is durable.
  virtual void wake(Session& session) = 0;

  /// Entries from sequence `from` on, as many as fit the bounds, one at least. Reads the store: what was told but is
  /// not durable yet may be missing.
  virtual KeptPage load(uint64_t uid, uint64_t from, size_t messages_max, size_t bytes_max) = 0;
};

}  // namespace ph::session
