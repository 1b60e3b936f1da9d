// MQTT packets as lines of text, both ways, for transcripts and tests:
//   connect v=5 id=c1 clean=0 session_expiry=60 keep_alive=10 will=t:payload will_qos=1
//   publish topic=a/b qos=1 id=7 dup retain payload=hello user=k:v
//   subscribe id=1 filter=a/#:1 filter=b:2:nl:rap:rh=1
// describe() writes what it finds in the same words, so a transcript reads the same in both directions.
#pragma once

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/mqtt/packet.h"

namespace ph::test {

namespace mqtt_text {

struct Line {
  std::string verb;
  std::vector<std::pair<std::string, std::string>> words;

  explicit Line(const std::string& text) {
    std::istringstream in(text);
    in >> verb;
    for (std::string word; in >> word;) {
      const size_t equals = word.find('=');
      words.emplace_back(word.substr(0, equals), equals == word.npos ? "1" : word.substr(equals + 1));
    }
  }
  const std::string* find(const std::string& key) const {
    for (const auto& [k, v] : words)
      if (k == key) return &v;
    return nullptr;
  }
  std::string text(const std::string& key, std::string otherwise = {}) const {
    const std::string* v = find(key);
    return v ? *v : otherwise;
  }
  uint32_t number(const std::string& key, uint32_t otherwise = 0) const {
    const std::string* v = find(key);
    return v ? static_cast<uint32_t>(std::strtoul(v->c_str(), nullptr, 0)) : otherwise;
  }
};

inline std::pair<std::string, std::string> split(const std::string& s, char at = ':') {
  const size_t i = s.find(at);
  return {s.substr(0, i), i == s.npos ? "" : s.substr(i + 1)};
}

inline const std::map<mqtt::PropertyId, std::string>& property_names() {
  using enum mqtt::PropertyId;
  static const std::map<mqtt::PropertyId, std::string> names = {
      {payload_format, "payload_format"},
      {message_expiry, "message_expiry"},
      {content_type, "content_type"},
      {response_topic, "response_topic"},
      {correlation_data, "correlation_data"},
      {subscription_id, "subscription_id"},
      {session_expiry, "session_expiry"},
      {assigned_client_id, "assigned_client_id"},
      {server_keep_alive, "server_keep_alive"},
      {authentication_method, "authentication_method"},
      {authentication_data, "authentication_data"},
      {request_problem_information, "request_problem_information"},
      {will_delay, "will_delay"},
      {request_response_information, "request_response_information"},
      {response_information, "response_information"},
      {server_reference, "server_reference"},
      {reason_string, "reason_string"},
      {receive_maximum, "receive_maximum"},
      {topic_alias_maximum, "topic_alias_maximum"},
      {topic_alias, "topic_alias"},
      {maximum_qos, "maximum_qos"},
      {retain_available, "retain_available"},
      {user_property, "user"},
      {maximum_packet_size, "maximum_packet_size"},
      {wildcard_available, "wildcard_available"},
      {subscription_ids_available, "subscription_ids_available"},
      {shared_available, "shared_available"}};
  return names;
}

/// The properties among a line's words. Views point into the line.
inline mqtt::Properties properties(const Line& line, std::string& block) {
  mqtt::Properties p;
  for (const auto& [key, value] : line.words) {
    const auto n = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 0));
    if (key == "payload_format") p.payload_format = static_cast<uint8_t>(n);
    if (key == "message_expiry") p.message_expiry = n;
    if (key == "content_type") p.content_type = value;
    if (key == "response_topic") p.response_topic = value;
    if (key == "correlation_data") p.correlation_data = value;
    if (key == "session_expiry") p.session_expiry = n;
    if (key == "authentication_method") p.authentication_method = value;
    if (key == "authentication_data") p.authentication_data = value;
    if (key == "receive_maximum") p.receive_maximum = static_cast<uint16_t>(n);
    if (key == "request_response_information") p.request_response_information = static_cast<uint8_t>(n);
    if (key == "topic_alias_maximum") p.topic_alias_maximum = static_cast<uint16_t>(n);
    if (key == "topic_alias") p.topic_alias = static_cast<uint16_t>(n);
    if (key == "maximum_packet_size") p.maximum_packet_size = n;
    if (key == "reason_string") p.reason_string = value;
    if (key == "subscription_id") mqtt::put_subscription_id(block, n);
    if (key == "user") {
      const auto [name, content] = split(value);
      mqtt::put_user_property(block, name, content);
    }
  }
  p.raw = block;
  return p;
}

}  // namespace mqtt_text

