// parse(): a configuration text becomes Settings, or a list of everything that is wrong with it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/diagnostic.h"
#include "core/settings/settings.h"

namespace ph::settings {

/// A file that the configuration names and the node reads at start: the text alone cannot tell whether it will do.
struct NamedFile {
  enum class Kind : uint8_t { authorities, certificate, key, revocations, passwords, psk, jwt_secret, jwt_key, jwks };
  Kind kind = Kind::authorities;
  std::string path;
  Place place;
};

/// A place outside of the text that the node takes at start. What was not written has none.
struct NamedPlace {
  enum class Kind : uint8_t { state, folder, socket, address };  // data_dir; others; of the API; to listen at
  Kind kind = Kind::state;
  std::string key;
  std::string text;  // path, or "host:port"
  Place place;
};

struct Outcome {
  std::optional<Settings> settings;     // only if there is no error
  std::vector<Diagnostic> diagnostics;  // errors and warnings, by place
  std::vector<NamedFile> files;
  std::vector<NamedPlace> places;

  size_t errors() const;
  /// One line each, "file:line:column: error: message; hint".
  std::string to_string(std::string_view file) const;
};

/// `hostname` is the default of node.name.
Outcome parse(std::string_view text, const std::string& hostname);

/// The reference configuration: every table and key with meaning, type, range and default, all commented out.
std::string reference();

/// What `posthouse config check` says and returns: 0 valid (perhaps with warnings), 2 invalid.
struct Checked {
  int exit_code = 0;
  std::string text;
};
Checked to_checked(const Outcome& outcome, std::string_view file);
Checked config_check(std::string_view text, std::string_view file, const std::string& hostname);

}  // namespace ph::settings
