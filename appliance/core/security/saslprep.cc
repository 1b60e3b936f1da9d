#include "core/security/saslprep.h"

#include <algorithm>
#include <span>

#include "codec/mqtt/text.h"
#include "core/security/saslprep_tables.h"

namespace ph::security {
namespace {

using saslprep_tables::Range;

bool among(std::span<const Range> ranges, uint32_t point) {
  const auto* after = std::ranges::upper_bound(ranges, point, {}, &Range::first).base();
  return after != ranges.data() && point <= (after - 1)->last;
}

/// The code point at the front of valid UTF-8, which goes.
uint32_t take_point(ByteView& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint32_t point = size == 1 ? first : first & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  text.remove_prefix(size);
  return point;
}

std::string shown(uint32_t point) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out = "U+";
  for (int shift = point > 0xFFFF ? 20 : 12; shift >= 0; shift -= 4) out += kDigits[point >> shift & 15];
  return out;
}

bool letter(uint32_t point) {
  return (point | 32) >= 'a' && (point | 32) <= 'z';
}

}  // namespace

Result<std::string> saslprep(ByteView text) {
  namespace tables = saslprep_tables;
  if (!mqtt::utf8_valid(text)) return fail(errors::not_prepared, "no UTF-8");
  std::string out;
  bool right_to_left = false, left_to_right = false, first_is_right = false, last_is_right = false;
  while (!text.empty()) {
    ByteView before = text;
    const uint32_t point = take_point(text);
    const ByteView bytes = before.substr(0, before.size() - text.size());
    if (point >= 0x80 && among(tables::kNothing, point)) continue;
    if (point < 0x20 || point == 0x7F) return fail(errors::not_prepared, "a control character, " + shown(point));
    const bool space = point >= 0x80 && among(tables::kSpaces, point);
    if (point >= 0x80 && !space) {
      if (among(tables::kProhibited, point))
        return fail(errors::not_prepared, "a forbidden character, " + shown(point));
      if (among(tables::kUnassigned, point)) return fail(errors::not_prepared, "an unknown character, " + shown(point));
      if (among(tables::kUnstable, point))
        return fail(errors::not_prepared, "a character that is not in normal form KC, " + shown(point));
    }
    const bool right = point >= 0x80 && !space && among(tables::kRightToLeft, point);
    right_to_left = right_to_left || right;
    left_to_right = left_to_right || letter(point) || (point >= 0x80 && among(tables::kLeftToRight, point));
    if (out.empty()) first_is_right = right;
    last_is_right = right;
    if (space)
      out += ' ';
    else
      out += bytes;
  }
  if (out.empty()) return fail(errors::not_prepared, "nothing is left of it");
  if (right_to_left && (left_to_right || !first_is_right || !last_is_right))
    return fail(errors::not_prepared, "right-to-left characters mixed with others");
  return out;
}

}  // namespace ph::security
