#include "store/commit/disk_floor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace ph::commit {
namespace {

constexpr uint64_t kSlackMax = 4ull << 20;  // above the reserve, before intake goes on: no stopping at every segment
constexpr uint64_t kMiB = 1ull << 20;

}  // namespace

uint64_t DiskFloor::reserve_of(const port::DiskSpace& space) const {
  return std::min(reserve_, space.total / kShareOfDisk);
}

Result<> DiskFloor::admit(uint64_t growth) {
  auto space = files_.space(directory_);
  if (!space) return {};
  uint64_t reserve = reserve_of(*space);
  if (space->available >= reserve && space->available - reserve >= growth) return {};
  if (growth > refused_growth_) refused_growth_ = growth;  // written on the disk thread, but for its reset
  refusals_.fetch_add(1, std::memory_order_relaxed);
  return fail(port::file_errors::no_space,
              fmt::format("{}: {} MiB are left, of which {} MiB are the reserve; {} bytes do not fit", directory_,
                          space->available / kMiB, reserve / kMiB, growth));
}

bool DiskFloor::room() {
  const Instant now = loop_.now();
  if (looked_ && now - *looked_ < kLookEvery && refused_growth_ == 0) return !shortage_;
  if (looked_ && shortage_ && now - *looked_ < kLookEvery) return false;
  looked_ = now;
  auto space = files_.space(directory_);
  if (!space) return !shortage_;
  const uint64_t reserve = reserve_of(*space);
  // What was refused must fit, unless it never could: then it comes again in smaller groups.
  const bool was_short = shortage_ || refused_growth_ > 0;
  const uint64_t growth = std::min<uint64_t>(refused_growth_, space->total / 8);
  const uint64_t wanted = reserve + std::max(growth, std::min(kSlackMax, reserve / 4));
  if (space->available >= (was_short ? wanted : reserve)) {
    if (shortage_) log_info("disk_has_room", {{"directory", directory_}, {"free_bytes", space->available}});
    shortage_.reset();
    refused_growth_ = 0;
    return true;
  }
  if (!shortage_)
    log_error("disk_full", {{"directory", directory_}, {"free_bytes", space->available}, {"reserve", reserve}});
  shortage_ = fmt::format("{}: {} MiB are free; intake waits until there are {} MiB, of which {} MiB are the reserve",
                          directory_, space->available / kMiB, (wanted + kMiB - 1) / kMiB, reserve / kMiB);
  return false;
}

}  // namespace ph::commit
