// The worker's frame: sockets in and out, mail between workers, and time.
#include "service/broker/worker.h"

#include <algorithm>
#include <functional>

#include "base/log.h"
#include "service/broker/sys_topics.h"

namespace ph::broker {
namespace {

constexpr Duration kTick = 500ms;
constexpr size_t kWheelTicks = 64;
constexpr Duration kHeldBackCheck = 5ms;
constexpr size_t kReleasedAtOnce = 64;  // connections: each may send a read buffer full before it is held back again

}  // namespace

Worker::Worker(uint32_t index, const BrokerOptions& options, std::vector<ListenerRates>& rates, port::Loop& loop,
               port::Network& network, port::MessageTap* tap, Journal* journal)
    : index_(index),
      options_(options),
      loop_(loop),
      network_(network),
      tap_(tap),
      policy_(options.security.policy),
      authenticator_(options, loop, network, context_.counters),
      authorizer_(options.security.authorizer, loop, network, context_.counters),
      retained_(options.retained_messages_max, options.retained_bytes_max, context_.counters),
      sys_retained_(SIZE_MAX, SIZE_MAX, sys_counters_),
      sys_timer_(loop.make_timer()),
      rewrite_(options.rewrite),
      delayed_(options.delayed_messages_max, options.delayed_bytes_max),
      rates_(rates),
      throttle_timer_(loop.make_timer()),
      load_timer_(loop.make_timer()),
      held_back_timer_(loop.make_timer()),
      ticker_(loop.make_timer()),
      wheel_(kWheelTicks) {
  context_.limits = options.session;
  if (!journal) return;
  durable_ = std::make_unique<DurableSessions>(index, *journal, loop, [this] { schedule_flush(); });
  context_.keeper = durable_.get();
  outgoing_.set_numbers(durable_.get());
}

Worker::~Worker() = default;

void Worker::set_peers(std::vector<Worker*> workers) {
  workers_ = std::move(workers);
  outboxes_.resize(workers_.size());
  for (auto* per_worker : {&seen_, &covered_, &cover_due_, &cover_told_}) per_worker->resize(workers_.size());
}

Result<std::vector<port::Endpoint>> Worker::listen(const std::vector<port::Endpoint>& at) {
  std::vector<port::Endpoint> out;
  for (size_t i = 0; i < at.size(); ++i) {
    port::ListenOptions options;
    options.tls = options_.listeners[i].tls;
    options.connections_max = options_.listeners[i].connections_max;
    options.live = rates_[i].live;
    options.websocket_path = options_.listeners[i].websocket_path;
    options.proxy_protocol = options_.listeners[i].proxy_protocol;
    options.certificate_field = options_.listeners[i].certificate_field;
    options.reuse_port = workers_.size() > 1;
    options.joins = index_ > 0;
    options.open_timeout = options_.channel.connect_timeout;
    options.websocket_origins = options_.listeners[i].websocket_origins;
    PH_ASSIGN(auto listener, network_.listen(at[i], options, [this, i](std::unique_ptr<port::Connection>&& c) {
      return accept(std::move(c), i);
    }));
    out.push_back(listener->local());
    listeners_.push_back(std::move(listener));
  }
  return out;
}

port::ConnectionHandler* Worker::accept(std::unique_ptr<port::Connection>&& socket, size_t listener) {
  if (stopping_) return nullptr;
  if (!rates_[listener].connections.try_take(options_.listeners[listener].connections_rate, loop_.now())) {
    context_.counters.connections_over_rate.add();
    return nullptr;
  }
  const uint64_t id = ++last_connection_;
  // CONNECT is due from when the client was there, whatever layers it had to get through before.
  const Instant since = socket->peer().accepted == Instant{} ? loop_.now() : socket->peer().accepted;
  auto connection = std::make_unique<ClientConnection>(*this, id, std::move(socket), since);
  connection->listener = listener;
  ClientConnection* handler = connection.get();
  connections_.emplace(id, std::move(connection));
  context_.counters.connections.add();
  context_.counters.connections_in.add();
  schedule_check(*handler, handler->channel().deadline());
  return handler;
}

/// The connection is on the stack of its caller: it goes a turn later.
void Worker::remove(ClientConnection& connection) {
  auto node = connections_.extract(connection.id());
  if (node.empty()) return;
  congested_.erase(connection.id());
  authenticating_.erase(connection.id());
  authenticator_.cancel(connection.id());
  authorizer_.forget(connection.id());
  // What it waits for goes on without it; a large will need not wait there, too.
  if (const auto it = openings_.find(connection.id()); it != openings_.end()) it->second.will.reset();
  context_.counters.connections.subtract();
  loop_.post([gone = std::move(node.mapped())] {});
}

void Worker::stop() {
  stopping_ = true;
  listeners_.clear();
  ticker_->cancel();
  load_timer_->cancel();
  sys_timer_->cancel();
  for (auto& [id, connection] : connections_) connection->channel().kick(mqtt::ReasonCode::server_shutting_down);
  push_outboxes();
}

// --- time

void Worker::start_ticking() {
  if (!load_timer_->pending()) probe_load();
  ticker_->start(kTick, [this] {
    tick();
    if (!stopping_) start_ticking();
  });
}

/// A connection stands in one slot of the wheel, and moves on when it is looked at before its time: keep-alive costs
/// nothing per packet and one look per period.
void Worker::schedule_check(ClientConnection& connection, Instant at) {
  const Duration left = std::max(at - loop_.now(), Duration::zero());
  const auto ticks = static_cast<size_t>(std::min<Duration::rep>(left / kTick + 1, kWheelTicks - 1));
  wheel_[(wheel_at_ + ticks) % kWheelTicks].push_back({connection.id(), ++connection.check});
}

void Worker::tick() {
  const Instant now = loop_.now();
  wheel_at_ = (wheel_at_ + 1) % kWheelTicks;
  const std::vector<Check> due = std::exchange(wheel_[wheel_at_], {});
  for (const Check& check : due) {
    auto it = connections_.find(check.connection);
    if (it == connections_.end() || it->second->check != check.serial) continue;
    session::Channel& channel = it->second->channel();
    channel.tick(now);
    if (put_out_expired(*it->second, now)) continue;
    const Instant next = std::min(channel.deadline(), it->second->expires);
    schedule_check(*it->second, std::min(next, now + kTick * static_cast<int>(kWheelTicks)));
  }
  on_due(now);
  check_congested(now);
  check_parked(now);
  publish_delayed(now);
  retained_.sweep(now, [this](const std::string& topic) {
    if (durable_ && home_of_topic(topic) == index_) durable_->retained(topic, 0, nullptr);
  });
  if (wheel_at_ == 0) flapping_.sweep(options_.security.flapping, now);
  sys_retained_.sweep(now, [](const std::string&) {});
}

// --- slow consumers

void Worker::on_congested(ClientConnection& connection) {
  congested_.try_emplace(connection.id(), Congestion{loop_.now(), connection.bytes_acked()});
  if (connection.unsent_bytes() <= options_.output_max) return;
  // Not from here: a fan-out may be walking over this session.
  loop_.post([this, id = connection.id()] {
    auto it = connections_.find(id);
    if (it == connections_.end() || !it->second->channel().open()) return;
    context_.counters.slow_consumers.add();
    it->second->channel().kick(mqtt::ReasonCode::quota_exceeded);
  });
}

void Worker::on_uncongested(ClientConnection& connection) {
  congested_.erase(connection.id());
}

/// Progress, however slow, keeps a connection; its output is bounded anyway.
void Worker::check_congested(Instant now) {
  std::vector<uint64_t> stalled;
  for (auto& [id, congestion] : congested_) {
    const uint64_t acked = connections_.at(id)->bytes_acked();
    if (acked != congestion.acked) congestion = {now, acked};
    if (now - congestion.since >= options_.stall_timeout) stalled.push_back(id);
  }
  for (uint64_t id : stalled) {
    congested_.erase(id);
    context_.counters.slow_consumers.add();
    log_debug("slow_consumer_closed", {{"address", connections_.at(id)->peer().address}});
    connections_.at(id)->channel().kick(mqtt::ReasonCode::quota_exceeded);
  }
}

// --- mail

uint32_t Worker::home_of(const std::string& client_id) const {
  return static_cast<uint32_t>(std::hash<std::string>{}(client_id) % workers_.size());
}

Batch& Worker::outbox(uint32_t worker) {
  auto& batch = outboxes_[worker];
  if (!batch) {
    batch = std::make_unique<Batch>();
    batch->from = index_;
  }
  schedule_flush();
  return *batch;
}

/// Whether that worker has more mail than it should, what is still to be pushed included.
bool Worker::pressed(uint32_t worker) const {
  const auto& batch = outboxes_[worker];
  return workers_[worker]->mailbox_.weight() + (batch ? batch->weight : 0) > options_.mailbox_bytes_max;
}

void Worker::send_task(uint32_t worker, WorkerTask task) {
  Batch& batch = outbox(worker);
  Letter& letter = batch.letters.emplace_back();
  letter.task = std::move(task);
  batch.weight += sizeof(Letter);
}

void Worker::schedule_flush() {
  if (std::exchange(flush_posted_, true)) return;
  loop_.post([this] { flush(); });
}

void Worker::flush() {
  flush_posted_ = false;
  if (!settling_.empty()) {
    const uint64_t round = ++last_round_;
    rounds_[round] = {workers_.size() - 1, announced_, std::exchange(settling_, {})};
    for (uint32_t w = 0; w < workers_.size(); ++w)
      if (w != index_) send_task(w, [from = index_, round](Worker* worker) { worker->on_sync(from, round); });
  }
  push_outboxes();
}

/// The journal first: what others learn from the mail must not be on disk before what it builds on.
void Worker::push_outboxes() {
  if (durable_) {
    cover_seen();
    durable_->flush();
  }
  for (uint32_t w = 0; w < outboxes_.size(); ++w)
    if (outboxes_[w]) workers_[w]->deliver_mail(std::move(outboxes_[w]));
}

void Worker::deliver_mail(std::unique_ptr<Batch> batch) {
  if (mailbox_.push(std::move(batch))) loop_.post([this] { read_mail(); });
}

void Worker::read_mail() {
  for (const auto& batch : mailbox_.take()) {
    for (Letter& letter : batch->letters) {
      if (letter.task)
        letter.task(this);
      else
        receive(*batch, letter);
    }
    mailbox_.worked_off(batch->weight);
  }
}

/// Runs `then` when every other worker has seen all that this one has sent up to now.
void Worker::settle(port::Task then, bool messages) {
  if (workers_.size() == 1 || (!messages && settled_ == announced_)) return then();
  settling_.push_back(std::move(then));
  schedule_flush();
}

/// What this worker has sent to others before must not be overtaken by the answer: who gets it may act on it at once.
void Worker::on_sync(uint32_t from, uint64_t round) {
  push_outboxes();
  send_task(from, [round](Worker* worker) { worker->synced(round); });
}

void Worker::synced(uint64_t round) {
  auto it = rounds_.find(round);
  if (--it->second.missing > 0) return;
  SyncRound done = std::move(it->second);
  rounds_.erase(it);
  settled_ = std::max(settled_, done.announced);
  for (auto& then : done.then) then();
}

// --- turns

/// What it sent is not handled to the end, since it takes too long: others first.
void Worker::yield(ClientConnection& connection) {
  yielded_.push_back(connection.id());
  post_turn();
}

void Worker::post_turn() {
  if (!std::exchange(yielded_posted_, true)) loop_.post([this] { next_turn(); });
}

/// One each time that the loop goes around, however many there are.
void Worker::next_turn() {
  yielded_posted_ = false;
  for (bool found = false; !found && !yielded_.empty();) {
    const auto it = connections_.find(yielded_.front());
    yielded_.pop_front();
    found = it != connections_.end();
    if (found) it->second->take_turn();
  }
  if (!yielded_.empty()) post_turn();
}

// --- back-pressure

void Worker::hold_back(ClientConnection& connection) {
  connection.channel().hold_back(true);
  held_back_.push_back(connection.id());
  if (!held_back_timer_->pending()) held_back_timer_->start(kHeldBackCheck, [this] { release_held_back(); });
}

void Worker::release_held_back() {
  bool full = durable_ && durable_->behind();
  for (uint32_t w = 0; w < workers_.size(); ++w) full = full || (w != index_ && pressed(w));
  for (size_t i = 0; !full && !held_back_.empty() && i < kReleasedAtOnce; ++i) {
    const auto it = connections_.find(held_back_.front());
    held_back_.pop_front();
    if (it != connections_.end()) it->second->channel().hold_back(false);
  }
  if (!held_back_.empty()) held_back_timer_->start(kHeldBackCheck, [this] { release_held_back(); });
}

}  // namespace ph::broker
