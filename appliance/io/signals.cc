#include "io/signals.h"

#include <boost/asio/basic_signal_set.hpp>
#include <csignal>

#include "io/loop_state.h"

namespace ph::io {

void ignore_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGIO, SIG_IGN);
}

class Signals::Core final : public std::enable_shared_from_this<Signals::Core> {
 public:
  Core(asio::io_context& context, std::move_only_function<void(int)> stop, port::Task reload)
      : signals_(context, SIGTERM, SIGINT, SIGHUP), stop_(std::move(stop)), reload_(std::move(reload)) {}

  void wait() {
    signals_.async_wait([self = shared_from_this()](boost::system::error_code failed, int number) {
      if (failed || self->ended_) return;
      if (number == SIGHUP)
        self->reload_();
      else
        self->stop_(number);
      if (!self->ended_) self->wait();
    });
  }

  void end() {
    ended_ = true;
    boost::system::error_code ignored;
    signals_.cancel(ignored);  // before clear(), which would forget the pending wait
    signals_.clear(ignored);
  }

 private:
  asio::basic_signal_set<Executor> signals_;
  std::move_only_function<void(int)> stop_;
  port::Task reload_;
  bool ended_ = false;
};

Signals::Signals(IoLoop& loop, std::move_only_function<void(int)> stop, port::Task reload)
    : core_(std::make_shared<Core>(loop.context(), std::move(stop), std::move(reload))) {
  core_->wait();
}

Signals::~Signals() {
  core_->end();
}

}  // namespace ph::io
