#include "io/resolver.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "io/loop_state.h"
#include "port/network.h"

namespace ph::io {

Result<Addresses> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, &::freeaddrinfo);
  if (code == EAI_SYSTEM) return fail_errno(port::net_errors::name, host, errno);
  if (code != 0) return fail(port::net_errors::name, host + ": " + ::gai_strerror(code));
  Addresses found;
  for (const addrinfo* a = list.get(); a && found.size() < kAddressesMax; a = a->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (a->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), a->ai_addr, a->ai_addrlen);
    found.push_back(endpoint.address());
  }
  if (found.empty()) return fail(port::net_errors::name, host + ": has no address");
  return found;
}

Resolver::Resolver(LoopState& loop) : gate_(std::make_shared<Gate>()), lookup_(&look_up) {
  gate_->resolver = this;
  gate_->loop = &loop;
}

Resolver::~Resolver() {
  std::lock_guard lock(gate_->mutex);
  gate_->loop = nullptr;
}

void Resolver::resolve(const std::string& host, Answer answer) {
  auto refuse = [&](std::string_view why) {
    gate_->loop->post([error = fail(port::net_errors::name, host + ": " + std::string(why)).error(),
                       refused = std::move(answer)]() mutable { refused(std::unexpected(error)); });
  };
  if (waiters_ >= kLookupWaitersMax) return refuse("too many lookups wait");
  ++waiters_;
  auto [at, fresh] = waiting_.try_emplace(host);
  at->second.push_back(std::move(answer));
  if (!fresh) return;
  if (running_ < kLookupsMax)
    start(host);
  else
    queued_.push_back(host);
}

void Resolver::start(const std::string& host) {
  ++running_;
  auto work = [gate = gate_, lookup = lookup_, host] {
    auto found = lookup(host);
    std::lock_guard lock(gate->mutex);
    if (!gate->loop) return;
    gate->loop->post([gate, host, result = std::move(found)] { gate->resolver->finished(host, result); });
  };
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error& e) {
    gate_->loop->post([gate = gate_, host, error = fail(port::net_errors::name, host + ": " + e.what()).error()] {
      gate->resolver->finished(host, std::unexpected(error));
    });
  }
}

void Resolver::finished(const std::string& host, const Result<Addresses>& found) {
  --running_;
  auto answers = waiting_.extract(host);
  if (!queued_.empty()) {
    std::string next = std::move(queued_.front());
    queued_.pop_front();
    start(next);
  }
  waiters_ -= answers.mapped().size();
  for (auto& answer : answers.mapped()) answer(found);
}

}  // namespace ph::io
