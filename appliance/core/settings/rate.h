// RateSchedule: upstream.rate as a value: bytes per second, by the hour of the node's local day.
//   rate = "8MiB/s"
//   rate = { "08:00-18:00" = "1MiB/s", "18:00-20:00" = "off", default = "unlimited" }
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ph::settings {

struct Field;
struct Value;

struct RateSchedule {
  struct Hours {  // minutes of the day [from, until); over midnight when from >= until
    uint32_t from = 0;
    uint32_t until = 0;
    std::optional<uint64_t> rate;  // nullopt: no bound, 0: nothing is sent
    bool holds(uint32_t minute) const;
  };
  std::vector<Hours> hours;           // none overlap
  std::optional<uint64_t> otherwise;  // at all other times

  bool bounded() const { return otherwise || !hours.empty(); }
  std::optional<uint64_t> at(uint32_t minute) const;
};

/// Reads either shape; complains through `field`.
void read_rate_schedule(const Value& value, const Field& field, RateSchedule& into);

}  // namespace ph::settings
