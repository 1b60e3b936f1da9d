#include "core/session/channel.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace ph::session {

using mqtt::PacketType;

template <class P>
bool Channel::send(const P& packet) {
  if (state_ == State::closed) return true;
  std::string bytes;
  mqtt::encode(packet, version_, bytes);
  if (bytes.size() <= attachment_.packet_max) {
    host_.send_copy(bytes);
    return true;
  }
  if constexpr (!std::is_same_v<P, mqtt::Disconnect>)
    if (state_ == State::open) kick(ReasonCode::packet_too_large);
  return false;
}

Channel::Consumed Channel::input(ByteView bytes, Instant now) {
  if (state_ == State::closed) return {bytes.size(), 0};
  if (state_ == State::opening || asking_ || held_.size() + bytes.size() < held_wanted_) {
    held_.append(bytes);
    return {bytes.size(), 0};
  }
  paused_ &= static_cast<uint8_t>(~kPauseTurn);  // shown although it waits: the peer is gone, these are its last words
  return held_.empty() ? take_packets(bytes, now) : take_held(bytes, now);
}

/// Bytes that were taken from the connection while opening cannot go back there: an incomplete packet at their end
/// stays here until the rest of it has come.
Channel::Consumed Channel::take_held(ByteView more, Instant now) {
  std::string all = std::exchange(held_, std::string());
  all.append(more);
  held_wanted_ = 0;
  const Consumed consumed = take_packets(all, now);
  held_.insert(0, all.substr(consumed.bytes));  // what is there was held back meanwhile
  held_wanted_ = consumed.wanted;
  return {more.size(), 0};
}

/// Every whole packet in the bytes, in one go.
Channel::Consumed Channel::take_packets(ByteView bytes, Instant now) {
  size_t used = 0;
  // What is no MQTT at all (a browser, a scanner) is not waited for.
  const bool starts_wrong =
      !bytes.empty() && static_cast<uint8_t>(bytes[0]) >> 4 != static_cast<int>(PacketType::connect);
  if (state_ == State::waiting && starts_wrong) fail(ReasonCode::protocol_error);
  while (!asking_ && (paused_ & kPauseTurn) == 0 &&
         (state_ == State::waiting || state_ == State::authenticating || state_ == State::open)) {
    auto framed = mqtt::next_frame(bytes.substr(used), limits_.packet_max);
    if (!framed) {
      fail(framed.error());
      break;
    }
    if (!framed->frame) return {used, framed->wanted};
    last_input_ = now;
    counters_.packets_in.add();
    used += framed->frame->size;
    on_frame(*framed->frame, now);
    if (asking_) {
      counters_.packets_in.subtract();  // it comes once more
      used -= framed->frame->size;
    } else if (state_ == State::open && used < bytes.size() && host_.turn_is_over()) {
      set_pause(kPauseTurn, true);
      return {used, 0};
    }
  }
  if (state_ == State::opening || asking_) held_.append(bytes.substr(used));
  return {bytes.size(), 0};
}

void Channel::on_frame(const mqtt::Frame& frame, Instant now) {
  if (state_ == State::waiting) return on_first(frame);
  if (state_ == State::authenticating) return on_authenticating(frame);
  ReasonCode reason = ReasonCode::success;
  switch (frame.type) {
    case PacketType::publish: {
      auto publish = mqtt::decode_publish(frame, version_);
      reason = publish ? on_publish(*publish) : publish.error();
      break;
    }
    case PacketType::puback:
    case PacketType::pubrec:
    case PacketType::pubrel:
    case PacketType::pubcomp: {
      auto ack = mqtt::decode_ack(frame, version_);
      reason = ack ? on_ack(*ack, now) : ack.error();
      break;
    }
    default:
      reason = on_other(frame);
      break;
  }
  if (is_error(reason)) fail(reason);
}

