// HttpCheck: asks an HTTP server about clients, over the worker's own network; HTTP/1.1, under TLS or not, a connection
// for each question (`Connection: close`). Two per worker: who may come in, and what it may do (http_authorizer.h).
//
//   POST <path>, application/json: {"clientid", "username", "password", "peerhost", "certificate"}
//   200 {"result": "allow" | "deny" | "ignore", "is_superuser": bool, "acl": as in a token}; 204 is allow; any other
//   status, and an answer that cannot be read, is ignore.
//
// Bounds: kAnswerMax bytes of answer, `timeout` for all of it, `requests_max` at once; beyond that ask() says false.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/security/http_verdict.h"
#include "port/loop.h"
#include "port/network.h"

namespace ph::broker {

struct HttpCheckOptions {
  port::Endpoint endpoint;  // host empty: none is asked
  std::string path = "/";
  std::shared_ptr<port::TlsContext> tls;  // null: plain
  Duration timeout = std::chrono::seconds(5);
  size_t requests_max = 256;  // per worker
};

class HttpCheck {
 public:
  using Done = std::move_only_function<void(security::HttpVerdict)>;
  static constexpr size_t kAnswerMax = 64UL * 1024;

  HttpCheck(port::Loop& loop, port::Network& network);
  ~HttpCheck();

  /// `done` runs later on the loop, once, unless the question is taken back. Its number; 0: too many wait already.
  uint64_t ask(const HttpCheckOptions& options, const std::string& body, Done done);
  /// Nobody wants the answer any more: the connection to the server is closed. What is over is none.
  void take_back(uint64_t question);
  size_t waiting() const { return requests_.size(); }

 private:
  class Request;
  void finish(uint64_t id, security::HttpVerdict verdict);

  port::Loop& loop_;
  port::Network& network_;
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;
  uint64_t last_ = 0;
};

}  // namespace ph::broker