/// The version that "v=" names: 3, 4 or 5 (default 5).
inline mqtt::Version version_in(const std::string& text) {
  return static_cast<mqtt::Version>(mqtt_text::Line(text).number("v", 5));
}

/// The bytes of the packet that the line describes. "hex" takes its words as they are: hex 10 02 00.
inline std::string packet_bytes(const std::string& text, mqtt::Version version) {
  using namespace mqtt;
  const mqtt_text::Line line(text);
  std::string out, block, will_block;
  Properties properties;
  if (line.verb != "hex") properties = mqtt_text::properties(line, block);
  const auto id = static_cast<uint16_t>(line.number("id"));
  const auto reason = static_cast<ReasonCode>(line.number("reason"));
  if (line.verb == "hex") {
    for (const auto& [word, unused] : line.words)
      out.push_back(static_cast<char>(std::strtoul(word.c_str(), nullptr, 16)));
  } else if (line.verb == "connect") {
    Connect p;
    const std::string client_id = line.text("id"), user = line.text("username"), password = line.text("password");
    const auto [topic, payload] = mqtt_text::split(line.text("will"));
    p.version = version;
    p.clean_start = line.number("clean", 1);
    p.keep_alive = static_cast<uint16_t>(line.number("keep_alive"));
    p.client_id = client_id;
    p.properties = properties;
    if (line.find("will")) {
      p.will =
          Will{topic, payload, static_cast<uint8_t>(line.number("will_qos")), line.find("will_retain") != nullptr, {}};
      if (line.find("will_delay")) p.will->properties.will_delay = line.number("will_delay");
    }
    if (line.find("username")) p.username = user;
    if (line.find("password")) p.password = password;
    encode(p, out);
  } else if (line.verb == "publish") {
    Publish p;
    const std::string topic = line.text("topic"), payload = line.text("payload");
    p.topic = topic;
    p.payload = payload;
    p.packet_id = id;
    p.qos = static_cast<uint8_t>(line.number("qos"));
    p.retain = line.find("retain");
    p.dup = line.find("dup");
    p.properties = properties;
    encode(p, version, out);
  } else if (line.verb == "subscribe") {
    Subscribe p;
    p.packet_id = id;
    p.properties = properties;
    std::vector<std::string> kept;
    kept.reserve(line.words.size());
    for (const auto& [key, value] : line.words) {
      if (key != "filter") continue;
      std::istringstream in(value);
      std::string part;
      std::getline(in, part, ':');
      kept.push_back(part);
      Filter f;
      f.filter = kept.back();
      while (std::getline(in, part, ':')) {
        if (part == "nl") f.no_local = true;
        if (part == "rap") f.retain_as_published = true;
        if (part.starts_with("rh=")) f.retain_handling = static_cast<uint8_t>(part[3] - '0');
        if (part.size() == 1) f.qos = static_cast<uint8_t>(part[0] - '0');
      }
      p.filters.push_back(f);
    }
    encode(p, version, out);
  } else if (line.verb == "unsubscribe") {
    Unsubscribe p;
    p.packet_id = id;
    p.properties = properties;
    for (const auto& [key, value] : line.words)
      if (key == "filter") p.filters.emplace_back(value);
    encode(p, version, out);
  } else if (line.verb == "pingreq") {
    encode(Pingreq{}, version, out);
  } else if (line.verb == "disconnect") {
    encode(Disconnect{reason, properties}, version, out);
  } else if (line.verb == "auth") {
    encode(Auth{reason, properties}, version, out);
  } else {
    static const std::map<std::string, PacketType> acks = {{"puback", PacketType::puback},
                                                           {"pubrec", PacketType::pubrec},
                                                           {"pubrel", PacketType::pubrel},
                                                           {"pubcomp", PacketType::pubcomp}};
    PH_ASSERT(acks.contains(line.verb), "the line names a packet");
    encode(Ack{acks.at(line.verb), id, reason, properties}, version, out);
  }
  return out;
}

