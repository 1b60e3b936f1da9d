// The body of an answer of the API that is not 200.
#pragma once

#include <string>
#include <string_view>

namespace ph::admin {

/// {"code": ..., "message": ...}; of a longer message the first 500 bytes.
std::string error_json(std::string_view code, std::string_view message);

}  // namespace ph::admin
