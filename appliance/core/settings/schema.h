// The schema: every table and key of the configuration file, with type, range, default and meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/settings/diagnostic.h"
#include "core/settings/document.h"
#include "core/settings/settings.h"

namespace ph::settings {

struct KeyInfo {
  std::string_view name;
  std::string type;
  std::string range;
  std::string fallback;  // the default, as TOML; empty: none
  std::string example;   // as TOML, where there is no default
  std::string_view doc;
  bool required = false;
};
struct TableInfo {
  std::string_view path;  // "receiver.category"
  bool array = false;     // [[...]]
  std::string_view doc;
  std::vector<std::string_view> inner;  // tables in it
  std::vector<KeyInfo> keys;

  std::string header() const {
    const std::string p(path);
    return array ? "[[" + p + "]]" : "[" + p + "]";
  }
};
/// In the order of the reference file.
const std::vector<TableInfo>& schema();

/// What the file may say although nothing here can do it yet. `value` empty: the key as such. One line each, to be
/// taken out when its machinery is built.
struct NotBuilt {
  std::string_view key;  // "receiver.lsd"
  std::string_view value;
};
const std::vector<NotBuilt>& not_built();

/// Reads the whole tree; what is wrong with single keys goes to `out`.
void read_settings(const Value& root, Settings& into, Diagnostics& out);

}  // namespace ph::settings
