// Whether the files that a configuration names will do: for `posthouse config check`, which may run where they are not.
#pragma once

#include "core/settings/parse.h"

namespace ph::io {

/// Adds to the outcome's diagnostics what is wrong with its files, at the place where each is named. A file whose whole
/// directory is not on this machine, or that may not be read, is warned of: it may be right where the node will run.
void check_files(settings::Outcome& outcome);

}  // namespace ph::io
