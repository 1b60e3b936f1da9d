#include "core/session/session.h"

#include <algorithm>
#include <utility>

namespace ph::session {
namespace {

/// The same entry has the same packet id whenever it is sent, so it need not be written.
uint16_t packet_id_of(uint64_t sequence) {
  return static_cast<uint16_t>((sequence - 1) % 65535 + 1);
}

// In memory of a client that reads too slowly; the rest of its queue is in the store. Durable sessions only.
constexpr size_t kResidentMessages = 256;
constexpr size_t kResidentBytes = 256 * 1024;

}  // namespace

void Session::attach(Output& output, const Attachment& attachment) {
  output_ = &output;
  attachment_ = attachment;
  aliases_ = attachment.topic_alias_max ? std::make_unique<TopicAliases>(attachment.topic_alias_max) : nullptr;
  resent_ = 0;
  pubrels_due_ = 0;
  for (size_t i = 0; i < inflight_.size(); ++i) inflight_[i].pubrel_due = false;  // resume() sends them
  if (durable()) keeper().touch(*this);
}

void Session::resume(Instant now) {
  pump(now);
}

void Session::detach(Instant now) {
  output_ = nullptr;
  aliases_.reset();
  detached_at_ = now;
  if (!durable()) return;
  spill();
  keeper().touch(*this);
}

std::optional<Instant> Session::ends_at() const {
  if (expiry_ == kNeverExpires) return std::nullopt;
  return detached_at_ + std::chrono::seconds(expiry_);
}

size_t Session::window() const {
  return std::min<size_t>(context_->limits.inflight_max, attachment_.receive_max);
}

/// Over its budget. Asks to be told when it is not any more.
bool Session::congested() {
  const size_t soft = context_->limits.output_soft;
  if (output_->unsent_bytes() <= soft) return false;
  output_->notify_below(soft / 2);
  return true;
}

bool Session::fits(const Outgoing& message, const Copy& copy, Instant now) {
  // The size of a packet is only computed where it can matter.
  const MessageView& m = message.view();
  constexpr size_t kHeadMax = 64;
  const size_t most =
      m.topic.size() + m.payload.size() + m.properties.size() + kHeadMax + 6 * copy.subscription_ids.size();
  if (most <= attachment_.packet_max) return true;
  if (message.size(attachment_.version, copy, now) <= attachment_.packet_max) return true;
  context_->counters.drop(Drop::too_large);  // [MQTT-3.1.2-25]: as if it had been sent
  return false;
}

size_t Session::mount_size(ByteView topic) const {
  const std::string& mount = attachment_.mountpoint;
  return !mount.empty() && topic.size() > mount.size() && topic.starts_with(mount) ? mount.size() : 0;
}

void Session::write(Outgoing& message, const Copy& copy, Instant now) {
  if (aliases_ || !attachment_.mountpoint.empty()) {
    Copy own = copy;
    own.topic_skip = mount_size(message.view().topic);
    // A new alias adds three bytes: not where they might be too many.
    constexpr size_t kAlias = 3;
    if (aliases_ && (attachment_.packet_max == 0xFFFFFFFF ||
                     message.size(attachment_.version, own, now) + kAlias <= attachment_.packet_max)) {
      const TopicAliases::Use use = aliases_->use(message.view().topic);
      own.topic_alias = use.alias;
      own.topic_known = use.known;
    }
    message.write(*output_, attachment_.version, own, now);
  } else {
    message.write(*output_, attachment_.version, copy, now);
  }
  context_->counters.messages_out.add();
}

void Session::deliver(Outgoing& message, Copy copy, Instant now, bool hold) {
  copy.qos = std::min(copy.qos, message.view().qos);
  if (!output_) return enqueue(message, copy);
  if (copy.qos == 0) {
    if (mqueue_qos0_ > 0) {  // behind what waits already
      enqueue(message, copy);
      return pump(now);
    }
    if (congested()) {
      if (hold) return enqueue(message, copy);
      context_->counters.drop(Drop::slow_consumer);
      return;
    }
    if (fits(message, copy, now)) write(message, copy, now);
    return;
  }
  const bool waits =
      !mqueue_.empty() || !stored_.empty() || resent_ < inflight_.size() || inflight_.size() >= window() || congested();
  if (waits || (durable() && copy.qos == 2)) {  // a durable QoS 2 message is sent once its packet id is on disk
    enqueue(message, copy, !waits);
    return waits ? void() : pump(now);
  }
  copy.packet_id = durable() ? packet_id_of(next_sequence_) : next_packet_id();
  if (durable() && find(copy.packet_id) < inflight_.size()) {  // of an entry 65,535 before this one
    enqueue(message, copy, true);
    return pump(now);
  }
  if (!fits(message, copy, now)) return;
  write(message, copy, now);
  Entry entry = make_entry(message, copy);
  entry.packet_id = copy.packet_id;
  entry.sent = true;
  inflight_.push_back(std::move(entry));
  resent_ = inflight_.size();
}

/// Told to the keeper, if it is to last.
Session::Entry Session::make_entry(Outgoing& message, const Copy& copy) {
  Entry entry;
  entry.message = message.share();
  entry.subscription_ids = {copy.subscription_ids.begin(), copy.subscription_ids.end()};
  entry.qos = copy.qos;
  entry.retain = copy.retain;
  if (copy.shared) entry.shared = *copy.shared;
  if (durable() && copy.qos > 0) {
    entry.sequence = next_sequence_++;
    note(copy, entry.message, entry.sequence);
    entry.turn = keeper().turn();
  }
  return entry;
}

void Session::enqueue(Outgoing& message, const Copy& copy, bool passing) {
  const MessageView& m = message.view();
  const size_t bytes = m.topic.size() + m.payload.size() + m.properties.size();
  if (!passing && !make_room(bytes, copy.qos)) {
    context_->counters.drop(Drop::queue_full);
    return;
  }
  Entry entry = make_entry(message, copy);
  if (entry.sequence != 0) {
    const bool behind = mqueue_.size() >= kResidentMessages || mqueue_bytes_ + bytes > kResidentBytes;
    if (!output_ || !stored_.empty() || behind) return store_only(std::move(entry));
  }
  mqueue_bytes_ += bytes;
  if (copy.qos == 0) ++mqueue_qos0_;
  mqueue_.push_back(std::move(entry));
}

/// Drops from the queue until the new one fits; false if the new one is what has to go.
bool Session::make_room(size_t bytes, uint8_t qos) {
  const SessionLimits& limits = context_->limits;
  if (bytes > limits.mqueue_bytes_max || limits.mqueue_messages_max == 0) return false;
  auto full = [&] {
    // What was in flight before a restart stands in the store like the rest, and is not counted in the queue.
    const size_t count = mqueue_.size() + stored_.count - std::min(stored_.count, maybe_sent_);
    return count >= limits.mqueue_messages_max || mqueue_bytes_ + stored_.bytes + bytes > limits.mqueue_bytes_max;
  };
  while (full()) {
    size_t victim = 0;
    if (mqueue_qos0_ > 0) {
      while (mqueue_[victim].qos != 0) ++victim;
    } else if (qos == 0) {
      return false;
    } else {  // what may have been sent is no part of the queue
      while (victim < mqueue_.size() && mqueue_[victim].sent) ++victim;
    }
    if (victim < mqueue_.size())
      drop_queued(victim, Drop::queue_full);
    else if (!drop_stored())
      return true;  // all of it is still on its way to the disk: over the bound by one turn
  }
  return true;
}

bool Session::over_half_full() const {
  const SessionLimits& limits = context_->limits;
  const size_t half = limits.mqueue_messages_max / 2;
  if (half == 0 && inflight_.size() >= window()) return true;
  return queued() > half || queued_bytes() > limits.mqueue_bytes_max / 2;
}

void Session::drop_queued(size_t index, Drop reason) {
  const Entry& q = mqueue_[index];
  mqueue_bytes_ -= bytes_of(q.message);
  if (q.qos == 0) --mqueue_qos0_;
  forget(q);
  mqueue_.erase(index);
  context_->counters.drop(reason);
}

void Session::pump(Instant now) {
  while (output_) {
    if (pubrels_due_ > 0) send_due_pubrels();
    if (resent_ == inflight_.size() && mqueue_.empty() && stored_.empty()) return;
    if (congested()) return;
    if (resent_ < inflight_.size()) {
      Entry& entry = inflight_[resent_];
      if (!entry.released && resent_ >= window()) return;
      if (entry.qos == 2 && !may_send(entry.turn)) return;
      ++resent_;
      send_inflight(entry, now);
      continue;
    }
    if (mqueue_.empty()) {
      if (inflight_.size() >= window() || !load_page()) return;
      continue;
    }
    const Entry& front = mqueue_.front();
    if (!front.sent && front.message && expired(front.message->view(), now)) {  // one in flight is completed
      drop_queued(0, Drop::expired);
      continue;
    }
    if (front.qos > 0) {
      if (inflight_.size() >= window() || !promote()) return;
      continue;
    }
    Entry q = std::move(mqueue_.front());
    mqueue_.pop_front();
    mqueue_bytes_ -= q.message->bytes();
    --mqueue_qos0_;
    context_->outgoing.reset(std::move(q.message));
    const Copy copy{0, q.retain, false, 0, q.subscription_ids};
    if (fits(context_->outgoing, copy, now)) write(context_->outgoing, copy, now);
  }
}

/// Gives the first of the queue a packet id and puts it in flight; false if it has to wait.
bool Session::promote() {
  Entry& q = mqueue_.front();
  if (q.qos == 2 && !may_send(q.turn)) return false;
  uint16_t packet_id = q.sequence == 0 ? next_packet_id() : q.packet_id ? q.packet_id : packet_id_of(q.sequence);
  if (q.sequence != 0 && find(packet_id) < inflight_.size()) {
    // An entry 65,535 before this one is still in flight: another id, which has to be written down.
    last_packet_id_ = packet_id;
    q.packet_id = packet_id = next_packet_id();
    keeper().change(uid_, q, 0);
    q.turn = keeper().turn();
    if (q.qos == 2 && !may_send(q.turn)) return false;
  }
  q.packet_id = packet_id;
  mqueue_bytes_ -= bytes_of(q.message);
  inflight_.push_back(std::move(q));
  mqueue_.pop_front();
  return true;
}

void Session::on_drained(Instant now) {
  pump(now);
}

void Session::send_inflight(Entry& entry, Instant now) {
  if (entry.released) return send_pubrel(entry.packet_id, ReasonCode::success);
  context_->outgoing.reset(entry.message);
  const Copy copy{entry.qos, entry.retain, entry.sent, entry.packet_id, entry.subscription_ids};
  entry.sent = true;
  if (fits(context_->outgoing, copy, now)) return write(context_->outgoing, copy, now);
  if (entry.sequence != 0) keeper().remove(uid_, entry.sequence, entry.message->number);
  if (durable()) keeper().touch(*this);
  inflight_.erase(--resent_);
}

/// Not 0, and not one in flight [MQTT-2.2.1-3].
uint16_t Session::next_packet_id() {
  do {
    if (++last_packet_id_ == 0) ++last_packet_id_;
  } while (find(last_packet_id_) < inflight_.size());
  return last_packet_id_;
}

size_t Session::find(uint16_t packet_id) const {
  size_t i = 0;
  while (i < inflight_.size() && inflight_[i].packet_id != packet_id) ++i;
  return i;
}

void Session::erase_inflight(size_t index, Instant now) {
  const Entry& entry = inflight_[index];
  if (entry.pubrel_due) --pubrels_due_;
  if (entry.sequence != 0) {
    keeper().remove(uid_, entry.sequence, entry.message ? entry.message->number : 0);
    keeper().touch(*this);
  }
  inflight_.erase(index);
  if (index < resent_) --resent_;
  pump(now);
}

void Session::send_pubrel(uint16_t packet_id, ReasonCode reason) {
  std::string bytes;
  mqtt::encode(mqtt::Ack{mqtt::PacketType::pubrel, packet_id, reason, {}}, attachment_.version, bytes);
  output_->send_copy(bytes);
}

ReasonCode Session::on_puback(uint16_t packet_id, Instant now) {
  const size_t i = find(packet_id);
  if (i == inflight_.size()) return ReasonCode::success;  // of a connection before: nothing to do
  if (inflight_[i].qos != 1) return ReasonCode::protocol_error;
  erase_inflight(i, now);
  return ReasonCode::success;
}

ReasonCode Session::on_pubrec(uint16_t packet_id, ReasonCode reason, Instant now) {
  const size_t i = find(packet_id);
  if (i == inflight_.size()) {
    if (!is_error(reason)) send_pubrel(packet_id, ReasonCode::packet_identifier_not_found);
    return ReasonCode::success;
  }
  Entry& entry = inflight_[i];
  if (entry.qos != 2) return ReasonCode::protocol_error;
  if (is_error(reason)) {
    erase_inflight(i, now);
    return ReasonCode::success;
  }
  if (!entry.released) {
    entry.released = true;
    if (entry.sequence != 0) {
      keeper().change(uid_, {entry.sequence, nullptr, {}, entry.qos, entry.retain, true, entry.packet_id},
                      entry.message->number);
      entry.turn = keeper().turn();
    }
    entry.message = nullptr;
  }
  // PUBREL promises that the message is not sent again: after a restart, too.
  if (may_send(entry.turn)) {
    send_pubrel(packet_id, ReasonCode::success);
  } else if (!std::exchange(entry.pubrel_due, true)) {
    ++pubrels_due_;
  }
  return ReasonCode::success;
}

void Session::send_due_pubrels() {
  for (size_t i = 0; i < resent_; ++i) {
    Entry& entry = inflight_[i];
    if (!entry.pubrel_due || !may_send(entry.turn)) continue;
    entry.pubrel_due = false;
    --pubrels_due_;
    send_pubrel(entry.packet_id, ReasonCode::success);
  }
}

ReasonCode Session::on_pubcomp(uint16_t packet_id, Instant now) {
  const size_t i = find(packet_id);
  if (i == inflight_.size()) return ReasonCode::success;
  if (!inflight_[i].released) return ReasonCode::protocol_error;
  erase_inflight(i, now);
  return ReasonCode::success;
}

std::vector<Session::Inbound>::iterator Session::find_inbound(uint16_t packet_id, uint8_t qos) {
  return std::ranges::find_if(inbound_, [&](const Inbound& i) { return i.packet_id == packet_id && i.qos == qos; });
}

Session::Arrival Session::arrival(uint16_t packet_id, uint8_t qos, bool dup) const {
  for (const Inbound& i : inbound_) {
    if (i.packet_id != packet_id || i.qos != qos) continue;
    if (!i.taking) return Arrival::received;
    // A QoS 1 packet id is free again once the client has given up on it: without DUP it is another message.
    return qos == 2 || dup ? Arrival::taking : Arrival::fresh;
  }
  return Arrival::fresh;
}

void Session::taking(uint16_t packet_id, uint8_t qos) {
  inbound_.push_back({packet_id, qos, true});
}

bool Session::taken(uint16_t packet_id, uint8_t qos, bool accepted) {
  auto it = find_inbound(packet_id, qos);
  if (it == inbound_.end() || !it->taking) return false;
  if (qos == 2 && accepted) {
    it->taking = false;
    ++awaiting_release_;
  } else {
    inbound_.erase(it);
  }
  return true;
}

void Session::received(uint16_t packet_id) {
  inbound_.push_back({packet_id, 2, false});
  ++awaiting_release_;
}

ReasonCode Session::on_pubrel(uint16_t packet_id) {
  auto it = find_inbound(packet_id, 2);
  if (it == inbound_.end() || it->taking) return ReasonCode::packet_identifier_not_found;
  inbound_.erase(it);
  --awaiting_release_;
  if (durable()) keeper().inbound(uid_, packet_id, false);
  return ReasonCode::success;
}

std::vector<SharedMessage> Session::take_shared() {
  std::vector<SharedMessage> out;
  for (size_t i = 0; i < inflight_.size();) {
    Entry& f = inflight_[i];
    if (!f.shared || f.released || (f.qos == 2 && f.sent)) {
      ++i;
      continue;
    }
    out.push_back({std::move(f.message), std::move(f.shared), f.sequence});
    inflight_.erase(i);
    if (i < resent_) --resent_;
  }
  do {  // what is in the store, too, a page at a time
    for (size_t i = 0; i < mqueue_.size();) {
      Entry& q = mqueue_[i];
      if (!q.shared || q.released || (q.qos == 2 && q.sent)) {
        ++i;
        continue;
      }
      mqueue_bytes_ -= q.message->bytes();
      if (q.qos == 0) --mqueue_qos0_;
      out.push_back({std::move(q.message), std::move(q.shared), q.sequence});
      mqueue_.erase(i);
    }
  } while (!stored_.empty() && load_page());
  return out;
}

void Session::end() {
  size_t lost = queued();
  for (size_t i = 0; i < inflight_.size(); ++i)
    if (!inflight_[i].released) ++lost;
  context_->counters.drop(Drop::session_ended, lost);
  mqueue_.clear();
  inflight_.clear();
  stored_ = {};
  mqueue_bytes_ = mqueue_qos0_ = resent_ = pubrels_due_ = 0;
}

}  // namespace ph::session
