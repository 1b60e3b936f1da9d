// The verbs of the command line. Each prints for a person (or JSON where asked) and returns the exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/settings/settings.h"

namespace ph::cli {

inline constexpr int kDone = 0, kFailed = 1, kInvalid = 2;  // exit codes

/// Tells an error on standard error; returns the code.
int say(int code, const Error& error);
/// The settings in a file; nullopt after telling everything that is wrong with them on standard error.
std::optional<settings::Settings> load_settings(const std::string& path);
/// The running node's socket: as given, else out of the configuration, else the default one. nullopt after telling what
/// is wrong with the configuration.
std::optional<std::string> socket_of(const std::string& socket, const std::string& config);

int run(const std::string& config);
int config_check(const std::string& file);
int config_reference();
int status(const std::string& socket, const std::string& config, bool json);
int pki_init(const std::string& directory);
int pki_issue(const std::string& directory, const std::string& name, const std::vector<std::string>& dns,
              const std::vector<std::string>& ip);

}  // namespace ph::cli
