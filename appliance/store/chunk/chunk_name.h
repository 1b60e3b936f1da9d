// Names of chunks, as consumers of LSD's output sort them: `<category>-YYYY-MM-DD_NNNNNN[.gz|.zst]`, local date,
// counter from 000001 that restarts on a new date. The one rule that everything else rests on: a name is never at or
// below one that was used before, whatever the clock does.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "store/chunk/compressor.h"

namespace ph::chunk {

/// Order of names = order of their text.
struct ChunkName {
  uint32_t date = 0;  // year * 10000 + month * 100 + day; 0: no name
  uint32_t counter = 0;
  auto operator<=>(const ChunkName&) const = default;
  explicit operator bool() const { return date != 0; }
};

inline constexpr uint32_t kCounterMax = 999'999;

std::string to_file_name(std::string_view category, ChunkName name, Compression how = Compression::none);
std::string current_link_name(std::string_view category);

/// The name that a file of this category's directory carries, with or without a suffix of compression (".gz", ".zst");
/// nullopt for anything else, also for dates that no calendar has. A counter of more than six digits, which sorts
/// wrongly, counts as the last one of its date.
std::optional<ChunkName> parse_file_name(std::string_view category, std::string_view file);

/// The next name: the first of `today` if that is later than any date used, else the one behind `greatest`. Behind
/// 999999 comes the first of the next day. No name at the end of the year 9999.
ChunkName next_name(ChunkName greatest, uint32_t today);

/// Date in the zone of the process (TZ), or in UTC. Clamped to 1970-01-01 .. 9999-12-31.
uint32_t date_of(WallTime t, bool utc);

}  // namespace ph::chunk
