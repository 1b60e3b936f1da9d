// Diagnostic: one thing that is wrong (or odd) in a configuration file, with its place. A run reports all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ph::settings {

/// Line and column from 1, columns in characters; 0:0 means the file as a whole.
struct Place {
  uint32_t line = 0;
  uint32_t column = 0;
  auto operator<=>(const Place&) const = default;
};

enum class Severity : uint8_t { error, warning };

struct Diagnostic {
  Severity severity = Severity::error;
  Place place;
  std::string message;
  std::string hint;  // what to do about it; may be empty

  /// "posthouse.toml:12:1: error: unknown key `lin_max` in [agent]; did you mean `line_max`?"
  std::string to_string(std::string_view file) const;
};

/// Collects diagnostics up to a bound; what exceeds it is counted.
class Diagnostics {
 public:
  static constexpr size_t kMax = 200;

  void error(Place place, std::string message, std::string hint = {}) {
    ++errors_;
    add({Severity::error, place, std::move(message), std::move(hint)});
  }
  void warning(Place place, std::string message, std::string hint = {}) {
    add({Severity::warning, place, std::move(message), std::move(hint)});
  }
  size_t errors() const { return errors_; }
  bool full() const { return list_.size() >= kMax; }
  /// Sorted by place; ends with a note when some were left out.
  std::vector<Diagnostic> take();

 private:
  void add(Diagnostic d);
  std::vector<Diagnostic> list_;
  size_t errors_ = 0;
  size_t omitted_ = 0;
};

}  // namespace ph::settings