/// [MQTT-3.1.0-1]: nothing but CONNECT comes first.
void Channel::on_first(const mqtt::Frame& frame) {
  if (frame.type != PacketType::connect) return fail(ReasonCode::protocol_error);
  auto packet = mqtt::decode(frame, Version::v5);
  if (packet) return on_connect(std::get<mqtt::Connect>(*packet));
  const auto level = mqtt::claimed_level(frame);
  const bool unsupported = packet.error() == ReasonCode::unsupported_protocol_version;
  if (level && (*level == 5 || unsupported)) {
    version_ = *level >= 5 ? Version::v5 : Version::v311;
    return refuse(packet.error());
  }
  version_ = Version::v311;
  fail(packet.error());  // version 3.x: closed without a word
}

void Channel::on_connect(const mqtt::Connect& connect) {
  version_ = connect.version;
  clean_start_ = connect.clean_start;
  if (connect.properties.authentication_method) {
    if (!limits_.enhanced_auth) return refuse(ReasonCode::bad_authentication_method);
    auth_method_ = *connect.properties.authentication_method;
  }
  // A client without an id gets one, but before version 5 only for a session that ends with the connection
  // [3.1.1 MQTT-3.1.3-8]; version 3.1 requires at least one byte.
  const bool nameless = connect.client_id.empty();
  if (nameless && (version_ == Version::v31 || (version_ == Version::v311 && !clean_start_)))
    return refuse(ReasonCode::client_identifier_not_valid);
  if (connect.client_id.size() > limits_.client_id_max) {
    counters_.limit(Limit::client_id);
    return refuse(ReasonCode::client_identifier_not_valid);
  }
  if (connect.will) {
    const mqtt::Will& will = *connect.will;
    if (mqtt::topic_levels(will.topic) > limits_.topic_levels_max) {
      counters_.limit(Limit::topic_levels);
      return refuse(ReasonCode::topic_name_invalid);
    }
    if (will.qos > limits_.qos_max) return refuse(ReasonCode::qos_not_supported);                   // [MQTT-3.2.2-12]
    if (will.retain && !limits_.retain_available) return refuse(ReasonCode::retain_not_supported);  // [MQTT-3.2.2-13]
    if (format_broken(will.properties, will.payload)) return refuse(ReasonCode::payload_format_invalid);
  }

  keep_alive_asked_ = connect.keep_alive;
  keep_alive_ = connect.keep_alive;
  const bool too_long = keep_alive_ == 0 || keep_alive_ > limits_.keep_alive_max;
  if (version_ == Version::v5 && limits_.keep_alive_max < 65535 && too_long) keep_alive_ = limits_.keep_alive_max;
  session_expiry_ = connect.properties.session_expiry.value_or(0);
  attachment_.version = version_;
  attachment_.receive_max = connect.properties.receive_maximum.value_or(65535);
  attachment_.packet_max = connect.properties.maximum_packet_size.value_or(0xFFFFFFFF);
  attachment_.topic_alias_max =
      std::min(connect.properties.topic_alias_maximum.value_or(0), limits_.topic_alias_max);  // [MQTT-3.1.2-26]
  response_information_asked_ = connect.properties.request_response_information.value_or(0) == 1;
  state_ = State::opening;
  host_.on_connect(connect);
  if (state_ == State::opening) set_pause(kPauseOpening, true);
}

