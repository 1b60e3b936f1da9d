#include "io/config_places.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "io/resolver.h"
#include "port/network.h"

namespace ph::io {
namespace {

using settings::Diagnostic;
using settings::NamedPlace;
using settings::Severity;
using Kind = NamedPlace::Kind;
using boost::asio::ip::tcp;

std::string parent_of(const std::string& path) {
  return path.substr(0, std::max<size_t>(path.rfind('/'), 1));
}

/// What the system says of it; errno in `why` if it says no.
std::optional<struct stat> stat_of(const std::string& path, int& why) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) return info;
  why = errno;
  return std::nullopt;
}

/// Made when services start: what is not there yet may be right.
bool made_at_start(const std::string& path) {
  return path.starts_with("/run/") || path.starts_with("/var/run/");
}

class PlaceCheck {
 public:
  explicit PlaceCheck(settings::Outcome& outcome) : outcome_(outcome) {}

  void run() {
    for (const NamedPlace& place : outcome_.places) {
      at_ = &place;
      if (place.kind == Kind::address)
        address();
      else if (place.text.starts_with('/'))  // else told already
        place.kind == Kind::socket ? socket() : folder();
    }
  }

 private:
  void add(Severity severity, const std::string& message, std::string hint = {}) {
    outcome_.diagnostics.push_back({severity, at_->place, "`" + at_->key + "`: " + message, std::move(hint)});
  }
  void add(Severity severity, const std::string& path, int os_error, std::string hint = {}) {
    add(severity, path + ": " + std::strerror(os_error), std::move(hint));
  }

  /// Whether this process may make something in a folder that is there. Another user may where it may not.
  void writable(const std::string& path, const struct stat& info) {
    if (::access(path.c_str(), W_OK | X_OK) == 0) return;
    const int why = errno;
    const bool ours = info.st_uid == ::geteuid();
    add(why == EACCES && !ours ? Severity::warning : Severity::error, path, why,
        why == EACCES && !ours ? "another user may write there; was this checked as the one that runs the node?" : "");
  }

  // --- folders: made with all that lead to them, as far as they are not there

  void folder() {
    int why = 0;
    std::string path = at_->text;
    auto info = stat_of(path, why);
    while (!info && why == ENOENT && path.size() > 1) {
      struct stat link{};
      if (::lstat(path.c_str(), &link) == 0) return add(Severity::error, path + " is a link to nothing");
      path = parent_of(path);
      info = stat_of(path, why);
    }
    if (!info && why == EACCES) return add(Severity::warning, path, why, "it was not checked");
    if (!info) return add(Severity::error, path, why);
    if (!S_ISDIR(info->st_mode)) return add(Severity::error, path + " is there and is no directory");
    writable(path, *info);
    if (path == at_->text) alone(*info);
  }
  /// Different names of one folder: who comes second finds it locked, or mixes two things.
  void alone(const struct stat& info) {
    const auto [it, fresh] = folders_.try_emplace({info.st_dev, info.st_ino}, at_);
    if (fresh || it->second->text == at_->text) return;  // equal texts were told of already
    add(Severity::error, at_->text + " is the folder of `" + it->second->key + "` under another name");
  }

  // --- the API's socket

  void socket() {
    struct stat found{};
    if (::lstat(at_->text.c_str(), &found) == 0) {
      if (!S_ISSOCK(found.st_mode)) add(Severity::error, at_->text + " is there and is no socket");
    } else if (errno != ENOENT && errno != EACCES) {
      return add(Severity::error, at_->text, errno);
    }
    const std::string folder = parent_of(at_->text);
    int why = 0;
    const auto info = stat_of(folder, why);
    if (info && !S_ISDIR(info->st_mode)) return add(Severity::error, folder + " is there and is no directory");
    if (info) return writable(folder, *info);
    int ignored = 0;
    const bool elsewhere = why == EACCES || made_at_start(at_->text) || !stat_of(parent_of(folder), ignored);
    add(elsewhere ? Severity::warning : Severity::error, folder, why,
        elsewhere ? "it has to be there when the node starts" : "make it: the node does not make the socket's folder");
  }

  // --- addresses

  void address() {
    const auto at = port::parse_endpoint(at_->text);
    if (!at || at->host.empty()) return;  // told already, or every address
    std::vector<boost::asio::ip::address> candidates;
    boost::system::error_code no_number;
    const auto number = boost::asio::ip::make_address(at->host, no_number);
    if (no_number) {
      auto found = look_up(at->host);
      if (!found) return add(Severity::error, found.error().detail);
      candidates = std::move(*found);
    } else {
      candidates.push_back(number);
    }
    int why = EADDRNOTAVAIL;
    for (const auto& candidate : candidates)
      if ((why = bind_fault({candidate, 0})) == 0) return listens({candidate, at->port}, static_cast<bool>(no_number));
    add(Severity::error, at->host + " is no address of this machine: " + std::strerror(why),
        "to listen at all its addresses write \"*:" + std::to_string(at->port) + "\"");
  }
  /// errno of binding a socket there, which is given back at once.
  static int bind_fault(const tcp::endpoint& to) {
    const int descriptor = ::socket(to.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return errno;
    const int why = ::bind(descriptor, to.data(), static_cast<socklen_t>(to.size())) == 0 ? 0 : errno;
    ::close(descriptor);
    return why;
  }
  /// It could; whether this user may use such a port, and whether a name is an address that is there in numbers, too.
  void listens(const tcp::endpoint& at, bool named) {
    constexpr uint16_t kFirstFree = 1024;
    if (at.port() == 0) return;
    if (at.port() < kFirstFree && bind_fault(at) == EACCES)
      add(Severity::warning, "port " + std::to_string(at.port()) + ": " + std::strerror(EACCES),
          "the node needs CAP_NET_BIND_SERVICE for it");
    const auto [it, fresh] = listening_.try_emplace(at, std::pair(at_, named));
    if (!fresh && (named || it->second.second))
      add(Severity::error, "a second listener at " + port::Endpoint{at.address().to_string(), at.port()}.to_string(),
          "the first is at line " + std::to_string(it->second.first->place.line));
  }

  settings::Outcome& outcome_;
  const NamedPlace* at_ = nullptr;
  std::map<std::pair<dev_t, ino_t>, const NamedPlace*> folders_;
  std::map<tcp::endpoint, std::pair<const NamedPlace*, bool>> listening_;
};

}  // namespace

void check_places(settings::Outcome& outcome) {
  PlaceCheck(outcome).run();
  std::ranges::stable_sort(outcome.diagnostics, {}, &Diagnostic::place);
}

}  // namespace ph::io
