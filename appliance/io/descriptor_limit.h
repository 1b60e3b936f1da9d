// How many files and sockets this process may have open.
#pragma once

#include <cstddef>

namespace ph::io {

/// Raises the soft limit to the hard one: the soft one is 1024 on many systems, for the sake of select(2), which
/// nothing here uses. Returns what holds now. Call first in main.
size_t raise_descriptor_limit();

}  // namespace ph::io
