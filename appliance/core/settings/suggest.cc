#include "core/settings/suggest.h"

#include <algorithm>
#include <cstdint>

namespace ph::settings {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two(b.size() + 1), one(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) one[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({one[j] + 1, row[j - 1] + 1, one[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], two[j - 2] + 1);
    }
    std::swap(two, one);
    std::swap(one, row);
  }
  return one[b.size()];
}

std::string_view nearest(std::string_view name, const std::vector<std::string_view>& known) {
  std::string_view best;
  size_t best_distance = SIZE_MAX;
  if (name.size() > 64) return best;  // no key is that long; keep hostile input cheap
  for (std::string_view k : known) {
    const size_t distance = edit_distance(name, k);
    if (distance > std::max<size_t>(1, k.size() / 3) || distance >= best_distance) continue;
    best = k;
    best_distance = distance;
  }
  return best;
}

}  // namespace ph::settings
