// The verbs of the command line about upstreams: forget. They talk to the running node.
#pragma once

namespace CLI {
class App;  // NOLINT(readability-identifier-naming): the library's name
}

namespace ph::cli {

/// `code` gets the exit code of the verb that is called.
void add_upstream_verbs(CLI::App& app, int& code);

}  // namespace ph::cli
