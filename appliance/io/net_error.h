// Errno and Asio errors as port::net_errors. Internal to this room.
#pragma once

#include <string_view>

#include "base/result.h"

namespace ph::io {

/// "net.refused: 10.0.0.1:3706: Connection refused"
Error net_error(std::string_view what, int os_error);

}  // namespace ph::io
