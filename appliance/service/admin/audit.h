// Audit: do the counters of a node add up? Takes the status document, so that it judges what everybody else sees.
// For each route and target, in = delivered + dropped + dead_lettered + queued, and no part of `dropped` is greater
// than the whole. Duplicates are told beside it: they were acknowledged and are part of delivered.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ph::admin {

struct AuditRow {
  std::string route;
  std::string target;
  uint64_t in = 0;
  uint64_t delivered = 0;
  uint64_t dropped = 0;
  uint64_t dead_lettered = 0;
  uint64_t queued = 0;
  uint64_t duplicate = 0;
  uint64_t maybe_duplicate = 0;
  /// in less what became of it: more than 0, events are missing; less, there are too many.
  int64_t difference = 0;
  std::string fault;  // in words; empty: it adds up
};

struct Audit {
  std::vector<AuditRow> rows;
  bool sound() const;
};

/// Errors: admin.malformed.
Result<Audit> audit(std::string_view status_json);
std::string to_text(const Audit& audit);
std::string to_json(const Audit& audit);

}  // namespace ph::admin
