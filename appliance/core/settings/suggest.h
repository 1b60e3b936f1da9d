// Nearest names, for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ph::settings {

/// Edits (insert, delete, replace, swap of neighbours) between two names.
size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest of `known` that is near enough to be meant (at most a third of its letters wrong, at least one); empty:
/// none. The first of equals.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace ph::settings
