#include "service/broker/broker.h"

#include <functional>

#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {

bool BrokerOptions::anonymous_allowed(size_t listener, ByteView peer) const {
  switch (listeners[listener].allow_anonymous) {
    case Anonymous::always:
      return true;
    case Anonymous::never:
      return false;
    case Anonymous::loopback:
      break;
  }
  const auto address = security::address_of_peer(peer);
  return address && address->is_loopback();
}

Broker::Broker(BrokerOptions options, const std::vector<WorkerPlace>& places, port::MessageTap* tap,
               port::Loop* event_loop, Journal* journal)
    : options_(std::move(options)), rates_(options_.listeners.size()), event_loop_(event_loop), journal_(journal) {
  PH_ASSERT(!places.empty() && places.size() <= 64, "1 to 64 workers");
  std::vector<Worker*> all;
  for (uint32_t i = 0; i < places.size(); ++i) {
    workers_.push_back(
        std::make_unique<Worker>(i, options_, rates_, *places[i].loop, *places[i].network, tap, journal));
    all.push_back(workers_.back().get());
  }
  for (auto& w : workers_) w->set_peers(all);
  if (journal) journal->set_members({all.begin(), all.end()});
}

Broker::~Broker() = default;

Result<> Broker::start() {
  if (journal_) {
    PH_TRY(recover());
    await_far();
  }
  for (const auto& listener : options_.listeners) endpoints_.push_back(listener.endpoint);
  // The first worker learns the ports that the kernel chose, the others join them.
  for (auto& w : workers_) {
    PH_ASSIGN(endpoints_, w->listen(endpoints_));
  }
  for (auto& w : workers_) {
    w->start_ticking();
    w->start_sys();
    w->start_reviewing();
  }
  return {};
}

void Broker::stop() {
  for (auto& w : workers_)
    w->loop().post([this, worker = w.get()] {
      worker->stop();
      stopped_.fetch_add(1, std::memory_order_release);
    });
}

bool Broker::drained() const {
  return stopped_.load(std::memory_order_acquire) == workers_.size() && (!journal_ || journal_->idle());
}

void Broker::set_policy(const security::PolicyPtr& policy) {
  for (auto& w : workers_) w->loop().post([worker = w.get(), policy] { worker->set_policy(policy); });
}

void Broker::filters(size_t max, std::function<void(std::vector<std::string> filters, bool rest)> got) {
  // Any worker knows the filters of all.
  Worker& worker = *workers_.front();
  worker.loop().post([&worker, max, loop = event_loop_, got = std::move(got)]() mutable {
    bool rest = false;
    std::vector<std::string> filters = worker.filters(max, rest);
    loop->post([got = std::move(got), filters = std::move(filters), rest]() mutable { got(std::move(filters), rest); });
  });
}

void Broker::set_tokens(const TokenOptionsPtr& tokens) {
  for (auto& w : workers_) w->loop().post([worker = w.get(), tokens] { worker->set_tokens(tokens); });
}

BrokerStats Broker::stats() const {
  std::vector<Worker*> all;
  for (const auto& w : workers_) all.push_back(w.get());
  return sum(all);
}

void Broker::settle(StreamId stream, uint64_t upto, port::WriteBatch cursor, port::Task done) {
  if (const auto before = published_.find(stream.value); before != published_.end() && before->second < upto)
    published_.erase(before);
  journal_->settle(stream.value, upto, std::move(cursor), std::move(done));
}

void Broker::publish(port::Message message, std::move_only_function<void(Result<>)> done) {
  auto answer = [loop = event_loop_, done = std::move(done)](Result<> result) mutable {
    loop->post([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  };
  if (!mqtt::topic_valid(message.topic) || !mqtt::utf8_valid(message.topic) || message.topic.size() > UINT16_MAX ||
      message.qos > 2)
    return answer(fail(errors::bad_topic, message.topic));
  Worker& worker = *workers_[std::hash<std::string>{}(message.topic) % workers_.size()];
  if (worker.overloaded()) return answer(fail(errors::busy, "worker mailbox over its bound"));
  auto m = std::make_shared<session::Message>();
  m->topic = std::move(message.topic);
  m->payload = std::move(message.payload);
  m->properties = std::move(message.properties);
  m->origin = {message.stream.value, message.position, message.part, false};
  if (const auto before = published_.find(message.stream.value); before != published_.end())
    m->origin.again = message.position <= before->second;
  m->qos = message.qos;
  m->retain = message.retain;
  if (message.expiry_seconds_plus_one)
    m->expiry = static_cast<uint32_t>(std::min<uint64_t>(message.expiry_seconds_plus_one - 1, UINT32_MAX));
  worker.loop().post([&worker, m = std::move(m), answer = std::move(answer)]() mutable {
    worker.publish_from_sink(std::move(m), [answer = std::move(answer)]() mutable { answer({}); });
  });
}

}  // namespace ph::broker
