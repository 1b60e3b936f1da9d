// Walks the blocks of a packed batch: the walk is the link's, core/link/packed.h.
#pragma once

#include "core/link/packed.h"

namespace ph::relay {

using link::for_each_block;

}  // namespace ph::relay
