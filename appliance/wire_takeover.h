// Takes over what LSD's client has delivered: its offsets become cursors in the ledger of a stopped node's agent.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/migrate/lsd.h"
#include "core/settings/settings.h"

namespace ph {

struct Takeover {
  struct File {
    std::string path;
    uint64_t size = 0;
    uint64_t begins_at = 0;
    std::string why;  // where it begins at 0 although there is an offset for its inode; empty: as LSD says
  };
  std::vector<File> files;  // that the agent had not seen before
  size_t unused = 0;        // entries whose file is gone
};

/// The agent of `settings` looks at its directory once, without sending anything, and knows from then on where each
/// file that is new to it is to be read from. A second time changes nothing. Errors: takeover.no_agent, and those of
/// the store (also when the node runs), the directory and the files.
Result<Takeover> take_over_lsd(const settings::Settings& settings, const std::vector<migrate::LsdOffset>& offsets);

}  // namespace ph
