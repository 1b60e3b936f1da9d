#include "wire_wait.h"

#include <unistd.h>

#include "base/log.h"
#include "io/level_store.h"
#include "service/admin/status.h"

namespace ph {

bool may_wait(const Error& why) {
  return why.code == io::store_errors::no_space || why.code == port::file_errors::no_space ||
         why.code == io::store_errors::damaged;
}

WaitingStart::WaitingStart(const settings::Settings& settings)
    : settings_(settings), signals_(loop_, [this](int) { stopping_ = true; }, [] {}), started_(loop_.now()) {}

Result<> WaitingStart::listen() {
  PH_ASSIGN(api_, io::HttpUnixServer::listen(
                      loop_, settings_.api.socket, [this](const io::HttpRequest& request) -> io::HttpResponse {
                        if (request.method == "GET" && admin::is_status_path(request.target))
                          return {200, "application/json", status_document()};
                        return {503, "application/json", R"({"code":"STARTING","message":"the node waits to start"})"};
                      }));
  // Ready as systemd means it: its start has a time limit, and this may take days.
  host::notify_ready("waits to start");
  watchdog_ = std::make_unique<host::Watchdog>(loop_, std::vector<port::Loop*>{});
  return {};
}

bool WaitingStart::wait(const Error& why) {
  bool damaged = why.code == io::store_errors::damaged;
  if (alarms_.list().empty()) log_error("start_waits", {{"error", why.to_string()}});
  std::string hint =
      damaged ? "; nothing is taken in or sent until the store is restored" : "; the start waits for room";
  alarms_.update({{damaged ? "store_damaged" : "disk_full", "data_dir", why.to_string() + hint, {}}}, loop_.wall_now());
  loop_.run_until([this] { return stopping_; }, kRetry);
  return !stopping_;
}

bool WaitingStart::stopping() {
  return loop_.run_until([this] { return stopping_; }, Duration::zero());
}

std::string WaitingStart::status_document() const {
  admin::Status s;
  s.node = settings_.node.name;
  s.site = settings_.node.site;
  s.version = PH_VERSION;
  s.pid = static_cast<uint64_t>(::getpid());
  s.now = loop_.wall_now();
  s.uptime_seconds =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(loop_.now() - started_).count());
  s.alarms = alarms_.list();
  return admin::to_json(s);
}

}  // namespace ph
