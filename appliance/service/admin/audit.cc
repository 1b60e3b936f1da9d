#include "service/admin/audit.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>

#include "service/admin/status.h"
#include "service/admin/text_table.h"

namespace ph::admin {
namespace {

namespace json = boost::json;

uint64_t number(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  if (!v) return 0;
  if (v->is_uint64()) return v->get_uint64();
  return v->is_int64() && v->get_int64() > 0 ? static_cast<uint64_t>(v->get_int64()) : 0;
}

std::string text(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  return v && v->is_string() ? std::string(v->get_string()) : std::string();
}

std::string events(uint64_t n) {
  return n == 1 ? "1 event" : fmt::format("{} events", n);
}

AuditRow row_of(const json::object& from) {
  AuditRow row{text(from, "route"),       text(from, "target"),      number(from, "in"),
               number(from, "delivered"), number(from, "dropped"),   number(from, "dead_lettered"),
               number(from, "queued"),    number(from, "duplicate"), number(from, "maybe_duplicate")};
  const uint64_t out = row.delivered + row.dropped + row.dead_lettered + row.queued;
  row.difference = static_cast<int64_t>(row.in - out);
  const uint64_t much = row.in > out ? row.in - out : out - row.in;
  if (row.difference != 0) row.fault = fmt::format("{} {}", events(much), row.in > out ? "missing" : "too many");
  uint64_t parts = 0;
  for (const char* reason : {"dropped_expired", "dropped_damaged", "dropped_full", "dropped_keep"})
    parts += number(from, reason);
  if (parts > row.dropped)
    row.fault += fmt::format("{}the reasons of dropped add up to {}", row.fault.empty() ? "" : "; ", parts);
  return row;
}

}  // namespace

bool Audit::sound() const {
  return std::all_of(rows.begin(), rows.end(), [](const AuditRow& r) { return r.fault.empty(); });
}

Result<Audit> audit(std::string_view status_json) {
  boost::system::error_code ec;
  const json::value parsed = json::parse(status_json, ec);
  const json::value* routes = !ec && parsed.is_object() ? parsed.get_object().if_contains("routes") : nullptr;
  if (!routes || !routes->is_array()) return fail(errors::malformed, "the daemon's answer has no routes");
  Audit out;
  for (const json::value& v : routes->get_array())
    if (v.is_object()) out.rows.push_back(row_of(v.get_object()));
  return out;
}

std::string to_text(const Audit& audit) {
  TextTable table(
      {"route", "target", "in", "delivered", "dropped", "dead", "queued", "difference", "duplicate", "maybe dup"});
  std::string faults;
  for (const AuditRow& r : audit.rows) {
    table.add({r.route, r.target, std::to_string(r.in), std::to_string(r.delivered), std::to_string(r.dropped),
               std::to_string(r.dead_lettered), std::to_string(r.queued), std::to_string(r.difference),
               std::to_string(r.duplicate), std::to_string(r.maybe_duplicate)});
    if (!r.fault.empty())
      faults += fmt::format("route {} to {}: {}\n", printable(r.route), printable(r.target), r.fault);
  }
  std::string out;
  if (!table.empty()) table.print(out, 2);
  return out + (faults.empty() ? "every event is accounted for\n" : faults);
}

std::string to_json(const Audit& audit) {
  json::array rows;
  for (const AuditRow& r : audit.rows)
    rows.push_back(json::object{{"route", r.route},
                                {"target", r.target},
                                {"in", r.in},
                                {"delivered", r.delivered},
                                {"dropped", r.dropped},
                                {"dead_lettered", r.dead_lettered},
                                {"queued", r.queued},
                                {"duplicate", r.duplicate},
                                {"maybe_duplicate", r.maybe_duplicate},
                                {"difference", r.difference},
                                {"fault", r.fault}});
  return json::serialize(json::object{{"sound", audit.sound()}, {"rows", std::move(rows)}});
}

}  // namespace ph::admin
