#include "cli_upstream.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli.h"
#include "io/http_unix.h"
#include "service/admin/access_api.h"
#include "service/admin/owner_desk.h"

namespace ph::cli {
namespace {

constexpr ErrorCode kRefused{"cli.refused"};
constexpr ErrorCode kNotSaid{"cli.not_confirmed"};

struct Options {
  std::string config, socket, upstream, receiver;
  bool json = false, yes = false;
};

int forget(const Options& o) {
  const auto socket = socket_of(o.socket, o.config);
  if (!socket) return kInvalid;
  const admin::ForgetOwner request{o.upstream, o.receiver, !o.yes};
  auto answer = io::http_unix(*socket, {"POST", std::string(admin::kForgetOwnerPath), admin::to_json(request)});
  if (!answer) return say(kFailed, answer.error());
  if (answer->status >= 300) return say(kFailed, {kRefused, admin::error_text(answer->body)});
  if (o.json) {
    fmt::print("{}\n", answer->body);
  } else {
    auto text = admin::owner_forgotten_text(answer->body);
    if (!text) return say(kFailed, text.error());
    std::fputs(text->c_str(), stdout);
  }
  return o.yes ? kDone : say(kFailed, {kNotSaid, "nothing was done"});
}

}  // namespace

void add_upstream_verbs(CLI::App& app, int& code) {
  CLI::App* upstream = app.add_subcommand("upstream", "what waits for receivers of an upstream");
  upstream->require_subcommand(1);
  auto o = std::make_shared<Options>();
  CLI::App* sub = upstream->add_subcommand(
      "forget", "dedup = \"strict\": stop waiting for a receiver that may have published something");
  sub->add_option("UPSTREAM", o->upstream, "its name, as the alarm upstream_strict_waits tells it")->required();
  sub->add_option("RECEIVER", o->receiver, "\"host:port\", as the alarm tells it")->required();
  sub->add_flag("--yes", o->yes, "do it; without this it says what would happen");
  sub->add_flag("--json", o->json, "as JSON");
  sub->add_option("--socket", o->socket, "Unix socket of the node");
  sub->add_option("-c,--config", o->config, "take the socket from this configuration");
  sub->footer(
      "What that receiver had published and not acknowledged comes twice: once from it, once from the one that gets it "
      "now. It is counted as maybe_duplicate before it leaves. A receiver that is connected is not forgotten: it says "
      "itself what it has.\nExit: 0 done; 1 not done, and it is said why; 2 invalid arguments or configuration.");
  sub->callback([o, &code] { code = forget(*o); });
}

}  // namespace ph::cli
