// Properties of MQTT 5.0 packets (section 2.2.2): one struct for all packets, since a property means the same wherever
// it stands; which packet may carry which is a table in properties.cc that the decoder enforces.
//
// Strings and binary data are views into the bytes that were decoded, or into what the encoder's caller owns. User
// properties and the subscription identifiers of a PUBLISH may repeat: they stay in `raw`, in order, and are walked
// there, so that decoding allocates nothing.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "codec/mqtt/reason.h"

namespace ph::mqtt {

enum class PropertyId : uint8_t {
  payload_format = 0x01,
  message_expiry = 0x02,
  content_type = 0x03,
  response_topic = 0x08,
  correlation_data = 0x09,
  subscription_id = 0x0B,
  session_expiry = 0x11,
  assigned_client_id = 0x12,
  server_keep_alive = 0x13,
  authentication_method = 0x15,
  authentication_data = 0x16,
  request_problem_information = 0x17,
  will_delay = 0x18,
  request_response_information = 0x19,
  response_information = 0x1A,
  server_reference = 0x1C,
  reason_string = 0x1F,
  receive_maximum = 0x21,
  topic_alias_maximum = 0x22,
  topic_alias = 0x23,
  maximum_qos = 0x24,
  retain_available = 0x25,
  user_property = 0x26,
  maximum_packet_size = 0x27,
  wildcard_available = 0x28,
  subscription_ids_available = 0x29,
  shared_available = 0x2A,
};

/// Intervals are in seconds, sizes in bytes.
struct Properties {
  std::optional<uint8_t> payload_format;
  std::optional<uint32_t> message_expiry;
  std::optional<ByteView> content_type;
  std::optional<ByteView> response_topic;
  std::optional<ByteView> correlation_data;
  std::optional<uint32_t> session_expiry;
  std::optional<ByteView> assigned_client_id;
  std::optional<uint16_t> server_keep_alive;
  std::optional<ByteView> authentication_method;
  std::optional<ByteView> authentication_data;
  std::optional<uint8_t> request_problem_information;
  std::optional<uint32_t> will_delay;
  std::optional<uint8_t> request_response_information;
  std::optional<ByteView> response_information;
  std::optional<ByteView> server_reference;
  std::optional<ByteView> reason_string;
  std::optional<uint16_t> receive_maximum;
  std::optional<uint16_t> topic_alias_maximum;
  std::optional<uint16_t> topic_alias;
  std::optional<uint8_t> maximum_qos;
  std::optional<uint8_t> retain_available;
  std::optional<uint32_t> maximum_packet_size;
  std::optional<uint8_t> wildcard_available;
  std::optional<uint8_t> subscription_ids_available;
  std::optional<uint8_t> shared_available;

  /// Encoded properties without their length: as decoded; for the encoder a block made with put_user_property() and
  /// put_subscription_id(), of which it copies those two kinds in order and ignores others.
  ByteView raw;
};

/// Walks an encoded block that has been checked: each user property, in order.
template <class Visit>  // (ByteView name, ByteView value)
void for_each_user_property(ByteView block, Visit&& visit);
/// Each subscription identifier, in order.
template <class Visit>  // (uint32_t)
void for_each_subscription_id(ByteView block, Visit&& visit);

void put_user_property(std::string& block, ByteView name, ByteView value);
void put_subscription_id(std::string& block, uint32_t id);

/// Reads the length and the properties at the front of `bytes`, and removes them. Errors: malformed_packet for lengths
/// and encodings (also a varint longer than needed), protocol_error for a property that repeats, has no place in this
/// packet or has a value out of range, topic_alias_invalid for alias 0.
std::expected<Properties, ReasonCode> decode_properties(ByteView& bytes, PacketType packet);

/// Appends length and properties. Fields that have no place in this packet are a broken invariant of the caller.
void encode_properties(const Properties& properties, PacketType packet, std::string& out);

/// The properties of a PUBLISH or will that travel on with the message: all but topic alias, message expiry (which
/// counts down), subscription identifiers and will delay. Returns `properties.raw` itself where nothing has to go, else
/// builds in `scratch`.
ByteView forwarded(const Properties& properties, std::string& scratch);

// --- walking, used by the templates above

struct RawProperty {
  PropertyId id{};
  ByteView value;          // encoded value
  ByteView first, second;  // of a user property
  uint32_t number = 0;     // of an integer property
};
/// The next property of a checked block; false at its end.
bool next_property(ByteView& block, RawProperty& property);

template <class Visit>
void for_each_user_property(ByteView block, Visit&& visit) {
  RawProperty p;
  while (next_property(block, p))
    if (p.id == PropertyId::user_property) visit(p.first, p.second);
}

template <class Visit>
void for_each_subscription_id(ByteView block, Visit&& visit) {
  RawProperty p;
  while (next_property(block, p))
    if (p.id == PropertyId::subscription_id) visit(p.number);
}

}  // namespace ph::mqtt
