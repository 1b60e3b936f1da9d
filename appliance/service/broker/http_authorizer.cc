#include "service/broker/http_authorizer.h"

#include <utility>

namespace ph::broker {

using Result = security::HttpVerdict::Result;

HttpAuthorizer::HttpAuthorizer(const HttpAuthorizerOptions& options, port::Loop& loop, port::Network& network,
                               session::Counters& counters)
    : options_(options), loop_(loop), counters_(counters), http_(loop, network), timer_(loop.make_timer()) {}

void HttpAuthorizer::ask(uint64_t client, std::string question, Done done) {
  if (http_.waiting() < options_.http.requests_max) return start(client, question, std::move(done));
  if (waiting_bytes_ + question.size() > kWaitingBytesMax)
    return loop_.post([row = failure(), done = std::move(done)]() mutable { done(row); });
  waiting_bytes_ += question.size();
  waiting_.push_back({client, std::move(question), std::move(done), loop_.now() + options_.http.timeout});
  places_[client] = {0, std::prev(waiting_.end())};
  if (!timer_->pending()) timer_->start(options_.http.timeout, [this] { give_up(); });
}

void HttpAuthorizer::start(uint64_t client, const std::string& question, Done done) {
  auto answered = [this, client, done = std::move(done)](const security::HttpVerdict& verdict) mutable {
    places_.erase(client);
    const bool failed = verdict.broken || verdict.result == Result::unreachable;
    const Decisions::Row row =
        failed ? failure() : Decisions::Row{verdict.result, loop_.now() + options_.cache_ttl, false};
    start_next();
    done(row);
  };
  places_[client] = {http_.ask(options_.http, question, std::move(answered)), {}};
}

void HttpAuthorizer::start_next() {
  if (waiting_.empty()) return;
  Waiting next = take_waiting(waiting_.begin());
  start(next.client, next.question, std::move(next.done));
}

void HttpAuthorizer::forget(uint64_t client) {
  const auto place = places_.find(client);
  if (place == places_.end()) return;
  counters_.abandoned.add();
  if (!place->second.asked) {
    take_waiting(place->second.waits);
    return;
  }
  http_.take_back(place->second.asked);
  places_.erase(place);
  start_next();
}

HttpAuthorizer::Waiting HttpAuthorizer::take_waiting(Line::iterator which) {
  Waiting out = std::move(*which);
  waiting_.erase(which);
  places_.erase(out.client);
  waiting_bytes_ -= out.question.size();
  return out;
}

void HttpAuthorizer::give_up() {
  while (!waiting_.empty() && waiting_.front().until <= loop_.now()) take_waiting(waiting_.begin()).done(failure());
  if (!waiting_.empty()) timer_->start(waiting_.front().until - loop_.now(), [this] { give_up(); });
}

Decisions::Row HttpAuthorizer::failure() {
  counters_.http_unreachable.add();
  return {options_.deny_on_failure ? Result::deny : Result::ignore, loop_.now(), true};
}

void HttpAuthorizer::trim(Decisions& decisions) const {
  const Instant now = loop_.now();
  std::erase_if(decisions.rows, [now](const auto& entry) { return entry.second.until <= now; });
  while (decisions.rows.size() > options_.cache_max) decisions.rows.erase(decisions.rows.begin());
}

}  // namespace ph::broker
