// posthouse: the one binary. Verbs of the command line; each is a function that returns the process's exit code.
//   0 done   1 failed while running   2 invalid input: configuration, arguments, data   (operations.md)
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "cli.h"
#include "cli_access.h"
#include "cli_migrate.h"
#include "cli_spool.h"
#include "cli_upstream.h"

int main(int argc, char** argv) {
  namespace cli = ph::cli;
  CLI::App app{"posthouse: MQTT broker, file spooling agent and relay between datacenters"};
  app.require_subcommand(1);
  app.set_version_flag("--version", PH_VERSION);
  int code = 0;

  std::string config = "/etc/posthouse/posthouse.toml";
  auto* run = app.add_subcommand("run", "run the node in the foreground until SIGTERM");
  run->add_option("-c,--config", config, "configuration file")->capture_default_str();
  run->callback([&] { code = cli::run(config); });

  auto* conf = app.add_subcommand("config", "check or explain a configuration");
  conf->require_subcommand(1);
  std::string file;
  auto* check = conf->add_subcommand("check", "report everything that is wrong with FILE; works offline");
  check->add_option("FILE", file, "configuration file, - for standard input")->required();
  check->callback([&] { code = cli::config_check(file); });
  conf->add_subcommand("reference", "print every key with meaning, range and default")->callback([&] {
    code = cli::config_reference();
  });

  std::string socket, status_config;
  bool json = false;
  auto* status = app.add_subcommand("status", "what the running node does: routes, upstreams, spools, alarms");
  status->add_flag("--json", json, "the document as JSON");
  status->add_option("--socket", socket, "Unix socket of the node");
  status->add_option("-c,--config", status_config, "take the socket from this configuration");
  status->callback([&] { code = cli::status(socket, status_config, json); });

  auto* pki = app.add_subcommand("pki", "certificates for links");
  pki->require_subcommand(1);
  std::string dir, name;
  std::vector<std::string> dns, ip;
  auto* init = pki->add_subcommand("init", "make a certificate authority in DIR");
  init->add_option("DIR", dir)->required();
  init->callback([&] { code = cli::pki_init(dir); });
  auto* issue = pki->add_subcommand("issue", "issue key and certificate for the node NAME");
  issue->add_option("DIR", dir, "directory of the authority")->required();
  issue->add_option("NAME", name, "node.name of the node")->required();
  issue->add_option("--dns", dns, "a DNS name by which peers reach the node; may be repeated");
  issue->add_option("--ip", ip, "an address by which peers reach the node; may be repeated");
  issue->callback([&] { code = cli::pki_issue(dir, name, dns, ip); });

  cli::add_spool_verbs(app, code);
  cli::add_access_verbs(app, code);
  cli::add_migrate_verbs(app, code);
  cli::add_upstream_verbs(app, code);

  app.add_subcommand("version", "print the version")->callback([] { std::puts("posthouse " PH_VERSION); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    int cli_code = app.exit(e);
    return cli_code == 0 ? 0 : 2;
  }
  return code;
}
