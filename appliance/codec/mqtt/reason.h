// Names and numbers of MQTT 3.1, 3.1.1 and 5.0: packet types, versions, reason codes. Everything else of the codec
// builds on these; nothing here allocates or reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ph::mqtt {

/// The protocol level byte of CONNECT.
enum class Version : uint8_t { v31 = 3, v311 = 4, v5 = 5 };

/// Upper four bits of a packet's first byte (section 2.1.2). `will` is not on the wire: it names the property set that
/// a will has inside CONNECT.
enum class PacketType : uint8_t {
  will = 0,
  connect = 1,
  connack = 2,
  publish = 3,
  puback = 4,
  pubrec = 5,
  pubrel = 6,
  pubcomp = 7,
  subscribe = 8,
  suback = 9,
  unsubscribe = 10,
  unsuback = 11,
  pingreq = 12,
  pingresp = 13,
  disconnect = 14,
  auth = 15,
};

/// Section 2.4 of MQTT 5.0. Versions 3.x map to and from these: see connack_code_v3().
enum class ReasonCode : uint8_t {
  success = 0x00,  // also: normal disconnection, granted QoS 0
  granted_qos_1 = 0x01,
  granted_qos_2 = 0x02,
  disconnect_with_will = 0x04,
  no_matching_subscribers = 0x10,
  no_subscription_existed = 0x11,
  continue_authentication = 0x18,
  reauthenticate = 0x19,
  unspecified_error = 0x80,
  malformed_packet = 0x81,
  protocol_error = 0x82,
  implementation_specific_error = 0x83,
  unsupported_protocol_version = 0x84,
  client_identifier_not_valid = 0x85,
  bad_user_name_or_password = 0x86,
  not_authorized = 0x87,
  server_unavailable = 0x88,
  server_busy = 0x89,
  banned = 0x8A,
  server_shutting_down = 0x8B,
  bad_authentication_method = 0x8C,
  keep_alive_timeout = 0x8D,
  session_taken_over = 0x8E,
  topic_filter_invalid = 0x8F,
  topic_name_invalid = 0x90,
  packet_identifier_in_use = 0x91,
  packet_identifier_not_found = 0x92,
  receive_maximum_exceeded = 0x93,
  topic_alias_invalid = 0x94,
  packet_too_large = 0x95,
  message_rate_too_high = 0x96,
  quota_exceeded = 0x97,
  administrative_action = 0x98,
  payload_format_invalid = 0x99,
  retain_not_supported = 0x9A,
  qos_not_supported = 0x9B,
  use_another_server = 0x9C,
  server_moved = 0x9D,
  shared_subscriptions_not_supported = 0x9E,
  connection_rate_exceeded = 0x9F,
  maximum_connect_time = 0xA0,
  subscription_identifiers_not_supported = 0xA1,
  wildcard_subscriptions_not_supported = 0xA2,
};

inline bool is_error(ReasonCode code) {
  return static_cast<uint8_t>(code) >= 0x80;
}

/// Whether a packet of this type may carry the code (table 2-6). Undefined codes never may.
bool reason_allowed(PacketType type, ReasonCode code);

/// "topic_alias_invalid"; for logs and metrics.
std::string_view name(ReasonCode code);
std::string_view name(PacketType type);

/// The CONNACK return code 1..5 of version 3.x that says the same best, 0 for success; nullopt if none does: then the
/// connection is closed without CONNACK [3.1.1 MQTT-3.2.2-6].
std::optional<uint8_t> connack_code_v3(ReasonCode code);
/// The reason that a version 3.x return code stands for; codes above 5 give unspecified_error.
ReasonCode connack_reason_v3(uint8_t code);

}  // namespace ph::mqtt
