#include "cli_migrate.h"

#include <fmt/core.h>
#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>

#include "base/log.h"
#include "cli.h"
#include "core/migrate/lsd.h"
#include "core/settings/schema.h"
#include "io/config_file.h"
#include "io/posix_files.h"
#include "wire_takeover.h"

namespace ph::cli {
namespace {

constexpr size_t kFileMax = 64 * 1024 * 1024;

struct Options {
  std::string lsd_conf;
  std::string part = "both";
  std::string offsets;
  std::string config;
};

Result<std::string> read_whole(const std::string& path) {
  io::PosixFiles files;
  PH_ASSIGN(auto file, files.open(path, port::OpenMode::read));
  PH_ASSIGN(auto stat, file->stat());
  if (stat.size > kFileMax) return fail(migrate::errors::malformed, path + ": more than 64 MiB");
  std::string text(stat.size, '\0');
  PH_ASSIGN(size_t got, file->read_at(0, text.data(), text.size()));
  text.resize(got);
  return text;
}

bool built(std::string_view key, std::string_view value) {
  for (const settings::NotBuilt& n : settings::not_built())
    if (n.key == key && n.value == value) return false;
  return true;
}

/// Whether the LSD whose pid file this is still runs: its offsets file would lag behind what it sends.
bool runs(const std::string& pid_file) {
  if (pid_file.empty()) return false;
  auto text = read_whole(pid_file);
  if (!text) return false;
  const int pid = std::atoi(text->c_str());
  return pid > 0 && ::kill(static_cast<pid_t>(pid), 0) == 0;
}

int take_over(const Options& o, const migrate::LsdConfig& lsd) {
  if (lsd.source_dir.empty()) return say(kInvalid, {"migrate.no_client", o.lsd_conf + " has no client_config"});
  if (runs(lsd.pid_file))
    return say(kInvalid, {"migrate.lsd_runs", "the process of " + lsd.pid_file +
                                                  " runs: stop LSD first, which brings "
                                                  "its offsets file up to date; producers may go on"});
  auto loaded = io::load_config(o.config);
  if (!loaded) return say(kInvalid, loaded.error());
  std::fputs(loaded->to_string(o.config).c_str(), stderr);
  if (!loaded->settings) return kInvalid;
  if (!loaded->settings->agent || loaded->settings->agent->dir != lsd.source_dir)
    return say(kInvalid,
               {"migrate.other_directory", "agent.dir of " + o.config + " is not LSD's source_dir " + lsd.source_dir});
  auto text = read_whole(o.offsets);
  if (!text) return say(kFailed, text.error());
  auto offsets = migrate::parse_lsd_offsets(*text);
  if (!offsets) return say(kInvalid, offsets.error());
  auto taken = take_over_lsd(*loaded->settings, *offsets);
  if (!taken) return say(kFailed, taken.error());
  size_t from_start = 0;
  for (const Takeover::File& f : taken->files) {
    from_start += !f.why.empty();
    fmt::print("{} {} of {} bytes{}\n", f.path, f.begins_at, f.size,
               f.why.empty() ? "" : "  FROM ITS BEGINNING: " + f.why);
  }
  fmt::print("{} files, {} of them from their beginning against LSD's offset; {} offsets of files that are gone\n",
             taken->files.size(), from_start, taken->unused);
  return kDone;
}

int migrate_lsd(const Options& o) {
  if (!o.offsets.empty()) log_configure(LogLevel::warn, false);
  auto text = read_whole(o.lsd_conf);
  if (!text) return say(kInvalid, text.error());
  migrate::LsdOptions options;
  options.part = o.part == "client" || !o.offsets.empty() ? migrate::Part::client
                 : o.part == "server"                     ? migrate::Part::server
                                                          : migrate::Part::both;
  options.gzip_files = built("receiver.category.compress", "\"gzip\"");
  options.hash_balance = built("upstream.balance", "hash");
  auto converted = migrate::convert_lsd(*text, options);
  if (!converted) return say(kInvalid, converted.error());
  if (!o.offsets.empty()) return take_over(o, *converted);
  std::fputs(converted->toml.c_str(), stdout);
  // What LSD leaves open, like masks that tie, is an error here: told now, with the place.
  auto parsed = settings::parse(converted->toml, io::host_name());
  std::fputs(parsed.to_string("(output)").c_str(), stderr);
  if (converted->notes > 0)
    fmt::print(stderr, "posthouse: {} notes are in the output, marked `# LSD:`\n", converted->notes);
  return parsed.settings ? kDone : kInvalid;
}

}  // namespace

void add_migrate_verbs(CLI::App& app, int& code) {
  const auto o = std::make_shared<Options>();
  CLI::App* migrate = app.add_subcommand("migrate", "bring a host over from another program");
  migrate->require_subcommand(1);
  CLI::App* lsd = migrate->add_subcommand("lsd",
                                          "print the equivalent of a configuration of LSD; with --offsets, take over "
                                          "what its client has delivered");
  lsd->add_option("LSD_CONF", o->lsd_conf, "LSD's configuration file")->required();
  lsd->add_option("--part", o->part, "the half to convert of an LSD that is both")
      ->check(CLI::IsMember({"both", "client", "server"}))
      ->capture_default_str();
  auto* offsets = lsd->add_option("--offsets", o->offsets,
                                  "offsets file of the stopped LSD: the agent of the stopped node "
                                  "begins where it says");
  lsd->add_option("-c,--config", o->config, "the node's configuration")->needs(offsets);
  lsd->callback([o, &code, offsets] {
    if (offsets->count() > 0 && o->config.empty()) throw CLI::RequiredError("--offsets needs -c: --config");
    code = migrate_lsd(*o);
  });
}

}  // namespace ph::cli
