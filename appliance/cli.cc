#include "cli.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/coding.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "core/settings/difference.h"
#include "host/notify.h"
#include "io/config_file.h"
#include "io/descriptor_limit.h"
#include "io/http_unix.h"
#include "io/level_store.h"
#include "io/pki.h"
#include "io/posix_files.h"
#include "io/signals.h"
#include "service/admin/status.h"
#include "service/admin/text_table.h"
#include "store/dead_letter/dead_letters.h"
#include "store/spool/spool_check.h"
#include "wire_node.h"
#include "wire_wait.h"

namespace ph::cli {

int say(int code, const Error& error) {
  fmt::print(stderr, "posthouse: {}\n", error.to_string());
  return code;
}

namespace {

/// Applies the file as it is now to the running node: SIGHUP. `text` is what runs; keys that cannot change while it
/// runs stay as they are there, so that each reload names them again.
void reload(const std::string& path, const std::string& text, Node& node) {
  if (path == "-") return log_warn("reload_refused", {{"error", "the configuration came from standard input"}});
  auto fresh = io::read_config_text(path);
  if (!fresh) return log_error("reload_refused", {{"error", fresh.error().to_string()}});
  settings::Outcome outcome = settings::parse(*fresh, io::host_name());
  for (const auto& d : outcome.diagnostics) log_warn("configuration_diagnosed", {{"diagnostic", d.to_string(path)}});
  if (!outcome.settings)
    return log_error("reload_refused", {{"file", path}, {"errors", outcome.errors()}, {"effect", "nothing changed"}});
  host::notify_reloading(node.loop().now());
  auto done = node.reload(*outcome.settings);
  host::notify_reloaded();
  if (!done) return log_error("reload_refused", {{"error", done.error().to_string()}, {"effect", "nothing changed"}});
  std::string waiting;
  for (const std::string& key : settings::differences(text, *fresh))
    if (!settings::is_live(key)) waiting += (waiting.empty() ? "" : ", ") + key;
  if (!waiting.empty()) log_warn("reload_needs_restart", {{"changed", waiting}});
  log_info("configuration_reloaded", {{"file", path}});
}

/// The settings in `text`, or everything that is wrong with them on standard error.
std::optional<settings::Settings> parse(const std::string& text, const std::string& path) {
  settings::Outcome outcome = settings::parse(text, io::host_name());
  std::fputs(outcome.to_string(path).c_str(), stderr);
  return std::move(outcome.settings);
}

/// The settings in `path`, or everything that is wrong with them on standard error.
std::optional<settings::Settings> load(const std::string& path) {
  auto outcome = io::load_config(path);
  if (!outcome) {
    say(kInvalid, outcome.error());
    return std::nullopt;
  }
  std::fputs(outcome->to_string(path).c_str(), stderr);
  return std::move(outcome->settings);
}

void print_segments(const std::string& route, const spool::SpoolReport& report, bool checked) {
  fmt::print("{}: {} segments, released below {}{}\n", route, report.segments.size(), report.floor,
             report.unacknowledged_bytes
                 ? fmt::format(", {} bytes that were never acknowledged", report.unacknowledged_bytes)
                 : "");
  for (const auto& s : report.segments) {
    fmt::print("  {}  sequences {}..{}  {} bytes", s.file, s.first, s.last, s.bytes);
    if (checked) fmt::print("  {} records  {} events", s.records, s.events);
    fmt::print("{}\n", s.note.empty() ? "" : "  " + s.note);
    for (const auto& d : s.damage)
      fmt::print("    DAMAGED at {}:{}, {} bytes, sequences {}..{}, {} events: {}\n", s.file, d.offset, d.bytes,
                 d.first, d.last, d.events, d.reason);
  }
}

/// One route's spool by one verb. Returns the exit code.
int spool_verb(const std::string& verb, const std::string& route, const spool::SpoolPlace& place) {
  if (verb == "repair") {
    auto repaired = spool::repair_spool(place);
    if (!repaired) return say(kFailed, repaired.error());
    print_segments(route, repaired->before, true);
    fmt::print("{}: {} places repaired, {} bytes kept in .quarantine files\n", route, repaired->places,
               repaired->quarantined_bytes);
    return kDone;
  }
  auto report = verb == "check" ? spool::check_spool(place) : spool::list_spool(place);
  if (!report) return say(kFailed, report.error());
  print_segments(route, *report, verb == "check");
  return report->damaged_places() ? kFailed : kDone;
}

}  // namespace

std::optional<std::string> socket_of(const std::string& socket, const std::string& config) {
  if (!socket.empty()) return socket;
  if (config.empty()) return settings::Api{}.socket;
  auto settings = load(config);
  return settings ? std::optional(settings->api.socket) : std::nullopt;
}

int run(const std::string& config) {
  io::ignore_signals();
  io::raise_descriptor_limit();
  auto text = io::read_config_text(config);
  if (!text) return say(kInvalid, text.error());
  auto settings = parse(*text, config);
  if (!settings) return kInvalid;
  log_configure(settings->log.level, ::getenv("JOURNAL_STREAM") == nullptr);
  std::unique_ptr<Node> node;
  std::unique_ptr<WaitingStart> waiting;
  for (;;) {
    node = std::make_unique<Node>(*settings);
    auto opened = node->open();
    if (opened) break;
    node.reset();
    if (!may_wait(opened.error())) return say(kFailed, opened.error());
    if (!waiting) {
      waiting = std::make_unique<WaitingStart>(*settings);
      if (auto listens = waiting->listen(); !listens) return say(kFailed, listens.error());
    }
    if (!waiting->wait(opened.error())) return kDone;
  }
  if (waiting && waiting->stopping()) return kDone;
  waiting.reset();  // its socket is the node's now
  if (auto listens = node->open_api(); !listens) return say(kFailed, listens.error());
  io::Signals signals(node->loop(), [&node](int) { node->stop(); }, [&] { reload(config, *text, *node); });
  node->run();
  if (node->failure()) return say(kFailed, *node->failure());
  return kDone;
}

int config_check(const std::string& file) {
  settings::Checked checked = io::config_check(file);
  std::fputs(checked.text.c_str(), checked.exit_code ? stderr : stdout);
  return checked.exit_code;
}

int config_reference() {
  std::fputs(settings::reference().c_str(), stdout);
  return kDone;
}

int status(const std::string& socket, const std::string& config, bool json) {
  const auto found = socket_of(socket, config);
  if (!found) return kInvalid;
  const std::string& path = *found;
  auto answer = io::http_get_unix(path, "/api/v5/status");
  if (!answer) return say(kFailed, answer.error());
  if (answer->status != 200) return say(kFailed, {"http.failed", fmt::format("{} at {}", answer->status, path)});
  if (json) {
    fmt::print("{}\n", answer->body);
    return kDone;
  }
  auto text = admin::to_text(answer->body);
  if (!text) return say(kFailed, text.error());
  std::fputs(text->c_str(), stdout);
  return kDone;
}

int pki_init(const std::string& directory) {
  auto made = io::pki_init(directory);
  if (!made) return say(kFailed, made.error());
  fmt::print("certificate authority: {}\nits key, keep it off the gateways: {}\n", made->certificate_file,
             made->key_file);
  return kDone;
}

int pki_issue(const std::string& directory, const std::string& name, const std::vector<std::string>& dns,
              const std::vector<std::string>& ip) {
  auto made = io::pki_issue(directory, {name, dns, ip});
  if (!made) return say(kFailed, made.error());
  fmt::print("certificate: {}\nkey: {}\n", made->certificate_file, made->key_file);
  return kDone;
}

int spool(const std::string& verb, const std::string& config, const std::string& route) {
  auto settings = load(config);
  if (!settings) return kInvalid;
  io::PosixFiles files;
  const std::string& data = settings->node.data_dir;
  // The store's lock also proves that the node is stopped.
  auto store = io::LevelStore::open(data + "/store");
  if (!store) return say(kFailed, store.error());
  int code = kDone;
  bool known = route.empty();
  for (const auto& r : settings->routes) {
    if (!route.empty() && r.name != route) continue;
    known = true;
    std::string directory = data + "/spool/" + r.name;
    auto there = files.stat(directory);
    if (!there || !*there) continue;  // nothing was ever spooled for it
    code = std::max(code, spool_verb(verb, r.name, {files, store->get(), r.name, directory}));
  }
  if (!known) return say(kInvalid, {"cli.no_route", "'" + route + "' is no route of " + config});
  return code;
}

int dead_letters(const std::string& config, const std::string& route, bool json) {
  auto settings = load(config);
  if (!settings) return kInvalid;
  io::PosixFiles files;
  std::string directory = settings->node.data_dir + "/dead-letters";
  auto routes = dead_letter::routes_with_letters(files, directory);
  if (!routes) return say(kFailed, routes.error());
  for (const std::string& r : *routes) {
    if (!route.empty() && r != route) continue;
    auto seen = dead_letter::for_each_letter(files, directory, r, [&](const dead_letter::Found& found) {
      const port::DeadLetter& l = found.letter;
      auto block = event::decode(l.block);
      uint64_t events = block ? block->events : 0;
      if (json)
        fmt::print("{}\n", admin::dead_letter_json(l, events));
      else
        fmt::print("{} {} {} {}: {} ({} events, positions {}..{})\n", to_unix_ms(l.at), l.route, l.target,
                   admin::printable(l.category), admin::printable(l.reason), events, l.first, l.last);
      return true;
    });
    if (!seen) return say(kFailed, seen.error());
    if (*seen) fmt::print(stderr, "{}: {} damaged places skipped\n", r, *seen);
  }
  return kDone;
}

}  // namespace ph::cli
