#include "service/admin/status.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>

#include "service/admin/text_table.h"

namespace ph::admin {
namespace {

namespace json = boost::json;

json::object numbers(const Numbers& from) {
  json::object out;
  for (const auto& [name, value] : from) out[name] = value;
  return out;
}

json::object route(const RouteRow& row, WallTime now) {
  const port::TargetCounters& c = row.counters;
  json::object out{{"route", row.route},
                   {"target", row.target},
                   {"in", c.in},
                   {"delivered", c.delivered},
                   {"duplicate", c.duplicate},
                   {"maybe_duplicate", c.maybe_duplicate},
                   {"dropped", c.dropped},
                   {"dropped_expired", c.dropped_expired},
                   {"dropped_damaged", c.dropped_damaged},
                   {"dropped_full", c.dropped_full},
                   {"dropped_keep", c.dropped_keep},
                   {"dropped_bytes", c.dropped_bytes},
                   {"dead_lettered", c.dead_lettered},
                   {"queued", c.queued},
                   {"queued_bytes", c.queued_bytes},
                   {"unread_bytes", c.unread_bytes}};
  int64_t age_ms = c.oldest_unacked ? std::max<int64_t>(0, to_unix_ms(now) - to_unix_ms(*c.oldest_unacked)) : 0;
  out["oldest_unacked_seconds"] = static_cast<double>(age_ms) / 1000.0;
  out["drain_seconds"] = row.drain_seconds ? json::value(*row.drain_seconds) : json::value(nullptr);
  return out;
}

json::object upstream(const UpstreamRow& row) {
  json::array receivers;
  for (const ReceiverRow& r : row.receivers)
    receivers.push_back(json::object{{"address", r.address},
                                     {"node", r.node},
                                     {"state", r.state},
                                     {"in_flight_batches", r.in_flight_batches},
                                     {"in_flight_bytes", r.in_flight_bytes},
                                     {"uncertain_batches", r.uncertain_batches},
                                     {"owned_batches", r.owned_batches},
                                     {"connects", r.connects},
                                     {"failures", r.failures},
                                     {"last_error", r.last_error}});
  json::array waits_for;
  for (const OwnerRow& o : row.waits_for)
    waits_for.push_back(json::object{{"address", o.address},
                                     {"configured", o.configured},
                                     {"batches", o.batches},
                                     {"streams", json::value_from(o.streams)}});
  return {{"name", row.name},
          {"unacked_events", row.unacked_events},
          {"looped", row.looped},
          {"wanted_filters", row.wanted_filters ? json::value(*row.wanted_filters) : json::value(nullptr)},
          {"unacked_bytes", row.unacked_bytes},
          {"stranded_batches", row.stranded_batches},
          {"given_up_batches", row.given_up_batches},
          {"waits_for", std::move(waits_for)},
          {"receivers", std::move(receivers)}};
}

json::array gaps(const Status& s) {
  json::array out;
  for (const GapRow& g : s.gaps)
    out.push_back(json::object{{"sender", g.sender},
                               {"stream", g.stream},
                               {"first", g.first},
                               {"last", g.last},
                               {"events", g.events},
                               {"reason", g.reason},
                               {"at_ms", to_unix_ms(g.at)}});
  return out;
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_seconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  auto whole = static_cast<uint64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

uint64_t number(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  if (!v) return 0;
  if (v->is_uint64()) return v->get_uint64();
  if (v->is_int64()) return static_cast<uint64_t>(v->get_int64());
  return 0;
}

double real(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  return v && v->is_number() ? v->to_number<double>() : 0;
}

std::string text(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  return v && v->is_string() ? std::string(v->get_string()) : std::string();
}

template <class Visit>
void for_each_object(const json::object& root, std::string_view key, Visit&& visit) {
  const json::value* list = root.if_contains(key);
  if (!list || !list->is_array()) return;
  for (const json::value& v : list->get_array())
    if (v.is_object()) visit(v.get_object());
}

void print_routes(const json::object& root, std::string& out) {
  TextTable table({"route", "target", "in", "delivered", "duplicate", "maybe dup", "dropped", "dead", "queued",
                   "queued bytes", "unread", "oldest", "drained in"});
  for_each_object(root, "routes", [&](const json::object& r) {
    auto n = [&](std::string_view key) { return std::to_string(number(r, key)); };
    const bool waits = number(r, "queued") + number(r, "unread_bytes") > 0;
    const json::value* drain = r.if_contains("drain_seconds");
    table.add({text(r, "route"), text(r, "target"), n("in"), n("delivered"), n("duplicate"), n("maybe_duplicate"),
               n("dropped"), n("dead_lettered"), n("queued"), human_bytes(number(r, "queued_bytes")),
               human_bytes(number(r, "unread_bytes")), waits ? human_seconds(real(r, "oldest_unacked_seconds")) : "-",
               !waits                        ? "-"
               : drain && drain->is_number() ? human_seconds(drain->to_number<double>())
                                             : "?"});
  });
  if (table.empty()) return;
  out += "\nroutes (events)\n";
  table.print(out, 2);
}

void print_upstreams(const json::object& root, std::string& out) {
  TextTable table({"upstream", "address", "node", "state", "in flight", "failures", "last error"});
  for_each_object(root, "upstreams", [&](const json::object& u) {
    for_each_object(u, "receivers", [&](const json::object& r) {
      table.add({text(u, "name"), text(r, "address"), text(r, "node"), text(r, "state"),
                 human_bytes(number(r, "in_flight_bytes")), std::to_string(number(r, "failures")),
                 text(r, "state") == "ready" ? "" : text(r, "last_error")});
    });
  });
  if (table.empty()) return;
  out += "\nupstreams\n";
  table.print(out, 4);
}

void print_spool(const json::object& root, std::string& out) {
  TextTable table({"spool", "size", "segments", "first", "next", "quarantined"});
  for_each_object(root, "spool", [&](const json::object& r) {
    table.add({text(r, "route"), human_bytes(number(r, "bytes")), std::to_string(number(r, "segments")),
               std::to_string(number(r, "first_sequence")), std::to_string(number(r, "next_sequence")),
               std::to_string(number(r, "quarantined"))});
  });
  if (table.empty()) return;
  out += "\nspool\n";
  table.print(out, 1);
}

void print_dead_letters(const json::object& root, std::string& out) {
  TextTable table({"dead letters", "retried", "events", "dropped", "events"});
  for_each_object(root, "dead_letters", [&](const json::object& r) {
    auto n = [&](std::string_view key) { return std::to_string(number(r, key)); };
    table.add({text(r, "route"), n("retried"), n("retried_events"), n("dropped"), n("dropped_events")});
  });
  if (table.empty()) return;
  out += "\n";
  table.print(out, 1);
}

void print_gaps(const json::object& root, std::string& out) {
  TextTable table({"gap from", "stream", "positions", "reason", "events"});
  for_each_object(root, "gaps", [&](const json::object& g) {
    table.add({text(g, "sender"), fmt::format("{:016x}", number(g, "stream")),
               fmt::format("{}..{}", number(g, "first"), number(g, "last")), text(g, "reason"),
               std::to_string(number(g, "events"))});
  });
  if (table.empty()) return;
  out += "\n";
  table.print(out, 4);
}

void print_numbers(const json::object& root, std::string_view key, std::string& out) {
  const json::value* v = root.if_contains(key);
  if (!v || !v->is_object()) return;
  out += fmt::format("\n{}\n ", key);
  for (const auto& item : v->get_object())
    if (item.value().is_number())
      out += fmt::format(" {} {} ", std::string_view(item.key()), number(v->get_object(), item.key()));
  while (out.ends_with(' ')) out.pop_back();
  out += "\n";
}

/// A node that has just started says since when by its own clock, as it says what the time is.
void print_alarms(const json::object& root, std::string& out) {
  for_each_object(root, "alarms", [&](const json::object& a) {
    std::string since;
    if (uint64_t now = number(root, "time_ms"), then = number(a, "since_ms"); then && now >= then)
      since = fmt::format(", for {}", human_seconds(static_cast<double>(now - then) / 1000));
    out += fmt::format("ALARM {} {}: {}{}\n", text(a, "code"), printable(text(a, "about")), printable(text(a, "text")),
                       since);
  });
}

}  // namespace

std::string to_json(const Status& s) {
  json::object root{{"node", s.node},
                    {"site", s.site},
                    {"node_id", s.node_id},
                    {"version", s.version},
                    {"pid", s.pid},
                    {"uptime_seconds", s.uptime_seconds},
                    {"time_ms", to_unix_ms(s.now)}};
  json::array routes, upstreams, spool, kept, alarms;
  for (const RouteRow& r : s.routes) routes.push_back(route(r, s.now));
  for (const UpstreamRow& u : s.upstreams) upstreams.push_back(upstream(u));
  for (const SpoolRow& r : s.spool)
    spool.push_back(json::object{{"route", r.route},
                                 {"bytes", r.bytes},
                                 {"segments", r.segments},
                                 {"first_sequence", r.first_sequence},
                                 {"next_sequence", r.next_sequence},
                                 {"quarantined", r.quarantined}});
  for (const FileRow& f : s.kept_files) kept.push_back(json::object{{"path", f.path}, {"reason", f.reason}});
  for (const Alarm& a : s.alarms)
    alarms.push_back(
        json::object{{"code", a.code}, {"about", a.about}, {"text", a.text}, {"since_ms", to_unix_ms(a.since)}});
  root["routes"] = std::move(routes);
  root["upstreams"] = std::move(upstreams);
  root["spool"] = std::move(spool);
  json::array dead_letters;
  for (const DeadLetterRow& r : s.dead_letters)
    dead_letters.push_back(json::object{{"route", r.route},
                                        {"retried", r.retried},
                                        {"retried_events", r.retried_events},
                                        {"dropped", r.dropped},
                                        {"dropped_events", r.dropped_events}});
  root["dead_letters"] = std::move(dead_letters);
  if (s.agent) root["agent"] = numbers(*s.agent);
  if (s.agent) root["kept_files"] = std::move(kept);
  if (s.receiver) root["receiver"] = numbers(*s.receiver);
  if (s.receiver) root["gaps"] = gaps(s);
  if (s.files) root["files"] = numbers(*s.files);
  if (s.mqtt) root["mqtt"] = numbers(*s.mqtt);
  root["alarms"] = std::move(alarms);
  return json::serialize(root);
}

bool is_status_path(std::string_view target) {
  return target == "/api/v5/status" || target == "/status";
}

Result<std::string> to_text(std::string_view document) {
  boost::system::error_code ec;
  json::value parsed = json::parse(document, ec);
  if (ec || !parsed.is_object()) return fail(errors::malformed, "the daemon's answer is not a JSON object");
  const json::object& root = parsed.get_object();
  std::string out = fmt::format(
      "node {}  site {}  up {}  version {}  pid {}\n", printable(text(root, "node")), printable(text(root, "site")),
      human_seconds(static_cast<double>(number(root, "uptime_seconds"))), text(root, "version"), number(root, "pid"));
  print_alarms(root, out);
  print_routes(root, out);
  print_upstreams(root, out);
  print_spool(root, out);
  for (std::string_view key : {"agent", "receiver", "files", "mqtt"}) print_numbers(root, key, out);
  print_dead_letters(root, out);
  print_gaps(root, out);
  TextTable kept({"kept file", "why"});
  for_each_object(root, "kept_files", [&](const json::object& f) { kept.add({text(f, "path"), text(f, "reason")}); });
  if (!kept.empty()) {
    out += "\n";
    kept.print(out, 2);
  }
  return out;
}

}  // namespace ph::admin
