// HttpAuthorizer: what an HTTP server says about PUBLISHes and SUBSCRIBEs that no rule decides. One per worker.
//
//   POST <path>, application/json: {"clientid", "username", "peerhost", "action": "publish" | "subscribe", "topic",
//   "qos", "retain"}; answers are those of HttpCheck, of which "result" alone counts.
//
// A client whose packet needs an answer is not read from until it is there, so that its packets keep their order and
// no more of them than one wait. Answers are remembered for the client for cache_ttl; failures are not.
//
// Bounds: requests_max questions at once, one of each client; further ones wait for their turn: as long as an answer
// may take, and kWaitingBytesMax of them. One that gives up its turn has failed, as if nobody had answered: a server
// that hangs keeps nobody waiting for ever. A client that goes takes its question along, and its turn.
// cache_max answers of a client, and those of the packet at work.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/security/http_verdict.h"
#include "core/session/counters.h"
#include "service/broker/http_check.h"

namespace ph::broker {

struct HttpAuthorizerOptions {
  HttpCheckOptions http;  // endpoint's host empty: none is asked
  Duration cache_ttl = std::chrono::minutes(1);
  size_t cache_max = 32;
  bool deny_on_failure = true;  // else a failure is like "ignore"
  bool on() const { return !http.endpoint.host.empty(); }
};

/// The answers that one client's packets have got.
struct Decisions {
  struct Row {
    security::HttpVerdict::Result result;  // allow, deny or ignore
    Instant until;
    bool failed = false;  // the server said nothing
  };
  std::unordered_map<std::string, Row> rows;  // by AccessQuestion::key()
  bool resuming = false;                      // the packet that comes now is the one they were asked for
};

class HttpAuthorizer {
 public:
  using Done = std::move_only_function<void(Decisions::Row)>;
  static constexpr size_t kWaitingBytesMax = 16UL * 1024 * 1024;  // of questions that were not asked yet

  HttpAuthorizer(const HttpAuthorizerOptions& options, port::Loop& loop, port::Network& network,
                 session::Counters& counters);

  bool on() const { return options_.on(); }
  const HttpAuthorizerOptions& options() const { return options_; }
  /// A question of `client`, who has one at a time. `done` runs later on the loop, once, unless forget() comes before.
  void ask(uint64_t client, std::string question, Done done);
  /// The client has gone.
  void forget(uint64_t client);
  /// Forgets what is over, and what is too much.
  void trim(Decisions& decisions) const;

 private:
  struct Waiting {
    uint64_t client = 0;
    std::string question;
    Done done;
    Instant until;
  };
  using Line = std::list<Waiting>;
  struct Place {
    uint64_t asked = 0;  // HttpCheck's number; 0: it waits, there
    Line::iterator waits;
  };
  void start(uint64_t client, const std::string& question, Done done);
  void start_next();
  Waiting take_waiting(Line::iterator which);
  void give_up();
  Decisions::Row failure();

  const HttpAuthorizerOptions& options_;
  port::Loop& loop_;
  session::Counters& counters_;
  HttpCheck http_;
  Line waiting_;                                // each has the same time: the first is the first to give up
  std::unordered_map<uint64_t, Place> places_;  // of clients with a question
  size_t waiting_bytes_ = 0;
  std::unique_ptr<port::Timer> timer_;
};

}  // namespace ph::broker
