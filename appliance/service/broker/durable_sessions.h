// DurableSessions: a worker's way to the journal. Implements session::Keeper: collects what the worker's sessions
// change during a turn as encoded records, hands them in as one batch, and lets wait what must not happen before they
// are on disk. Owned by the worker, lives on its loop.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/session/keeper.h"
#include "core/session/records.h"
#include "core/session/session.h"
#include "service/broker/journal.h"

namespace ph::broker {

class DurableSessions final : public session::Keeper, public session::MessageNumbers {
 public:
  /// `schedule`: flush() is to be called at the end of this turn.
  DurableSessions(uint32_t worker, Journal& journal, port::Loop& loop, std::function<void()> schedule)
      : worker_(worker), journal_(journal), loop_(loop), schedule_(std::move(schedule)) {}

  // session::Keeper
  void add(uint64_t uid, uint64_t sequence, const session::MessagePtr& message, uint8_t qos, bool retain,
           std::span<const uint32_t> subscription_ids, const session::SharedKey& shared) override;
  void change(uint64_t uid, const session::KeptEntry& entry, uint64_t number) override;
  void remove(uint64_t uid, uint64_t sequence, uint64_t number) override;
  void inbound(uint64_t uid, uint16_t packet_id, bool awaits) override;
  void touch(session::Session& session) override;
  uint64_t turn() const override { return turn_; }
  bool durable(uint64_t turn) const override { return turn <= durable_; }
  bool may_send(uint64_t turn) const override { return !waits() || durable(turn); }
  void wake(session::Session& session) override;
  session::KeptPage load(uint64_t uid, uint64_t from, size_t messages_max, size_t bytes_max) override;

  // session::MessageNumbers
  uint64_t next() override;

  // --- more of a session's records
  void subscribed(uint64_t uid, const std::string& filter, const session::Subscription& subscription);
  void unsubscribed(uint64_t uid, const std::string& filter);
  void will(uint64_t uid, const std::optional<session::SessionWill>& will);
  void retained(const std::string& topic, uint64_t version, const session::MessagePtr& message);
  /// A message for later: written down, then maybe changed, then gone. `redo`: sessions of other workers have it, too.
  void put_off(const session::MessagePtr& message, const session::DelayedRecord& record);
  port::WriteBatch tapping(uint64_t number, const session::DelayedRecord& record) const;
  void delayed_done(uint64_t number, bool redo);
  /// The session leaves this worker, or is about to end: writes its record down, forgets the object.
  void leave(session::Session& session);
  /// It leaves without a trace: its record stands for it, or is gone.
  void forget(session::Session& session);
  /// It has ended, and what shared subscriptions brought it is on its way to others: after a restart, too. Instead of
  /// its record, in the same turn, so that it never stands beside the record of a session that takes its place.
  void ending(const session::Session& session);
  void ended(uint64_t uid);
  /// A QoS 2 message that is written down before it is routed: `message` is `redo`.
  void record(uint64_t uid, uint16_t packet_id, const session::MessagePtr& message);
  /// The same as entries for somebody else's commit, after which record() follows.
  port::WriteBatch recording(uint64_t uid, uint16_t packet_id, const session::Message& message) const;
  /// It is in all queues, durably.
  void routed(uint64_t uid, uint16_t packet_id, uint64_t number);

  /// What the message still waits for at far ends has come.
  void far_reached(uint64_t uid, uint16_t packet_id) { erase(session::keys::far(uid, packet_id)); }
  /// Whether a session got this event before the restart; uid 0: any session, by that shared subscription.
  bool got(const session::Origin& origin, uint64_t uid, const session::SharedKey& shared);

  // --- waiting
  /// Whether clients have to wait for the disk at all.
  bool waits() const { return journal_.durability() == Durability::fsync; }
  bool behind() const { return journal_.behind(); }
  bool far_behind() const { return journal_.far_behind(); }
  /// Records changed so far: tells whether a client's packets cost the disk anything.
  uint64_t changes() const { return changes_; }
  /// Entries added so far: tells whether a fan-out reached a durable session here.
  uint64_t added() const { return added_; }
  /// Runs `then` when the turn is durable; at once if it is, or if nobody waits.
  void after(uint64_t turn, port::Task then);
  /// The same where clients do not wait for the disk, but this has to.
  void once_durable(uint64_t turn, port::Task then);
  void cover(uint32_t source, uint64_t sequence) {
    batch_.covers.push_back({source, sequence});
    dirty_ = true;
  }
  /// Something has to be told to the journal, if only that nothing changed.
  void mark_dirty() {
    if (!std::exchange(dirty_, true)) schedule_();
  }

  /// The end of a turn.
  void flush();
  void on_durable(uint64_t turn);

 private:
  session::Clock clock() const { return {loop_.now(), loop_.wall_now()}; }
  void put(std::string key, std::string value);
  void erase(std::string key);

  const uint32_t worker_;
  Journal& journal_;
  port::Loop& loop_;
  std::function<void()> schedule_;
  JournalBatch batch_;
  bool dirty_ = false;
  bool urgent_ = false;
  uint64_t turn_ = 1;
  uint64_t durable_ = 0;
  uint64_t added_ = 0;
  uint64_t changes_ = 0;
  std::vector<session::Session*> touched_;
  std::deque<std::pair<uint64_t, session::Session*>> waking_;  // by turn
  std::deque<std::pair<uint64_t, port::Task>> waiting_;        // by turn
  uint64_t numbers_next_ = 0;
  uint64_t numbers_end_ = 0;
};

}  // namespace ph::broker