void Channel::accept(Session& session, const Acceptance& acceptance, Instant now) {
  PH_ASSERT(state_ == State::opening, "accept answers a CONNECT");
  session_ = &session;
  mqtt::Connack connack;
  connack.session_present = acceptance.session_present;
  if (version_ == Version::v5) {
    mqtt::Properties& p = connack.properties;
    p.session_expiry = acceptance.session_expiry;
    if (acceptance.session_expiry) session_expiry_ = *acceptance.session_expiry;
    p.receive_maximum = limits_.receive_max;
    p.maximum_packet_size = static_cast<uint32_t>(limits_.packet_max);
    if (!acceptance.assigned_client_id.empty()) p.assigned_client_id = acceptance.assigned_client_id;
    if (limits_.topic_alias_max) p.topic_alias_maximum = limits_.topic_alias_max;
    if (keep_alive_ != keep_alive_asked_) p.server_keep_alive = keep_alive_;
    if (!auth_method_.empty()) p.authentication_method = auth_method_;
    if (!acceptance.authentication_data.empty()) p.authentication_data = acceptance.authentication_data;
    if (limits_.qos_max < 2) p.maximum_qos = limits_.qos_max;
    if (!limits_.retain_available) p.retain_available = 0;
    if (response_information_asked_ && !acceptance.response_information.empty())
      p.response_information = acceptance.response_information;
  }
  const bool fits = send(connack);
  state_ = State::open;
  if (!fits) {  // without CONNACK no DISCONNECT either [MQTT-3.14.0-1]
    counters_.refused.add();
    ChannelEnd end;
    end.reason = ReasonCode::packet_too_large;
    finish(end);
    return host_.close();
  }
  attachment_.mountpoint = acceptance.mountpoint;
  session.attach(host_, attachment_);
  session.resume(now);
  if (!held_.empty()) take_held({}, now);
  set_pause(kPauseOpening, false);
}

void Channel::refuse(ReasonCode reason) {
  if (state_ == State::closed) return;
  counters_.refused.add();
  if (version_ == Version::v5 || mqtt::connack_code_v3(reason)) send(mqtt::Connack{false, reason, {}});
  state_ = State::closed;
  host_.close();
}

// --- enhanced authentication

void Channel::send_auth(ReasonCode reason, ByteView data) {
  mqtt::Auth auth;
  auth.reason = reason;
  auth.properties.authentication_method = auth_method_;
  auth.properties.authentication_data = data;
  send(auth);
}

void Channel::challenge(ByteView data) {
  if (state_ != State::opening && state_ != State::open) return;
  auth_asked_ = true;
  send_auth(ReasonCode::continue_authentication, data);
  if (state_ == State::open) return;
  state_ = State::authenticating;
  set_pause(kPauseOpening, false);
}

void Channel::reauthenticated(ByteView data) {
  if (state_ != State::open) return;
  auth_asked_ = false;
  send_auth(ReasonCode::success, data);
}

/// Before CONNACK a client answers the challenge, or goes [MQTT-4.12.0-1 .. 6].
void Channel::on_authenticating(const mqtt::Frame& frame) {
  auto packet = mqtt::decode(frame, version_);
  if (!packet) return fail(packet.error());
  if (std::holds_alternative<mqtt::Disconnect>(*packet)) {
    finish({});
    return host_.close();
  }
  const auto* auth = std::get_if<mqtt::Auth>(&*packet);
  if (!auth) return fail(ReasonCode::protocol_error);
  state_ = State::opening;
  const ReasonCode reason = on_auth(*auth);
  if (is_error(reason)) return fail(reason);
  if (state_ == State::opening) set_pause(kPauseOpening, true);
}

ReasonCode Channel::on_auth(const mqtt::Auth& auth) {
  const auto& method = auth.properties.authentication_method;
  if (auth_method_.empty() || !method) return ReasonCode::protocol_error;
  if (*method != auth_method_) return ReasonCode::bad_authentication_method;  // [MQTT-4.12.1-1]
  const ReasonCode expected = auth_asked_ ? ReasonCode::continue_authentication : ReasonCode::reauthenticate;
  if (auth.reason != expected) return ReasonCode::protocol_error;
  auth_asked_ = false;
  host_.on_auth(auth);
  return ReasonCode::success;
}

