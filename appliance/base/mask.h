// Masks of categories: '*' stands for any number of any bytes, anywhere and as often as wanted; everything else for
// itself. The whole name must match, case counts. No other wildcard exists and nothing can be escaped.
#pragma once

#include <cstddef>
#include <string_view>

namespace ph {

/// Whether `mask` matches the whole of `name`. Time: O(mask * name) at worst, linear for masks with one '*'.
inline bool mask_matches(std::string_view mask, std::string_view name) {
  size_t m = 0, n = 0;
  size_t star = std::string_view::npos, resume = 0;  // the last '*' seen, and where it would end next
  while (n < name.size()) {
    if (m < mask.size() && mask[m] == '*') {
      star = m++;
      resume = n;
    } else if (m < mask.size() && mask[m] == name[n]) {
      ++m;
      ++n;
    } else if (star != std::string_view::npos) {
      m = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (m < mask.size() && mask[m] == '*') ++m;
  return m == mask.size();
}

/// Length of what stands before the first '*': the longer, the more specific a mask is. A mask without '*' is exact.
inline size_t mask_prefix(std::string_view mask) {
  size_t star = mask.find('*');
  return star == std::string_view::npos ? mask.size() : star;
}

}  // namespace ph
