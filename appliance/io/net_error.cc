#include "io/net_error.h"

#include <cerrno>

#include "port/network.h"

namespace ph::io {

Error net_error(std::string_view what, int os_error) {
  ErrorCode code = port::net_errors::failed;
  switch (os_error) {
    case ECONNREFUSED:
      code = port::net_errors::refused;
      break;
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED:
      code = port::net_errors::reset;
      break;
    case ETIMEDOUT:
      code = port::net_errors::timeout;
      break;
    case EADDRINUSE:
      code = port::net_errors::in_use;
      break;
    default:
      break;
  }
  return fail_errno(code, what, os_error).error();
}

}  // namespace ph::io
