// Configuration files on disk: reads one and hands it to core/settings. What `posthouse config check` and `posthouse
// run` call first.
#pragma once

#include <string>

#include "base/result.h"
#include "core/settings/parse.h"

namespace ph::io {

/// The text of a file; "-" reads standard input. At most a little over settings::kDocumentMax is read, which is enough
/// for parse() to refuse it. Errors: file.*
Result<std::string> read_config_text(const std::string& path);

/// This machine's name without its domain; "localhost" if it has none.
std::string host_name();

/// Reads and parses. Errors are those of the file alone; what is wrong in it is in the outcome.
Result<settings::Outcome> load_config(const std::string& path);

/// `posthouse config check PATH`: what to print, and the exit code (0 valid, 2 invalid or unreadable).
settings::Checked config_check(const std::string& path);

}  // namespace ph::io
