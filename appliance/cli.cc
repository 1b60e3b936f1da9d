#include "cli.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "core/settings/difference.h"
#include "host/notify.h"
#include "io/config_file.h"
#include "io/descriptor_limit.h"
#include "io/http_unix.h"
#include "io/pki.h"
#include "io/signals.h"
#include "service/admin/status.h"
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

}  // namespace

std::optional<settings::Settings> load_settings(const std::string& path) {
  auto outcome = io::load_config(path);
  if (!outcome) {
    say(kInvalid, outcome.error());
    return std::nullopt;
  }
  std::fputs(outcome->to_string(path).c_str(), stderr);
  return std::move(outcome->settings);
}

std::optional<std::string> socket_of(const std::string& socket, const std::string& config) {
  if (!socket.empty()) return socket;
  if (config.empty()) return settings::Api{}.socket;
  auto settings = load_settings(config);
  return settings ? std::optional(settings->api.socket) : std::nullopt;
}

int run(const std::string& config) {
  io::ignore_signals();
  io::raise_descriptor_limit();
  auto text = io::read_config_text(config);
  if (!text) return say(kInvalid, text.error());
  auto settings = parse(*text, config);
  if (!settings) return kInvalid;
  io::reserve_descriptors(connections_max(*settings) + io::kDescriptorReserve);
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

}  // namespace ph::cli
