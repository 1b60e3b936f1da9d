// What differs between two configuration texts, by key: for a reload, which applies some keys and names the others.
// Pure; both texts are read as documents, so that it knows every key without knowing any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ph::settings {

/// Names of what was added, removed or changed: "log.level", "broker.packet_max", "listener \"tls\"" for a row of
/// [[listener]] (by its name, else "[[receiver.category]] 2", counted from 1), "tls" for a table as a whole. In the
/// order of the texts, each once. Order and comments do not matter, rows without a name are compared by their place.
std::vector<std::string> differences(std::string_view before, std::string_view after);

/// Whether a reload applies a change of this key.
bool is_live(std::string_view key);

}  // namespace ph::settings
