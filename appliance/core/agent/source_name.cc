#include "core/agent/source_name.h"

#include <algorithm>
#include <array>

#include "base/coding.h"

namespace ph::agent {
namespace {

constexpr size_t kHexDigits = 16;

bool strip(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

std::string_view trailing_digits(std::string_view name) {
  size_t at = name.size();
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
  return name.substr(at);
}

uint64_t number_of(std::string_view digits) {
  uint64_t value = 0;
  for (char c : digits) value = value * 10 + static_cast<uint64_t>(c - '0');
  return value;
}

/// A date's digits, filled up to kDateDigits; nullopt: the text is none.
std::optional<uint64_t> date_of(std::string_view text) {
  constexpr size_t kDayDigits = 8, kDateDigits = 18;
  std::string digits;
  bool between = true;  // a separator stands between two digits
  for (char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (between || (c != '-' && c != '_'))) return std::nullopt;
    between = !digit;
    if (digit) digits += c;
  }
  if (between || digits.size() < kDayDigits || digits.size() > kDateDigits) return std::nullopt;
  const uint64_t day = number_of(std::string_view(digits).substr(0, kDayDigits));
  const uint64_t year = day / 10'000, month = day / 100 % 100, in_month = day % 100;
  if (year < 1970 || year > 2199 || month < 1 || month > 12 || in_month < 1 || in_month > 31) return std::nullopt;
  digits.resize(kDateDigits, '0');
  return number_of(digits);
}

}  // namespace

std::string_view category_of(std::string_view name) {
  strip(name, ".old");
  strip(name, ".log");
  strip(name, "_big");
  return name;
}

bool is_big(std::string_view name) {
  name = rotated(name).original;
  strip(name, ".log");
  return name.ends_with("_big");
}

RotatedName rotated(std::string_view name) {
  if (std::string_view base = name; strip(base, ".old") && !base.empty()) return {base, 1};
  std::string_view digits = trailing_digits(name);
  std::string_view base = name.substr(0, name.size() - digits.size());
  if (digits.empty() || base.size() < 2) return {name};
  if (digits.size() <= 4 && strip(base, ".")) return {base, number_of(digits) + 1, base.ends_with(".log")};
  constexpr uint64_t kLastDate = 1'000'000'000'000'000'000;
  for (size_t at = name.find_first_of("-.", 1); at != name.npos; at = name.find_first_of("-.", at + 1)) {
    if (auto date = date_of(name.substr(at + 1)))
      return {name.substr(0, at), kLastDate - *date, name.substr(0, at).ends_with(".log")};
  }
  return {name};
}

SourceName source_name(std::string_view directory, std::string_view file_name,
                       const std::function<bool(std::string_view)>& known) {
  RotatedName r = rotated(file_name);
  if (r.number > 0 && !r.certain && !known(r.original)) r = {file_name};
  SourceName out;
  out.original = r.original;
  out.rotation = r.number;
  out.category = directory.empty() ? category_of(r.original) : directory;
  return out;
}

std::string_view skip_reason(std::string_view name) {
  if (name.empty() || name.front() == '.') return "a dotfile";
  constexpr std::array<std::string_view, 8> kCompressed{".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzma", ".zip", ".Z"};
  if (std::any_of(kCompressed.begin(), kCompressed.end(), [name](auto s) { return name.ends_with(s); }))
    return "a compressed copy";
  return {};
}

std::string hidden_name(StreamId generation, std::string_view category) {
  std::string key;
  put_key(key, generation.value);
  std::string name = to_hex(key);
  name += '-';
  name += category;
  return name;
}

std::optional<std::string_view> category_of_hidden(std::string_view name) {
  if (name.size() < kHexDigits + 2 || name[kHexDigits] != '-') return std::nullopt;
  auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::all_of(name.begin(), name.begin() + kHexDigits, hex)) return std::nullopt;
  return name.substr(kHexDigits + 1);
}

}  // namespace ph::agent
