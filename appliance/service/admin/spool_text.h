// What `posthouse spool list | check | repair` show of the logs on disk: for a person, and as JSON.
#pragma once

#include <string>
#include <vector>

#include "store/spool/spool_check.h"

namespace ph::admin {

struct SpoolFinding {
  std::string name;        // of the log: a route, or what is sent again of one
  bool configured = true;  // some route of the configuration reads it
  bool checked = false;    // every record was read: records and events are known
  spool::SpoolReport report;
  uint64_t repaired = 0;  // places
  uint64_t quarantined_bytes = 0;
};

std::string spool_text(const std::vector<SpoolFinding>& findings);
std::string spool_json(const std::vector<SpoolFinding>& findings);

}  // namespace ph::admin
