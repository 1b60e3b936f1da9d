// The API's transport on one machine: HTTP/1.1 over a Unix socket. A server on a loop, and a blocking client for the
// command line. Who may connect is decided by the socket's mode and directory.
//
// Bounds: kHttpConnectionsMax connections, more are closed at once; kHttpHeaderMax and kHttpBodyMax (answered 431 and
// 413, then closed); kHttpTimeout for a request to arrive, for its answer to be taken, and for a kept-alive connection
// to be idle. Answers carry Content-Length and are written whole.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "io/loop.h"

namespace ph::io {

inline constexpr size_t kHttpConnectionsMax = 64;
inline constexpr size_t kHttpHeaderMax = 16 * 1024;
inline constexpr size_t kHttpBodyMax = 1024 * 1024;           // of a request
inline constexpr size_t kHttpAnswerMax = 64UL * 1024 * 1024;  // of an answer that the client takes
inline constexpr Duration kHttpTimeout = 10s;
inline constexpr Duration kHttpClientTimeout = 5s;

namespace http_errors {
inline constexpr ErrorCode in_use{"http.in_use"};            // another process answers at this socket
inline constexpr ErrorCode unreachable{"http.unreachable"};  // nobody does
inline constexpr ErrorCode denied{"http.denied"};            // the socket's mode keeps this user out
inline constexpr ErrorCode timeout{"http.timeout"};
inline constexpr ErrorCode failed{"http.failed"};
}  // namespace http_errors

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // "/api/v5/status?x=y", as sent
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

/// Runs on the loop and answers at once.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;
/// Runs on the loop and answers by calling `answer` once, now or later there. A client that has gone meanwhile does not
/// get it.
using HttpAnswer = std::function<void(HttpResponse)>;
using HttpLateHandler = std::function<void(const HttpRequest& request, HttpAnswer answer)>;

class HttpUnixServer {
 public:
  /// Listens at `path`, mode 0660. A socket that nobody answers at is what a crash left: it is replaced. Anything else
  /// that has the name stays, and is an error.
  static Result<std::unique_ptr<HttpUnixServer>> listen(IoLoop& loop, const std::string& path, HttpHandler handler);
  static Result<std::unique_ptr<HttpUnixServer>> listen_late(IoLoop& loop, const std::string& path,
                                                             HttpLateHandler handler);
  /// Closes all connections and removes the socket.
  ~HttpUnixServer();
  HttpUnixServer(const HttpUnixServer&) = delete;
  HttpUnixServer& operator=(const HttpUnixServer&) = delete;

  size_t connections() const;
  /// Tests only: kHttpTimeout would be long to wait for.
  void set_timeout(Duration timeout);

 private:
  class Core;
  class Session;
  explicit HttpUnixServer(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

/// Asks and waits, at most `bound` in all. Any answer is a result, whatever its status.
Result<HttpResponse> http_unix(const std::string& socket_path, const HttpRequest& request,
                               Duration bound = kHttpClientTimeout);
Result<HttpResponse> http_get_unix(const std::string& socket_path, const std::string& target);

}  // namespace ph::io
