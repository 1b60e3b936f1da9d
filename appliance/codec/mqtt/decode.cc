#include <algorithm>

#include "base/result.h"
#include "codec/mqtt/cursor.h"
#include "codec/mqtt/packet.h"

namespace ph::mqtt {
namespace {

using Failure = std::unexpected<ReasonCode>;
const Failure kMalformed{ReasonCode::malformed_packet};
const Failure kProtocolError{ReasonCode::protocol_error};

/// Reads the properties of a version 5 packet from the cursor; leaves 3.x alone.
#define PH_PROPERTIES(cursor, packet, version, into)                     \
  do {                                                                   \
    if (version == Version::v5) {                                        \
      ByteView ph_rest = (cursor).rest();                                \
      auto ph_properties = decode_properties(ph_rest, packet);           \
      if (!ph_properties) return std::unexpected(ph_properties.error()); \
      into = *ph_properties;                                             \
      cursor = Cursor(ph_rest);                                          \
    }                                                                    \
  } while (false)

/// Bits 3-0 of byte 0 (table 2-2). Version 3.1 sends SUBSCRIBE, UNSUBSCRIBE and PUBREL with QoS 1 and lets them repeat
/// with DUP.
bool flags_valid(const Frame& frame, Version version) {
  switch (frame.type) {
    case PacketType::publish:
      return true;  // checked where they are read
    case PacketType::pubrel:
    case PacketType::subscribe:
    case PacketType::unsubscribe:
      return frame.flags == 2 || (version == Version::v31 && frame.flags == 10);
    default:
      return frame.flags == 0;
  }
}

struct Protocol {
  ByteView name;
  uint8_t level = 0;
};

Protocol read_protocol(Cursor& cursor) {
  Protocol p;
  p.name = cursor.binary();
  p.level = cursor.u8();
  return p;
}

std::expected<Version, ReasonCode> version_of(const Protocol& p) {
  if (p.name == "MQTT" && p.level == 4) return Version::v311;
  if (p.name == "MQTT" && p.level == 5) return Version::v5;
  if (p.name == "MQIsdp" && p.level == 3) return Version::v31;
  return std::unexpected(ReasonCode::unsupported_protocol_version);
}

std::expected<Connect, ReasonCode> decode_connect(const Frame& frame) {
  Cursor cursor(frame.body);
  const Protocol protocol = read_protocol(cursor);
  if (!cursor.ok()) return kMalformed;
  auto version = version_of(protocol);
  if (!version) return std::unexpected(version.error());
  if (!flags_valid(frame, *version) || (*version == Version::v5 && !frame.shortest)) return kMalformed;

  Connect out;
  out.version = *version;
  const uint8_t flags = cursor.u8();
  out.keep_alive = cursor.u16();
  if (!cursor.ok()) return kMalformed;
  const bool has_will = flags & 0x04;
  const bool has_password = flags & 0x40;
  const bool has_username = flags & 0x80;
  const auto will_qos = static_cast<uint8_t>(flags >> 3 & 3);
  if ((flags & 1) && *version != Version::v31) return kMalformed;                   // [MQTT-3.1.2-3]
  if (will_qos == 3) return kMalformed;                                             // [MQTT-3.1.2-12]
  if (!has_will && (flags & 0x38)) return kMalformed;                               // [MQTT-3.1.2-11, 13]
  if (has_password && !has_username && *version != Version::v5) return kMalformed;  // 3.1.1 [MQTT-3.1.2-22]
  out.clean_start = flags & 0x02;
  PH_PROPERTIES(cursor, PacketType::connect, *version, out.properties);
  out.client_id = cursor.string();
  if (!cursor.ok()) return kMalformed;
  if (has_will) {
    Will& will = out.will.emplace();
    will.qos = will_qos;
    will.retain = flags & 0x20;
    PH_PROPERTIES(cursor, PacketType::will, *version, will.properties);
    will.topic = cursor.string();
    will.payload = cursor.binary();
    if (!cursor.ok()) return kMalformed;
    if (!topic_valid(will.topic)) return std::unexpected(ReasonCode::topic_name_invalid);
  }
  // A 3.1 client may set the flags and send neither (3.1 section 3.1: "for compatibility ... not required").
  const bool optional_tail = *version == Version::v31;
  if (has_username && !(optional_tail && cursor.at_end())) out.username = cursor.string();
  if (has_password && !(optional_tail && cursor.at_end())) out.password = cursor.binary();
  if (!cursor.ok() || !cursor.at_end()) return kMalformed;
  return out;
}

std::expected<Connack, ReasonCode> decode_connack(const Frame& frame, Version version) {
  Cursor cursor(frame.body);
  Connack out;
  const uint8_t flags = cursor.u8();
  const uint8_t code = cursor.u8();
  if (!cursor.ok() || ((flags & 0xFE) && version != Version::v31)) return kMalformed;
  out.session_present = (flags & 1) && version != Version::v31;  // 3.1 has a reserved byte there
  if (version == Version::v5) {
    out.reason = static_cast<ReasonCode>(code);
    if (!reason_allowed(PacketType::connack, out.reason)) return kProtocolError;
  } else {
    if (code > 5) return kMalformed;
    out.reason = connack_reason_v3(code);
  }
  PH_PROPERTIES(cursor, PacketType::connack, version, out.properties);
  if (!cursor.at_end()) return kMalformed;
  return out;
}

std::expected<Subscribe, ReasonCode> decode_subscribe(const Frame& frame, Version version) {
  Cursor cursor(frame.body);
  Subscribe out;
  out.packet_id = cursor.u16();
  if (!cursor.ok()) return kMalformed;
  if (out.packet_id == 0) return kProtocolError;
  PH_PROPERTIES(cursor, PacketType::subscribe, version, out.properties);
  while (!cursor.at_end()) {
    Filter f;
    f.filter = cursor.string();
    const uint8_t options = cursor.u8();
    if (!cursor.ok()) return kMalformed;
    if (!filter_valid(f.filter)) return std::unexpected(ReasonCode::topic_filter_invalid);
    f.qos = options & 3;
    if (f.qos == 3) return kMalformed;
    if (version == Version::v5) {
      f.no_local = options & 0x04;
      f.retain_as_published = options & 0x08;
      f.retain_handling = options >> 4 & 3;
      if (options & 0xC0) return kMalformed;  // [MQTT-3.8.3-5]
      if (f.retain_handling == 3) return kProtocolError;
      if (f.no_local && shared_filter(f.filter)) return kProtocolError;  // [MQTT-3.8.3-4]
    } else if (options & 0xFC) {
      return kMalformed;
    }
    out.filters.push_back(f);
  }
  if (!cursor.ok()) return kMalformed;
  if (out.filters.empty()) return kProtocolError;  // [MQTT-3.8.3-2]
  return out;
}

/// SUBACK and UNSUBACK.
template <class Acked>
std::expected<Acked, ReasonCode> decode_acked(const Frame& frame, Version version) {
  Cursor cursor(frame.body);
  Acked out;
  out.packet_id = cursor.u16();
  if (!cursor.ok()) return kMalformed;
  if (out.packet_id == 0) return kProtocolError;
  PH_PROPERTIES(cursor, frame.type, version, out.properties);
  if (frame.type == PacketType::unsuback && version != Version::v5) {
    if (!cursor.at_end()) return kMalformed;
    return out;
  }
  for (char c : cursor.rest()) {
    const auto reason = static_cast<ReasonCode>(c);
    const bool good = version == Version::v5 ? reason_allowed(frame.type, reason)
                                             : static_cast<uint8_t>(c) <= 2 || static_cast<uint8_t>(c) == 0x80;
    if (!good) return kMalformed;
    out.reasons.push_back(reason);
  }
  if (out.reasons.empty()) return kMalformed;
  return out;
}

std::expected<Unsubscribe, ReasonCode> decode_unsubscribe(const Frame& frame, Version version) {
  Cursor cursor(frame.body);
  Unsubscribe out;
  out.packet_id = cursor.u16();
  if (!cursor.ok()) return kMalformed;
  if (out.packet_id == 0) return kProtocolError;
  PH_PROPERTIES(cursor, PacketType::unsubscribe, version, out.properties);
  while (!cursor.at_end()) {
    const ByteView filter = cursor.string();
    if (!cursor.ok()) return kMalformed;
    if (!filter_valid(filter)) return std::unexpected(ReasonCode::topic_filter_invalid);
    out.filters.push_back(filter);
  }
  if (!cursor.ok()) return kMalformed;
  if (out.filters.empty()) return kProtocolError;  // [MQTT-3.10.3-2]
  return out;
}

/// DISCONNECT and AUTH: reason and properties may be left out from the end.
template <class Reasoned>
std::expected<Reasoned, ReasonCode> decode_reasoned(const Frame& frame, Version version) {
  Reasoned out;
  Cursor cursor(frame.body);
  if (version != Version::v5) {
    if (frame.type == PacketType::auth || !cursor.at_end()) return kMalformed;
    return out;
  }
  if (cursor.at_end()) return out;
  out.reason = static_cast<ReasonCode>(cursor.u8());
  if (!reason_allowed(frame.type, out.reason)) return kMalformed;
  if (cursor.at_end()) return out;
  PH_PROPERTIES(cursor, frame.type, version, out.properties);
  if (!cursor.at_end()) return kMalformed;
  return out;
}

}  // namespace

std::expected<Framed, ReasonCode> next_frame(ByteView bytes, size_t packet_max) {
  Framed out;
  if (bytes.size() < 2) {
    if (!bytes.empty() && static_cast<unsigned char>(bytes[0]) < 0x10) return kMalformed;
    out.wanted = 2;
    return out;
  }
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first < 0x10) return kMalformed;
  size_t length = 0;
  size_t used = 1;
  for (;; ++used) {
    if (used == 5) return kMalformed;  // a fifth byte of remaining length
    if (used == bytes.size()) {
      out.wanted = used + 1;
      return out;
    }
    const auto byte = static_cast<unsigned char>(bytes[used]);
    length |= static_cast<size_t>(byte & 0x7F) << (7 * (used - 1));
    if (!(byte & 0x80)) break;
  }
  const bool shortest = used == 1 || bytes[used] != 0;
  const size_t head = used + 1;
  if (head + length > packet_max) return std::unexpected(ReasonCode::packet_too_large);
  if (bytes.size() < head + length) {
    out.wanted = head + length;
    return out;
  }
  out.frame = Frame{static_cast<PacketType>(first >> 4), static_cast<uint8_t>(first & 15), shortest,
                    bytes.substr(head, length), head + length};
  return out;
}

