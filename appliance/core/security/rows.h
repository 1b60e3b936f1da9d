// The files of names and secrets: a row each, `name:rest`; empty rows and those that begin with '#' are passed over.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::security {

/// Calls `take(name, rest)` for each row. Its error, or that there is no ':' between `first` and `second`, becomes one
/// of `code` that names the line.
template <class Take>
Result<> for_each_row(ByteView text, ErrorCode code, std::string_view first, std::string_view second, Take&& take) {
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    ByteView row = text.substr(0, end);
    text = end == text.npos ? ByteView() : text.substr(end + 1);
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty() || row[0] == '#') continue;
    const std::string where = "line " + std::to_string(line) + ": ";
    const size_t colon = row.find(':');
    if (colon == row.npos)
      return fail(code, where + "no ':' between " + std::string(first) + " and " + std::string(second));
    if (Result<> taken = take(row.substr(0, colon), row.substr(colon + 1)); !taken)
      return fail(code, where + taken.error().detail);
  }
  return {};
}

}  // namespace ph::security
