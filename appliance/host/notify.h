// What systemd is told: ready, stopping, and that the loops make progress. Outside of systemd all of it does nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "port/loop.h"

namespace ph::host {

void notify_ready(const std::string& status);
void notify_stopping();
/// Between the two a configuration is applied; systemd wants to know since when.
void notify_reloading(Instant now);
void notify_reloaded();

/// Feeds systemd's watchdog (WatchdogSec=) from `loop`, twice as often as it asks, and only while every loop of
/// `workers` has run a task since the time before: a loop that hangs gets the process restarted. Bounds: one task a
/// worker under way.
class Watchdog {
 public:
  Watchdog(port::Loop& loop, std::vector<port::Loop*> workers);
  ~Watchdog();
  bool enabled() const { return interval_ > Duration::zero(); }

 private:
  struct Beats;
  void beat();

  std::vector<port::Loop*> workers_;
  Duration interval_{};
  std::shared_ptr<Beats> beats_;  // shared with tasks that may outlive us
  std::unique_ptr<port::Timer> timer_;
};

}  // namespace ph::host
