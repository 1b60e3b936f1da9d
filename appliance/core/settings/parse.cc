#include "core/settings/parse.h"

#include <algorithm>

#include "core/settings/check.h"
#include "core/settings/document.h"
#include "core/settings/schema.h"

namespace ph::settings {

size_t Outcome::errors() const {
  return static_cast<size_t>(std::count_if(diagnostics.begin(), diagnostics.end(),
                                           [](const Diagnostic& d) { return d.severity == Severity::error; }));
}

std::string Outcome::to_string(std::string_view file) const {
  std::string out;
  for (const Diagnostic& d : diagnostics) out += d.to_string(file) + "\n";
  return out;
}

Outcome parse(std::string_view text, const std::string& hostname) {
  Diagnostics diagnostics;
  Settings settings;
  const Value root = read_document(text, diagnostics);
  read_settings(root, settings, diagnostics);
  check_settings(root, settings, hostname, diagnostics);
  Outcome out;
  if (diagnostics.errors() == 0) out.settings = std::move(settings);
  out.diagnostics = diagnostics.take();
  return out;
}

Checked config_check(std::string_view text, std::string_view file, const std::string& hostname) {
  const Outcome outcome = parse(text, hostname);
  Checked out;
  out.text = outcome.to_string(file);
  const size_t errors = outcome.errors(), warnings = outcome.diagnostics.size() - errors;
  out.exit_code = errors ? 2 : 0;
  auto count = [](size_t n, std::string_view what) {
    return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
  };
  out.text += std::string(file) + ": ";
  if (errors) out.text += count(errors, "error") + (warnings ? ", " : "");
  if (warnings) out.text += count(warnings, "warning");
  if (!errors) out.text += warnings ? ", otherwise valid" : "valid";
  out.text += "\n";
  return out;
}

}  // namespace ph::settings
