#include "io/http_unix.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include "base/log.h"
#include "io/loop_state.h"

namespace ph::io {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Unix = asio::local::stream_protocol;
using Stream = beast::basic_stream<Unix, Executor>;
using UnixSocket = asio::basic_stream_socket<Unix, Executor>;

constexpr int kBacklog = 64;
constexpr mode_t kSocketMode = 0660;

std::chrono::steady_clock::duration steady(Duration d) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(d);
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(http_errors::failed,
                path + ": a socket's path has 1 to " + std::to_string(sizeof address.sun_path - 1) + " characters");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

/// Makes room at `path` for a new socket: removes one that nobody answers at.
Result<> remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno(http_errors::failed, path, errno);
  }
  if (!S_ISSOCK(found.st_mode)) return fail(http_errors::failed, path + " is there and is no socket");
  int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return fail_errno(http_errors::failed, path, errno);
  int refused = ::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  ::close(descriptor);
  if (refused != ECONNREFUSED) return fail(http_errors::in_use, path + ": another process answers there");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(http_errors::failed, path, errno);
  return {};
}

Result<int> listen_at(const std::string& path) {
  PH_ASSIGN(auto address, address_of(path));
  PH_TRY(remove_stale(path, address));
  int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return fail_errno(http_errors::failed, path, errno);
  // The mode before bind() keeps others out from the first moment; the one after it undoes the umask.
  bool ok = ::fchmod(descriptor, kSocketMode) == 0;
  ok = ok && ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ok = ok && ::chmod(path.c_str(), kSocketMode) == 0 && ::listen(descriptor, kBacklog) == 0;
  if (ok) return descriptor;
  int os_error = errno;
  ::close(descriptor);
  return fail_errno(http_errors::failed, path, os_error);
}

http::response<http::string_body> to_beast(HttpResponse answer, unsigned version, bool keep_alive) {
  http::response<http::string_body> response;
  response.version(version);
  response.result(static_cast<unsigned>(answer.status));
  response.set(http::field::content_type, answer.content_type);
  response.keep_alive(keep_alive);
  response.body() = std::move(answer.body);
  response.prepare_payload();
  return response;
}

}  // namespace

class HttpUnixServer::Core final : public std::enable_shared_from_this<HttpUnixServer::Core> {
 public:
  Core(asio::io_context& context, int descriptor, std::string socket_path, HttpLateHandler answer)
      : socket(context, Unix(), descriptor), pause(context), path(std::move(socket_path)), handler(std::move(answer)) {
    // The name may belong to a successor by the time we go.
    if (struct stat found{}; ::lstat(path.c_str(), &found) == 0) inode = found.st_ino;
  }

  void wait();
  void accept_some();
  void stop();

  asio::basic_socket_acceptor<Unix, Executor> socket;
  SteadyTimer pause;
  const std::string path;
  ino_t inode = 0;
  HttpLateHandler handler;
  std::set<Stream*> streams;  // of live connections
  Duration timeout = kHttpTimeout;
  bool stopped = false;
};

/// One client: request, answer, next request. Lives as long as its pending operation.
class HttpUnixServer::Session final : public std::enable_shared_from_this<HttpUnixServer::Session> {
 public:
  Session(UnixSocket socket, std::shared_ptr<Core> core) : stream_(std::move(socket)), core_(std::move(core)) {
    core_->streams.insert(&stream_);
  }
  ~Session() { core_->streams.erase(&stream_); }

  void read() {
    parser_.emplace();
    parser_->header_limit(kHttpHeaderMax);
    parser_->body_limit(kHttpBodyMax);
    stream_.expires_after(steady(core_->timeout));
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code failed, size_t) { self->answer(failed); });
  }

 private:
  void answer(error_code failed) {
    if (core_->stopped) return;
    if (failed == http::error::body_limit) return refuse(413, "the body is too long");
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow)
      return refuse(431, "the header is too long");
    if (failed.category() == http::make_error_code(http::error::end_of_stream).category() &&
        failed != http::error::end_of_stream && failed != http::error::partial_message)
      return refuse(400, "this is not HTTP/1.1");
    if (failed) return;  // closed, timed out, or reset
    auto message = parser_->release();
    HttpRequest request{std::string(message.method_string()), std::string(message.target()), std::move(message.body())};
    stream_.expires_never();
    core_->handler(request, [self = shared_from_this(), version = message.version(), keep = message.keep_alive(),
                             head = message.method() == http::verb::head](HttpResponse answer) {
      if (!self->core_->stopped) self->write(to_beast(std::move(answer), version, keep), head);
    });
  }

  void refuse(int status, std::string_view why) {
    write(to_beast({status, "text/plain", std::string(why) + "\n"}, 11, false), false);
  }

  void write(http::response<http::string_body> response, bool head) {
    response_ = std::move(response);
    if (head) response_.body().clear();  // Content-Length still tells the length
    stream_.expires_after(steady(core_->timeout));
    http::async_write(stream_, response_, [self = shared_from_this()](error_code failed, size_t) {
      if (failed || self->core_->stopped) return;
      if (self->response_.keep_alive()) return self->read();
      error_code ignored;
      self->stream_.socket().shutdown(asio::socket_base::shutdown_send,
                                      ignored);  // NOLINT(bugprone-unused-return-value): told by its argument
    });
  }

  Stream stream_;
  std::shared_ptr<Core> core_;
  beast::flat_buffer buffer_{kHttpHeaderMax + kHttpBodyMax};
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
};

