#include "store/chunk/message_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "codec/mqtt/packet.h"
#include "codec/mqtt/properties.h"

namespace ph::chunk {
namespace {

/// Length of the UTF-8 sequence at the front of `s`, 0 if there is none. Requires !s.empty().
size_t utf8_length(ByteView s) {
  auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  unsigned char first = at(0);
  if (first < 0x80) return 1;
  size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || s.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  if (first == 0xE0 && at(1) < 0xA0) return 0;  // overlong
  if (first == 0xED && at(1) > 0x9F) return 0;  // surrogates
  if (first == 0xF0 && at(1) < 0x90) return 0;  // overlong
  if (first == 0xF4 && at(1) > 0x8F) return 0;  // above U+10FFFF
  return length;
}

/// A JSON string. Bytes that are no UTF-8 become U+FFFD each: topics and names are text, a line must parse.
void put_string(std::string& out, ByteView s) {
  out.push_back('"');
  while (!s.empty()) {
    size_t length = utf8_length(s);
    auto c = static_cast<unsigned char>(s.front());
    if (length == 0) {
      out.append("\xEF\xBF\xBD");
      length = 1;
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    } else {
      out.append(s.substr(0, length));
    }
    s.remove_prefix(length);
  }
  out.push_back('"');
}

void put_properties(std::string& out, ByteView encoded) {
  if (encoded.empty()) return;
  std::string framed;
  put_varint(framed, encoded.size());  // as MQTT has it: LEB128
  framed.append(encoded);
  ByteView bytes = framed;
  auto p = mqtt::decode_properties(bytes, mqtt::PacketType::publish);
  if (!p || !bytes.empty()) {
    out.append(",\"properties_base64\":\"").append(to_base64(encoded)).append("\"");
    return;
  }
  size_t before = out.size();
  out.append(",\"properties\":{");
  auto key = [&](std::string_view name) {
    if (out.back() != '{') out.push_back(',');
    out.append("\"").append(name).append("\":");
  };
  if (p->payload_format) key("payload_format"), out.append(std::to_string(*p->payload_format));
  if (p->content_type) key("content_type"), put_string(out, *p->content_type);
  if (p->response_topic) key("response_topic"), put_string(out, *p->response_topic);
  if (p->correlation_data) key("correlation_data"), put_string(out, to_base64(*p->correlation_data));
  bool first = true;
  mqtt::for_each_user_property(p->raw, [&](ByteView name, ByteView value) {
    if (first) key("user");
    out.append(std::exchange(first, false) ? "[[" : ",[");
    put_string(out, name);
    out.push_back(',');
    put_string(out, value);
    out.push_back(']');
  });
  if (!first) out.push_back(']');
  if (out.back() == '{')
    out.resize(before);  // nothing that says something to a reader
  else
    out.push_back('}');
}

const Slice& newline() {
  static const Slice slice(std::string("\n"));
  return slice;
}

}  // namespace

bool is_utf8(ByteView bytes) {
  while (!bytes.empty()) {
    size_t length = utf8_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string to_base64(ByteView bytes) {
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < left ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out.push_back(k <= left ? kAlphabet[group >> (18 - 6 * k) & 63] : '=');
  }
  return out;
}

std::string to_rfc3339(WallTime t) {
  auto day = std::chrono::floor<std::chrono::days>(t);
  std::chrono::year_month_day date(day);
  std::chrono::hh_mm_ss time(t - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", int(date.year()), unsigned(date.month()),
                     unsigned(date.day()), time.hours().count(), time.minutes().count(), time.seconds().count(),
                     time.subseconds().count());
}

void append_raw_line(const event::Block& message, std::vector<Slice>& out) {
  ByteView p = message.payload.view();
  auto special = static_cast<size_t>(std::count_if(p.begin(), p.end(), [](char c) { return c == '\\' || c == '\n'; }));
  if (special == 0) {
    if (!p.empty()) out.push_back(message.payload);
    out.push_back(newline());
    return;
  }
  std::string line;
  line.reserve(p.size() + special + 1);
  for (char c : p) {
    if (c == '\\' || c == '\n') line.push_back('\\');
    line.push_back(c == '\n' ? 'n' : c);
  }
  line.push_back('\n');
  out.emplace_back(std::move(line));
}

std::string to_json_line(const event::Block& message) {
  std::string out = "{\"topic\":";
  out.reserve(message.payload.size() + message.topic.size() + 128);
  put_string(out, message.topic);
  out.append(",\"time\":\"").append(to_rfc3339(message.accepted_at)).append("\",\"qos\":");
  out.append(std::to_string(message.qos)).append(",\"retain\":").append(message.retain ? "true" : "false");
  put_properties(out, message.properties);
  if (is_utf8(message.payload.view())) {
    out.append(",\"payload\":");
    put_string(out, message.payload.view());
  } else {
    out.append(",\"payload_base64\":\"").append(to_base64(message.payload.view())).append("\"");
  }
  out.append("}\n");
  return out;
}

}  // namespace ph::chunk
