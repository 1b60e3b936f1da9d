#include "base/result.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ph {

std::string Error::to_string() const {
  std::string text(code.name());
  if (!detail.empty()) {
    text += ": ";
    text += detail;
  }
  return text;
}

std::unexpected<Error> fail_errno(ErrorCode code, std::string_view what, int os_error) {
  std::string detail(what);
  detail += ": ";
  detail += std::strerror(os_error);
  return fail(code, std::move(detail), os_error);
}

void assert_failed(const char* condition, const char* why, const char* file, int line) {
  std::fprintf(stderr, "posthouse: invariant broken at %s:%d: %s (%s)\n", file, line, why, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace ph
