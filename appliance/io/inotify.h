// IoWatcher: port::Watcher over inotify, on one loop. Events of one read are handed over together, each (directory,
// name) once: they only say where to look. A watch ends when its directory goes; that is told once with an empty name.
//
// Bounds: kWatchBytes of events a turn; the kernel's queue (fs.inotify.max_queued_events), whose overflow is told as an
// event; the kernel's number of watches, whose end is an error of add().
#pragma once

#include <memory>

#include "io/loop.h"
#include "port/files.h"

namespace ph::io {

inline constexpr size_t kWatchBytes = 64 * 1024;

class IoWatcher final : public port::Watcher {
 public:
  /// `watch` is called on the loop, never from inside add() or remove().
  static Result<std::unique_ptr<IoWatcher>> make(IoLoop& loop, port::WatchFn watch);
  ~IoWatcher() override;

  /// Adding a directory again is allowed and renews a watch that ended.
  Result<> add(const std::string& directory) override;
  void remove(const std::string& directory) override;

 private:
  class Core;
  explicit IoWatcher(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace ph::io
