#include "store/chunk/retention.h"

#include <algorithm>

#include "base/log.h"

namespace ph::chunk {
namespace {

int64_t nanoseconds(WallTime t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

/// Everything below the link's target is complete and never written to again.
bool is_closed(const ChunkCategory& c, std::string_view file) {
  auto name = parse_file_name(c.name, file);
  return name && c.recovered && c.linked && *name < c.linked;
}

}  // namespace

void AgeClock::tick(Instant now, WallTime wall) {
  const int64_t wall_ns = nanoseconds(wall);
  if (last_) {
    const int64_t expected = wall_ns_ + std::chrono::duration_cast<std::chrono::nanoseconds>(now - *last_).count();
    if (wall_ns - expected > std::chrono::duration_cast<std::chrono::nanoseconds>(kJump).count()) {
      jumped_ns_ += wall_ns - expected;
      before_jump_ns_ = std::max(before_jump_ns_, expected);
    }
  }
  last_ = now;
  wall_ns_ = wall_ns;
}

std::chrono::nanoseconds AgeClock::age_of(int64_t modified_ns) const {
  return std::chrono::nanoseconds(wall_ns_ - modified_ns - (modified_ns <= before_jump_ns_ ? jumped_ns_ : 0));
}

Result<Holding> Retention::look(const ChunkCategory& c, const KeepRule& rule, const AgeClock& clock) {
  Holding found;
  auto listing = files_.list(c.path);
  if (!listing && listing.error().code == port::file_errors::not_found) return found;
  if (!listing) return std::unexpected(std::move(listing).error());
  std::vector<ClosedChunk> closed;
  for (const port::DirectoryEntry& e : *listing) {
    if (e.kind != port::FileKind::regular || !parse_file_name(c.name, e.name)) continue;
    PH_ASSIGN(auto stat, files_.stat(c.path + "/" + e.name));
    if (!stat) continue;  // its consumer took it
    found.bytes += stat->size;
    if (!is_closed(c, e.name)) continue;
    found.closed_bytes += stat->size;
    closed.push_back({e.name, stat->size, stat->modified_ns});
  }
  std::ranges::sort(closed, {}, &ClosedChunk::file);
  auto next = closed.begin();
  for (; next != closed.end() && found.expired.chunks + found.over_max.chunks < kRemovedPerLook; ++next) {
    const bool old = rule.keep && clock.age_of(next->modified_ns) > *rule.keep;
    const bool much = rule.max && found.closed_bytes > *rule.max;
    if (!old && !much) break;
    if (!unlink(c, *next)) break;
    (old ? found.expired : found.over_max).add(next->bytes);
    found.bytes -= next->bytes;
    found.closed_bytes -= next->bytes;
  }
  const auto left = static_cast<size_t>(closed.end() - next);
  found.more = left > kOldestMax;
  found.oldest.assign(std::make_move_iterator(next),
                      std::make_move_iterator(next + static_cast<ptrdiff_t>(std::min(left, kOldestMax))));
  return found;
}

uint64_t Retention::remove(const ChunkCategory& c, const ClosedChunk& chunk) {
  if (!is_closed(c, chunk.file)) return 0;
  auto stat = files_.stat(c.path + "/" + chunk.file);
  if (!stat || !*stat || (*stat)->size != chunk.bytes || (*stat)->modified_ns != chunk.modified_ns) return 0;
  return unlink(c, chunk) ? chunk.bytes : 0;
}

bool Retention::unlink(const ChunkCategory& c, const ClosedChunk& chunk) {
  Result<> gone = files_.unlink(c.path + "/" + chunk.file);
  if (!gone && gone.error().code != port::file_errors::not_found)
    log_warn("chunk_not_removed", {{"category", c.name}, {"error", gone.error().to_string()}});
  return gone.has_value();
}

}  // namespace ph::chunk
