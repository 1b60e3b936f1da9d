#include "core/settings/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>

namespace ph::settings {
namespace {

struct Named {
  std::string_view name;
  uint64_t factor;
};
constexpr std::array<Named, 9> kSizes{{{"TiB", 1ull << 40},
                                       {"GiB", 1ull << 30},
                                       {"MiB", 1ull << 20},
                                       {"KiB", 1ull << 10},
                                       {"TB", 1'000'000'000'000},
                                       {"GB", 1'000'000'000},
                                       {"MB", 1'000'000},
                                       {"kB", 1'000},
                                       {"B", 1}}};
constexpr std::string_view kSizeUnits = "use kB, MB, GB, TB (powers of ten) or KiB, MiB, GiB, TiB (powers of two)";
constexpr std::array<Named, 5> kDurations{{{"d", 86'400'000'000'000},
                                           {"h", 3'600'000'000'000},
                                           {"m", 60'000'000'000},
                                           {"s", 1'000'000'000},
                                           {"ms", 1'000'000}}};
constexpr std::string_view kDurationUnits = "use ms, s, m, h or d";

constexpr size_t kShown = 40;  // of what was written, in messages

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

template <size_t N>
Unit<uint64_t> parse(std::string_view text, const std::array<Named, N>& units, std::string_view all,
                     std::string_view example, uint64_t max) {
  uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string quoted = "\"" + std::string(text.substr(0, kShown)) + "\"";
  if (end == text.data())
    return std::unexpected(quoted + " does not begin with a whole number; write " + std::string(example));
  if (status != std::errc()) return std::unexpected(quoted + " is too great");
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) return std::unexpected(quoted + " has no unit; " + std::string(all));
  if (unit.starts_with('.') || unit.starts_with(','))
    return std::unexpected(quoted + " is not a whole number; write it with a smaller unit");
  for (const Named& n : units) {
    if (n.name != unit) continue;
    if (number > max / n.factor) return std::unexpected(quoted + " is too great");
    return number * n.factor;
  }
  for (const Named& n : units)
    if (lower(n.name) == lower(unit))
      return std::unexpected("unknown unit \"" + std::string(unit) + "\"; did you mean \"" + std::string(n.name) +
                             "\"?");
  return std::unexpected("unknown unit \"" + std::string(unit.substr(0, kShown)) + "\"; " + std::string(all));
}

template <size_t N>
std::string format(uint64_t value, const std::array<Named, N>& units) {
  const Named* best = nullptr;
  for (const Named& n : units)
    if (value && value % n.factor == 0 && (!best || n.factor > best->factor)) best = &n;
  return best ? std::to_string(value / best->factor) + std::string(best->name) : std::string();
}

}  // namespace

Unit<Bytes> parse_size(std::string_view text) {
  auto value = parse(text, kSizes, kSizeUnits, "\"10MiB\"", std::numeric_limits<int64_t>::max());
  if (!value) return std::unexpected(value.error());
  return Bytes{*value};
}

Unit<Duration> parse_duration(std::string_view text) {
  auto value = parse(text, kDurations, kDurationUnits, "\"30s\"", std::numeric_limits<int64_t>::max());
  if (!value) return std::unexpected(value.error());
  return Duration(*value);
}

Unit<Bytes> parse_rate(std::string_view text) {
  if (!text.ends_with("/s")) return std::unexpected("a rate ends with /s; write \"8MiB/s\"");
  return parse_size(text.substr(0, text.size() - 2));
}

std::string format_size(Bytes size) {
  return size.value ? format(size.value, kSizes) : "0B";
}

std::string format_duration(Duration duration) {
  return duration.count() > 0 ? format(static_cast<uint64_t>(duration.count()), kDurations) : "0s";
}

}  // namespace ph::settings
