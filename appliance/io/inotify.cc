#include "io/inotify.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "base/log.h"
#include "io/loop_state.h"
#include "io/posix_files.h"

namespace ph::io {
namespace {

using boost::system::error_code;

constexpr uint32_t kEvents = IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE |
                             IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK;

}  // namespace

class IoWatcher::Core final : public std::enable_shared_from_this<IoWatcher::Core> {
 public:
  Core(asio::io_context& context, int descriptor, port::WatchFn watch)
      : descriptor_(context, descriptor), watch_(std::move(watch)) {}

  void wait() {
    descriptor_.async_wait(asio::posix::descriptor_base::wait_read, [self = shared_from_this()](error_code failed) {
      if (failed || self->stopped_) return;
      self->read_events();
      if (!self->stopped_) self->wait();
    });
  }

  void stop() {
    stopped_ = true;
    watch_ = nullptr;
    error_code ignored;
    descriptor_.close(ignored);
  }

  Result<> add(const std::string& directory) {
    int watch = ::inotify_add_watch(descriptor_.native_handle(), directory.c_str(), kEvents);
    if (watch < 0 && errno == ENOSPC)
      return fail(port::file_errors::failed, directory + ": no inotify watches left (fs.inotify.max_user_watches)",
                  ENOSPC);
    if (watch < 0) return file_error(directory, errno);
    remove_name(directory, watch);
    auto& names = names_[watch];  // several names when a link leads to a directory that is watched already
    if (std::ranges::find(names, directory) == names.end()) names.push_back(directory);
    return {};
  }

  void remove(const std::string& directory) { remove_name(directory, -1); }

 private:
  /// Forgets `directory` under every watch but `except`; a watch without names ends.
  void remove_name(const std::string& directory, int except) {
    for (auto it = names_.begin(); it != names_.end();) {
      auto current = it++;
      if (current->first == except || std::erase(current->second, directory) == 0) continue;
      if (!current->second.empty()) continue;
      (void)::inotify_rm_watch(descriptor_.native_handle(), current->first);
      names_.erase(current);
    }
  }

  void read_events() {
    alignas(inotify_event) char buffer[kWatchBytes];
    ssize_t size = ::read(descriptor_.native_handle(), buffer, sizeof buffer);
    if (size <= 0) return;
    std::vector<port::Watcher::Event> events;
    std::set<std::pair<int, std::string_view>> seen;
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof event);
      const char* text = buffer + at + sizeof event;
      std::string_view name(text, event.len ? ::strnlen(text, event.len) : 0);
      at += static_cast<ssize_t>(sizeof event + event.len);
      if (event.mask & IN_Q_OVERFLOW) {
        events.push_back({"", "", true});
        continue;
      }
      auto found = names_.find(event.wd);
      if (found == names_.end()) continue;  // of a watch that was removed
      bool gone = (event.mask & (IN_IGNORED | IN_UNMOUNT | IN_DELETE_SELF | IN_MOVE_SELF)) != 0;
      if (gone) name = {};
      if (seen.emplace(event.wd, name).second)
        for (const auto& directory : found->second) events.push_back({directory, std::string(name), false});
      if (gone) {
        // A directory that was moved would be followed under its old name: the watch ends here too.
        if (event.mask & IN_MOVE_SELF) (void)::inotify_rm_watch(descriptor_.native_handle(), event.wd);
        names_.erase(found);
      }
    }
    if (!events.empty()) watch_(events);
  }

  asio::posix::basic_stream_descriptor<Executor> descriptor_;
  port::WatchFn watch_;
  std::map<int, std::vector<std::string>> names_;  // watch -> directories as given
  bool stopped_ = false;
};

IoWatcher::IoWatcher(std::shared_ptr<Core> core) : core_(std::move(core)) {}
IoWatcher::~IoWatcher() {
  core_->stop();
}
Result<> IoWatcher::add(const std::string& directory) {
  return core_->add(directory);
}
void IoWatcher::remove(const std::string& directory) {
  core_->remove(directory);
}

Result<std::unique_ptr<IoWatcher>> IoWatcher::make(IoLoop& loop, port::WatchFn watch) {
  int descriptor = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (descriptor < 0) return file_error("inotify", errno);
  auto core = std::make_shared<Core>(loop.context(), descriptor, std::move(watch));
  core->wait();
  return std::unique_ptr<IoWatcher>(new IoWatcher(std::move(core)));
}

}  // namespace ph::io
