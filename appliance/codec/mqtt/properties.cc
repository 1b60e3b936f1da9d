#include "codec/mqtt/properties.h"

#include <array>

#include "base/coding.h"
#include "base/result.h"
#include "codec/mqtt/cursor.h"

namespace ph::mqtt {
namespace {

enum class Type : uint8_t { none, byte, u16, u32, varint, text, binary, pair };

constexpr uint16_t in() {
  return 0;
}
template <class... Rest>
constexpr uint16_t in(PacketType first, Rest... rest) {
  return static_cast<uint16_t>((1U << static_cast<unsigned>(first)) | in(rest...));
}

struct Row {
  Type type = Type::none;
  uint16_t packets = 0;
};

// Table 2-4 of the specification.
constexpr auto kTable = [] {
  std::array<Row, 0x2B> t{};
  using enum PacketType;
  auto set = [&t](PropertyId id, Type type, uint16_t packets) { t[static_cast<size_t>(id)] = {type, packets}; };
  constexpr uint16_t kMessage = in(publish, will);
  constexpr uint16_t kHandshake = in(connect, connack);
  constexpr uint16_t kReasoned = in(connack, puback, pubrec, pubrel, pubcomp, suback, unsuback, disconnect, auth);
  set(PropertyId::payload_format, Type::byte, kMessage);
  set(PropertyId::message_expiry, Type::u32, kMessage);
  set(PropertyId::content_type, Type::text, kMessage);
  set(PropertyId::response_topic, Type::text, kMessage);
  set(PropertyId::correlation_data, Type::binary, kMessage);
  set(PropertyId::subscription_id, Type::varint, in(publish, subscribe));
  set(PropertyId::session_expiry, Type::u32, kHandshake | in(disconnect));
  set(PropertyId::assigned_client_id, Type::text, in(connack));
  set(PropertyId::server_keep_alive, Type::u16, in(connack));
  set(PropertyId::authentication_method, Type::text, kHandshake | in(auth));
  set(PropertyId::authentication_data, Type::binary, kHandshake | in(auth));
  set(PropertyId::request_problem_information, Type::byte, in(connect));
  set(PropertyId::will_delay, Type::u32, in(will));
  set(PropertyId::request_response_information, Type::byte, in(connect));
  set(PropertyId::response_information, Type::text, in(connack));
  set(PropertyId::server_reference, Type::text, in(connack, disconnect));
  set(PropertyId::reason_string, Type::text, kReasoned);
  set(PropertyId::receive_maximum, Type::u16, kHandshake);
  set(PropertyId::topic_alias_maximum, Type::u16, kHandshake);
  set(PropertyId::topic_alias, Type::u16, in(publish));
  set(PropertyId::maximum_qos, Type::byte, in(connack));
  set(PropertyId::retain_available, Type::byte, in(connack));
  set(PropertyId::user_property, Type::pair, kReasoned | kMessage | in(connect, subscribe, unsubscribe));
  set(PropertyId::maximum_packet_size, Type::u32, kHandshake);
  set(PropertyId::wildcard_available, Type::byte, in(connack));
  set(PropertyId::subscription_ids_available, Type::byte, in(connack));
  set(PropertyId::shared_available, Type::byte, in(connack));
  return t;
}();

/// Calls f with the field of a non-repeatable property; false for others.
template <class P, class F>
bool with_field(P& p, PropertyId id, F&& f) {
  switch (id) {
    case PropertyId::payload_format:
      f(p.payload_format);
      return true;
    case PropertyId::message_expiry:
      f(p.message_expiry);
      return true;
    case PropertyId::content_type:
      f(p.content_type);
      return true;
    case PropertyId::response_topic:
      f(p.response_topic);
      return true;
    case PropertyId::correlation_data:
      f(p.correlation_data);
      return true;
    case PropertyId::session_expiry:
      f(p.session_expiry);
      return true;
    case PropertyId::assigned_client_id:
      f(p.assigned_client_id);
      return true;
    case PropertyId::server_keep_alive:
      f(p.server_keep_alive);
      return true;
    case PropertyId::authentication_method:
      f(p.authentication_method);
      return true;
    case PropertyId::authentication_data:
      f(p.authentication_data);
      return true;
    case PropertyId::request_problem_information:
      f(p.request_problem_information);
      return true;
    case PropertyId::will_delay:
      f(p.will_delay);
      return true;
    case PropertyId::request_response_information:
      f(p.request_response_information);
      return true;
    case PropertyId::response_information:
      f(p.response_information);
      return true;
    case PropertyId::server_reference:
      f(p.server_reference);
      return true;
    case PropertyId::reason_string:
      f(p.reason_string);
      return true;
    case PropertyId::receive_maximum:
      f(p.receive_maximum);
      return true;
    case PropertyId::topic_alias_maximum:
      f(p.topic_alias_maximum);
      return true;
    case PropertyId::topic_alias:
      f(p.topic_alias);
      return true;
    case PropertyId::maximum_qos:
      f(p.maximum_qos);
      return true;
    case PropertyId::retain_available:
      f(p.retain_available);
      return true;
    case PropertyId::maximum_packet_size:
      f(p.maximum_packet_size);
      return true;
    case PropertyId::wildcard_available:
      f(p.wildcard_available);
      return true;
    case PropertyId::subscription_ids_available:
      f(p.subscription_ids_available);
      return true;
    case PropertyId::shared_available:
      f(p.shared_available);
      return true;
    case PropertyId::subscription_id:
    case PropertyId::user_property:
      return false;
  }
  return false;
}

Row row_of(uint32_t id) {
  return id < kTable.size() ? kTable[id] : Row{};
}

/// Reads one property, or clears cursor.ok().
bool read(Cursor& cursor, RawProperty& p) {
  const uint32_t id = cursor.varint();
  const Row row = row_of(id);
  if (!cursor.ok() || row.type == Type::none) return false;
  p = RawProperty{};
  p.id = static_cast<PropertyId>(id);
  const ByteView before = cursor.rest();
  switch (row.type) {
    case Type::byte:
      p.number = cursor.u8();
      break;
    case Type::u16:
      p.number = cursor.u16();
      break;
    case Type::u32:
      p.number = cursor.u32();
      break;
    case Type::varint:
      p.number = cursor.varint();
      break;
    case Type::text:
      p.first = cursor.string();
      break;
    case Type::binary:
      p.first = cursor.binary();
      break;
    case Type::pair:
      p.first = cursor.string();
      p.second = cursor.string();
      break;
    case Type::none:
      break;
  }
  if (!cursor.ok()) return false;
  p.value = before.substr(0, before.size() - cursor.rest().size());
  return true;
}

ReasonCode check_value(const RawProperty& p) {
  switch (p.id) {
    case PropertyId::topic_alias:
      return p.number ? ReasonCode::success : ReasonCode::topic_alias_invalid;
    case PropertyId::receive_maximum:
    case PropertyId::maximum_packet_size:
    case PropertyId::subscription_id:
      return p.number ? ReasonCode::success : ReasonCode::protocol_error;
    case PropertyId::response_topic:  // [MQTT-3.3.2-14]
      return topic_valid(p.first) ? ReasonCode::success : ReasonCode::protocol_error;
    default:
      break;
  }
  const bool flag = row_of(static_cast<uint32_t>(p.id)).type == Type::byte;
  return flag && p.number > 1 ? ReasonCode::protocol_error : ReasonCode::success;
}

void put_id(std::string& out, PropertyId id) {
  out.push_back(static_cast<char>(id));
}

}  // namespace

bool next_property(ByteView& block, RawProperty& property) {
  if (block.empty()) return false;
  Cursor cursor(block);
  if (!read(cursor, property)) return false;
  block = cursor.rest();
  return true;
}

std::expected<Properties, ReasonCode> decode_properties(ByteView& bytes, PacketType packet) {
  Cursor outer(bytes);
  const uint32_t size = outer.varint();
  const ByteView block = outer.take(size);
  if (!outer.ok()) return std::unexpected(ReasonCode::malformed_packet);
  bytes = outer.rest();

  Properties out;
  out.raw = block;
  bool subscription_id_seen = false;
  Cursor cursor(block);
  while (!cursor.at_end()) {
    RawProperty p;
    if (!read(cursor, p)) return std::unexpected(ReasonCode::malformed_packet);
    const Row row = row_of(static_cast<uint32_t>(p.id));
    if (!(row.packets & in(packet))) return std::unexpected(ReasonCode::protocol_error);
    if (ReasonCode bad = check_value(p); bad != ReasonCode::success) return std::unexpected(bad);
    bool repeats = false;
    const bool single = with_field(out, p.id, [&](auto& field) {
      using Value = typename std::remove_reference_t<decltype(field)>::value_type;
      repeats = field.has_value();
      if constexpr (std::is_same_v<Value, ByteView>)
        field = p.first;
      else
        field = static_cast<Value>(p.number);
    });
    if (!single && p.id == PropertyId::subscription_id && packet == PacketType::subscribe) {
      repeats = subscription_id_seen;
      subscription_id_seen = true;
    }
    if (repeats) return std::unexpected(ReasonCode::protocol_error);
  }
  if (out.authentication_data && !out.authentication_method) return std::unexpected(ReasonCode::protocol_error);
  return out;
}

void put_user_property(std::string& block, ByteView name, ByteView value) {
  put_id(block, PropertyId::user_property);
  put_text(block, name);
  put_text(block, value);
}

void put_subscription_id(std::string& block, uint32_t id) {
  put_id(block, PropertyId::subscription_id);
  put_varint(block, id);
}

void encode_properties(const Properties& properties, PacketType packet, std::string& out) {
  std::string block;
  for (size_t i = 0; i < kTable.size(); ++i) {
    const auto id = static_cast<PropertyId>(i);
    if (kTable[i].type == Type::none) continue;
    with_field(properties, id, [&](const auto& field) {
      if (!field) return;
      PH_ASSERT(kTable[i].packets & in(packet), "this packet has no such property");
      put_id(block, id);
      using Value = typename std::remove_reference_t<decltype(field)>::value_type;
      if constexpr (std::is_same_v<Value, ByteView>)
        put_text(block, *field);
      else if constexpr (sizeof(Value) == 1)
        block.push_back(static_cast<char>(*field));
      else if constexpr (sizeof(Value) == 2)
        put_u16(block, *field);
      else
        put_u32(block, *field);
    });
  }
  ByteView raw = properties.raw;
  RawProperty p;
  while (next_property(raw, p)) {
    if (p.id != PropertyId::user_property && p.id != PropertyId::subscription_id) continue;
    PH_ASSERT(row_of(static_cast<uint32_t>(p.id)).packets & in(packet), "this packet has no such property");
    put_id(block, p.id);
    block.append(p.value);
  }
  put_varint(out, block.size());
  out.append(block);
}

ByteView forwarded(const Properties& properties, std::string& scratch) {
  auto stays = [](PropertyId id) {
    return id != PropertyId::topic_alias && id != PropertyId::message_expiry && id != PropertyId::subscription_id &&
           id != PropertyId::will_delay;
  };
  ByteView raw = properties.raw;
  RawProperty p;
  bool whole = true;
  while (whole && next_property(raw, p)) whole = stays(p.id);
  if (whole) return properties.raw;
  scratch.clear();
  raw = properties.raw;
  while (next_property(raw, p)) {
    if (!stays(p.id)) continue;
    put_id(scratch, p.id);
    scratch.append(p.value);
  }
  return scratch;
}

}  // namespace ph::mqtt
