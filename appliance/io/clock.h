// The only file of the house that reads a clock. Everything else is handed an Instant or asks its Loop.
#pragma once

#include "base/time.h"

namespace ph::io {

/// CLOCK_MONOTONIC: does not count time spent suspended, never jumps.
Instant steady_now();
/// CLOCK_REALTIME in milliseconds: a label that may jump.
WallTime wall_now();

}  // namespace ph::io
