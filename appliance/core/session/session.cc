#include "core/session/session.h"

#include <algorithm>
#include <utility>

namespace ph::session {

void Session::attach(Output& output, const Attachment& attachment) {
  output_ = &output;
  attachment_ = attachment;
  resent_ = 0;
}

void Session::resume(Instant now) {
  pump(now);
}

void Session::detach(Instant now) {
  output_ = nullptr;
  detached_at_ = now;
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

void Session::write(Outgoing& message, const Copy& copy, Instant now) {
  message.write(*output_, attachment_.version, copy, now);
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
  if (!mqueue_.empty() || resent_ < inflight_.size() || inflight_.size() >= window() || congested()) {
    enqueue(message, copy);
    return;
  }
  copy.packet_id = next_packet_id();
  if (!fits(message, copy, now)) return;
  write(message, copy, now);
  inflight_.push_back({message.share(),
                       {copy.subscription_ids.begin(), copy.subscription_ids.end()},
                       copy.packet_id,
                       copy.qos,
                       copy.retain,
                       true,
                       false});
  resent_ = inflight_.size();
}

void Session::enqueue(Outgoing& message, const Copy& copy) {
  const MessageView& m = message.view();
  const size_t bytes = m.topic.size() + m.payload.size() + m.properties.size();
  if (!make_room(bytes, copy.qos)) {
    context_->counters.drop(Drop::queue_full);
    return;
  }
  mqueue_.push_back(
      {message.share(), {copy.subscription_ids.begin(), copy.subscription_ids.end()}, copy.qos, copy.retain});
  mqueue_bytes_ += bytes;
  if (copy.qos == 0) ++mqueue_qos0_;
}

/// Drops from the queue until the new one fits; false if the new one is what has to go.
bool Session::make_room(size_t bytes, uint8_t qos) {
  const SessionLimits& limits = context_->limits;
  if (bytes > limits.mqueue_bytes_max || limits.mqueue_messages_max == 0) return false;
  auto full = [&] {
    return mqueue_.size() >= limits.mqueue_messages_max || mqueue_bytes_ + bytes > limits.mqueue_bytes_max;
  };
  while (full()) {
    size_t victim = 0;
    if (mqueue_qos0_ > 0) {
      while (mqueue_[victim].qos != 0) ++victim;
    } else if (qos == 0) {
      return false;
    }
    drop_queued(victim, Drop::queue_full);
  }
  return true;
}

bool Session::over_half_full() const {
  const SessionLimits& limits = context_->limits;
  const size_t half = limits.mqueue_messages_max / 2;
  if (half == 0 && inflight_.size() >= window()) return true;
  return mqueue_.size() > half || mqueue_bytes_ > limits.mqueue_bytes_max / 2;
}

void Session::drop_queued(size_t index, Drop reason) {
  const Queued& q = mqueue_[index];
  mqueue_bytes_ -= q.message->bytes();
  if (q.qos == 0) --mqueue_qos0_;
  mqueue_.erase(index);
  context_->counters.drop(reason);
}

void Session::pump(Instant now) {
  while (output_) {
    if (resent_ == inflight_.size() && mqueue_.empty()) return;
    if (congested()) return;
    if (resent_ < inflight_.size()) {
      Inflight& entry = inflight_[resent_];
      if (!entry.released && resent_ >= window()) return;
      ++resent_;
      send_inflight(entry, now);
      continue;
    }
    if (expired(mqueue_.front().message->view(), now)) {
      drop_queued(0, Drop::expired);
      continue;
    }
    if (mqueue_.front().qos > 0 && inflight_.size() >= window()) return;
    Queued q = std::move(mqueue_.front());
    mqueue_.pop_front();
    mqueue_bytes_ -= q.message->bytes();
    if (q.qos == 0) {
      --mqueue_qos0_;
      context_->outgoing.reset(std::move(q.message));
      const Copy copy{0, q.retain, false, 0, q.subscription_ids};
      if (fits(context_->outgoing, copy, now)) write(context_->outgoing, copy, now);
      continue;
    }
    inflight_.push_back({std::move(q.message), std::move(q.subscription_ids), next_packet_id(), q.qos, q.retain});
  }
}

void Session::on_drained(Instant now) {
  pump(now);
}

void Session::send_inflight(Inflight& entry, Instant now) {
  if (entry.released) return send_pubrel(entry.packet_id, ReasonCode::success);
  context_->outgoing.reset(entry.message);
  const Copy copy{entry.qos, entry.retain, entry.sent, entry.packet_id, entry.subscription_ids};
  entry.sent = true;
  if (fits(context_->outgoing, copy, now)) return write(context_->outgoing, copy, now);
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
  Inflight& entry = inflight_[i];
  if (entry.qos != 2) return ReasonCode::protocol_error;
  if (is_error(reason)) {
    erase_inflight(i, now);
    return ReasonCode::success;
  }
  entry.released = true;
  entry.message = nullptr;
  send_pubrel(packet_id, ReasonCode::success);
  return ReasonCode::success;
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
  return ReasonCode::success;
}

void Session::end() {
  size_t lost = mqueue_.size();
  for (size_t i = 0; i < inflight_.size(); ++i)
    if (!inflight_[i].released) ++lost;
  context_->counters.drop(Drop::session_ended, lost);
  mqueue_.clear();
  inflight_.clear();
  mqueue_bytes_ = mqueue_qos0_ = resent_ = 0;
}

}  // namespace ph::session
