#include "core/settings/rate.h"

#include <string>

#include "core/settings/key.h"

namespace ph::settings {
namespace {

constexpr uint32_t kDay = 24 * 60;
constexpr std::string_view kShape =
    "write \"8MiB/s\", or { \"08:00-18:00\" = \"1MiB/s\", default = \"unlimited\" }; \"off\" sends nothing";

/// "HH:MM"; 24:00 is the end of the day.
std::optional<uint32_t> minute_of(std::string_view text) {
  if (text.size() != 5 || text[2] != ':') return std::nullopt;
  for (size_t i : {0, 1, 3, 4})
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
  auto number = [&](size_t at) { return static_cast<uint32_t>((text[at] - '0') * 10 + (text[at + 1] - '0')); };
  uint32_t minute = number(0) * 60 + number(3);
  if (number(3) > 59 || minute > kDay) return std::nullopt;
  return minute;
}

bool read_one(const Value& value, const Field& field, std::optional<uint64_t>& into) {
  if (value.is(Value::Kind::string) && value.text == "unlimited") {
    into.reset();
    return true;
  }
  if (value.is(Value::Kind::string) && value.text == "off") {
    into = 0;
    return true;
  }
  auto rate = read_rate(value, field);
  if (!rate) return false;
  if (rate->value == 0) {  // elsewhere 0 is no bound, here it would be the closest one
    field.error(value.place, field.name() + " is 0", "write \"off\" to send nothing, \"unlimited\" for no bound");
    return false;
  }
  into = rate->value;
  return true;
}

}  // namespace

bool RateSchedule::Hours::holds(uint32_t minute) const {
  return from < until ? minute >= from && minute < until : minute >= from || minute < until;
}

std::optional<uint64_t> RateSchedule::at(uint32_t minute) const {
  for (const Hours& h : hours)
    if (h.holds(minute)) return h.rate;
  return otherwise;
}

void read_rate_schedule(const Value& value, const Field& field, RateSchedule& into) {
  if (!value.is(Value::Kind::table)) {
    read_one(value, field, into.otherwise);
    return;
  }
  for (const Entry& e : value.entries) {
    if (e.key == "default") {
      read_one(e.value, field, into.otherwise);
      continue;
    }
    size_t dash = e.key.find('-');
    auto from = minute_of(std::string_view(e.key).substr(0, dash));
    auto until = dash == std::string::npos ? std::nullopt : minute_of(std::string_view(e.key).substr(dash + 1));
    if (!from || !until || *from % kDay == *until % kDay) {
      field.error(e.place, field.name() + " has no hours `" + e.key + "`", std::string(kShape));
      continue;
    }
    RateSchedule::Hours hours{*from % kDay, *until % kDay, {}};
    for (const RateSchedule::Hours& other : into.hours)
      if (other.holds(hours.from) || hours.holds(other.from)) {
        field.error(e.place, field.name() + " says two things for the same hours");
        break;
      }
    if (read_one(e.value, field, hours.rate)) into.hours.push_back(hours);
  }
}

}  // namespace ph::settings
