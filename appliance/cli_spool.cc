#include "cli_spool.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/limits.h"
#include "cli.h"
#include "io/config_file.h"
#include "io/disk_queue.h"
#include "io/http_unix.h"
#include "io/level_store.h"
#include "io/loop.h"
#include "io/posix_files.h"
#include "service/admin/access_api.h"
#include "service/admin/audit.h"
#include "service/admin/dead_letter_desk.h"
#include "service/admin/route_explain.h"
#include "service/admin/spool_text.h"
#include "store/spool/spool_check.h"

namespace ph::cli {
namespace {

constexpr ErrorCode kNoRoute{"cli.no_route"};
constexpr ErrorCode kRefused{"cli.refused"};
constexpr ErrorCode kBadInput{"cli.bad_input"};
constexpr ErrorCode kStays{"cli.letters_stay"};
constexpr Duration kDeedBound = 60s;

struct Options {
  std::string config = "/etc/posthouse/posthouse.toml";
  std::string socket, route, sample, kind;
  std::vector<std::string> ids;
  bool json = false, all = false;
  size_t limit = 100;
};
using Shared = std::shared_ptr<Options>;

// --- spool list, check, repair

/// Folders of the spool that the verb is about: a route's own, and those of what is sent again of it.
Result<std::vector<std::string>> folders(port::Files& files, const std::string& directory, const std::string& route) {
  std::vector<std::string> out;
  auto entries = files.list(directory);
  if (!entries && entries.error().code == port::file_errors::not_found) return out;
  if (!entries) return std::unexpected(entries.error());
  for (const auto& e : *entries)
    if (e.kind == port::FileKind::directory && (route.empty() || e.name == route || e.name.starts_with(route + "~")))
      out.push_back(e.name);
  std::sort(out.begin(), out.end());
  return out;
}

int spool(const std::string& verb, const Options& o) {
  auto settings = load_settings(o.config);
  if (!settings) return kInvalid;
  const auto named = [&](const std::string& name) {
    return std::any_of(settings->routes.begin(), settings->routes.end(),
                       [&](const auto& r) { return name == r.name || name.starts_with(r.name + "~"); });
  };
  io::PosixFiles files;
  const std::string directory = settings->node.data_dir + "/spool";
  // The store's lock also proves that the node is stopped.
  auto store = io::LevelStore::open(settings->node.data_dir + "/store");
  if (!store) return say(kFailed, store.error());
  auto found = folders(files, directory, o.route);
  if (!found) return say(kFailed, found.error());
  if (!o.route.empty() && found->empty() && !named(o.route))
    return say(kInvalid, {kNoRoute, "'" + o.route + "' is no route of " + o.config + ", and no spool is called that"});
  std::vector<admin::SpoolFinding> findings;
  int code = kDone;
  for (const std::string& name : *found) {
    const spool::SpoolPlace place{files, store->get(), name, directory + "/" + name};
    admin::SpoolFinding finding{.name = name, .configured = named(name), .checked = verb != "list"};
    if (verb == "repair") {
      auto repaired = spool::repair_spool(place);
      if (!repaired) return say(kFailed, repaired.error());
      finding.report = std::move(repaired->before);
      finding.repaired = repaired->places;
      finding.quarantined_bytes = repaired->quarantined_bytes;
    } else {
      auto report = verb == "check" ? spool::check_spool(place) : spool::list_spool(place);
      if (!report) return say(kFailed, report.error());
      if (report->damaged_places() > 0) code = kFailed;
      finding.report = std::move(*report);
    }
    findings.push_back(std::move(finding));
  }
  const std::string text = o.json ? admin::spool_json(findings) + "\n" : admin::spool_text(findings);
  std::fputs(text.c_str(), stdout);
  return code;
}

// --- dead letters

/// The node's answer; nullopt if no node answers at the socket.
Result<std::optional<io::HttpResponse>> ask(const std::string& socket, const std::string& method,
                                            const std::string& target, const std::string& body) {
  auto answer = io::http_unix(socket, {method, target, body}, kDeedBound);
  if (!answer && answer.error().code == io::http_errors::unreachable) return std::optional<io::HttpResponse>();
  if (!answer) return std::unexpected(answer.error());
  if (answer->status >= 300) return fail(kRefused, admin::error_text(answer->body));
  return std::optional(std::move(*answer));
}

int print_letters(const std::string& document, bool json) {
  if (json) {
    fmt::print("{}\n", document);
    return kDone;
  }
  auto text = admin::letters_text(document);
  if (!text) return say(kFailed, text.error());
  std::fputs(text->c_str(), stdout);
  return kDone;
}

int list_letters(const Options& o) {
  auto settings = load_settings(o.config);
  if (!settings) return kInvalid;
  const size_t limit = std::clamp<size_t>(o.limit, 1, admin::DeadLetterDesk::kBatchLetters);
  auto answer = ask(o.socket.empty() ? settings->api.socket : o.socket, "GET",
                    fmt::format("{}?route={}&limit={}", admin::kDeadLettersPath, o.route, limit), {});
  if (!answer) return say(kFailed, answer.error());
  if (*answer) return print_letters((*answer)->body, o.json);
  io::PosixFiles files;
  const std::string directory = settings->node.data_dir + "/dead-letters";
  auto routes = dead_letter::routes_with_letters(files, directory);
  if (!routes) return say(kFailed, routes.error());
  std::vector<dead_letter::Found> letters;
  uint64_t stray = 0;
  bool more = false;
  for (const std::string& r : *routes) {
    if (more || (!o.route.empty() && r != o.route)) continue;
    auto seen = dead_letter::for_each_letter(files, directory, r, [&](const dead_letter::Found& found) {
      more = letters.size() == limit;
      if (!more) letters.push_back(found);
      return !more;
    });
    if (!seen) return say(kFailed, seen.error());
    stray += *seen;
  }
  return print_letters(admin::letters_json(letters, more, stray), o.json);
}

/// The parts of a stopped node that sending again needs.
class StoppedNode {
 public:
  static Result<std::unique_ptr<StoppedNode>> open(const settings::Settings& settings) {
    std::unique_ptr<StoppedNode> node(new StoppedNode(settings));
    PH_ASSIGN(node->store_, io::LevelStore::open(node->data_ + "/store"));
    node->disk_ = std::make_unique<io::IoDiskQueue>(node->loop_);
    node->committer_ = std::make_unique<commit::Committer>(node->loop_, *node->disk_, *node->store_);
    return node;
  }
  ~StoppedNode() {
    if (disk_) disk_->finish();
  }
  Result<admin::DeadLetterDesk::Done> perform(admin::DeadLetterDesk::Deed deed, admin::DeadLetterDesk::Choice choice) {
    dead_letter::DeadLetterFiles letters(data_ + "/dead-letters", files_);
    admin::DeadLetterDesk desk(
        {loop_, *disk_, files_, *store_, *committer_, letters, data_ + "/dead-letters",
         [this](const std::string& route, const std::string& target) { return log_of(route, target); }});
    std::optional<Result<admin::DeadLetterDesk::Done>> outcome;
    desk.perform(deed, std::move(choice), [&](const Result<admin::DeadLetterDesk::Done>& done) { outcome = done; });
    loop_.run_until([&] { return outcome.has_value(); }, kDeedBound);
    if (!outcome) return fail(io::http_errors::timeout, "not done within a minute; what is done stays done");
    return *outcome;
  }

