// How fast a receiver acknowledges, and a bucket that holds senders to a rate. Pure; part of the sender.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace ph::link {

/// The rate at which one connection acknowledges, measured while something is in flight.
class Pace {
 public:
  static constexpr size_t kBatchMin = 4 * 1024;
  static constexpr size_t kBatchFirst = 16 * 1024;  // until something is known
  static constexpr size_t kBatchMax = 256 * 1024;

  /// Something is in flight where nothing was.
  void begin(Instant now) {
    since_ = now;
    bytes_ = 0;
  }
  void acked(size_t bytes, Instant now) {
    bytes_ += bytes;
    Duration took = now - since_;
    if (took <= Duration::zero()) return;
    auto seen = static_cast<uint64_t>(static_cast<double>(bytes_) / std::chrono::duration<double>(took).count());
    if (took < kWindow) {  // what was seen so far is at least possible
      rate_ = std::max(rate_, seen);
      return;
    }
    rate_ = rate_ ? (rate_ + seen) / 2 : seen;
    begin(now);
  }
  /// Bytes per second; 0: not known yet.
  uint64_t rate() const { return rate_; }
  size_t batch_bytes() const {
    return rate_ == 0 ? kBatchFirst : static_cast<size_t>(std::clamp<uint64_t>(rate_, kBatchMin, kBatchMax));
  }

 private:
  static constexpr Duration kWindow = 1s;
  Instant since_{};
  uint64_t bytes_ = 0;
  uint64_t rate_ = 0;
};

/// Tokens of bytes. A frame may go while there are any and takes all that it needs, so the bucket can be in debt.
class Bucket {
 public:
  void set(std::optional<uint64_t> rate, Instant now) {
    if (rate == rate_) return;
    refill(now);
    rate_ = rate;
    filled_ = now;
    tokens_ = std::min<double>(tokens_, burst());
  }
  bool open(Instant now) {
    if (!rate_) return true;
    refill(now);
    return tokens_ > 0;
  }
  void take(size_t bytes) {
    if (rate_) tokens_ -= static_cast<double>(bytes);
  }
  /// When open() may be true again; max() if it is, or never will be at this rate.
  Instant opens_at() const {
    if (!rate_ || tokens_ > 0 || *rate_ == 0) return Instant::max();
    return filled_ + std::chrono::ceil<std::chrono::milliseconds>(
                         std::chrono::duration<double>((1 - tokens_) / static_cast<double>(*rate_)));
  }
  const std::optional<uint64_t>& rate() const { return rate_; }

 private:
  double burst() const { return static_cast<double>(rate_.value_or(0)) / 10; }
  void refill(Instant now) {
    if (rate_ && now > filled_)
      tokens_ = std::min(burst(),
                         tokens_ + static_cast<double>(*rate_) * std::chrono::duration<double>(now - filled_).count());
    filled_ = std::max(filled_, now);
  }
  std::optional<uint64_t> rate_;
  double tokens_ = 0;
  Instant filled_{};
};

}  // namespace ph::link
