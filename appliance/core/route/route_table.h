// RouteTable: which route takes an event. One for categories (events of files and peers: exactly one route), one for
// MQTT topics (every route with a matching filter). Immutable once made, so any thread may ask; the settings have been
// checked before, so there are no ties (settings/check.cc).
//
// Precedence of categories, as LSD's: masks without '*' in the order of the configuration; masks with '*' by the length
// of what stands before the first '*'; then the default route.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ph::route {

struct Rule {
  std::vector<std::string> categories;  // masks
  std::vector<std::string> topics;      // MQTT filters; a rule with neither is the default route
};

class RouteTable {
 public:
  /// Rules in the order of the configuration; answers are indexes into them.
  explicit RouteTable(const std::vector<Rule>& rules);

  /// The route of a category; nullopt: there is no default route either. Cost: one look-up, then one comparison per
  /// mask with '*'. Callers that ask per event keep the answer per category.
  std::optional<size_t> of_category(std::string_view category) const;

  /// Why: the mask that decided (empty: the default route).
  struct Explained {
    size_t rule = 0;
    std::string_view mask;
  };
  std::optional<Explained> explain(std::string_view category) const;

  /// Every route that wants the topic, ascending.
  std::vector<size_t> of_topic(std::string_view topic) const;
  bool wants(std::string_view topic) const;

 private:
  struct Mask {
    std::string text;
    size_t rule;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> exact_;
  std::vector<Mask> wild_;     // longest prefix first
  std::vector<Mask> filters_;  // by rule
  std::optional<size_t> default_;
};

}  // namespace ph::route
