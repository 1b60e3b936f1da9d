// What a configuration must fulfil beyond its single keys: names that agree, a default route, masks that do not tie,
// addresses and TLS. Everything wrong is reported in one run, with places; defaults that depend on other keys are set.
#pragma once

#include <string>

#include "core/settings/diagnostic.h"
#include "core/settings/document.h"
#include "core/settings/settings.h"

namespace ph::settings {

void check_settings(const Value& root, Settings& settings, const std::string& hostname, Diagnostics& out);

}  // namespace ph::settings
