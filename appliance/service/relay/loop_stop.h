// What of a batch has been where it would go: an upstream does not send it, since the far end would only drop it
// (events.md: a message that came by a link is not sent back to a site on its hop list).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "port/event_source.h"

namespace ph::relay {

/// `topic` of the gap block that stands for such events: a receiver acknowledges it and counts nothing.
inline constexpr std::string_view kBeenThere = "been there";

/// The batch with each run of blocks that passed all of `sites` replaced by one gap block; the same bytes if there are
/// none. Positions and the number of events stay: at the far end they are, so they are delivered.
/// `looped` grows by the events that are left out.
port::Batch without_loops(port::Batch batch, const std::vector<std::string>& sites, uint64_t& looped);

}  // namespace ph::relay
