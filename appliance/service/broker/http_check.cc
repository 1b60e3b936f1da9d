#include "service/broker/http_check.h"

#include <utility>

namespace ph::broker {

using security::HttpVerdict;

/// One question on its own connection.
class HttpCheck::Request final : public port::ConnectionHandler {
 public:
  Request(HttpCheck& owner, uint64_t id, std::string bytes, Done then)
      : done(std::move(then)), owner_(owner), id_(id), bytes_(std::move(bytes)), timer_(owner.loop_.make_timer()) {}

  void begin(const HttpCheckOptions& options) {
    timer_->start(options.timeout, [this] { end({HttpVerdict::Result::unreachable, {}, false, false}); });
    port::ConnectOptions connect;
    connect.connect_timeout = options.timeout;
    connect.tls = options.tls;
    connection_ = owner_.network_.connect(options.endpoint, std::move(connect), *this);
  }

  void on_open(port::Connection& connection) override { connection.send(Slice(std::move(bytes_))); }

  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    if (ended_) return {bytes.size(), 0};
    answer_.append(bytes.substr(0, kAnswerMax + 1 - std::min(answer_.size(), kAnswerMax)));
    if (answer_.size() > kAnswerMax) {
      end({HttpVerdict::Result::ignore, {}, false, true});
      return {bytes.size(), 0};
    }
    if (auto verdict = security::parse_http_answer(answer_, false)) end(std::move(*verdict));
    return {bytes.size(), 0};
  }

  /// An answer without a length ends with its connection.
  void on_close(port::Connection&, const Error&) override {
    auto verdict = security::parse_http_answer(answer_, true);
    end(verdict ? std::move(*verdict) : HttpVerdict{HttpVerdict::Result::unreachable, {}, false, false});
  }

  Done done;

 private:
  void end(HttpVerdict verdict) {
    if (std::exchange(ended_, true)) return;
    timer_->cancel();
    owner_.finish(id_, std::move(verdict));
  }

  HttpCheck& owner_;
  const uint64_t id_;
  std::string bytes_;
  std::unique_ptr<port::Timer> timer_;
  std::unique_ptr<port::Connection> connection_;
  std::string answer_;
  bool ended_ = false;
};

HttpCheck::HttpCheck(port::Loop& loop, port::Network& network) : loop_(loop), network_(network) {}
HttpCheck::~HttpCheck() = default;

uint64_t HttpCheck::ask(const HttpCheckOptions& options, const std::string& body, Done done) {
  if (requests_.size() >= options.requests_max) return 0;
  const uint64_t id = ++last_;
  std::string bytes =
      "POST " + options.path + " HTTP/1.1\r\nHost: " + options.endpoint.to_string() +
      "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body;
  auto request = std::make_unique<Request>(*this, id, std::move(bytes), std::move(done));
  Request& at = *request;
  requests_.emplace(id, std::move(request));
  at.begin(options);
  return id;
}

void HttpCheck::take_back(uint64_t question) {
  requests_.erase(question);
}

/// The request is on the stack of its caller: it goes a turn later.
void HttpCheck::finish(uint64_t id, HttpVerdict verdict) {
  auto node = requests_.extract(id);
  Done done = std::move(node.mapped()->done);
  loop_.post([gone = std::move(node.mapped())] {});
  done(std::move(verdict));
}

}  // namespace ph::broker
