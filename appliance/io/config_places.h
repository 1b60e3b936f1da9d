// Whether the places that a configuration names will do: directories, the API's socket, addresses to listen at. For
// `posthouse config check`, which may run on another machine, and as another user.
#pragma once

#include "core/settings/parse.h"

namespace ph::io {

/// Adds to the outcome's diagnostics what would make `posthouse run` fail at its start, at the place where each is
/// named: a folder that is none or cannot be made, a socket where something else is, an address that is not this
/// machine's. What depends on who runs it, or is made by the system at start, is warned of. Not looked at: who has an
/// address or folder now. Errors of names are those of the resolver, which may take seconds.
void check_places(settings::Outcome& outcome);

}  // namespace ph::io
