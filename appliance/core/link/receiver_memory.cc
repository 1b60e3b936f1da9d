#include "core/link/receiver_memory.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace ph::link {

void ReceiverMemory::close(Account& account) {
  PH_ASSERT(accounts_ > 0, "an account is opened before it is closed");
  --accounts_;
  if (account.busy_) --busy_;
  if (account.waiting()) std::erase(waiting_, &account);
  in_memory_ -= account.reserved_;
  account = {};
}

bool ReceiverMemory::admit(Account& account, uint64_t size) {
  PH_ASSERT(!account.waiting() && size > 0, "one frame of a connection at a time");
  finished(account);
  if (waiting_.empty() && fits(size)) {
    reserve(account, size);
    return true;
  }
  ++waits_;
  account.waits_for_ = size;
  waiting_.push_back(&account);
  return false;
}

ReceiverMemory::Account* ReceiverMemory::let_in() {
  if (waiting_.empty() || !fits(waiting_.front()->waits_for_)) return nullptr;
  Account* next = waiting_.front();
  waiting_.pop_front();
  reserve(*next, next->waits_for_);
  next->waits_for_ = 0;
  return next;
}

void ReceiverMemory::reserve(Account& account, uint64_t size) {
  account.reserved_ = size;
  in_memory_ += size;
  peak_ = std::max(peak_, in_memory_);
}

bool ReceiverMemory::received(Account& account, uint64_t bytes, Instant now) {
  const bool begun_with_credit = account.received_ < account.granted_;
  in_memory_ += bytes;
  in_memory_ -= account.reserved_;
  peak_ = std::max(peak_, in_memory_);
  account.reserved_ = 0;
  account.received_ += bytes;
  account.used_ += bytes;
  if (account.received_ > account.granted_) ++over_credit_;
  // Who has used up most of it is likely to have more, also if it does not know NEED.
  if (account.received_ + share(account) / 4 >= account.granted_) needs(account, now);
  return begun_with_credit;
}

void ReceiverMemory::finished(Account& account) {
  in_memory_ -= std::exchange(account.reserved_, 0);
}

void ReceiverMemory::consumed(uint64_t bytes) {
  PH_ASSERT(bytes <= in_memory_, "consumed what never came");
  in_memory_ -= bytes;
}

void ReceiverMemory::needs(Account& account, Instant now) {
  account.busy_at_ = now;
  if (!std::exchange(account.busy_, true)) ++busy_;
}

uint64_t ReceiverMemory::share(const Account& account) const {
  if (!account.busy_) return std::clamp(budget_ / 4 / std::max<size_t>(1, accounts_), kShareMin, kRestMax);
  return std::clamp(budget_ / 4 * 3 / std::max<size_t>(1, busy_), kShareMin, kShareMax);
}

std::optional<uint64_t> ReceiverMemory::grant(Account& account, uint64_t consumed) {
  const uint64_t all = share(account);
  // In small steps: what is consumed and not granted again yet is missing from the window of a long way.
  if (consumed + all < account.granted_ + all / 16) return std::nullopt;
  account.granted_ = consumed + all;
  return account.granted_;
}

bool ReceiverMemory::look(Account& account, Instant now) {
  if (!account.busy_ || now - account.busy_at_ < kBusyFor) return false;
  // One that is never short of it may be so because it has so much.
  if (account.used_ >= share(account) / 2) {
    account.busy_at_ = now;
    account.used_ = 0;
    return false;
  }
  account.used_ = 0;
  account.busy_ = false;
  --busy_;
  return true;
}

}  // namespace ph::link
