#include "core/settings/diagnostic.h"

#include <algorithm>
#include <tuple>

namespace ph::settings {

std::string Diagnostic::to_string(std::string_view file) const {
  std::string out(file);
  if (place.line) out += ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
  out += severity == Severity::error ? ": error: " : ": warning: ";
  out += message;
  if (!hint.empty()) out += "; " + hint;
  return out;
}

void Diagnostics::add(Diagnostic d) {
  if (full())
    ++omitted_;
  else
    list_.push_back(std::move(d));
}

std::vector<Diagnostic> Diagnostics::take() {
  std::sort(list_.begin(), list_.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.place, a.severity, a.message) < std::tie(b.place, b.severity, b.message);
  });
  if (omitted_)
    list_.push_back({Severity::error, {}, std::to_string(omitted_) + " more are not shown", "correct these first"});
  omitted_ = 0;
  return std::move(list_);
}

}  // namespace ph::settings