ReasonCode Channel::resolve_alias(mqtt::Publish& publish) {
  if (!publish.properties.topic_alias) return ReasonCode::success;
  const uint16_t alias = *publish.properties.topic_alias;
  if (alias > limits_.topic_alias_max) {  // [MQTT-3.3.2-9]
    counters_.limit(Limit::topic_alias);
    return ReasonCode::topic_alias_invalid;
  }
  if (aliases_.size() < alias) aliases_.resize(alias);
  std::string& topic = aliases_[alias - 1U];
  if (!publish.topic.empty())
    topic = publish.topic;
  else if (topic.empty())
    return ReasonCode::topic_alias_invalid;
  publish.topic = topic;
  return ReasonCode::success;
}

/// Whether a payload is not the UTF-8 that it says it is, where that is looked at.
bool Channel::format_broken(const mqtt::Properties& properties, ByteView payload) const {
  const bool claims = limits_.payload_format_check && properties.payload_format.value_or(0) == 1;
  return claims && !mqtt::utf8_valid(payload, true);
}

/// False: it will come again.
template <class P>
bool Channel::taken_now(const P& packet) {
  if (!limits_.asks_first || host_.ready_for(packet)) return true;
  asking_ = true;
  set_pause(kPauseAsking, true);
  return false;
}

void Channel::go_on(Instant now) {
  if (!std::exchange(asking_, false) || state_ != State::open) return;
  take_held({}, now);
  if (!asking_) set_pause(kPauseAsking, false);
}

void Channel::take_turn(Instant now) {
  if ((paused_ & kPauseTurn) == 0) return;
  paused_ &= static_cast<uint8_t>(~kPauseTurn);
  if (state_ == State::open && !asking_ && !held_.empty()) take_held({}, now);
  if ((paused_ & kPauseTurn) == 0) host_.pause_reading(paused_ != 0);  // what the connection has of it is shown again
}

ReasonCode Channel::on_publish(mqtt::Publish& publish) {
  counters_.messages_in.add();
  if (version_ == Version::v5) {
    if (ReasonCode bad = resolve_alias(publish); is_error(bad)) return bad;
    // Clients send no subscription identifier [MQTT-3.3.4-6].
    bool identified = false;
    mqtt::for_each_subscription_id(publish.properties.raw, [&](uint32_t) { identified = true; });
    if (identified) return ReasonCode::protocol_error;
  }
  if (mqtt::topic_levels(publish.topic) > limits_.topic_levels_max) {
    counters_.limit(Limit::topic_levels);
    return ReasonCode::topic_name_invalid;
  }
  if (!taken_now(publish)) {
    counters_.messages_in.subtract();
    return ReasonCode::success;
  }
  if (publish.qos > limits_.qos_max) return ReasonCode::qos_not_supported;                   // [MQTT-3.2.2-11]
  if (publish.retain && !limits_.retain_available) return ReasonCode::retain_not_supported;  // [MQTT-3.2.2-14]
  if (format_broken(publish.properties, publish.payload)) {
    if (publish.qos == 0) return ReasonCode::payload_format_invalid;
    push_ack({publish.packet_id, publish.qos, true, ReasonCode::payload_format_invalid});
    return ReasonCode::success;
  }
  if (publish.qos == 0) {
    host_.on_publish(publish);
    return ReasonCode::success;
  }
  const Session::Arrival arrival = session_->arrival(publish.packet_id, publish.qos, publish.dup);
  if (arrival == Session::Arrival::received) {
    push_ack({publish.packet_id, publish.qos, true, ReasonCode::success});
    return ReasonCode::success;
  }
  if (version_ == Version::v5 && unacknowledged() >= limits_.receive_max) {  // [MQTT-3.3.4-7]
    counters_.limit(Limit::receive_maximum);
    return ReasonCode::receive_maximum_exceeded;
  }
  // Version 3.x is told no maximum, and PUBREL comes behind all that the client has sent already: waiting would not
  // help.
  if (session_->awaiting_release() >= limits::kAwaitingReleaseV3Max) {
    counters_.limit(Limit::receive_maximum);
    return ReasonCode::receive_maximum_exceeded;
  }
  if (arrival == Session::Arrival::taking) {
    push_ack({publish.packet_id, publish.qos, false, ReasonCode::success});
    return ReasonCode::success;
  }
  const auto reason = host_.on_publish(publish);
  if (state_ != State::open) return ReasonCode::success;
  if (!reason) session_->taking(publish.packet_id, publish.qos);
  if (reason && publish.qos == 2 && !is_error(*reason)) session_->received(publish.packet_id);
  push_ack({publish.packet_id, publish.qos, reason.has_value(), reason.value_or(ReasonCode::success)});
  return ReasonCode::success;
}

