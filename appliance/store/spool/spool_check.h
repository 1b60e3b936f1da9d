// Offline tools for a segment log: `posthouse spool list | check | repair`. They must not run while a daemon owns the
// log. With the store at hand they know where acknowledged data ends; without it, what stands behind the last whole
// record of the newest segment counts as a torn tail, not as damage.
//
// Repair changes no offset and no sequence. Of a batch that can be read from one of its ends both ends are written
// anew, and the index calls a gap what is lost; any other damaged place is overwritten by one gap record
// (segment_format.h) of the same length, which reads as a gap with the events that were lost. What is missing at the
// end of a file is put there as a gap record too. The bytes that stood there are kept in <segment>.quarantine, a run of
// entries, little-endian:
//   0  8  magic "PHQUAR1\n"
//   8  8  offset in the segment
//  16  8  length
//  24     the bytes
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "store/spool/segment_format.h"

namespace ph::spool {

/// Where a log lies. `store` may be null: wiped, or not readable.
struct SpoolPlace {
  port::Files& files;
  port::KeyedStore* store = nullptr;
  std::string name;
  std::string directory;  // <data_dir>/spool/<name>
};

struct SegmentReport {
  std::string file;
  uint64_t first = 0;  // sequences [first, last)
  uint64_t last = 0;
  uint64_t bytes = 0;
  uint64_t records = 0;  // whole ones; list_spool() leaves this and events at 0
  uint64_t events = 0;
  uint64_t gaps = 0;  // gap records: earlier repairs
  std::vector<Damage> damage;
  uint64_t begins = 0;  // sequence and total of events at which it takes over: for a header that must be rebuilt
  uint64_t events_before = 0;
  uint64_t epoch = 0;
  std::string note;  // what is worth a line but no damage
};

struct SpoolReport {
  std::vector<SegmentReport> segments;
  std::optional<DurableEnd> end;      // as the store has it
  uint64_t floor = kFirstSequence;    // everything below was released
  uint64_t unacknowledged_bytes = 0;  // behind the durable end or the last whole record: recovery cuts them
  size_t damaged_places() const {
    size_t n = 0;
    for (const auto& s : segments) n += s.damage.size();
    return n;
  }
};

/// Segments with sequence ranges and sizes from names and headers, and the damage that the daemon has found so far.
Result<SpoolReport> list_spool(const SpoolPlace& place);

/// Reads everything. Damage is a finding, not an error: `damaged_places()` tells. Errors: file.*, store.*,
/// spool.newer_version.
Result<SpoolReport> check_spool(const SpoolPlace& place);

struct RepairReport {
  SpoolReport before;
  uint64_t places = 0;             // repaired
  uint64_t quarantined_bytes = 0;  // kept in .quarantine files
};
/// Checks, then repairs all damage; a check that follows is clean. Crash-safe: a segment is replaced by rename after
/// its bad bytes are durable beside it.
Result<RepairReport> repair_spool(const SpoolPlace& place);

}  // namespace ph::spool