namespace mqtt_text {

inline void add(std::string& out, const std::string& key, ByteView value) {
  out += ' ' + key + '=';
  if (value.size() > 60 && key != "authentication_data")
    out += "<" + std::to_string(value.size()) + " bytes>";
  else
    out += value;
}
inline void add(std::string& out, const std::string& key, uint64_t value) {
  add(out, key, std::to_string(value));
}
inline void add(std::string& out, const mqtt::Properties& properties) {
  ByteView raw = properties.raw;
  mqtt::RawProperty p;
  while (mqtt::next_property(raw, p)) {
    const std::string& name = property_names().at(p.id);
    if (p.id == mqtt::PropertyId::user_property)
      add(out, name, std::string(p.first) + ":" + std::string(p.second));
    else if (p.first.data())
      add(out, name, p.first);
    else
      add(out, name, p.number);
  }
}

struct Describe {
  std::string operator()(const mqtt::Connect& p) const {
    std::string out = "connect";
    add(out, "v", static_cast<uint64_t>(p.version));
    add(out, "id", p.client_id);
    add(out, "clean", p.clean_start);
    add(out, "keep_alive", p.keep_alive);
    add(out, p.properties);
    if (p.will) add(out, "will", std::string(p.will->topic) + ":" + std::string(p.will->payload));
    return out;
  }
  std::string operator()(const mqtt::Connack& p) const {
    std::string out = "connack";
    add(out, "present", p.session_present);
    add(out, "reason", name(p.reason));
    add(out, p.properties);
    return out;
  }
  std::string operator()(const mqtt::Publish& p) const {
    std::string out = "publish";
    add(out, "topic", p.topic);
    if (p.qos) add(out, "qos", p.qos);
    if (p.qos) add(out, "id", p.packet_id);
    if (p.dup) out += " dup";
    if (p.retain) out += " retain";
    add(out, "payload", p.payload);
    add(out, p.properties);
    return out;
  }
  std::string operator()(const mqtt::Ack& p) const {
    std::string out(name(p.type));
    add(out, "id", p.packet_id);
    if (p.reason != mqtt::ReasonCode::success) add(out, "reason", name(p.reason));
    add(out, p.properties);
    return out;
  }
  template <class P>
  std::string acked(const char* verb, const P& p) const {
    std::string out = verb;
    add(out, "id", p.packet_id);
    for (auto r : p.reasons) out += ' ' + std::string(name(r));
    add(out, p.properties);
    return out;
  }
  std::string operator()(const mqtt::Suback& p) const { return acked("suback", p); }
  std::string operator()(const mqtt::Unsuback& p) const { return acked("unsuback", p); }
  std::string operator()(const mqtt::Subscribe& p) const {
    std::string out = "subscribe";
    add(out, "id", p.packet_id);
    add(out, p.properties);
    for (const auto& f : p.filters)
      add(out, "filter",
          std::string(f.filter) + ":" + std::to_string(f.qos) + (f.no_local ? ":nl" : "") +
              (f.retain_as_published ? ":rap" : "") +
              (f.retain_handling ? ":rh=" + std::to_string(f.retain_handling) : ""));
    return out;
  }
  std::string operator()(const mqtt::Unsubscribe& p) const {
    std::string out = "unsubscribe";
    add(out, "id", p.packet_id);
    add(out, p.properties);
    for (auto f : p.filters) add(out, "filter", f);
    return out;
  }
  std::string operator()(const mqtt::Pingreq&) const { return "pingreq"; }
  std::string operator()(const mqtt::Pingresp&) const { return "pingresp"; }
  std::string operator()(const mqtt::Disconnect& p) const {
    std::string out = "disconnect";
    add(out, "reason", name(p.reason));
    add(out, p.properties);
    return out;
  }
  std::string operator()(const mqtt::Auth& p) const {
    std::string out = "auth";
    add(out, "reason", name(p.reason));
    add(out, p.properties);
    return out;
  }
};

}  // namespace mqtt_text

inline std::string describe(const mqtt::Packet& packet) {
  return std::visit(mqtt_text::Describe{}, packet);
}

/// Takes every whole packet off the front of `bytes` and describes it.
inline std::vector<std::string> describe_all(std::string& bytes, mqtt::Version version) {
  std::vector<std::string> out;
  size_t used = 0;
  for (;;) {
    auto framed = mqtt::next_frame(ByteView(bytes).substr(used), size_t{1} << 30);
    if (!framed) {
      out.push_back("not a packet");
      break;
    }
    if (!framed->frame) break;
    auto packet = mqtt::decode(*framed->frame, version);
    out.push_back(packet ? describe(*packet) : "undecodable: " + std::string(name(packet.error())));
    used += framed->frame->size;
  }
  bytes.erase(0, used);
  return out;
}

}  // namespace ph::test
