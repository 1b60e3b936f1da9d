// The worker's enhanced authentication: SCRAM-SHA-256 against the policy's users, at CONNECT and again while connected.
// A few hashes a message: nothing here is slow; what is slow was done when the user was made.
#include "base/log.h"
#include "core/security/base64.h"
#include "core/security/saslprep.h"
#include "service/broker/credentials.h"
#include "service/broker/scram_exchange.h"
#include "service/broker/worker.h"

namespace ph::broker {

using mqtt::ReasonCode;

namespace {

constexpr size_t kNonceBytes = 18;
constexpr size_t kFakeSaltBytes = 16;

/// The first step: what the server knows of the name, and its reply.
std::unique_ptr<ScramExchange> begin(const port::Crypto& crypto, const security::Policy& policy, ByteView message,
                                     const std::string& secret) {
  auto first = security::parse_scram_first(message);
  if (!first) return nullptr;
  auto prepared = security::saslprep(first->username);
  if (!prepared) return nullptr;
  first->username = std::move(*prepared);
  auto exchange = std::make_unique<ScramExchange>();
  exchange->first = std::move(*first);
  const security::User* user = policy.user(exchange->first.username);
  exchange->known = user && user->scram;
  if (exchange->known)
    exchange->secret = *user->scram;
  else  // always the same salt for a name, so that asking twice tells nothing
    exchange->secret.salt = crypto.hmac(port::Hash::sha256, secret, exchange->first.username).substr(0, kFakeSaltBytes);
  const std::string own = security::base64_encode(crypto.random(kNonceBytes));
  exchange->nonce = exchange->first.nonce + own;
  exchange->server_first =
      security::scram_server_first(exchange->first, own, exchange->secret.salt, exchange->secret.iterations);
  return exchange;
}

/// The server's last message; nullopt: the client does not know the password.
std::optional<std::string> finish(const port::Crypto& crypto, const ScramExchange& exchange, ByteView message) {
  const auto last = security::parse_scram_final(message, exchange.first);
  if (!last || last->nonce != exchange.nonce || !exchange.known) return std::nullopt;
  const std::string signed_text = security::scram_auth_message(exchange.first, exchange.server_first, *last);
  if (!scram_proof_right(crypto, exchange.secret, signed_text, last->proof)) return std::nullopt;
  return scram_server_final(crypto, exchange.secret, signed_text);
}

}  // namespace

void Worker::begin_scram(ClientConnection& connection, const mqtt::Properties& properties, Opening opening,
                         Login login) {
  session::Channel& channel = connection.channel();
  if (*properties.authentication_method != security::kScramMethod || !authenticator_.uses_users(connection.listener))
    return channel.refuse(ReasonCode::bad_authentication_method);
  connection.scram = begin(*options_.security.crypto, *policy_, properties.authentication_data.value_or(ByteView()),
                           authenticator_.secret());
  if (!connection.scram) return refuse_scram(connection);
  authenticating_.insert_or_assign(connection.id(), std::pair(std::move(opening), std::move(login)));
  channel.challenge(connection.scram->server_first);
}

void Worker::refuse_scram(ClientConnection& connection) {
  context_.counters.logins_failed.add();
  connection.scram.reset();
  authenticating_.erase(connection.id());
  if (connection.channel().open()) return connection.channel().kick(ReasonCode::not_authorized);
  connection.channel().refuse(ReasonCode::not_authorized);
}

void Worker::on_auth(ClientConnection& connection, const mqtt::Auth& auth) {
  const ByteView data = auth.properties.authentication_data.value_or(ByteView());
  if (auth.reason != ReasonCode::reauthenticate) return finish_scram(connection, data);
  connection.scram = begin(*options_.security.crypto, *policy_, data, authenticator_.secret());
  // A client does not become another one while it is in.
  if (!connection.scram || !connection.access || connection.access->who().username != connection.scram->first.username)
    return refuse_scram(connection);
  connection.channel().challenge(connection.scram->server_first);
}

void Worker::finish_scram(ClientConnection& connection, ByteView message) {
  const auto exchange = std::move(connection.scram);
  auto last = exchange ? finish(*options_.security.crypto, *exchange, message) : std::nullopt;
  if (!last) return refuse_scram(connection);
  if (connection.channel().open()) return connection.channel().reauthenticated(*last);
  auto node = authenticating_.extract(connection.id());
  if (node.empty()) return refuse_scram(connection);
  auto& [opening, login] = node.mapped();
  opening.auth_data = std::move(*last);
  // The user may have gone since the first message.
  const security::User* user = policy_->user(exchange->first.username);
  if (!user || user->scram != exchange->secret) return refuse_scram(connection);
  Verdict verdict;
  verdict.username = exchange->first.username;
  verdict.superuser = user->superuser;
  verdict.local_user = true;
  admit(connection.id(), std::move(opening), std::move(login), std::move(verdict));
}

}  // namespace ph::broker
