// Whether two masks of categories (mask.h) compete: a name that both match.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/mask.h"

namespace ph {

/// A name that both masks match; nullopt: there is none. Linear in the masks' lengths.
///
/// Two masks with '*' overlap exactly if what stands before their first '*' agrees and what stands behind their last:
/// a name made of the longer front, the middles of one, the middles of the other and the longer end matches both.
inline std::optional<std::string> mask_overlap(std::string_view a, std::string_view b) {
  if (a.find('*') == a.npos) return mask_matches(b, a) ? std::optional<std::string>(a) : std::nullopt;
  if (b.find('*') == b.npos) return mask_matches(a, b) ? std::optional<std::string>(b) : std::nullopt;
  auto front = [](std::string_view m) { return m.substr(0, m.find('*')); };
  auto end = [](std::string_view m) { return m.substr(m.rfind('*') + 1); };
  auto longer = [](std::string_view x, std::string_view y) { return x.size() > y.size() ? x : y; };
  const std::string_view before = longer(front(a), front(b)), behind = longer(end(a), end(b));
  if (!before.starts_with(front(a)) || !before.starts_with(front(b))) return std::nullopt;
  if (!behind.ends_with(end(a)) || !behind.ends_with(end(b))) return std::nullopt;
  std::string name(before);
  for (std::string_view m : {a, b}) {
    const size_t first = m.find('*'), last = m.rfind('*');
    for (size_t i = first; i < last; ++i)
      if (m[i] != '*') name += m[i];
  }
  return name.append(behind);
}

}  // namespace ph
