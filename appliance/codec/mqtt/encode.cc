#include "base/coding.h"
#include "base/result.h"
#include "codec/mqtt/cursor.h"
#include "codec/mqtt/packet.h"

namespace ph::mqtt {
namespace {

size_t varint_size(size_t value) {
  return value < 128 ? 1 : value < 16'384 ? 2 : value < 2'097'152 ? 3 : 4;
}

void put_first(std::string& out, PacketType type, uint8_t flags = 0) {
  out.push_back(static_cast<char>(static_cast<uint8_t>(type) << 4 | flags));
}

void put_frame(std::string& out, PacketType type, ByteView body, uint8_t flags = 0) {
  PH_ASSERT(body.size() <= kVarintMax, "packet within the protocol's maximum");
  put_first(out, type, flags);
  put_varint(out, body.size());
  out.append(body);
}

void put_properties(std::string& body, const Properties& properties, PacketType type, Version version) {
  if (version == Version::v5) encode_properties(properties, type, body);
}

bool none(const Properties& properties, PacketType type) {
  std::string encoded;
  encode_properties(properties, type, encoded);
  return encoded.size() == 1;
}

/// DISCONNECT, AUTH and the tail of acks: reason and properties, each left out where nothing is said.
void put_reason(std::string& body, ReasonCode reason, const Properties& properties, PacketType type) {
  const bool bare = none(properties, type);
  if (bare && reason == ReasonCode::success) return;
  body.push_back(static_cast<char>(reason));
  if (!bare) encode_properties(properties, type, body);
}

/// A SUBACK code of version 3.x.
ReasonCode suback_code(ReasonCode reason, Version version) {
  return version != Version::v5 && is_error(reason) ? ReasonCode::unspecified_error : reason;
}

uint8_t publish_flags(bool dup, uint8_t qos, bool retain) {
  return static_cast<uint8_t>((dup ? 8 : 0) | qos << 1 | (retain ? 1 : 0));
}

size_t publish_properties_size(const PublishHead& head) {
  size_t size = head.properties.size() + (head.message_expiry ? 5 : 0) + (head.topic_alias ? 3 : 0);
  for (size_t i = 0; i < head.subscription_ids_count; ++i) size += 1 + varint_size(head.subscription_ids[i]);
  return size;
}

size_t publish_remaining(const PublishHead& head, Version version) {
  size_t size = 2 + head.topic.size() + (head.qos ? 2 : 0) + head.payload_size;
  if (version == Version::v5) {
    const size_t properties = publish_properties_size(head);
    size += varint_size(properties) + properties;
  }
  return size;
}

}  // namespace

void encode(const Connect& p, std::string& out) {
  std::string body;
  put_text(body, p.version == Version::v31 ? "MQIsdp" : "MQTT");
  body.push_back(static_cast<char>(p.version));
  uint8_t flags = p.clean_start ? 0x02 : 0;
  if (p.will) flags = static_cast<uint8_t>(flags | 0x04 | p.will->qos << 3 | (p.will->retain ? 0x20 : 0));
  if (p.password) flags |= 0x40;
  if (p.username) flags |= 0x80;
  body.push_back(static_cast<char>(flags));
  put_u16(body, p.keep_alive);
  put_properties(body, p.properties, PacketType::connect, p.version);
  put_text(body, p.client_id);
  if (p.will) {
    put_properties(body, p.will->properties, PacketType::will, p.version);
    put_text(body, p.will->topic);
    put_text(body, p.will->payload);
  }
  if (p.username) put_text(body, *p.username);
  if (p.password) put_text(body, *p.password);
  put_frame(out, PacketType::connect, body);
}

void encode(const Connack& p, Version version, std::string& out) {
  std::string body;
  const bool present = p.session_present && version != Version::v31;  // 3.1 has a reserved byte there
  body.push_back(present ? 1 : 0);
  body.push_back(version == Version::v5 ? static_cast<char>(p.reason)
                                        : static_cast<char>(connack_code_v3(p.reason).value_or(3)));
  put_properties(body, p.properties, PacketType::connack, version);
  put_frame(out, PacketType::connack, body);
}

void encode_publish_head(const PublishHead& head, Version version, std::string& out) {
  put_first(out, PacketType::publish, publish_flags(head.dup, head.qos, head.retain));
  const size_t remaining = publish_remaining(head, version);
  PH_ASSERT(remaining <= kVarintMax, "packet within the protocol's maximum");
  put_varint(out, remaining);
  put_text(out, head.topic);
  if (head.qos) put_u16(out, head.packet_id);
  if (version != Version::v5) return;
  put_varint(out, publish_properties_size(head));
  if (head.message_expiry) {
    out.push_back(static_cast<char>(PropertyId::message_expiry));
    put_u32(out, *head.message_expiry);
  }
  if (head.topic_alias) {
    out.push_back(static_cast<char>(PropertyId::topic_alias));
    put_u16(out, head.topic_alias);
  }
  for (size_t i = 0; i < head.subscription_ids_count; ++i) put_subscription_id(out, head.subscription_ids[i]);
  out.append(head.properties);
}

size_t publish_size(const PublishHead& head, Version version) {
  const size_t remaining = publish_remaining(head, version);
  return 1 + varint_size(remaining) + remaining;
}

void encode(const Publish& p, Version version, std::string& out) {
  std::string body;
  put_text(body, p.topic);
  if (p.qos) put_u16(body, p.packet_id);
  put_properties(body, p.properties, PacketType::publish, version);
  body.append(p.payload);
  put_frame(out, PacketType::publish, body, publish_flags(p.dup, p.qos, p.retain));
}

std::array<char, 4> short_ack(PacketType type, uint16_t packet_id) {
  const auto first = static_cast<uint8_t>(static_cast<uint8_t>(type) << 4 | (type == PacketType::pubrel ? 2 : 0));
  return {static_cast<char>(first), 2, static_cast<char>(packet_id >> 8), static_cast<char>(packet_id & 0xFF)};
}

void encode(const Ack& p, Version version, std::string& out) {
  const uint8_t flags = p.type == PacketType::pubrel ? 2 : 0;
  if (p.reason == ReasonCode::success && p.properties.raw.empty() && !p.properties.reason_string) {
    const auto bytes = short_ack(p.type, p.packet_id);
    out.append(bytes.data(), bytes.size());
    return;
  }
  std::string body;
  put_u16(body, p.packet_id);
  if (version == Version::v5) put_reason(body, p.reason, p.properties, p.type);
  put_frame(out, p.type, body, flags);
}

void encode(const Subscribe& p, Version version, std::string& out) {
  std::string body;
  put_u16(body, p.packet_id);
  put_properties(body, p.properties, PacketType::subscribe, version);
  for (const Filter& f : p.filters) {
    put_text(body, f.filter);
    uint8_t options = f.qos;
    if (version == Version::v5)
      options = static_cast<uint8_t>(options | (f.no_local ? 4 : 0) | (f.retain_as_published ? 8 : 0) |
                                     f.retain_handling << 4);
    body.push_back(static_cast<char>(options));
  }
  put_frame(out, PacketType::subscribe, body, 2);
}

void encode(const Suback& p, Version version, std::string& out) {
  std::string body;
  put_u16(body, p.packet_id);
  put_properties(body, p.properties, PacketType::suback, version);
  for (ReasonCode r : p.reasons) body.push_back(static_cast<char>(suback_code(r, version)));
  put_frame(out, PacketType::suback, body);
}

void encode(const Unsubscribe& p, Version version, std::string& out) {
  std::string body;
  put_u16(body, p.packet_id);
  put_properties(body, p.properties, PacketType::unsubscribe, version);
  for (ByteView f : p.filters) put_text(body, f);
  put_frame(out, PacketType::unsubscribe, body, 2);
}

void encode(const Unsuback& p, Version version, std::string& out) {
  std::string body;
  put_u16(body, p.packet_id);
  put_properties(body, p.properties, PacketType::unsuback, version);
  if (version == Version::v5)
    for (ReasonCode r : p.reasons) body.push_back(static_cast<char>(r));
  put_frame(out, PacketType::unsuback, body);
}

void encode(const Pingreq&, Version, std::string& out) {
  put_frame(out, PacketType::pingreq, {});
}

void encode(const Pingresp&, Version, std::string& out) {
  put_frame(out, PacketType::pingresp, {});
}

void encode(const Disconnect& p, Version version, std::string& out) {
  std::string body;
  if (version == Version::v5) put_reason(body, p.reason, p.properties, PacketType::disconnect);
  put_frame(out, PacketType::disconnect, body);
}

void encode(const Auth& p, Version, std::string& out) {
  std::string body;
  put_reason(body, p.reason, p.properties, PacketType::auth);
  put_frame(out, PacketType::auth, body);
}

void encode(const Packet& packet, Version version, std::string& out) {
  std::visit(
      [&](const auto& p) {
        if constexpr (std::is_same_v<std::decay_t<decltype(p)>, Connect>)
          encode(p, out);
        else
          encode(p, version, out);
      },
      packet);
}

}  // namespace ph::mqtt