/// QoS 1 and 2 messages of the client that are not acknowledged to the end.
size_t Channel::unacknowledged() const {
  return acks_counted_ + session_->awaiting_release();
}

void Channel::answer(uint16_t packet_id, uint8_t qos, ReasonCode reason) {
  if (state_ != State::open) return;
  // Version 3.x cannot say no: without PUBACK, and closed, the client will send it again.
  if (is_error(reason) && version_ != Version::v5) return kick(reason);
  for (size_t i = 0; i < acks_.size(); ++i) {
    PendingAck& ack = acks_[i];
    if (ack.ready || ack.packet_id != packet_id || ack.qos != qos) continue;
    ack.ready = true;
    if (!ack.counted()) --acks_counted_;
    ack.reason = reason;
  }
  flush_acks();
}

/// Success fits into four bytes, which need no packet of several hundred to be made first.
void Channel::send_ack(PacketType type, uint16_t packet_id, ReasonCode reason) {
  const auto bytes = mqtt::short_ack(type, packet_id);
  if (reason != ReasonCode::success || attachment_.packet_max < bytes.size()) {
    send(mqtt::Ack{type, packet_id, reason, {}});
  } else if (state_ != State::closed) {
    host_.send_copy({bytes.data(), bytes.size()});
  }
}

void Channel::push_ack(PendingAck ack) {
  if (ack.ready && is_error(ack.reason) && version_ != Version::v5) return kick(ack.reason);
  acks_.push_back(ack);
  if (ack.counted()) ++acks_counted_;
  if (acks_.size() == 1 || ack.ready) flush_acks();
  // Version 3.x knows no receive maximum: reading waits instead.
  if (version_ != Version::v5 && acks_.size() >= limits_.receive_max) set_pause(kPauseAcks, true);
}

void Channel::flush_acks() {
  while (!acks_.empty() && acks_.front().ready) {
    const PendingAck ack = acks_.front();
    acks_.pop_front();
    if (ack.counted()) --acks_counted_;
    send_ack(ack.qos == 1 ? PacketType::puback : PacketType::pubrec, ack.packet_id, ack.reason);
  }
  if (acks_.size() < limits_.receive_max) set_pause(kPauseAcks, false);
}

ReasonCode Channel::on_ack(const mqtt::Ack& ack, Instant now) {
  switch (ack.type) {
    case PacketType::puback:
      return session_->on_puback(ack.packet_id, now);
    case PacketType::pubrec:
      return session_->on_pubrec(ack.packet_id, ack.reason, now);
    case PacketType::pubcomp:
      return session_->on_pubcomp(ack.packet_id, now);
    default:
      break;
  }
  const ReasonCode reason = session_->on_pubrel(ack.packet_id);
  if (!host_.delays_pubcomp(ack.packet_id, reason)) pubcomp(ack.packet_id, reason);
  return ReasonCode::success;
}

void Channel::pubcomp(uint16_t packet_id, ReasonCode reason) {
  if (state_ == State::open) send_ack(PacketType::pubcomp, packet_id, reason);
}

