#include "service/broker/http_authorizer.h"

#include <utility>

namespace ph::broker {

using Result = security::HttpVerdict::Result;

HttpAuthorizer::HttpAuthorizer(const HttpAuthorizerOptions& options, port::Loop& loop, port::Network& network,
                               session::Counters& counters)
    : options_(options), loop_(loop), counters_(counters), http_(loop, network), timer_(loop.make_timer()) {}

void HttpAuthorizer::ask(std::string question, Done done) {
  if (http_.waiting() < options_.http.requests_max) return start(question, std::move(done));
  if (waiting_bytes_ + question.size() > kWaitingBytesMax)
    return loop_.post([row = failure(), done = std::move(done)]() mutable { done(row); });
  waiting_bytes_ += question.size();
  waiting_.push_back({std::move(question), std::move(done), loop_.now() + options_.http.timeout});
  if (!timer_->pending()) timer_->start(options_.http.timeout, [this] { give_up(); });
}

void HttpAuthorizer::start(const std::string& question, Done done) {
  http_.ask(options_.http, question, [this, done = std::move(done)](const security::HttpVerdict& verdict) mutable {
    const bool failed = verdict.broken || verdict.result == Result::unreachable;
    const Decisions::Row row =
        failed ? failure() : Decisions::Row{verdict.result, loop_.now() + options_.cache_ttl, false};
    if (!waiting_.empty()) {
      Waiting next = take_waiting();
      start(next.question, std::move(next.done));
    }
    done(row);
  });
}

HttpAuthorizer::Waiting HttpAuthorizer::take_waiting() {
  Waiting first = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= first.question.size();
  return first;
}

void HttpAuthorizer::give_up() {
  while (!waiting_.empty() && waiting_.front().until <= loop_.now()) take_waiting().done(failure());
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