std::optional<uint8_t> claimed_level(const Frame& connect) {
  Cursor cursor(connect.body);
  const Protocol p = read_protocol(cursor);
  if (!cursor.ok()) return std::nullopt;
  return p.level;
}

std::expected<Publish, ReasonCode> decode_publish(const Frame& frame, Version version) {
  if (version == Version::v5 && !frame.shortest) return kMalformed;
  Cursor cursor(frame.body);
  std::expected<Publish, ReasonCode> result;  // made in its place: it is some hundred bytes long
  Publish& out = *result;
  out.qos = frame.flags >> 1 & 3;
  out.retain = frame.flags & 1;
  out.dup = frame.flags & 8;
  if (out.qos == 3) return kMalformed;                                        // [MQTT-3.3.1-4]
  if (out.dup && out.qos == 0 && version != Version::v31) return kMalformed;  // [MQTT-3.3.1-2]
  out.topic = cursor.string();
  if (out.qos > 0) out.packet_id = cursor.u16();
  if (!cursor.ok()) return kMalformed;
  if (out.qos > 0 && out.packet_id == 0) return kProtocolError;  // [MQTT-2.2.1-3]
  PH_PROPERTIES(cursor, PacketType::publish, version, out.properties);
  if (out.topic.empty()) {
    if (!out.properties.topic_alias) return kProtocolError;
  } else if (!topic_valid(out.topic)) {
    return std::unexpected(ReasonCode::topic_name_invalid);
  }
  out.payload = cursor.rest();
  return result;
}