ReasonCode Channel::on_other(const mqtt::Frame& frame) {
  auto packet = mqtt::decode(frame, version_);
  if (!packet) return packet.error();
  if (auto* subscribe = std::get_if<mqtt::Subscribe>(&*packet)) {
    if (taken_now(*subscribe)) host_.on_subscribe(*subscribe);
    return ReasonCode::success;
  }
  if (auto* unsubscribe = std::get_if<mqtt::Unsubscribe>(&*packet)) {
    host_.on_unsubscribe(*unsubscribe);
    return ReasonCode::success;
  }
  if (std::holds_alternative<mqtt::Pingreq>(*packet)) {
    send(mqtt::Pingresp{});
    return ReasonCode::success;
  }
  if (auto* disconnect = std::get_if<mqtt::Disconnect>(&*packet)) return on_disconnect(*disconnect);
  if (auto* auth = std::get_if<mqtt::Auth>(&*packet)) return on_auth(*auth);
  return ReasonCode::protocol_error;  // a second CONNECT [MQTT-3.1.0-2], AUTH without a method, a server's packet
}

ReasonCode Channel::on_disconnect(const mqtt::Disconnect& disconnect) {
  ChannelEnd end;
  end.publish_will = disconnect.reason != ReasonCode::success;  // [MQTT-3.14.4-3]
  end.reason = disconnect.reason;
  end.session_expiry = disconnect.properties.session_expiry;
  if (end.session_expiry && *end.session_expiry != 0 && session_expiry_ == 0) return ReasonCode::protocol_error;
  finish(end);
  host_.close();
  return ReasonCode::success;
}

void Channel::suback(uint16_t packet_id, std::vector<ReasonCode> reasons) {
  if (state_ == State::open) send(mqtt::Suback{packet_id, std::move(reasons), {}});
}

void Channel::unsuback(uint16_t packet_id, std::vector<ReasonCode> reasons) {
  if (state_ == State::open) send(mqtt::Unsuback{packet_id, std::move(reasons), {}});
}

/// The client broke the protocol.
void Channel::fail(ReasonCode reason) {
  if (state_ == State::closed) return;
  counters_.malformed.add();
  kick(reason);
}

void Channel::kick(ReasonCode reason) {
  if (state_ == State::closed) return;
  // A reason for which DISCONNECT has no place would itself be malformed.
  const ReasonCode said =
      reason_allowed(PacketType::disconnect, reason) ? reason : ReasonCode::implementation_specific_error;
  if (state_ == State::open && version_ == Version::v5) send(mqtt::Disconnect{said, {}});
  if ((state_ == State::opening || state_ == State::authenticating) && version_ == Version::v5) {
    const bool place = reason_allowed(PacketType::connack, reason);
    send(mqtt::Connack{false, place ? reason : ReasonCode::server_unavailable, {}});
  }
  ChannelEnd end;
  end.reason = reason;
  finish(end);
  host_.close();
}

void Channel::lost() {
  ChannelEnd end;
  end.reason = ReasonCode::unspecified_error;
  finish(end);
}

void Channel::finish(const ChannelEnd& end) {
  const bool was_open = state_ == State::open;
  state_ = State::closed;
  session_ = nullptr;
  if (was_open) host_.on_end(end);
}

Instant Channel::deadline() const {
  if (state_ != State::open && state_ != State::closed) return last_input_ + limits_.connect_timeout;
  if (state_ == State::closed || keep_alive_ == 0) return Instant::max();
  return last_input_ + std::chrono::milliseconds(keep_alive_ * 1500);  // [MQTT-3.1.2-22]
}

void Channel::tick(Instant now) {
  if (now < deadline()) return;
  if (state_ == State::open) {
    if (paused_) {  // what it sends we do not read: its silence says nothing
      last_input_ = now;
      return;
    }
    counters_.keep_alive_timeouts.add();
    return kick(ReasonCode::keep_alive_timeout);
  }
  if (state_ == State::opening) return refuse(ReasonCode::server_unavailable);
  finish({});
  host_.close();
}

void Channel::set_pause(Pause why, bool on) {
  const auto before = paused_;
  paused_ = static_cast<uint8_t>(on ? paused_ | why : paused_ & ~why);
  if ((before != 0) != (paused_ != 0)) host_.pause_reading(paused_ != 0);
}

}  // namespace ph::session
