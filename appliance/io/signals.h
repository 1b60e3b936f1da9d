// Signals: the process's signals as calls on a loop. SIGTERM and SIGINT ask to stop, SIGHUP to reload.
#pragma once

#include <memory>

#include "io/loop.h"

namespace ph::io {

/// Ignores SIGPIPE (a closed peer is an error value here) and SIGIO (a breaking lease announces itself by it, and its
/// default ends the process). Call first in main, before threads.
void ignore_signals();

class Signals {
 public:
  /// `stop` gets the signal's number, each time one comes; `reload` likewise on SIGHUP. One Signals a process.
  Signals(IoLoop& loop, std::move_only_function<void(int)> stop, port::Task reload);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace ph::io
