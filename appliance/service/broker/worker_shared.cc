// The worker's shared subscriptions: who is a member, who gets a message, and what becomes of it when that member is
// not there. See docs/shared.md.
#include <algorithm>

#include "codec/mqtt/text.h"
#include "service/broker/worker.h"

namespace ph::broker {

using routing::SharedGroup;
using routing::SharedMember;

// --- members

void Worker::join_group(Client& client, const std::string& filter, session::Subscription& subscription) {
  const SharedMember member{client.uid, index_};
  const bool online = client.connection != nullptr;
  set_member(filter, member, online);
  subscription.shared = find_group(filter)->key();
  ++client.shared;
  members_[client.uid] = &client;
  context_.counters.subscriptions.add();
  ++announced_;  // SUBACK waits until all workers know
  tell_member(filter, member, online);
}

/// `to`: the worker that the session moves to, which will tell the others; kNobody: it is a member no more.
void Worker::leave_group(Client& client, session::Subscription& subscription, uint32_t to) {
  const session::SharedKey key = std::exchange(subscription.shared, nullptr);
  context_.counters.subscriptions.subtract();
  if (--client.shared == 0) members_.erase(client.uid);
  if (to != kNobody) return set_member(*key, {client.uid, to}, false);
  remove_member(*key, client.uid);
  for (uint32_t w = 0; w < workers_.size(); ++w)
    if (w != index_) send_task(w, [key, uid = client.uid](Worker* worker) { worker->remove_member(*key, uid); });
}

void Worker::announce_online(Client& client) {
  if (client.shared == 0) return;
  const bool online = client.connection != nullptr;
  for (const auto& [filter, subscription] : client.session->subscriptions()) {
    if (!subscription.shared) continue;
    set_member(filter, {client.uid, index_}, online);
    tell_member(filter, {client.uid, index_}, online);
  }
}

void Worker::tell_member(const std::string& key, SharedMember member, bool online) {
  for (uint32_t w = 0; w < workers_.size(); ++w)
    if (w != index_) send_task(w, [key, member, online](Worker* worker) { worker->set_member(key, member, online); });
}

void Worker::set_member(const std::string& key, SharedMember member, bool online) {
  note_filters();
  auto& shared = index_of_filters_.insert(mqtt::shared_filter(key)->filter).value.shared;
  if (!shared) shared = std::make_unique<SharedGroups>();
  auto it = std::ranges::find_if(*shared, [&](const auto& g) { return *g->key() == key; });
  if (it == shared->end())
    it = shared->insert(it,
                        std::make_unique<SharedGroup>(std::make_shared<const std::string>(key), loop_.random().next()));
  (*it)->set(member, online);
}

void Worker::remove_member(const std::string& key, uint64_t uid) {
  const routing::NodeIndex node = index_of_filters_.node_of(mqtt::shared_filter(key)->filter);
  RouteNode* at = node == routing::kNone ? nullptr : index_of_filters_.at(node);
  if (!at || !at->shared) return;
  auto it = std::ranges::find_if(*at->shared, [&](const auto& g) { return *g->key() == key; });
  if (it == at->shared->end()) return;
  (*it)->remove(uid);
  if ((*it)->empty()) at->shared->erase(it);
  if (at->shared->empty()) at->shared.reset();
  note_filters();
  index_of_filters_.release(node);
}

SharedGroup* Worker::find_group(const std::string& key) {
  RouteNode* at = index_of_filters_.find(mqtt::shared_filter(key)->filter);
  if (!at || !at->shared) return nullptr;
  auto it = std::ranges::find_if(*at->shared, [&](const auto& g) { return *g->key() == key; });
  return it == at->shared->end() ? nullptr : it->get();
}

// --- messages

bool Worker::dispatch_shared(session::Outgoing& message, SharedGroup& group, const Client* publisher) {
  if (ticket_ && got_before(*message.share(), 0, group.key())) return true;
  const ByteView client_id = publisher ? ByteView(publisher->session->client_id()) : ByteView();
  const SharedMember* member =
      group.choose(options_.shared_strategy, {index_, client_id, message.view().topic}, loop_.random());
  if (!member) return false;
  if (member->worker != index_) {
    send_shared(message, group.key(), *member);
    return true;
  }
  const bool delivered = deliver_shared(message, group.key(), member->uid);
  PH_ASSERT(delivered, "a worker knows its own members");
  handed_on();
  return true;
}

/// False if that session is not here, or not a member any more.
bool Worker::deliver_shared(session::Outgoing& message, const session::SharedKey& key, uint64_t uid) {
  auto it = members_.find(uid);
  if (it == members_.end()) return false;
  Client& client = *it->second;
  const auto& subscriptions = client.session->subscriptions();
  auto found = subscriptions.find(*key);
  if (found == subscriptions.end() || !found->second.shared) return false;
  const session::Subscription& subscription = found->second;
  session::Copy copy;
  copy.qos = subscription.qos;
  copy.retain = subscription.retain_as_published && message.view().retain;
  if (subscription.id) copy.subscription_ids = {&subscription.id, 1};
  copy.shared = &subscription.shared;
  if (ticket_)
    deliver_from_sink(client, message, copy);
  else
    client.session->deliver(message, copy, loop_.now());
  return true;
}

void Worker::send_shared(session::Outgoing& message, const session::SharedKey& key, SharedMember member) {
  if (durable_ && message.view().qos > 0) wanted_.workers |= uint64_t{1} << member.worker;
  Letter* letter = send_message(member.worker, message, 0);
  if (!letter) return;
  letter->shared = key;
  letter->uid = member.uid;
  letter->follow = follow_;
  letter->handed_on = std::exchange(handed_on_, {});
  if (ticket_) ticket_->hold();  // it may go on from there
}

/// The session may have moved on, or ended, since its member was chosen: then the message follows it, or goes to
/// another one. Whoever waits for this worker's disk then waits for that one's, too.
void Worker::receive_shared(const Letter& letter, uint32_t from) {
  ticket_ = letter.ticket;
  handed_on_ = letter.handed_on;
  wanted_ = {++sequence_, 0};
  if (!deliver_shared(outgoing_, letter.shared, letter.uid)) {
    SharedGroup* group = find_group(*letter.shared);
    const SharedMember* moved = group ? group->find(letter.uid) : nullptr;
    follow_ = letter.cover || letter.follow ? ++last_following_ : 0;
    if (moved)
      send_shared(outgoing_, letter.shared, *moved);
    else if (!group || !dispatch_shared(outgoing_, *group, nullptr))
      context_.counters.drop(session::Drop::session_ended);
  }
  handed_on();
  // Each is told of by itself: two workers that pass messages on to each other would wait for covers in a circle.
  const bool follows = std::exchange(follow_, 0) != 0 && wanted_.workers != 0;
  if (follows)
    following_.push_back({last_following_, from, letter.cover ? letter.sequence : UINT64_MAX, letter.follow});
  else if (letter.follow)
    durable_->after(durable_->turn(), [this, from, number = letter.follow] {
      send_task(from, [number](Worker* w) { w->followed(number); });
    });
  if (letter.cover) want_cover(from, letter.sequence);
  if (auto ticket = std::exchange(ticket_, nullptr)) {
    if (wanted_.workers != 0)
      when_taken(wanted_, [ticket] { ticket->release(); });
    else
      ticket->release();
  }
  pressed_ = false;
}

/// A message that was passed on is on disk.
void Worker::followed(uint64_t number) {
  const auto it = std::ranges::find(following_, number, &Following::number);
  if (it == following_.end()) return;
  const Following f = *it;
  following_.erase(it);
  if (f.follow) send_task(f.source, [n = f.follow](Worker* w) { w->followed(n); });
  durable_->mark_dirty();
}

/// The message at work has found its new session, or there is none: in this very batch it is no longer the ended one's.
void Worker::handed_on() {
  const HandedOn from = std::exchange(handed_on_, {});
  if (from.sequence != 0) durable_->remove(from.uid, from.sequence, outgoing_.share()->number);
}

/// A member's session has ended: what it did not get is for the others, each message in one batch with the end of its
/// old entry. The other records go once they have all.
void Worker::hand_on(session::Session& ended) {
  std::vector<session::SharedMessage> messages = ended.take_shared();
  if (ended.durable()) durable_->forget(ended);  // reading its queue may have asked to wake it
  for (session::SharedMessage& m : messages) {
    SharedGroup* group = find_group(*m.shared);
    outgoing_.reset(session::without_records(m.message));
    wanted_ = {++sequence_, 0};
    if (ended.durable()) handed_on_ = {ended.uid(), m.sequence};
    if (!group || !dispatch_shared(outgoing_, *group, nullptr)) context_.counters.drop(session::Drop::session_ended);
    handed_on();  // to nobody
    // By itself: a worker covers what it was sent, which need not be the last one.
    if (ended.durable() && wanted_.workers != 0) when_taken(wanted_, [] {});
  }
  pressed_ = false;
  if (!ended.durable()) return;
  when_taken({sequence_, 0}, [this, uid = ended.uid()] { durable_->ended(uid); });  // behind all of them
}

}  // namespace ph::broker
