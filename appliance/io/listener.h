// IoListener: a listening TCP socket of one loop. Accepts at most kAcceptsPerTurn sockets at a time; refuses above
// connections_max (accepted and closed at once, so that the client learns it now, counted); pauses when the process has
// no descriptors left but its reserve, and above accepts_a_second. Internal to this room.
#pragma once

#include <memory>

#include "io/loop_state.h"
#include "port/network.h"

namespace ph::io {

inline constexpr int kAcceptsPerTurn = 32;

Result<std::unique_ptr<port::Listener>> listen_tcp(LoopState& loop, const port::Endpoint& at,
                                                   port::ListenOptions options, port::AcceptFn accept);

}  // namespace ph::io
