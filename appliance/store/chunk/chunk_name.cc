#include "store/chunk/chunk_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace ph::chunk {
namespace {

using std::chrono::day;
using std::chrono::month;
using std::chrono::year;
using std::chrono::year_month_day;

constexpr uint32_t kDateMax = 99'991'231;
constexpr uint32_t kDateMin = 19'700'101;

year_month_day calendar(uint32_t date) {
  return year(static_cast<int>(date / 10000)) / month(date / 100 % 100) / day(date % 100);
}

uint32_t to_date(year_month_day d) {
  return static_cast<uint32_t>(int(d.year())) * 10000 + unsigned(d.month()) * 100 + unsigned(d.day());
}

/// Exactly `count` digits at the front of `text`, which they leave.
std::optional<uint32_t> take_digits(std::string_view& text, size_t count) {
  if (text.size() < count) return std::nullopt;
  uint32_t value = 0;
  for (char c : text.substr(0, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

std::optional<uint32_t> take_date(std::string_view& text) {
  auto y = take_digits(text, 4);
  if (!y || !take(text, "-")) return std::nullopt;
  auto m = take_digits(text, 2);
  if (!m || !take(text, "-")) return std::nullopt;
  auto d = take_digits(text, 2);
  if (!d) return std::nullopt;
  uint32_t date = *y * 10000 + *m * 100 + *d;
  if (!calendar(date).ok() || date == 0) return std::nullopt;
  return date;
}

}  // namespace

std::string to_file_name(std::string_view category, ChunkName name, Compression how) {
  return fmt::format("{}-{:04}-{:02}-{:02}_{:06}{}", category, name.date / 10000, name.date / 100 % 100,
                     name.date % 100, name.counter, suffix_of(how));
}

std::string current_link_name(std::string_view category) {
  return std::string(category) + "_current";
}

std::optional<ChunkName> parse_file_name(std::string_view category, std::string_view file) {
  if (!take(file, category) || !take(file, "-")) return std::nullopt;
  auto date = take_date(file);
  if (!date || !take(file, "_")) return std::nullopt;
  auto counter = take_digits(file, 6);
  if (!counter) return std::nullopt;
  bool overlong = false;
  while (take_digits(file, 1)) overlong = true;
  if (file != suffix_of(compression_of(file))) return std::nullopt;
  return ChunkName{*date, overlong ? kCounterMax : *counter};
}

ChunkName next_name(ChunkName greatest, uint32_t today) {
  if (today > greatest.date) return {today, 1};
  if (greatest.counter < kCounterMax) return {greatest.date, greatest.counter + 1};
  if (greatest.date >= kDateMax) return {};
  return {to_date(year_month_day(std::chrono::sys_days(calendar(greatest.date)) + std::chrono::days(1))), 1};
}

uint32_t date_of(WallTime t, bool utc) {
  std::time_t seconds = std::chrono::floor<std::chrono::seconds>(t).time_since_epoch().count();
  std::tm parts{};
  if (!(utc ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts))) return kDateMax;
  int64_t date = (parts.tm_year + 1900LL) * 10000 + (parts.tm_mon + 1) * 100 + parts.tm_mday;
  return static_cast<uint32_t>(std::clamp<int64_t>(date, kDateMin, kDateMax));
}

}  // namespace ph::chunk
