#include "host/notify.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <atomic>

#include "base/log.h"

namespace ph::host {

void notify_ready(const std::string& status) {
  sd_notify(0, ("READY=1\nSTATUS=" + status).c_str());
}

void notify_stopping() {
  sd_notify(0, "STOPPING=1");
}

void notify_reloading(Instant now) {
  auto since = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  sd_notify(0, ("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(since)).c_str());
}

void notify_reloaded() {
  sd_notify(0, "READY=1");
}

struct Watchdog::Beats {
  explicit Beats(size_t workers) : answered(workers) {
    for (auto& a : answered) a.store(true, std::memory_order_relaxed);
  }
  std::vector<std::atomic<bool>> answered;
};

Watchdog::Watchdog(port::Loop& loop, std::vector<port::Loop*> workers)
    : workers_(std::move(workers)), beats_(std::make_shared<Beats>(workers_.size())), timer_(loop.make_timer()) {
  uint64_t usec = 0;
  if (sd_watchdog_enabled(0, &usec) <= 0) return;
  interval_ = std::chrono::microseconds(usec) / 2;
  beat();
}

Watchdog::~Watchdog() = default;

void Watchdog::beat() {
  bool all = std::all_of(beats_->answered.begin(), beats_->answered.end(), [](const auto& a) { return a.load(); });
  if (all) {
    sd_notify(0, "WATCHDOG=1");
    for (size_t i = 0; i < workers_.size(); ++i) {
      beats_->answered[i] = false;
      workers_[i]->post([beats = beats_, i] { beats->answered[i] = true; });
    }
  } else {
    log_error("worker_made_no_progress",
              {{"interval_ms", std::chrono::duration_cast<std::chrono::milliseconds>(interval_).count()}});
  }
  timer_->start(interval_, [this] { beat(); });
}

}  // namespace ph::host
