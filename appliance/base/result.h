// Result and Error: expected failures are values.
//
// An Error names what failed with a stable code that reaches logs, HTTP and metrics ("spool.no_space"), and adds a
// detail made at the edge where the failure was seen ("/var/lib/posthouse/spool: 12 bytes short"). Broken invariants
// are PH_ASSERT: they stop the process, also in release, because a restart recovers and a wrong guess loses data.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ph {

/// A stable, static name of a failure: "<room>.<what>". Made from literals only, so it never dangles.
class ErrorCode {
 public:
  constexpr ErrorCode() = default;
  template <size_t N>
  consteval ErrorCode(const char (&literal)[N]) : name_(literal, N - 1) {}  // NOLINT(google-explicit-constructor)
  constexpr std::string_view name() const { return name_; }
  friend constexpr bool operator==(ErrorCode a, ErrorCode b) { return a.name_ == b.name_; }

 private:
  std::string_view name_;
};

struct Error {
  ErrorCode code;
  std::string detail;  // names the place: a path, an address, line:column
  int os_error = 0;    // errno where the system said no, else 0

  /// "spool.no_space: /var/lib/...: No space left on device"
  std::string to_string() const;
};

template <class T = void>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(ErrorCode code, std::string detail = {}, int os_error = 0) {
  return std::unexpected<Error>(Error{code, std::move(detail), os_error});
}

/// Builds an Error from errno: detail is "<what>: <strerror>".
std::unexpected<Error> fail_errno(ErrorCode code, std::string_view what, int os_error);

[[noreturn]] void assert_failed(const char* condition, const char* why, const char* file, int line);

}  // namespace ph

#define PH_CONCAT_INNER(a, b) a##b
#define PH_CONCAT(a, b) PH_CONCAT_INNER(a, b)

/// Passes an error up: PH_TRY(do_it());
#define PH_TRY(expression)                                      \
  do {                                                          \
    if (auto ph_result = (expression); !ph_result) [[unlikely]] \
      return std::unexpected(std::move(ph_result).error());     \
  } while (false)

/// Binds a value or passes the error up: PH_ASSIGN(auto file, files.open(path));
#define PH_ASSIGN(declaration, expression) PH_ASSIGN_INNER(PH_CONCAT(ph_result_, __LINE__), declaration, expression)
#define PH_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                            \
  if (!result) [[unlikely]]                              \
    return std::unexpected(std::move(result).error());   \
  declaration = std::move(*result)

/// A broken invariant: print and abort, in every build.
#define PH_ASSERT(condition, why)                               \
  do {                                                          \
    if (!(condition)) [[unlikely]]                              \
      ::ph::assert_failed(#condition, why, __FILE__, __LINE__); \
  } while (false)
