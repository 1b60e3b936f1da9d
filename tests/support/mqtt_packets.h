// One of everything that MQTT can say, encoded: what codec tests go through and what the fuzzer starts from.
#pragma once

#include <string>
#include <vector>

#include "codec/mqtt/packet.h"

namespace ph::test {

namespace mqtt_packets {

using namespace std::string_literals;
using namespace mqtt;

inline std::string user_properties() {
  std::string block;
  put_user_property(block, "a", "1");
  put_user_property(block, "a", "2");
  return block;
}

/// One of everything that can be said in a version.
inline std::vector<std::string> every_packet(Version version) {
  static const std::string block = user_properties();
  static const std::string publish_block = [] {
    std::string b = user_properties();
    put_subscription_id(b, 1);
    put_subscription_id(b, 268'435'455);
    return b;
  }();
  const bool v5 = version == Version::v5;
  std::vector<std::string> out;
  auto add = [&](const Packet& p) { encode(p, version, out.emplace_back()); };
  Properties plain;
  Properties users;
  if (v5) users.raw = block;

  Connect connect;
  connect.version = version;
  connect.client_id = "client";
  connect.keep_alive = 60;
  connect.username = "user";
  static const std::string password = "pass\0word"s;
  connect.password = password;
  connect.will = Will{"will/topic", "gone", 2, true, {}};
  if (v5) {
    connect.properties.session_expiry = 3600;
    connect.properties.receive_maximum = 10;
    connect.properties.maximum_packet_size = 1000;
    connect.properties.topic_alias_maximum = 5;
    connect.properties.request_problem_information = 0;
    connect.properties.request_response_information = 1;
    connect.properties.authentication_method = "SCRAM";
    connect.properties.authentication_data = "data";
    connect.properties.raw = block;
    connect.will->properties.will_delay = 5;
    connect.will->properties.payload_format = 1;
    connect.will->properties.message_expiry = 7;
    connect.will->properties.content_type = "text";
    connect.will->properties.response_topic = "r";
    connect.will->properties.correlation_data = "c";
    connect.will->properties.raw = block;
  }
  add(connect);
  connect.will.reset();
  connect.username.reset();
  connect.password.reset();
  add(connect);

  Connack connack;
  connack.session_present = version != Version::v31;
  if (v5) {
    Properties& p = connack.properties;
    p.session_expiry = 1;
    p.receive_maximum = 2;
    p.maximum_qos = 1;
    p.retain_available = 0;
    p.maximum_packet_size = 3;
    p.assigned_client_id = "id";
    p.topic_alias_maximum = 4;
    p.reason_string = "because";
    p.wildcard_available = 0;
    p.subscription_ids_available = 0;
    p.shared_available = 0;
    p.server_keep_alive = 5;
    p.response_information = "info";
    p.server_reference = "other";
    p.authentication_method = "m";
    p.authentication_data = "d";
    p.raw = block;
  }
  add(connack);
  add(Connack{false, ReasonCode::not_authorized, {}});

  Publish publish;
  publish.topic = "a/b";
  publish.payload = "payload";
  add(publish);
  publish.qos = 1;
  publish.packet_id = 1;
  publish.retain = true;
  add(publish);
  publish.qos = 2;
  publish.packet_id = 65535;
  publish.dup = true;
  if (v5) {
    publish.topic = "";
    publish.properties.topic_alias = 1;
    publish.properties.payload_format = 1;
    publish.properties.message_expiry = 9;
    publish.properties.content_type = "json";
    publish.properties.response_topic = "answers";
    publish.properties.correlation_data = "\1\2\3";
    publish.properties.raw = publish_block;
  }
  add(publish);
  publish.payload = "";
  add(publish);

  for (PacketType t : {PacketType::puback, PacketType::pubrec, PacketType::pubrel, PacketType::pubcomp}) {
    add(Ack{t, 258, ReasonCode::success, plain});
    if (!v5) continue;
    const bool answer = t == PacketType::puback || t == PacketType::pubrec;
    const auto bad = answer ? ReasonCode::quota_exceeded : ReasonCode::packet_identifier_not_found;
    add(Ack{t, 3, bad, plain});
    Properties p = users;
    p.reason_string = "why";
    add(Ack{t, 3, bad, p});
  }

  Subscribe subscribe;
  subscribe.packet_id = 10;
  subscribe.filters = {{"a/+", 0, false, false, 0}, {"#", 2, false, false, 0}};
  static const std::string subscribe_block = [] {
    std::string b;
    put_subscription_id(b, 128);
    put_user_property(b, "k", "v");
    return b;
  }();
  if (v5) {
    subscribe.filters.push_back({"b", 1, true, true, 2});
    subscribe.filters.push_back({"$share/g/b", 1, false, true, 1});
    subscribe.properties.raw = subscribe_block;
  }
  add(subscribe);
  add(Suback{10, {ReasonCode::success, ReasonCode::granted_qos_2, ReasonCode::unspecified_error}, users});
  Unsubscribe unsubscribe;
  unsubscribe.packet_id = 11;
  unsubscribe.filters = {"a/+", "#"};
  unsubscribe.properties = users;
  add(unsubscribe);
  add(v5 ? Unsuback{11, {ReasonCode::success, ReasonCode::no_subscription_existed}, users} : Unsuback{11, {}, {}});
  add(Pingreq{});
  add(Pingresp{});
  add(Disconnect{});
  if (v5) {
    add(Disconnect{ReasonCode::session_taken_over, {}});
    Properties p = users;
    p.session_expiry = 4;
    p.reason_string = "bye";
    p.server_reference = "there";
    add(Disconnect{ReasonCode::use_another_server, p});
    add(Auth{});
    Properties a = users;
    a.authentication_method = "m";
    a.authentication_data = "d";
    a.reason_string = "r";
    add(Auth{ReasonCode::continue_authentication, a});
  }
  return out;
}

}  // namespace mqtt_packets

using mqtt_packets::every_packet;

}  // namespace ph::test
