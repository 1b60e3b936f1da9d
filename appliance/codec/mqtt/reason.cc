#include "codec/mqtt/reason.h"

#include <array>

namespace ph::mqtt {
namespace {

constexpr uint16_t bit(PacketType type) {
  return static_cast<uint16_t>(1U << static_cast<unsigned>(type));
}

using enum PacketType;
constexpr uint16_t kConnack = bit(connack);
constexpr uint16_t kDisconnect = bit(disconnect);
constexpr uint16_t kAuth = bit(auth);
constexpr uint16_t kReceived = bit(puback) | bit(pubrec);  // answers to PUBLISH
constexpr uint16_t kReleased = bit(pubrel) | bit(pubcomp);
constexpr uint16_t kSuback = bit(suback);
constexpr uint16_t kUnsuback = bit(unsuback);

struct ReasonRow {
  ReasonCode code;
  uint16_t packets;
  std::string_view name;
};

using enum ReasonCode;
constexpr ReasonRow kReasons[] = {
    {success, kConnack | kReceived | kReleased | kSuback | kUnsuback | kDisconnect | kAuth, "success"},
    {granted_qos_1, kSuback, "granted_qos_1"},
    {granted_qos_2, kSuback, "granted_qos_2"},
    {disconnect_with_will, kDisconnect, "disconnect_with_will"},
    {no_matching_subscribers, kReceived, "no_matching_subscribers"},
    {no_subscription_existed, kUnsuback, "no_subscription_existed"},
    {continue_authentication, kAuth, "continue_authentication"},
    {reauthenticate, kAuth, "reauthenticate"},
    {unspecified_error, kConnack | kReceived | kSuback | kUnsuback | kDisconnect, "unspecified_error"},
    {malformed_packet, kConnack | kDisconnect, "malformed_packet"},
    {protocol_error, kConnack | kDisconnect, "protocol_error"},
    {implementation_specific_error, kConnack | kReceived | kSuback | kUnsuback | kDisconnect,
     "implementation_specific_error"},
    {unsupported_protocol_version, kConnack, "unsupported_protocol_version"},
    {client_identifier_not_valid, kConnack, "client_identifier_not_valid"},
    {bad_user_name_or_password, kConnack, "bad_user_name_or_password"},
    {not_authorized, kConnack | kReceived | kSuback | kUnsuback | kDisconnect, "not_authorized"},
    {server_unavailable, kConnack, "server_unavailable"},
    {server_busy, kConnack | kDisconnect, "server_busy"},
    {banned, kConnack, "banned"},
    {server_shutting_down, kDisconnect, "server_shutting_down"},
    {bad_authentication_method, kConnack | kDisconnect, "bad_authentication_method"},
    {keep_alive_timeout, kDisconnect, "keep_alive_timeout"},
    {session_taken_over, kDisconnect, "session_taken_over"},
    {topic_filter_invalid, kSuback | kUnsuback | kDisconnect, "topic_filter_invalid"},
    {topic_name_invalid, kConnack | kReceived | kDisconnect, "topic_name_invalid"},
    {packet_identifier_in_use, kReceived | kSuback | kUnsuback, "packet_identifier_in_use"},
    {packet_identifier_not_found, kReleased, "packet_identifier_not_found"},
    {receive_maximum_exceeded, kDisconnect, "receive_maximum_exceeded"},
    {topic_alias_invalid, kDisconnect, "topic_alias_invalid"},
    {packet_too_large, kConnack | kDisconnect, "packet_too_large"},
    {message_rate_too_high, kDisconnect, "message_rate_too_high"},
    {quota_exceeded, kConnack | kReceived | kSuback | kDisconnect, "quota_exceeded"},
    {administrative_action, kDisconnect, "administrative_action"},
    {payload_format_invalid, kConnack | kReceived | kDisconnect, "payload_format_invalid"},
    {retain_not_supported, kConnack | kDisconnect, "retain_not_supported"},
    {qos_not_supported, kConnack | kDisconnect, "qos_not_supported"},
    {use_another_server, kConnack | kDisconnect, "use_another_server"},
    {server_moved, kConnack | kDisconnect, "server_moved"},
    {shared_subscriptions_not_supported, kSuback | kDisconnect, "shared_subscriptions_not_supported"},
    {connection_rate_exceeded, kConnack | kDisconnect, "connection_rate_exceeded"},
    {maximum_connect_time, kDisconnect, "maximum_connect_time"},
    {subscription_identifiers_not_supported, kSuback | kDisconnect, "subscription_identifiers_not_supported"},
    {wildcard_subscriptions_not_supported, kSuback | kDisconnect, "wildcard_subscriptions_not_supported"},
};

const ReasonRow* row(ReasonCode code) {
  for (const auto& r : kReasons)
    if (r.code == code) return &r;
  return nullptr;
}

constexpr std::string_view kTypes[16] = {"will",    "connect",  "connack",    "publish", "puback",      "pubrec",
                                         "pubrel",  "pubcomp",  "subscribe",  "suback",  "unsubscribe", "unsuback",
                                         "pingreq", "pingresp", "disconnect", "auth"};

}  // namespace

bool reason_allowed(PacketType type, ReasonCode code) {
  if (code == success) return (kReasons[0].packets & bit(type)) != 0;  // nearly every call
  const ReasonRow* r = row(code);
  return r != nullptr && (r->packets & bit(type)) != 0;
}

std::string_view name(ReasonCode code) {
  const ReasonRow* r = row(code);
  return r ? r->name : "undefined";
}

std::string_view name(PacketType type) {
  return kTypes[static_cast<unsigned>(type) & 15];
}

std::optional<uint8_t> connack_code_v3(ReasonCode code) {
  switch (code) {
    case success:
      return 0;
    case unsupported_protocol_version:
      return 1;
    case client_identifier_not_valid:
      return 2;
    case bad_user_name_or_password:
      return 4;
    case not_authorized:
    case banned:
    case bad_authentication_method:
      return 5;
    case malformed_packet:
    case protocol_error:
    case topic_name_invalid:
    case packet_too_large:
    case payload_format_invalid:
    case retain_not_supported:
    case qos_not_supported:
      return std::nullopt;  // what the client sent is at fault: "server unavailable" would make it try for ever
    default:
      return 3;  // server unavailable
  }
}

ReasonCode connack_reason_v3(uint8_t code) {
  constexpr std::array kBack = {success,
                                unsupported_protocol_version,
                                client_identifier_not_valid,
                                server_unavailable,
                                bad_user_name_or_password,
                                not_authorized};
  return code < kBack.size() ? kBack[code] : unspecified_error;
}

}  // namespace ph::mqtt
