#include "service/broker/http_authorizer.h"

#include <utility>

namespace ph::broker {

using Result = security::HttpVerdict::Result;

HttpAuthorizer::HttpAuthorizer(const HttpAuthorizerOptions& options, port::Loop& loop, port::Network& network,
                               session::Counters& counters)
    : options_(options), loop_(loop), counters_(counters), http_(loop, network) {}

void HttpAuthorizer::ask(std::string question, Done done) {
  if (http_.waiting() < options_.http.requests_max) return start(question, std::move(done));
  waiting_.emplace_back(std::move(question), std::move(done));
}

void HttpAuthorizer::start(const std::string& question, Done done) {
  http_.ask(options_.http, question, [this, done = std::move(done)](const security::HttpVerdict& verdict) mutable {
    Decisions::Row row{verdict.result, loop_.now() + options_.cache_ttl};
    if (verdict.broken || verdict.result == Result::unreachable) {
      counters_.http_unreachable.add();
      row = {options_.deny_on_failure ? Result::deny : Result::ignore, loop_.now()};
    }
    if (!waiting_.empty()) {
      auto next = std::move(waiting_.front());
      waiting_.pop_front();
      start(next.first, std::move(next.second));
    }
    done(row);
  });
}

void HttpAuthorizer::trim(Decisions& decisions) const {
  const Instant now = loop_.now();
  std::erase_if(decisions.rows, [now](const auto& entry) { return entry.second.until <= now; });
  while (decisions.rows.size() > options_.cache_max) decisions.rows.erase(decisions.rows.begin());
}

}  // namespace ph::broker
