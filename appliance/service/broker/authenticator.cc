#include "service/broker/authenticator.h"

#include <algorithm>
#include <utility>

#include "service/broker/credentials.h"

namespace ph::broker {

using mqtt::ReasonCode;

Authenticator::Authenticator(const BrokerOptions& options, port::Loop& loop, port::Network& network,
                             session::Counters& counters)
    : options_(options),
      crypto_(options.security.crypto),
      loop_(loop),
      counters_(counters),
      http_(loop, network),
      policy_(options.security.policy),
      tokens_(options.security.tokens) {
  if (crypto_) secret_ = crypto_->random(32);
}

void Authenticator::check(uint64_t connection, Login login, Done done) {
  auto attempt = std::make_shared<Attempt>();
  attempt->connection = connection;
  attempt->login = std::move(login);
  attempt->done = std::move(done);
  attempts_.emplace(connection, attempt);
  go_on(attempt);
}

void Authenticator::cancel(uint64_t connection) {
  const auto node = attempts_.extract(connection);
  if (node.empty()) return;
  Attempt& attempt = *node.mapped();
  attempt.gone = true;
  attempt.done = nullptr;
  if (attempt.question) http_.take_back(attempt.question);
  counters_.abandoned.add();
}

void Authenticator::answer(const AttemptPtr& attempt, Verdict verdict) {
  attempts_.erase(attempt->connection);
  attempt->done(std::move(verdict));
}

const std::vector<AuthMethod>& Authenticator::order(size_t listener) const {
  const auto& own = options_.listeners[listener].authn;
  return own ? *own : options_.security.order;
}

bool Authenticator::uses_users(size_t listener) const {
  const auto& methods = order(listener);
  return policy_ && crypto_ && std::find(methods.begin(), methods.end(), AuthMethod::users) != methods.end();
}

void Authenticator::go_on(const AttemptPtr& attempt) {
  const std::vector<AuthMethod>& methods = order(attempt->login.listener);
  while (attempt->next < methods.size())
    if (!try_method(methods[attempt->next++], attempt)) return;
  nobody_knows(attempt);
}

bool Authenticator::try_method(AuthMethod method, const AttemptPtr& attempt) {
  switch (method) {
    case AuthMethod::users:
      return try_users(attempt);
    case AuthMethod::certificate:
      return try_certificate(attempt);
    case AuthMethod::psk:
      return try_psk(attempt);
    case AuthMethod::jwt:
      return try_jwt(attempt);
    case AuthMethod::http:
      return try_http(attempt);
  }
  return true;
}

void Authenticator::nobody_knows(const AttemptPtr& attempt) {
  const Login& login = attempt->login;
  if (attempt->any_knew && (login.username || login.password))
    return refuse(attempt,
                  attempt->unreachable ? ReasonCode::server_unavailable : ReasonCode::bad_user_name_or_password);
  if (!options_.anonymous_allowed(login.listener, login.peer)) return refuse(attempt, ReasonCode::not_authorized);
  answer(attempt, {});
}

void Authenticator::refuse(const AttemptPtr& attempt, ReasonCode reason) {
  counters_.logins_failed.add();
  Verdict verdict;
  verdict.reason = reason;
  answer(attempt, std::move(verdict));
}

bool Authenticator::try_certificate(const AttemptPtr& attempt) {
  const Login& login = attempt->login;
  const CertificateAs as = options_.listeners[login.listener].certificate_as;
  // A name that could not be one in CONNECT is none: it becomes part of topics and of the log.
  if (as == CertificateAs::nothing || !security::name_valid(login.certificate_name)) return true;
  if (as == CertificateAs::username) {
    accept_name(attempt, login.certificate_name);
    return false;
  }
  if (login.certificate_name.size() > options_.channel.client_id_max) return true;
  Verdict verdict;
  verdict.client_id = login.certificate_name;
  answer(attempt, std::move(verdict));
  return false;
}

/// The handshake has shown that the client has the identity's key.
bool Authenticator::try_psk(const AttemptPtr& attempt) {
  if (attempt->login.psk_identity.empty()) return true;
  accept_name(attempt, attempt->login.psk_identity);
  return false;
}

/// A user name that TLS has verified; a user of that name gives it its rights.
void Authenticator::accept_name(const AttemptPtr& attempt, const std::string& username) {
  Verdict verdict;
  verdict.username = username;
  const security::User* user = policy_ ? policy_->user(username) : nullptr;
  verdict.superuser = user && user->superuser;
  verdict.local_user = user != nullptr;
  answer(attempt, std::move(verdict));
}

// --- users

bool Authenticator::try_users(const AttemptPtr& attempt) {
  if (!policy_ || !policy_->has_users() || !crypto_) return true;
  attempt->any_knew = true;
  const Login& login = attempt->login;
  if (!login.username) return true;
  const security::User* user = policy_->user(*login.username);
  if (!user) return true;
  if (!login.password) {
    refuse(attempt, ReasonCode::bad_user_name_or_password);
    return false;
  }
  const auto known = verified_.find(*login.username);
  if (known != verified_.end() && known->second.digest == user->hash.digest &&
      security::equal_secrets(known->second.mac, crypto_->hmac(port::Hash::sha256, secret_, *login.password))) {
    accept_user(attempt, *user);
    return false;
  }
  auto right = std::make_shared<bool>(false);
  run_job(
      attempt,
      [crypto = crypto_, attempt, hash = user->hash, right] {
        *right = security::equal_secrets(password_digest(*crypto, hash, *attempt->login.password), hash.digest);
      },
      [this, attempt, hash = user->hash, right] {
        // The user may have gone, or have another password, by now.
        const security::User* now = policy_->user(*attempt->login.username);
        if (!*right || !now || now->hash != hash) return refuse(attempt, ReasonCode::bad_user_name_or_password);
        remember(*attempt->login.username, *attempt->login.password, hash);
        accept_user(attempt, *now);
      });
  return false;
}

void Authenticator::run_job(const AttemptPtr& attempt, port::Task job, port::Task done) {
  port::Task unless_gone = [attempt, job = std::move(job)]() mutable {
    if (!attempt->gone) job();
  };
  port::Task then = [attempt, done = std::move(done)]() mutable {
    if (!attempt->gone) done();
  };
  if (options_.security.jobs->run(std::move(unless_gone), loop_, std::move(then))) return;
  counters_.connects_shed.add();
  Verdict busy;
  busy.reason = ReasonCode::server_busy;
  answer(attempt, std::move(busy));
}

// --- HTTP

bool Authenticator::try_http(const AttemptPtr& attempt) {
  const HttpCheckOptions& options = options_.security.http;
  if (options.endpoint.host.empty()) return true;
  attempt->any_knew = true;
  const Login& login = attempt->login;
  const auto address = security::address_of_peer(login.peer);
  const std::string question =
      security::http_question(login.client_id, login.username, login.password,
                              address ? address->to_string() : login.peer, login.certificate_name);
  attempt->question = http_.ask(
      options, question, [this, attempt](security::HttpVerdict verdict) { on_http(attempt, std::move(verdict)); });
  if (attempt->question) return false;
  counters_.connects_shed.add();
  Verdict busy;
  busy.reason = ReasonCode::server_busy;
  answer(attempt, std::move(busy));
  return false;
}

void Authenticator::on_http(const AttemptPtr& attempt, security::HttpVerdict verdict) {
  using Result = security::HttpVerdict::Result;
  attempt->question = 0;
  if (verdict.result == Result::deny) return refuse(attempt, ReasonCode::bad_user_name_or_password);
  if (verdict.result != Result::allow) {
    if (verdict.result == Result::unreachable) {
      counters_.http_unreachable.add();
      attempt->unreachable = true;
    }
    return go_on(attempt);
  }
  Verdict out;
  out.username = attempt->login.username;
  out.superuser = verdict.superuser;
  out.claims = std::move(verdict.rules);
  answer(attempt, std::move(out));
}

// --- tokens

bool Authenticator::try_jwt(const AttemptPtr& attempt) {
  if (!tokens_ || tokens_->keys.empty() || !crypto_) return true;
  attempt->any_knew = true;
  const Login& login = attempt->login;
  if (!login.password || !security::looks_like_jwt(*login.password)) return true;
  auto token = security::parse_jwt(*login.password, tokens_->claims);
  if (!token) {
    refuse(attempt, ReasonCode::bad_user_name_or_password);
    return false;
  }
  if (token->algorithm <= security::JwtAlgorithm::hs512) {
    const bool right = token_signed(*crypto_, *token, tokens_->keys);
    finish_jwt(attempt, std::move(*token), right);
    return false;
  }
  auto shared = std::make_shared<security::Jwt>(std::move(*token));
  auto right = std::make_shared<bool>(false);
  run_job(
      attempt,
      [crypto = crypto_, tokens = tokens_, shared, right] { *right = token_signed(*crypto, *shared, tokens->keys); },
      [this, attempt, shared, right] { finish_jwt(attempt, std::move(*shared), *right); });
  return false;
}

void Authenticator::finish_jwt(const AttemptPtr& attempt, security::Jwt token, bool right) {
  const auto at = [](int64_t seconds) { return from_unix_ms(seconds * 1000); };
  const WallTime now = loop_.wall_now();
  const bool over = token.expires && at(*token.expires) <= now;
  if (!right || over || (token.not_before && now < at(*token.not_before)))
    return refuse(attempt, ReasonCode::bad_user_name_or_password);
  Verdict verdict;
  verdict.username = std::move(token.username);
  verdict.claims = std::move(token.rules);
  if (token.expires) verdict.expires = at(*token.expires);
  answer(attempt, std::move(verdict));
}

void Authenticator::accept_user(const AttemptPtr& attempt, const security::User& user) {
  Verdict verdict;
  verdict.username = attempt->login.username;
  verdict.superuser = user.superuser;
  verdict.local_user = true;
  answer(attempt, std::move(verdict));
}

void Authenticator::remember(const std::string& username, const std::string& password,
                             const security::PasswordHash& hash) {
  if (verified_.size() >= kVerifiedMax && !verified_.contains(username)) verified_.erase(verified_.begin());
  verified_[username] = {hash.digest, crypto_->hmac(port::Hash::sha256, secret_, password)};
}

}  // namespace ph::broker
