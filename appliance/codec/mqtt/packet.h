// Packets of MQTT 3.1, 3.1.1 and 5.0, and the way between them and bytes. First stop of every byte that a client sends,
// last but one of every byte that it gets (the socket is last).
//
// Decoding is incremental and copies nothing: next_frame() finds a whole packet at the front of the read buffer,
// decode() gives a struct whose views point into that buffer and are valid as long as it is. Every failure is the
// reason code with which the specification answers it. Encoding appends to a string; for the large and the many there
// is encode_publish_head(), to which the payload is added by reference.
//
// Frame: byte 0 = type << 4 | flags; remaining length, variable byte integer of at most 4 bytes; then that many bytes.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "codec/mqtt/properties.h"
#include "codec/mqtt/reason.h"

namespace ph::mqtt {

struct Will {
  ByteView topic;
  ByteView payload;
  uint8_t qos = 0;
  bool retain = false;
  Properties properties;
};

/// Section 3.1. The version is part of it: what follows CONNECT is decoded with it.
struct Connect {
  Version version = Version::v5;
  bool clean_start = true;
  uint16_t keep_alive = 0;  // seconds; 0: none
  ByteView client_id;
  std::optional<Will> will;
  std::optional<ByteView> username;
  std::optional<ByteView> password;
  Properties properties;
};

struct Connack {
  bool session_present = false;
  ReasonCode reason = ReasonCode::success;
  Properties properties;
};

struct Publish {
  ByteView topic;  // empty: the topic alias names it
  ByteView payload;
  uint16_t packet_id = 0;  // 0 for QoS 0
  uint8_t qos = 0;
  bool retain = false;
  bool dup = false;
  Properties properties;
};

/// PUBACK, PUBREC, PUBREL or PUBCOMP: one shape, told apart by `type`.
struct Ack {
  PacketType type = PacketType::puback;
  uint16_t packet_id = 0;
  ReasonCode reason = ReasonCode::success;
  Properties properties;
};

struct Filter {
  ByteView filter;
  uint8_t qos = 0;
  bool no_local = false;
  bool retain_as_published = false;
  uint8_t retain_handling = 0;
};

struct Subscribe {
  uint16_t packet_id = 0;
  std::vector<Filter> filters;
  Properties properties;
};

struct Suback {
  uint16_t packet_id = 0;
  std::vector<ReasonCode> reasons;
  Properties properties;
};

struct Unsubscribe {
  uint16_t packet_id = 0;
  std::vector<ByteView> filters;
  Properties properties;
};

struct Unsuback {
  uint16_t packet_id = 0;
  std::vector<ReasonCode> reasons;  // not on the wire in 3.x
  Properties properties;
};

struct Pingreq {};
struct Pingresp {};

struct Disconnect {
  ReasonCode reason = ReasonCode::success;
  Properties properties;
};

struct Auth {
  ReasonCode reason = ReasonCode::success;
  Properties properties;
};

using Packet = std::variant<Connect, Connack, Publish, Ack, Subscribe, Suback, Unsubscribe, Unsuback, Pingreq, Pingresp,
                            Disconnect, Auth>;

/// One whole packet at the front of a buffer.
struct Frame {
  PacketType type{};
  uint8_t flags = 0;
  bool shortest = true;  // remaining length in its shortest form; version 5 requires it [MQTT-1.5.5-1]
  ByteView body;
  size_t size = 0;  // of the whole packet
};

struct Framed {
  std::optional<Frame> frame;  // nullopt: not all there yet
  size_t wanted = 0;           // then: total bytes without which a further call is useless
};

/// Looks for a packet at the front. Errors: malformed_packet for packet type 0 and a remaining length of more than four
/// bytes, packet_too_large above `packet_max` (total bytes), as soon as the header shows it.
std::expected<Framed, ReasonCode> next_frame(ByteView bytes, size_t packet_max);

/// Decodes a frame. `version` is that of the CONNECT seen before; ignored for CONNECT itself. Directions are not
/// checked: that a client sends no SUBACK is the channel's business. Errors: malformed_packet, protocol_error,
/// unsupported_protocol_version, topic_name_invalid, topic_filter_invalid, topic_alias_invalid, qos_not_supported
/// never.
std::expected<Packet, ReasonCode> decode(const Frame& frame, Version version);

/// decode() for the packets of the hot path, without the variant. frame.type must fit.
std::expected<Publish, ReasonCode> decode_publish(const Frame& frame, Version version);
std::expected<Ack, ReasonCode> decode_ack(const Frame& frame, Version version);

/// Version that a CONNECT claims, also an unsupported one: tells in which form to refuse it. nullopt if unreadable.
std::optional<uint8_t> claimed_level(const Frame& connect);

// Encoding. Strings are at most 65,535 bytes and packets at most 256 MiB: the caller's limits are far below.
void encode(const Connect&, std::string& out);
void encode(const Connack&, Version, std::string& out);
void encode(const Publish&, Version, std::string& out);
void encode(const Ack&, Version, std::string& out);
/// PUBACK, PUBREC, PUBREL or PUBCOMP with reason success and without properties: the same bytes in every version.
std::array<char, 4> short_ack(PacketType type, uint16_t packet_id);
void encode(const Subscribe&, Version, std::string& out);
void encode(const Suback&, Version, std::string& out);
void encode(const Unsubscribe&, Version, std::string& out);
void encode(const Unsuback&, Version, std::string& out);
void encode(const Pingreq&, Version, std::string& out);
void encode(const Pingresp&, Version, std::string& out);
void encode(const Disconnect&, Version, std::string& out);
void encode(const Auth&, Version, std::string& out);
void encode(const Packet&, Version, std::string& out);

/// A PUBLISH up to its payload, with properties that are encoded already.
struct PublishHead {
  ByteView topic;
  uint16_t topic_alias = 0;  // 0: none; with one that the client knows, `topic` is empty. Not sent to 3.x
  uint16_t packet_id = 0;
  uint8_t qos = 0;
  bool retain = false;
  bool dup = false;
  std::optional<uint32_t> message_expiry;
  const uint32_t* subscription_ids = nullptr;
  size_t subscription_ids_count = 0;
  ByteView properties;  // forwarded() ones, without length; not sent to 3.x
  size_t payload_size = 0;
};
void encode_publish_head(const PublishHead& head, Version version, std::string& out);
/// Bytes of the whole packet, payload included.
size_t publish_size(const PublishHead& head, Version version);

}  // namespace ph::mqtt
