// Any text is either a configuration or a bounded list of complaints, and always the same one.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/settings/diagnostic.h"
#include "core/settings/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph::settings;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Outcome outcome = parse(text, "host");
  PH_ASSERT(outcome.settings.has_value() == (outcome.errors() == 0), "settings exactly if there is no error");
  PH_ASSERT(outcome.diagnostics.size() <= Diagnostics::kMax + 1, "complaints are bounded");
  const std::string shown = outcome.to_string("f");
  PH_ASSERT(parse(text, "host").to_string("f") == shown, "the outcome depends on the text alone");
  return 0;
}
