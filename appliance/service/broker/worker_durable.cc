// The worker's waiting for the disk: acknowledgements, and what is told to the journal beside the sessions themselves.
// See docs/durability.md.
#include <algorithm>

#include "service/broker/worker.h"

namespace ph::broker {

// --- acknowledgements

bool Worker::must_wait(ClientConnection& connection, const mqtt::Publish& publish) {
  if (!durable_) return false;
  const session::Session& publisher = *connection.client->session;
  if (publish.qos == 2 && publisher.durable()) {
    durable_->inbound(publisher.uid(), publish.packet_id, true);
    wanted_.workers |= uint64_t{1} << index_;
    want_cover(index_, wanted_.sequence);
  }
  return wanted_.workers != 0 && durable_->waits();
}

void Worker::acknowledge_later(ClientConnection& connection, uint16_t packet_id, uint8_t qos) {
  const Client& client = *connection.client;
  when_taken(wanted_, [this, id = client.session->client_id(), taken = Taken{client.uid, packet_id, qos, true}] {
    on_taken(id, taken, false);
  });
}

/// A QoS 2 message of a durable session becomes durable together with its packet id if all queues it reaches are here.
/// Otherwise it is written down first, with its packet id: should we die between the queues of two workers, it is
/// routed again to those who do not have it (redo()).
bool Worker::needs_record(ClientConnection& connection, const session::MessageView& view) {
  if (view.qos != 2 || !durable_ || !durable_->waits() || !connection.client->durable) return false;
  if (connection.client->recording > 0) return true;  // in the order of arrival
  if (workers_.size() == 1) return false;
  if (view.retain && home_of_topic(view.topic) != index_) return true;
  uint64_t remote = 0;
  collect(view.topic, connection.client, remote, true);
  // A shared subscription's member may be anywhere.
  return remote_durable_ != 0 || !shared_hits_.empty() || !arriving_.empty();
}

/// The message at hand as one that can be routed again.
session::MessagePtr Worker::recordable() {
  auto message = std::make_shared<session::Message>(*outgoing_.share());
  message->redo = durable_->waits();  // nobody would wait for the records that it leaves
  return message;
}

void Worker::record_and_route(ClientConnection& connection, uint16_t packet_id) {
  const session::MessagePtr message = recordable();
  Client& client = *connection.client;
  ++client.recording;
  durable_->record(client.uid, packet_id, message);
  durable_->after(durable_->turn(), [this, message, id = client.session->client_id(),
                                     taken = Taken{client.uid, packet_id, 2, true, message->number}] {
    Client* publisher = find_client(id);
    if (publisher && publisher->uid != taken.uid) publisher = nullptr;
    if (publisher && publisher->recording > 0) --publisher->recording;
    outgoing_.reset(message);
    route(outgoing_, publisher);
    pressed_ = false;
    when_taken(wanted_, [this, id, taken] { on_taken(id, taken, false); });
  });
}

/// PUBCOMP frees the packet id: were it still taken after a restart, the next message with it would be thrown away.
bool Worker::delays_pubcomp(ClientConnection& connection, uint16_t packet_id, mqtt::ReasonCode reason) {
  if (!connection.client->session->durable() || durable_->may_send(durable_->turn())) return false;
  durable_->after(durable_->turn(), [this, at = connection.id(), packet_id, reason] {
    auto it = connections_.find(at);
    if (it != connections_.end()) it->second->channel().pubcomp(packet_id, reason);
  });
  return true;
}

/// Runs `then` once everybody has the message on disk: at once if nobody has to, or if nobody waits.
void Worker::when_taken(const Wanted& wanted, port::Task then) {
  if (!durable_ || !durable_->waits() || (wanted.workers == 0 && taking_.empty())) return then();
  taking_.push_back({wanted, std::move(then)});
  release_taken();  // who asks after a round of settle() may be told of what was covered meanwhile
}

bool Worker::covered(const Wanted& wanted) const {
  for (uint64_t left = wanted.workers; left != 0; left &= left - 1)
    if (covered_[static_cast<size_t>(std::countr_zero(left))] < wanted.sequence) return false;
  return true;
}

void Worker::release_taken() {
  while (!taking_.empty()) {
    if (!covered(taking_.front().wanted)) return;
    port::Task then = std::move(taking_.front().then);
    taking_.pop_front();
    then();
  }
}

void Worker::on_durable(uint64_t turn) {
  durable_->on_durable(turn);
}

void Worker::on_covered(uint32_t by, uint64_t sequence) {
  covered_[by] = std::max(covered_[by], sequence);
  release_taken();
}

void Worker::want_cover(uint32_t source, uint64_t sequence) {
  cover_due_[source] = sequence;
  durable_->mark_dirty();
}

/// Before the turn's changes are handed in: whose messages they cover. A message that waits as a shadow is not covered,
/// since the session that may have to take it is not here.
void Worker::cover_seen() {
  for (uint32_t source = 0; source < cover_due_.size(); ++source) {
    uint64_t upto = cover_due_[source];
    for (const Client* c : arriving_)
      for (const Shadow& s : c->shadow)
        if (s.source == source) upto = std::min(upto, s.sequence - 1);
    for (const Following& f : following_)
      if (f.source == source) upto = std::min(upto, f.sequence - 1);
    if (upto <= cover_told_[source]) continue;
    cover_told_[source] = upto;
    durable_->cover(source, upto);
  }
}

void Worker::when_kept(Client& client, port::Task then) {
  if (!client.session->durable()) return then();
  durable_->after(durable_->turn(), std::move(then));
}

void Worker::settle_and_keep(Client& client, port::Task then) {
  if (!client.session->durable()) return settle(std::move(then));
  settle([this, turn = durable_->turn(), then = std::move(then)]() mutable { durable_->after(turn, std::move(then)); });
}

// --- retained messages and wills

/// One worker writes a topic's retained message: so the store has what all copies agreed on, whoever published last.
uint32_t Worker::home_of_topic(ByteView topic) const {
  return static_cast<uint32_t>(std::hash<ByteView>{}(topic) % workers_.size());
}

void Worker::keep_retained(session::Outgoing& message, uint64_t version) {
  const ByteView topic = message.view().topic;
  if (!durable_ || home_of_topic(topic) != index_) return;
  durable_->retained(std::string(topic), version, retained_.find(topic));
}

void Worker::keep_will(Client& client) {
  count_will(client);
  const session::Session& session = *client.session;
  if (!session.durable() || (!session.will() && !client.will_kept)) return;
  client.will_kept = session.will().has_value();
  durable_->will(session.uid(), session.will());
}

// --- recovery

Client* Worker::restore(uint64_t uid, const session::SessionRecord& record) {
  if (find_client(record.client_id)) return nullptr;
  auto session = std::make_unique<session::Session>(record.client_id, context_);
  session->restore(uid, record, loop_.now());
  directory_.restore(record.client_id, index_);
  return &add_client(std::move(session), uid);
}

void Worker::restore_ending(uint64_t uid, const session::SessionRecord& record) {
  session::Session session(record.client_id, context_);
  session.restore(uid, record, loop_.now());
  hand_on(session);
  session.end();
}

void Worker::restore_subscription(Client& client, const std::string& filter,
                                  const session::Subscription& subscription) {
  auto [it, fresh] = client.session->subscriptions().emplace(filter, subscription);
  if (fresh) add_route(client, it->first, it->second);
}

void Worker::restore_will(Client& client, session::SessionWill will, bool was_attached) {
  auto message = std::make_shared<session::Message>(*will.message);
  message->number = durable_->next();
  will.message = std::move(message);
  const Instant from = was_attached ? loop_.now() : client.session->detached_at();
  client.will_due = from + std::chrono::seconds(will.delay);
  client.will_kept = true;
  client.session->set_will(std::move(will));
  count_will(client);
}

void Worker::restore_retained(const session::MessagePtr& message, uint64_t version) {
  outgoing_.reset(message);
  retained_version_ = std::max(retained_version_, version);
  retained_.set(outgoing_, {version, 0}, loop_.now());
}

void Worker::redo(const session::MessagePtr& message, const std::string& publisher, const Receivers& has) {
  outgoing_.reset(message);
  uint64_t ignored = 0;
  const size_t found = collect(message->topic, find_client(publisher), ignored, true);
  size_t missing = 0;
  for (size_t i = 0; i < found; ++i)
    if (!has.direct.contains(receivers_[i].client->uid)) std::swap(receivers_[missing++], receivers_[i]);
  deliver_collected(outgoing_, missing, index_, ++sequence_);
  for (const routing::SharedGroup* group : shared_hits_) {
    const auto at = has.shared.find(*group->key());
    const routing::SharedMember* heir = group->heir(at == has.shared.end() ? std::set<uint64_t>{} : at->second);
    if (heir && heir->worker == index_) deliver_shared(outgoing_, group->key(), heir->uid);
  }
  if (!message->retain) return;
  restore_retained(message, retained_version_ + 1);
  keep_retained(outgoing_, retained_version_);
}

void Worker::await_far(const std::string& client_id, const Taken& taken, std::string waits_for) {
  auto reached = [this, client_id, taken] { loop_.post([=, this] { on_taken(client_id, taken, false); }); };
  if (!tap_) return reached();
  tap_->resume_far(std::move(waits_for), std::move(reached));
}

void Worker::restored(Client& client, bool was_attached) {
  if (was_attached) client.session->detach(loop_.now());
  schedule_due(client);
}

/// Before the loops run: all workers know each other's routes before the first client comes.
void Worker::settle_mail() {
  for (uint32_t w = 0; w < outboxes_.size(); ++w)
    if (outboxes_[w]) workers_[w]->mailbox_.push(std::move(outboxes_[w]));
  for (Worker* w : workers_) w->read_mail();
}

void Worker::announce_durable(const std::string& filter, bool present) {
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    if (w == index_) continue;
    send_task(w, [filter, bit = uint64_t{1} << index_, present](Worker* worker) {
      RouteNode* at = worker->index_of_filters_.find(filter);
      if (!at) return;
      at->remote_durable = present ? at->remote_durable | bit : at->remote_durable & ~bit;
    });
  }
}

}  // namespace ph::broker
