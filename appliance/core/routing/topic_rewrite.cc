#include "core/routing/topic_rewrite.h"

#include <array>

#include "codec/mqtt/text.h"
#include "core/routing/level_tree.h"

namespace ph::routing {
namespace {

/// Different names stay different, and none can be read as more than one level, or as the begin of a `$` topic.
void append_name(std::string& out, ByteView name) {
  constexpr ByteView kHex = "0123456789ABCDEF";
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c != '+' && c != '#' && c != '/' && c != '%' && c != '\0' && (c != '$' || i > 0)) {
      out += c;
      continue;
    }
    out += '%';
    out += kHex[static_cast<uint8_t>(c) >> 4];
    out += kHex[static_cast<uint8_t>(c) & 15];
  }
}

struct Captures {
  std::array<ByteView, 9> values;
  size_t count = 0;
  void add(ByteView value) {
    if (count < values.size()) values[count++] = value;
  }
};

std::optional<Captures> capture(ByteView from, ByteView topic) {
  Captures out;
  bool from_more = true;
  bool topic_more = true;
  for (;;) {
    const ByteView wanted = take_level(from, from_more);
    if (wanted == "#") {
      out.add(topic);
      return out;
    }
    const ByteView level = take_level(topic, topic_more);
    if (wanted == "+")
      out.add(level);
    else if (wanted != level)
      return std::nullopt;
    if (!topic_more) {
      if (!from_more) return out;
      if (from != "#") return std::nullopt;
      out.add({});
      return out;
    }
    if (!from_more) return std::nullopt;
  }
}

std::string fill(ByteView to, const Captures& captures, ByteView client_id, ByteView username) {
  std::string out;
  for (size_t i = 0; i < to.size(); ++i) {
    const ByteView rest = to.substr(i);
    if (rest.size() >= 3 && rest[0] == '{' && rest[2] == '}' && rest[1] >= '1' && rest[1] <= '9') {
      const size_t n = static_cast<size_t>(rest[1] - '1');
      if (n < captures.count) out += captures.values[n];
      i += 2;
    } else if (rest.starts_with("%c") || rest.starts_with("%u")) {
      append_name(out, rest[1] == 'c' ? client_id : username);
      ++i;
    } else {
      out += to[i];
    }
  }
  return out;
}

}  // namespace

std::string fill_client(ByteView text, ByteView client_id, ByteView username) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const ByteView rest = text.substr(i);
    if (rest.starts_with("%c") || rest.starts_with("%u")) {
      append_name(out, rest[1] == 'c' ? client_id : username);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<std::string> TopicRewrite::apply(RewriteRule::On on, ByteView topic, ByteView client_id,
                                               ByteView username) const {
  for (const RewriteRule& rule : rules_) {
    if (rule.on != RewriteRule::On::both && rule.on != on) continue;
    const auto captures = capture(rule.from, topic);
    if (!captures) continue;
    std::string out = fill(rule.to, *captures, client_id, username);
    const bool valid = on == RewriteRule::On::publish ? mqtt::topic_valid(out) : mqtt::filter_valid(out);
    if (!valid || out.size() > UINT16_MAX) return std::nullopt;
    return out;
  }
  return std::nullopt;
}

}  // namespace ph::routing
