// ReceiverMemory: how much of the events that senders bring a receiver has in memory, and who may bring how much more.
// Pure; the link server drives it (service/relay/link_server.h) and sends what it grants. docs/credit.md says why so.
//
// One budget for all connections, kept twice over:
//   credit      what a sender may send that was not consumed yet. Who has more to send than that, as NEED or the use of
//               it shows, shares three quarters of the budget with all others that do; everybody else has a little to
//               begin with, out of the last quarter.
//   admission   a frame takes its size of the budget from its first bytes on until it is committed, dropped or refused.
//               What finds no room waits in turn, unread. This is the bound that holds whatever was granted before, and
//               whatever a peer makes of its credit.
//
// Nothing blocks for ever: what is in memory waits for a group commit and for nothing else, neither for a route nor for
// another peer (a stream whose route is full is held, and its frames are dropped and not kept). A frame that is larger
// than the budget is admitted alone.
//
// Units: bytes of EVENTS frames as credit counts them; one that is still on its way by its size on the wire, and a
// compressed one by what it becomes from when it is whole on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/time.h"

namespace ph::link {

class ReceiverMemory {
 public:
  static constexpr uint64_t kShareMax = 16 * 1024 * 1024;  // what 125 ms and 1 Gbit/s need
  static constexpr uint64_t kShareMin = 16 * 1024;         // a sender's first batch; below that frames are crumbs
  static constexpr uint64_t kRestMax = 64 * 1024;          // of who has nothing to wait for
  static constexpr Duration kBusyFor = std::chrono::seconds(2);

  /// One connection. The caller keeps it where it is from open() to close().
  class Account {
   public:
    uint64_t granted() const { return granted_; }
    uint64_t received() const { return received_; }
    bool busy() const { return busy_; }
    /// A frame of it waits to be admitted.
    bool waiting() const { return waits_for_ > 0; }
    /// A frame of it was admitted, and is not whole yet.
    bool admitted() const { return reserved_ > 0; }
    uint64_t admitted_size() const { return reserved_; }

   private:
    friend class ReceiverMemory;
    uint64_t granted_ = 0;
    uint64_t received_ = 0;
    uint64_t reserved_ = 0;   // of the frame that is on its way
    uint64_t waits_for_ = 0;  // size of the frame that is not admitted
    uint64_t used_ = 0;       // received since the last look
    bool busy_ = false;
    Instant busy_at_{};
  };

  explicit ReceiverMemory(uint64_t budget) : budget_(budget) {}

  void open() { ++accounts_; }
  /// What it had in memory stays counted until it is consumed.
  void close(Account& account);

  // --- admission
  /// Whether a frame of `size` may be read, or one that was admitted is larger than was known. If not, nothing of the
  /// connection is to be read until let_in() names it.
  bool admit(Account& account, uint64_t size);
  /// The next in turn whose frame is admitted now; null: nobody.
  Account* let_in();
  /// The frame is whole. It is `bytes` in memory until consumed(). False: it was begun without any credit.
  bool received(Account& account, uint64_t bytes, Instant now);
  /// A frame without events is done with, or one was not kept: it takes nothing any more.
  void finished(Account& account);
  /// `bytes` are in memory no more. Also for what came by a connection that is closed.
  void consumed(uint64_t bytes);

  // --- credit
  /// It has more to send: NEED, or what it made of its credit, says so.
  void needs(Account& account, Instant now);
  /// What to tell it, if that is news: cumulative. `consumed`: of what it sent in all.
  std::optional<uint64_t> grant(Account& account, uint64_t consumed);
  /// Once a second or so. True: it is busy no more, and others may have its share.
  bool look(Account& account, Instant now);

  uint64_t budget() const { return budget_; }
  uint64_t in_memory() const { return in_memory_; }
  uint64_t peak() const { return peak_; }
  size_t busy() const { return busy_; }
  size_t waiting() const { return waiting_.size(); }
  uint64_t waits() const { return waits_; }              // frames that found no room, since the start
  uint64_t over_credit() const { return over_credit_; }  // frames that went over what was granted
  uint64_t share(const Account& account) const;

 private:
  bool fits(uint64_t size) const { return in_memory_ == 0 || in_memory_ + size <= budget_; }
  void reserve(Account& account, uint64_t size);

  const uint64_t budget_;
  size_t accounts_ = 0;
  size_t busy_ = 0;
  uint64_t in_memory_ = 0;
  uint64_t peak_ = 0;
  uint64_t waits_ = 0;
  uint64_t over_credit_ = 0;
  std::deque<Account*> waiting_;
};

}  // namespace ph::link