std::expected<Ack, ReasonCode> decode_ack(const Frame& frame, Version version) {
  if (!flags_valid(frame, version) || (version == Version::v5 && !frame.shortest)) return kMalformed;
  Cursor cursor(frame.body);
  std::expected<Ack, ReasonCode> result;  // as for PUBLISH
  Ack& out = *result;
  out.type = frame.type;
  out.packet_id = cursor.u16();
  if (!cursor.ok()) return kMalformed;
  if (out.packet_id == 0) return kProtocolError;
  if (cursor.at_end()) return result;
  if (version != Version::v5) return kMalformed;
  out.reason = static_cast<ReasonCode>(cursor.u8());
  if (!reason_allowed(frame.type, out.reason)) return kMalformed;
  if (cursor.at_end()) return result;
  PH_PROPERTIES(cursor, frame.type, version, out.properties);
  if (!cursor.at_end()) return kMalformed;
  return result;
}

std::expected<Packet, ReasonCode> decode(const Frame& frame, Version version) {
  switch (frame.type) {
    case PacketType::connect:
      return decode_connect(frame);
    case PacketType::publish:
      return decode_publish(frame, version);
    case PacketType::puback:
    case PacketType::pubrec:
    case PacketType::pubrel:
    case PacketType::pubcomp:
      return decode_ack(frame, version);
    default:
      break;
  }
  if (!flags_valid(frame, version) || (version == Version::v5 && !frame.shortest)) return kMalformed;
  switch (frame.type) {
    case PacketType::connack:
      return decode_connack(frame, version);
    case PacketType::subscribe:
      return decode_subscribe(frame, version);
    case PacketType::suback:
      return decode_acked<Suback>(frame, version);
    case PacketType::unsubscribe:
      return decode_unsubscribe(frame, version);
    case PacketType::unsuback:
      return decode_acked<Unsuback>(frame, version);
    case PacketType::disconnect:
      return decode_reasoned<Disconnect>(frame, version);
    case PacketType::auth:
      return decode_reasoned<Auth>(frame, version);
    case PacketType::pingreq:
      if (!frame.body.empty()) return kMalformed;
      return Pingreq{};
    case PacketType::pingresp:
      if (!frame.body.empty()) return kMalformed;
      return Pingresp{};
    default:
      return kMalformed;
  }
}

}  // namespace ph::mqtt
