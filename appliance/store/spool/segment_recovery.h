// Recovery: what opening a segment log finds on disk, brought in line with the store's durable end. Runs before the
// loop, or on the disk thread. Reads no segment below the durable end: those are only listed, so that 20,000 segments
// open in well under 5 s; their records are checked when they are read, and by `spool check`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "port/files.h"
#include "port/keyed_store.h"
#include "store/spool/segment_format.h"
#include "store/spool/segment_log.h"

namespace ph::spool {

/// Disjoint ranges of sequences: first -> last, exclusive.
using Ranges = std::map<uint64_t, uint64_t>;
void add(Ranges& ranges, uint64_t first, uint64_t last);
bool contains(const Ranges& ranges, uint64_t first, uint64_t last);

struct Recovered {
  struct Segment {
    uint64_t first = 0;
    uint64_t bytes = 0;  // of its file, without what was cut
  };
  std::vector<Segment> segments;  // ascending
  DurableEnd end;
  uint64_t floor = kFirstSequence;
  uint64_t quarantined = 0;
  uint64_t looked_after = 0;
  std::vector<Damage> known_damage;
  Ranges released;
  std::unique_ptr<port::File> active;  // the end's segment, if appending to it may go on
};

/// Errors: file.*, store.*, spool.newer_version.
Result<Recovered> recover(const SegmentLogOptions& options, port::Files& files, port::KeyedStore& store,
                          Random& random);

/// Segment files of a directory, ascending, with the bytes of each. A missing directory has none.
Result<std::vector<Recovered::Segment>> list_segments(port::Files& files, const std::string& directory);

/// The log's durable end as the store has it; nullopt if it has none. Errors: store.*, spool.newer_version,
/// spool.damaged.
Result<std::optional<DurableEnd>> stored_end(port::KeyedStore& store, const std::string& log_name);

/// Cuts files back to what was acknowledged of them (0: deletes them), durably. Missing files are fine.
Result<> clean_leftovers(port::Files& files, const std::string& directory,
                         const std::map<uint64_t, uint64_t>& leftovers);
std::string leftover_key(const std::string& log_name, uint64_t segment);

/// What release_range() left in the store.
Result<Ranges> stored_released(port::KeyedStore& store, const std::string& log_name);
std::string released_key(const std::string& log_name, uint64_t first);

/// A u64 put by put_key; nullopt if missing or malformed.
Result<std::optional<uint64_t>> stored_number(port::KeyedStore& store, const std::string& key);

}  // namespace ph::spool
