// Alarms: what is wrong with the node now, each with a stable code, what it is about, and since when. One list, kept by
// the event plane's loop, for the status document and the log. Whoever knows of something wrong says so each time it is
// asked; what is said for the first time is an alarm raised, what is no longer said is one that is over. Both are
// logged.
//
// Codes are a contract: disk_full, store_write_failed, group_commit_failed, files_not_written, category_blocked,
// store_damaged, store_log_damaged, store_keys_restored, store_journal_damaged, records_quarantined, stream_renewed,
// spool_full, spool_orphaned, streams_held, upstream_strict_waits, upstream_unreachable, seen_forgotten_early.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace ph::admin {

struct Alarm {
  std::string code;
  std::string about;  // a route, an upstream, a directory; with the code it makes the alarm's identity
  std::string text;
  WallTime since{};
};

class Alarms {
 public:
  static constexpr size_t kMax = 100;  // the rest is not listed; a node in such a state has a few causes, not hundreds

  /// `now_wrong`: all of it, in the order to show; `since` is filled in here. Of the same alarm the first counts.
  void update(std::vector<Alarm> now_wrong, WallTime now);
  const std::vector<Alarm>& list() const { return list_; }

 private:
  const Alarm* find(const std::vector<Alarm>& in, const Alarm& what) const;
  std::vector<Alarm> list_;
};

}  // namespace ph::admin
