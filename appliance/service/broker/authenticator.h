// Authenticator: who is it? Walks a CONNECT's credentials through the listener's methods, in order. One per worker;
// what takes long (PBKDF2) runs on the job pool, and the answer comes back to the worker's loop.
//
// Each method says yes, no, or nothing; the first yes or no counts. When all of them say nothing, a client that gave
// credentials is refused if any method could have known it, and is otherwise as anonymous as one that gave none: its
// user name is not believed.
//
// Bounds: the pool's queue; a CONNECT that finds it full is refused with 0x89 and counted. A client has one login at a
// time, and one that goes takes it along: its question to a server is taken back, its password is not hashed any more.
// Passwords that were verified are remembered as a keyed digest (kVerifiedMax users), so that clients that come back
// all at once cost one hash each and no PBKDF2.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/security/policy.h"
#include "port/crypto.h"
#include "service/broker/options.h"

namespace ph::broker {

/// What a client says of itself, owned.
struct Login {
  std::string client_id;
  std::optional<std::string> username;
  std::optional<std::string> password;
  std::string peer;  // "10.0.0.1:1234"
  std::string certificate_name;
  std::string psk_identity;
  size_t listener = 0;
};

struct Verdict {
  mqtt::ReasonCode reason = mqtt::ReasonCode::success;
  std::optional<std::string> username;   // verified
  std::optional<std::string> client_id;  // instead of the client's own
  bool superuser = false;
  bool local_user = false;             // `username` is a user of the policy, and no other's word for one
  std::vector<security::Rule> claims;  // that came with the credentials
  std::optional<WallTime> expires;     // of the credentials: the client is put out then
};

class Authenticator {
 public:
  using Done = std::move_only_function<void(Verdict)>;
  static constexpr size_t kVerifiedMax = 16'384;

  Authenticator(const BrokerOptions& options, port::Loop& loop, port::Network& network, session::Counters& counters);

  /// `done` runs once on the loop, now or later; never if the pool ends before, or after cancel() of the connection.
  void check(uint64_t connection, Login login, Done done);
  /// The client has gone.
  void cancel(uint64_t connection);
  void set_policy(security::PolicyPtr policy) { policy_ = std::move(policy); }
  void set_tokens(TokenOptionsPtr tokens) { tokens_ = std::move(tokens); }
  /// Whether this listener's clients may be users of the policy.
  bool uses_users(size_t listener) const;
  /// Whether there are clients whose rights come with their credentials, from a token or a server.
  bool rights_from_others() const {
    return (tokens_ && !tokens_->keys.empty()) || !options_.security.http.endpoint.host.empty();
  }
  /// Random bytes of this worker, for digests that nobody else can make.
  const std::string& secret() const { return secret_; }

 private:
  struct Attempt {
    uint64_t connection = 0;
    Login login;
    Done done;
    uint64_t question = 0;          // to an HTTP server, while it is open
    std::atomic<bool> gone{false};  // the client is
    size_t next = 0;                // method
    bool unreachable = false;       // who could have known did not answer
    bool any_knew = false;          // a method could have known the client
  };
  using AttemptPtr = std::shared_ptr<Attempt>;
  struct Verified {
    std::string digest;  // of the user's record
    std::string mac;     // of the password that was right for it
  };

  const std::vector<AuthMethod>& order(size_t listener) const;
  void go_on(const AttemptPtr& attempt);
  /// True: the method says nothing. False: it has answered, or will.
  bool try_method(AuthMethod method, const AttemptPtr& attempt);
  bool try_certificate(const AttemptPtr& attempt);
  bool try_psk(const AttemptPtr& attempt);
  void accept_name(const AttemptPtr& attempt, const std::string& username);
  bool try_users(const AttemptPtr& attempt);
  bool try_http(const AttemptPtr& attempt);
  void on_http(const AttemptPtr& attempt, security::HttpVerdict verdict);
  bool try_jwt(const AttemptPtr& attempt);
  void finish_jwt(const AttemptPtr& attempt, security::Jwt token, bool right);
  /// Runs `job` on the pool, then `done` here; refuses the login as busy when the pool is full.
  void run_job(const AttemptPtr& attempt, port::Task job, port::Task done);
  void answer(const AttemptPtr& attempt, Verdict verdict);
  void nobody_knows(const AttemptPtr& attempt);
  void accept_user(const AttemptPtr& attempt, const security::User& user);
  void refuse(const AttemptPtr& attempt, mqtt::ReasonCode reason);
  void remember(const std::string& username, const std::string& password, const security::PasswordHash& hash);

  const BrokerOptions& options_;
  const port::Crypto* crypto_;
  port::Loop& loop_;
  session::Counters& counters_;
  HttpCheck http_;
  security::PolicyPtr policy_;
  TokenOptionsPtr tokens_;
  std::string secret_;  // of the verified passwords' digests
  std::unordered_map<std::string, Verified> verified_;
  std::unordered_map<uint64_t, AttemptPtr> attempts_;  // that have no answer yet, by connection
};

}  // namespace ph::broker
