#include "service/admin/spool_text.h"

#include <fmt/core.h>

#include <boost/json.hpp>

#include "service/admin/text_table.h"

namespace ph::admin {
namespace {

namespace json = boost::json;

json::object damage(const spool::Damage& d) {
  return {{"offset", d.offset}, {"bytes", d.bytes},   {"first", d.first},
          {"last", d.last},     {"events", d.events}, {"reason", d.reason}};
}

json::object segment(const spool::SegmentReport& s, bool checked) {
  json::array damaged;
  for (const spool::Damage& d : s.damage) damaged.push_back(damage(d));
  json::object out{{"file", s.file}, {"first", s.first}, {"last", s.last}, {"bytes", s.bytes}};
  if (checked) out.insert({{"records", s.records}, {"events", s.events}, {"gaps", s.gaps}});
  out["damage"] = std::move(damaged);
  out["note"] = s.note;
  return out;
}

}  // namespace

std::string spool_text(const std::vector<SpoolFinding>& findings) {
  if (findings.empty()) return "nothing was ever spooled\n";
  std::string out;
  for (const SpoolFinding& f : findings) {
    const spool::SpoolReport& r = f.report;
    out += fmt::format("{}: {} segments, released below {}", printable(f.name), r.segments.size(), r.floor);
    if (!f.configured) out += ", which no configured route reads";
    if (r.unacknowledged_bytes) out += fmt::format(", {} bytes that were never acknowledged", r.unacknowledged_bytes);
    out += "\n";
    TextTable table(f.checked
                        ? std::vector<std::string>{"segment", "first", "last", "bytes", "records", "events", "gaps"}
                        : std::vector<std::string>{"segment", "first", "last", "bytes"});
    for (const auto& s : r.segments) {
      std::vector<std::string> row{s.file + (s.note.empty() ? "" : " (" + s.note + ")"), std::to_string(s.first),
                                   std::to_string(s.last), std::to_string(s.bytes)};
      if (f.checked)
        for (uint64_t n : {s.records, s.events, s.gaps}) row.push_back(std::to_string(n));
      table.add(std::move(row));
    }
    if (!table.empty()) table.print(out, 1);
    for (const auto& s : r.segments)
      for (const auto& d : s.damage)
        out += fmt::format("  DAMAGED at {}:{}, {} bytes, sequences {}..{}, {} events: {}\n", s.file, d.offset, d.bytes,
                           d.first, d.last, d.events, printable(d.reason));
    if (f.repaired)
      out += fmt::format("  {} places repaired, {} bytes kept in .quarantine files\n", f.repaired, f.quarantined_bytes);
  }
  return out;
}

std::string spool_json(const std::vector<SpoolFinding>& findings) {
  json::array data;
  for (const SpoolFinding& f : findings) {
    json::array segments;
    for (const auto& s : f.report.segments) segments.push_back(segment(s, f.checked));
    data.push_back(json::object{{"name", f.name},
                                {"configured", f.configured},
                                {"released_below", f.report.floor},
                                {"unacknowledged_bytes", f.report.unacknowledged_bytes},
                                {"damaged_places", f.report.damaged_places()},
                                {"repaired_places", f.repaired},
                                {"quarantined_bytes", f.quarantined_bytes},
                                {"segments", std::move(segments)}});
  }
  return json::serialize(json::object{{"data", std::move(data)}});
}

}  // namespace ph::admin
