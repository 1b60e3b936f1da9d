// The verbs of the command line about what waits: spool (list, check, repair, dead-letter), audit, route explain.
#pragma once

namespace CLI {
class App;  // NOLINT(readability-identifier-naming): the library's name
}

namespace ph::cli {

/// `code` gets the exit code of the verb that is called.
void add_spool_verbs(CLI::App& app, int& code);

}  // namespace ph::cli
