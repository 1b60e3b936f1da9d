#include "core/route/route_table.h"

#include <algorithm>

#include "base/mask.h"
#include "codec/mqtt/text.h"

namespace ph::route {

RouteTable::RouteTable(const std::vector<Rule>& rules) {
  for (size_t i = 0; i < rules.size(); ++i) {
    for (const std::string& mask : rules[i].categories) {
      if (mask.find('*') == mask.npos)
        exact_.try_emplace(mask, i);
      else
        wild_.push_back({mask, i});
    }
    for (const std::string& filter : rules[i].topics) filters_.push_back({filter, i});
    if (rules[i].categories.empty() && rules[i].topics.empty() && !default_) default_ = i;
  }
  std::sort(wild_.begin(), wild_.end(), [](const Mask& a, const Mask& b) {
    const size_t of_a = mask_prefix(a.text), of_b = mask_prefix(b.text);
    return of_a != of_b ? of_a > of_b : a.rule < b.rule;
  });
}

std::optional<RouteTable::Explained> RouteTable::explain(std::string_view category) const {
  if (auto it = exact_.find(category); it != exact_.end()) return Explained{it->second, it->first};
  for (const Mask& mask : wild_)
    if (mask_matches(mask.text, category)) return Explained{mask.rule, mask.text};
  if (default_) return Explained{*default_, {}};
  return std::nullopt;
}

std::optional<size_t> RouteTable::of_category(std::string_view category) const {
  const auto explained = explain(category);
  if (!explained) return std::nullopt;
  return explained->rule;
}

std::vector<size_t> RouteTable::of_topic(std::string_view topic) const {
  std::vector<size_t> out;
  for (const Mask& filter : filters_)
    if ((out.empty() || out.back() != filter.rule) && mqtt::matches(filter.text, topic)) out.push_back(filter.rule);
  return out;
}

bool RouteTable::wants(std::string_view topic) const {
  return std::any_of(filters_.begin(), filters_.end(),
                     [&](const Mask& filter) { return mqtt::matches(filter.text, topic); });
}

}  // namespace ph::route
