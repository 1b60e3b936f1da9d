// A node that cannot start for now: its disk is full, or its store is damaged. It says so by the status document and in
// the log, and waits until a start is worth another try, instead of ending, which would take the way to find out with
// it.
#pragma once

#include <memory>
#include <string>

#include "core/settings/settings.h"
#include "host/notify.h"
#include "io/http_unix.h"
#include "io/loop.h"
#include "io/signals.h"
#include "service/admin/alarms.h"

namespace ph {

/// Whether waiting can help: someone makes room, or puts the store right.
bool may_wait(const Error& why);

class WaitingStart {
 public:
  static constexpr Duration kRetry = 1s;

  explicit WaitingStart(const settings::Settings& settings);
  /// Answers at the API's socket while the start waits. Errors: http.*.
  Result<> listen();
  /// Waits because of `why`. False: the process is to end.
  bool wait(const Error& why);
  /// Whether it was asked to end meanwhile.
  bool stopping();

 private:
  std::string status_document() const;

  const settings::Settings& settings_;
  io::IoLoop loop_;
  io::Signals signals_;
  Instant started_;
  bool stopping_ = false;
  admin::Alarms alarms_;
  std::unique_ptr<io::HttpUnixServer> api_;
  std::unique_ptr<host::Watchdog> watchdog_;
};

}  // namespace ph
