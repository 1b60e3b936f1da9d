// What waits in spools that nothing reads: the folder of a route that is not configured any more (renamed, removed),
// and what a target that a route lost had not yet got. It was acknowledged to whoever sent it, so somebody must be
// told. At start, before the logs are used.
//
// Store entry: s/<route>/t/<target>/left, u64 key: the durable end when the target was first missed. What came after it
// was never for that target. Removed when the route has the target again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/files.h"
#include "port/keyed_store.h"

namespace ph::spool {

struct Orphan {
  std::string route;
  std::string target;    // empty: nothing reads the route's folder at all
  uint64_t records = 0;  // 0 where the store does not know the log
  uint64_t bytes = 0;    // of segments that hold them
  std::string fault;     // why it cannot be told how much
};

/// `directory`: <data_dir>/spool. `targets`: of each configured route that has a log. May sync. Errors: of the store,
/// of listing `directory`; what is wrong with one folder is in its orphan's `fault`.
Result<std::vector<Orphan>> find_orphans(port::Files& files, port::KeyedStore& store, const std::string& directory,
                                         const std::map<std::string, std::vector<std::string>>& targets);

}  // namespace ph::spool
