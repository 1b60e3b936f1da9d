// The verbs of the command line that bring a host over from another program: migrate lsd.
#pragma once

namespace CLI {
class App;  // NOLINT(readability-identifier-naming): the library's name
}

namespace ph::cli {

/// `code` gets the exit code of the verb that is called.
void add_migrate_verbs(CLI::App& app, int& code);

}  // namespace ph::cli
