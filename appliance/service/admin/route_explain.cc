#include "service/admin/route_explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>

#include "codec/event/block.h"
#include "codec/mqtt/text.h"
#include "core/agent/source_name.h"
#include "core/route/route_table.h"
#include "service/admin/text_table.h"

namespace ph::admin {
namespace {

namespace json = boost::json;

std::string_view kind_name(SampleKind kind) {
  return kind == SampleKind::file ? "file" : kind == SampleKind::topic ? "topic" : "category";
}

/// Below the agent's directory; nullopt: it lies elsewhere.
std::optional<std::string_view> below(const settings::Settings& s, std::string_view path) {
  if (!path.starts_with('/')) return path;
  if (!s.agent || !path.starts_with(s.agent->dir)) return std::nullopt;
  path.remove_prefix(s.agent->dir.size());
  if (!path.starts_with('/')) return std::nullopt;
  while (path.starts_with('/')) path.remove_prefix(1);
  return path;
}

/// Whether events of peers and of files wait in a log of the route, as the wiring decides it.
bool has_log(const settings::Settings& s, const settings::Route& r) {
  const bool files_only = r.to.size() == 1 && r.to[0].kind == settings::Target::Kind::files;
  return !r.topics.empty() || (s.receiver && !s.receiver->link.empty() && !files_only);
}

std::string where(const settings::Settings& s, const settings::Route& r, SampleKind kind) {
  const std::string spool = s.node.data_dir + "/spool/" + r.name;
  if (kind == SampleKind::topic) return "one number a message, in the spool " + spool;
  std::string out;
  if (s.agent) out = "of this node's files: byte positions in each file, which waits where it is";
  if (!s.receiver || s.receiver->link.empty() || kind == SampleKind::file) return out;
  if (!out.empty()) out += "; ";
  return out +
         "of peers: " + (has_log(s, r) ? "one number a record, in the spool " + spool : "none, straight to files");
}

void explain_category(const settings::Settings& s, Explanation& out) {
  if (auto fault = event::category_fault(out.category); !fault.empty()) {
    out.refused = "no category can be called that: " + std::string(fault);
    return;
  }
  std::vector<route::Rule> rules;
  for (const auto& r : s.routes) rules.push_back({r.categories, r.topics});
  const route::RouteTable table(rules);
  const auto why = table.explain(out.category);
  if (why)
    out.routes.push_back({&s.routes[why->rule], std::string(why->mask)});
  else
    out.refused = "no mask matches it, and there is no default route";
}

void explain_file(const settings::Settings& s, const std::function<bool(std::string_view)>& exists, Explanation& out) {
  const auto path = below(s, out.sample);
  if (!s.agent || !path || path->empty()) {
    out.refused = s.agent ? "it does not lie below agent.dir, " + s.agent->dir : "there is no [agent]";
    return;
  }
  const size_t first = path->find('/');
  const std::string_view directory = first == path->npos ? std::string_view() : path->substr(0, first);
  const std::string_view name = first == path->npos ? *path : path->substr(first + 1);
  if (name.find('/') != name.npos) {
    out.refused = "only files of agent.dir and of its directories are read, not deeper ones";
    return;
  }
  for (std::string_view part : {directory, name})
    if (auto reason = agent::skip_reason(part); !part.empty() && !reason.empty()) {
      out.refused = "never read: " + std::string(reason);
      return;
    }
  out.category = agent::source_name(directory, name, exists).category;
  explain_category(s, out);
}

void explain_topic(const settings::Settings& s, Explanation& out) {
  if (!mqtt::utf8_valid(out.sample) || out.sample.empty() || out.sample.find_first_of("+#") != out.sample.npos) {
    out.refused = "that is no topic that can be published to";
    return;
  }
  for (const auto& r : s.routes)
    for (const std::string& filter : r.topics)
      if (mqtt::matches(filter, out.sample)) {
        out.routes.push_back({&r, filter});
        break;
      }
  if (out.routes.empty()) out.refused = "no route's topics match it: it stays in the broker";
}

std::vector<std::string> policies(const settings::Route& r, SampleKind kind) {
  std::vector<std::string> out;
  out.emplace_back(r.ack == settings::Ack::far ? "ack: when every target's far end has it"
                                               : "ack: when the next node, for MQTT this one, has it on disk");
  using settings::Full;
  if (r.spool.max) {
    std::string text = fmt::format("max: {} bytes a target; full: ", r.spool.max->value);
    if (r.spool.full == Full::block)
      text += kind == SampleKind::file ? "block, which for files is to wait where they are" : "block";
    else
      text += r.spool.full == Full::drop_oldest ? "drop_oldest" : "drop_newest";
    out.push_back(std::move(text));
  } else {
    out.emplace_back("max: no bound but the disk");
  }
  if (r.spool.keep)
    out.push_back(fmt::format("keep: {} s", std::chrono::duration_cast<std::chrono::seconds>(*r.spool.keep).count()));
  return out;
}

std::vector<std::string> targets(const settings::Route& r) {
  std::vector<std::string> out;
  for (const auto& t : r.to) out.push_back(t.name());
  return out;
}

}  // namespace

SampleKind guess_kind(const settings::Settings& s, std::string_view sample) {
  if (sample.starts_with('/') && below(s, sample)) return SampleKind::file;
  return sample.find('/') == sample.npos ? SampleKind::category : SampleKind::topic;
}

Explanation explain(const settings::Settings& s, SampleKind kind, const std::string& sample,
                    const std::function<bool(std::string_view)>& exists) {
  Explanation out;
  out.kind = kind;
  out.sample = sample;
  if (kind == SampleKind::file) explain_file(s, exists, out);
  if (kind == SampleKind::topic) explain_topic(s, out);
  if (kind == SampleKind::category) {
    out.category = sample;
    explain_category(s, out);
  }
  for (const RouteWhy& why : out.routes) out.stream.push_back(where(s, *why.route, kind));
  return out;
}

std::string to_text(const Explanation& e) {
  std::string out = fmt::format("{} {}", kind_name(e.kind), printable(e.sample));
  if (e.kind == SampleKind::file && !e.category.empty()) out += fmt::format(": category {}", printable(e.category));
  out += "\n";
  if (!e.refused.empty()) return out + "  no route: " + printable(e.refused) + "\n";
  for (size_t i = 0; i < e.routes.size(); ++i) {
    const RouteWhy& why = e.routes[i];
    const char* what = e.kind == SampleKind::topic ? "filter" : "mask";
    out +=
        fmt::format("  route {}, by {}\n", why.route->name,
                    why.mask.empty() ? "being the default route" : fmt::format("its {} {}", what, printable(why.mask)));
    if (e.kind == SampleKind::topic) out += fmt::format("    category: {}\n", printable(why.route->category));
    out += "    to:";
    for (const std::string& t : targets(*why.route)) out += " " + printable(t);
    out += "\n    stream: " + printable(e.stream[i]) + "\n";
    for (const std::string& p : policies(*why.route, e.kind)) out += "    " + p + "\n";
  }
  return out;
}

std::string to_json(const Explanation& e) {
  json::array routes;
  for (size_t i = 0; i < e.routes.size(); ++i) {
    const settings::Route& r = *e.routes[i].route;
    const auto full = r.spool.full;
    routes.push_back(json::object{
        {"route", r.name},
        {"mask", e.routes[i].mask},
        {"default", e.routes[i].mask.empty()},
        {"category", e.kind == SampleKind::topic ? r.category : e.category},
        {"to", json::value_from(targets(r))},
        {"stream", e.stream[i]},
        {"ack", r.ack == settings::Ack::far ? "far" : "local"},
        {"max_bytes", r.spool.max ? json::value(r.spool.max->value) : json::value(nullptr)},
        {"full", full == settings::Full::block         ? "block"
                 : full == settings::Full::drop_oldest ? "drop_oldest"
                                                       : "drop_newest"},
        {"keep_seconds", r.spool.keep
                             ? json::value(std::chrono::duration_cast<std::chrono::seconds>(*r.spool.keep).count())
                             : json::value(nullptr)}});
  }
  return json::serialize(json::object{{"kind", kind_name(e.kind)},
                                      {"sample", e.sample},
                                      {"category", e.category},
                                      {"refused", e.refused},
                                      {"routes", std::move(routes)}});
}

}  // namespace ph::admin
