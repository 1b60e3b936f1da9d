#include "service/admin/drain.h"

#include <cmath>

namespace ph::admin {

void Drain::note(uint64_t backlog, Instant now) {
  if (at_ && now > *at_) {
    const double past = std::chrono::duration<double>(now - *at_).count();
    const double pace = (static_cast<double>(backlog_) - static_cast<double>(backlog)) / past;
    const double old = std::exp2(-past / std::chrono::duration<double>(kSettleTime).count());
    pace_ = pace_ ? *pace_ * old + pace * (1 - old) : pace;
  }
  // What waited for nothing says nothing about the next queue.
  if (backlog == 0 && backlog_ == 0) pace_.reset();
  at_ = now;
  backlog_ = backlog;
}

std::optional<double> Drain::seconds() const {
  if (!at_) return std::nullopt;
  if (backlog_ == 0) return 0;
  if (!pace_ || *pace_ <= 0) return std::nullopt;
  return static_cast<double>(backlog_) / *pace_;
}

}  // namespace ph::admin
