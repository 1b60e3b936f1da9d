// Lists of users, rules and bans for a terminal, and times as the API writes them.
#include <fmt/core.h>

#include <boost/json.hpp>

#include "service/admin/access_api.h"
#include "service/admin/status.h"
#include "service/admin/text_table.h"

namespace ph::admin {
namespace {

namespace json = boost::json;

/// A field for a terminal: control characters are shown, not sent.
std::string cell(const json::object& row, std::string_view key) {
  const json::value* v = row.if_contains(key);
  if (!v || v->is_null()) return "-";
  std::string out;
  auto add = [&out](std::string_view text) {
    for (unsigned char c : text)
      out += c < 0x20 || c == 0x7F ? fmt::format("\\x{:02x}", c) : std::string(1, static_cast<char>(c));
  };
  if (v->is_string()) {
    add(std::string_view(v->get_string()));
  } else if (v->is_array()) {
    for (const json::value& item : v->get_array()) {
      if (!out.empty()) out += "  ";
      if (item.is_string()) add(std::string_view(item.get_string()));
    }
  } else {
    out = json::serialize(*v);
  }
  return out.empty() ? "-" : out;
}

Result<std::string> table_text(std::string_view document,
                               const std::vector<std::pair<std::string, std::string>>& columns, std::string_view none) {
  boost::system::error_code failed;
  const json::value parsed = json::parse(document, failed);
  const json::value* data = !failed && parsed.is_object() ? parsed.get_object().if_contains("data") : nullptr;
  if (!data || !data->is_array()) return fail(errors::malformed, "the daemon's answer is no list");
  std::vector<std::string> head;
  for (const auto& [key, title] : columns) head.push_back(title);
  TextTable table(head);
  for (const json::value& row : data->get_array()) {
    if (!row.is_object()) continue;
    std::vector<std::string> cells;
    for (const auto& [key, title] : columns) cells.push_back(cell(row.get_object(), key));
    table.add(std::move(cells));
  }
  if (table.empty()) return std::string(none) + "\n";
  std::string out;
  table.print(out, columns.size());
  return out;
}

}  // namespace

Result<std::string> users_text(std::string_view document) {
  return table_text(document,
                    {{"user_id", "user"},
                     {"is_superuser", "superuser"},
                     {"algorithm", "algorithm"},
                     {"iterations", "iterations"},
                     {"scram", "scram"},
                     {"origin", "origin"}},
                    "no users");
}

Result<std::string> rules_text(std::string_view document) {
  return table_text(document,
                    {{"id", "id"},
                     {"permission", "permission"},
                     {"action", "action"},
                     {"username", "user"},
                     {"clientid", "client"},
                     {"ipaddress", "address"},
                     {"topics", "topics"},
                     {"origin", "origin"}},
                    "no rules");
}

Result<std::string> banned_text(std::string_view document) {
  return table_text(
      document, {{"as", "as"}, {"who", "who"}, {"until", "until"}, {"by", "by"}, {"at", "at"}, {"reason", "reason"}},
      "nobody is banned");
}

std::string percent_encode(std::string_view text) {
  std::string out;
  for (unsigned char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return out;
}

std::string rfc3339(WallTime t) {
  const auto day = std::chrono::floor<std::chrono::days>(t);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::seconds>(t - day));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
}

std::optional<WallTime> parse_rfc3339(std::string_view text) {
  auto number = [&](size_t at, size_t size) -> int {
    if (at + size > text.size()) return -1;
    int value = 0;
    for (char c : text.substr(at, size)) {
      if (c < '0' || c > '9') return -1;
      value = value * 10 + (c - '0');
    }
    return value;
  };
  auto is = [&](size_t at, std::string_view any) { return at < text.size() && any.find(text[at]) != any.npos; };
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const int hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (year < 0 || month < 0 || day < 0 || hour < 0 || minute < 0 || second < 0) return std::nullopt;
  if (!is(4, "-") || !is(7, "-") || !is(10, "Tt ") || !is(13, ":") || !is(16, ":")) return std::nullopt;
  const auto date = std::chrono::year(year) / static_cast<unsigned>(month) / static_cast<unsigned>(day);
  if (!date.ok() || hour > 23 || minute > 59 || second > 59) return std::nullopt;
  size_t at = 19;
  std::chrono::milliseconds fraction{0};
  if (is(at, ".")) {
    int unit = 100;
    for (++at; is(at, "0123456789"); ++at, unit /= 10) fraction += std::chrono::milliseconds(unit * (text[at] - '0'));
  }
  std::chrono::minutes offset{0};
  if (is(at, "+-") && is(at + 3, ":")) {
    const int hours = number(at + 1, 2), minutes = number(at + 4, 2);
    if (hours < 0 || minutes < 0 || hours > 23 || minutes > 59) return std::nullopt;
    offset = std::chrono::minutes(hours * 60 + minutes) * (text[at] == '-' ? -1 : 1);
    at += 6;
  } else if (is(at, "Zz")) {
    ++at;
  } else {
    return std::nullopt;
  }
  if (at != text.size()) return std::nullopt;
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second) + fraction - offset;
}

}  // namespace ph::admin