void HttpUnixServer::Core::wait() {
  socket.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](error_code failed) {
    if (!failed && !self->stopped) self->accept_some();
  });
}

void HttpUnixServer::Core::accept_some() {
  while (true) {
    int descriptor = ::accept4(socket.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return wait();
      if (errno == EINTR || errno == ECONNABORTED) continue;
      log_error("api_accepting_paused", {{"socket", path}, {"error", std::strerror(errno)}});
      pause.expires_after(steady(kAcceptPause));
      pause.async_wait([self = shared_from_this()](error_code cancelled) {
        if (!cancelled && !self->stopped) self->wait();
      });
      return;
    }
    if (streams.size() >= kHttpConnectionsMax) {
      ::close(descriptor);
      log_warn("api_connection_refused_full", {{"socket", path}});
      continue;
    }
    UnixSocket client(socket.get_executor());
    error_code failed;
    client.assign(Unix(), descriptor, failed);  // NOLINT(bugprone-unused-return-value): told by its argument
    if (failed)
      ::close(descriptor);
    else
      std::make_shared<Session>(std::move(client), shared_from_this())->read();
  }
}

void HttpUnixServer::Core::stop() {
  stopped = true;
  error_code ignored;
  socket.close(ignored);  // NOLINT(bugprone-unused-return-value): told by its argument
  pause.cancel();
  for (Stream* s : streams) s->close();
  if (struct stat found{}; ::lstat(path.c_str(), &found) == 0 && found.st_ino == inode) ::unlink(path.c_str());
}

HttpUnixServer::HttpUnixServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}
HttpUnixServer::~HttpUnixServer() {
  core_->stop();
}
size_t HttpUnixServer::connections() const {
  return core_->streams.size();
}
void HttpUnixServer::set_timeout(Duration timeout) {
  core_->timeout = timeout;
}

Result<std::unique_ptr<HttpUnixServer>> HttpUnixServer::listen(IoLoop& loop, const std::string& path,
                                                               HttpHandler handler) {
  return listen_late(loop, path, [handler = std::move(handler)](const HttpRequest& request, const HttpAnswer& answer) {
    answer(handler(request));
  });
}

Result<std::unique_ptr<HttpUnixServer>> HttpUnixServer::listen_late(IoLoop& loop, const std::string& path,
                                                                    HttpLateHandler handler) {
  PH_ASSIGN(int descriptor, listen_at(path));
  auto core = std::make_shared<Core>(loop.context(), descriptor, path, std::move(handler));
  core->wait();
  return std::unique_ptr<HttpUnixServer>(new HttpUnixServer(std::move(core)));
}

// --- the client

namespace {

Error client_error(const std::string& path, error_code failed, Duration bound) {
  if (failed == beast::error::timeout)
    return {http_errors::timeout,
            path + ": no answer within " +
                std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(bound).count()) + " ms",
            ETIMEDOUT};
  bool of_system = failed.category() == boost::system::system_category();
  int os_error = of_system ? failed.value() : 0;
  if (os_error == ENOENT || os_error == ECONNREFUSED)
    return {http_errors::unreachable, path + ": nobody answers there; is posthouse running?", os_error};
  if (os_error == EACCES || os_error == EPERM)
    return {http_errors::denied, path + ": this user may not use the socket", os_error};
  return {http_errors::failed, path + ": " + failed.message(), os_error};
}

}  // namespace

Result<HttpResponse> http_unix(const std::string& socket_path, const HttpRequest& request, Duration bound) {
  PH_ASSIGN(auto address, address_of(socket_path));
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(request.target);
  message.set(http::field::host, "localhost");
  message.keep_alive(false);
  if (!request.body.empty()) {
    message.set(http::field::content_type, "application/json");
    message.body() = request.body;
  }
  message.prepare_payload();

  asio::io_context context(1);
  int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return fail_errno(http_errors::failed, socket_path, errno);
  UnixSocket socket(context.get_executor());
  error_code outcome;
  socket.assign(Unix(), descriptor, outcome);  // NOLINT(bugprone-unused-return-value): told by its argument
  if (outcome) {
    ::close(descriptor);
    return std::unexpected(client_error(socket_path, outcome, bound));
  }
  Stream stream(std::move(socket));
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kHttpAnswerMax);
  parser.header_limit(kHttpHeaderMax);
  stream.expires_after(steady(bound));  // one bound for all three steps
  auto done = [&](error_code failed) { outcome = failed; };
  stream.async_connect(Unix::endpoint(address.sun_path), [&](error_code refused) {
    if (refused) return done(refused);
    http::async_write(stream, message, [&](error_code not_written, size_t) {
      // A server that refuses early may already have answered: look at that first.
      http::async_read(stream, buffer, parser, [&, not_written](error_code failed, size_t) {
        done(failed && not_written ? not_written : failed);
      });
    });
  });
  context.run();
  if (outcome) return std::unexpected(client_error(socket_path, outcome, bound));
  auto response = parser.release();
  return HttpResponse{static_cast<int>(response.result_int()), std::string(response[http::field::content_type]),
                      std::move(response.body())};
}

Result<HttpResponse> http_get_unix(const std::string& socket_path, const std::string& target) {
  return http_unix(socket_path, {"GET", target, {}});
}

}  // namespace ph::io