 private:
  explicit StoppedNode(const settings::Settings& settings) : settings_(settings), data_(settings.node.data_dir) {}
  spool::SegmentLog* log_of(const std::string& route, const std::string& target) {
    for (const auto& r : settings_.routes)
      for (const auto& t : r.to) {
        if (r.name != route || t.name() != target) continue;
        const std::string name = admin::retry_log_name(route, target);
        if (auto it = logs_.find(name); it != logs_.end()) return it->second.get();
        auto log = spool::SegmentLog::open({.name = name, .directory = data_ + "/spool/" + name}, files_, *store_,
                                           loop_.random());
        if (!log) {
          say(kFailed, log.error());
          return nullptr;
        }
        return logs_.emplace(name, std::move(*log)).first->second.get();
      }
    return nullptr;
  }

  const settings::Settings& settings_;
  std::string data_;
  io::IoLoop loop_;
  io::PosixFiles files_;
  std::unique_ptr<io::LevelStore> store_;
  std::unique_ptr<io::IoDiskQueue> disk_;
  std::unique_ptr<commit::Committer> committer_;
  std::map<std::string, std::unique_ptr<spool::SegmentLog>> logs_;
};

int say_done(const std::string& verb, const Options& o, const admin::DeadLetterDesk::Done& done) {
  if (o.json)
    fmt::print("{}\n", admin::done_json(done));
  else
    fmt::print("{} dead letters ({} events) {}\n", done.letters, done.events,
               verb == "retry" ? "go their way again" : "dropped");
  const uint64_t missing = o.all ? 0 : o.ids.size() - std::min<uint64_t>(o.ids.size(), done.letters);
  if (done.fresh + done.no_target + done.failed + missing == 0) return kDone;
  if (done.fresh) say(kFailed, {kStays, fmt::format("{} are younger than 3 s: ask again", done.fresh)});
  if (done.no_target)
    say(kFailed, {kStays, fmt::format("{} are of a route or target that is not configured", done.no_target)});
  if (done.failed) say(kFailed, {kStays, fmt::format("{} cannot be sent: they are too long or damaged", done.failed)});
  if (const uint64_t known = done.fresh + done.no_target + done.failed; missing > known)
    say(kFailed, {kStays, fmt::format("{} ids name no dead letter", missing - known)});
  return kFailed;
}

int deed(const std::string& verb, const Options& o) {
  if (o.all == !o.ids.empty()) return say(kInvalid, {kBadInput, "name the letters' ids, or say --all"});
  auto settings = load_settings(o.config);
  if (!settings) return kInvalid;
  const admin::DeadLetterDesk::Choice choice{o.route, {o.ids.begin(), o.ids.end()}, o.all};
  const std::string body = admin::choice_json(choice);
  if (body.size() > io::kHttpBodyMax) return say(kInvalid, {kBadInput, "too many ids at once"});
  auto answer = ask(o.socket.empty() ? settings->api.socket : o.socket, "POST",
                    std::string(admin::kDeadLettersPath) + "/" + verb, body);
  if (!answer) return say(kFailed, answer.error());
  if (*answer) {
    auto done = admin::parse_done((*answer)->body);
    return done ? say_done(verb, o, *done) : say(kFailed, done.error());
  }
  auto node = StoppedNode::open(*settings);
  if (!node) return say(kFailed, node.error());
  auto done = (*node)->perform(verb == "retry" ? admin::DeadLetterDesk::Deed::retry : admin::DeadLetterDesk::Deed::drop,
                               choice);
  return done ? say_done(verb, o, *done) : say(kFailed, done.error());
}

// --- audit, route explain

int audit(const Options& o) {
  const auto socket = socket_of(o.socket, o.config);
  if (!socket) return kInvalid;
  auto answer = io::http_get_unix(*socket, "/api/v5/status");
  if (!answer) return say(kFailed, answer.error());
  auto audited = admin::audit(answer->body);
  if (!audited) return say(kFailed, audited.error());
  const std::string text = o.json ? admin::to_json(*audited) + "\n" : admin::to_text(*audited);
  std::fputs(text.c_str(), stdout);
  return audited->sound() ? kDone : kFailed;
}

int route_explain(const Options& o) {
  auto settings = load_settings(o.config);
  if (!settings) return kInvalid;
  const auto kind = o.kind == "category" ? admin::SampleKind::category
                    : o.kind == "file"   ? admin::SampleKind::file
                    : o.kind == "topic"  ? admin::SampleKind::topic
                                         : admin::guess_kind(*settings, o.sample);
  io::PosixFiles files;
  // Beside the sample, wherever that lies: on a laptop there is nothing there.
  std::string beside = o.sample.starts_with('/') || !settings->agent ? o.sample : settings->agent->dir + "/" + o.sample;
  beside.resize(beside.rfind('/') == std::string::npos ? 0 : beside.rfind('/') + 1);
  const auto explained = admin::explain(*settings, kind, o.sample, [&](std::string_view name) {
    auto there = files.stat(beside + std::string(name));
    return there && *there;
  });
  const std::string text = o.json ? admin::to_json(explained) + "\n" : admin::to_text(explained);
  std::fputs(text.c_str(), stdout);
  return explained.refused.empty() ? kDone : kFailed;
}

// --- their options

CLI::App* verb(CLI::App& under, const std::string& name, const std::string& what, const Shared& o) {
  CLI::App* sub = under.add_subcommand(name, what);
  sub->add_option("-c,--config", o->config, "configuration file")->capture_default_str();
  sub->add_flag("--json", o->json, "as JSON");
  return sub;
}

void add_dead_letter_verbs(CLI::App& spool, const Shared& o, int& code) {
  CLI::App* letters = spool.add_subcommand(
      "dead-letter", "events that a target refused for good; of a running node, or of a stopped one");
  letters->require_subcommand(1);
  letters->footer(
      "Exit: 0 done; 1 failed, or some letters stay and it is said why; 2 invalid arguments or configuration.");
  CLI::App* list = verb(*letters, "list", "which there are, oldest first", o);
  list->add_option("--limit", o->limit, "at most so many, up to 1000")->capture_default_str();
  list->callback([o, &code] { code = list_letters(*o); });
  CLI::App* retry = verb(*letters, "retry", "send them their way again, each exactly once", o);
  CLI::App* drop = verb(*letters, "drop", "delete them", o);
  for (CLI::App* sub : {list, retry, drop}) {
    sub->add_option("--route", o->route, "of this route only");
    sub->add_option("--socket", o->socket, "Unix socket of the node");
  }
  for (CLI::App* sub : {retry, drop}) {
    sub->add_option("ID", o->ids, "as list shows them");
    sub->add_flag("--all", o->all, "all of them, or all of --route");
    sub->callback([o, &code, name = sub->get_name()] { code = deed(name, *o); });
  }
}

}  // namespace

void add_spool_verbs(CLI::App& app, int& code) {
  auto o = std::make_shared<Options>();
  CLI::App* spool = app.add_subcommand("spool", "look at and mend what waits on disk");
  spool->require_subcommand(1);
  spool->footer(
      "list, check and repair need a stopped node. Exit: 0 done and sound; 1 failed, or damage is known (list) or was "
      "found (check); 2 invalid arguments or configuration.");
  const std::pair<const char*, const char*> verbs[] = {
      {"list", "segments, sequences, bytes, and the damage that is known"},
      {"check", "verify every record; exit 1 if any is damaged"},
      {"repair", "set damaged bytes aside, so that a check is clean; ends the alarm"}};
  for (const auto& [name, what] : verbs) {
    CLI::App* sub = verb(*spool, name, what, o);
    sub->add_option("--route", o->route, "this route's spool only");
    sub->callback([o, &code, called = std::string(name)] { code = ph::cli::spool(called, *o); });
  }
  add_dead_letter_verbs(*spool, o, code);

  CLI::App* audited = app.add_subcommand("audit", "whether every event that came in is accounted for");
  audited->footer(
      "Exit: 0 it adds up; 1 it does not, and the difference is named, or no node answers; 2 invalid arguments.");
  auto a = std::make_shared<Options>();
  a->config.clear();
  audited->add_flag("--json", a->json, "as JSON");
  audited->add_option("--socket", a->socket, "Unix socket of the node");
  audited->add_option("-c,--config", a->config, "take the socket from this configuration");
  audited->callback([a, &code] { code = audit(*a); });

  CLI::App* route = app.add_subcommand("route", "which way events go");
  route->require_subcommand(1);
  auto r = std::make_shared<Options>();
  CLI::App* explained =
      verb(*route, "explain", "which route takes a sample, why, and what becomes of it; works offline", r);
  explained->add_option("SAMPLE", r->sample, "a category, the path of a source file, or an MQTT topic")->required();
  explained->add_option("--as", r->kind, "what the sample is; else guessed")
      ->check(CLI::IsMember({"category", "file", "topic"}));
  explained->footer("Exit: 0 a route takes it; 1 none does, and it is said why; 2 invalid arguments or configuration.");
  explained->callback([r, &code] { code = route_explain(*r); });
}

}  // namespace ph::cli
