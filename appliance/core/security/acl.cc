#include "core/security/acl.h"

#include <array>

#include "codec/mqtt/text.h"

namespace ph::security {
namespace {

struct Placeholder {
  ByteView text;
  bool username;
};
constexpr std::array<Placeholder, 4> kPlaceholders = {
    {{"%c", false}, {"%u", true}, {"${clientid}", false}, {"${username}", true}}};

/// The placeholder at the front, if there is one.
const Placeholder* placeholder_at(ByteView text) {
  for (const Placeholder& p : kPlaceholders)
    if (text.starts_with(p.text)) return &p;
  return nullptr;
}

/// Levels of a filter, one after the other.
class Levels {
 public:
  explicit Levels(ByteView text) : rest_(text) {}
  bool next(ByteView& level) {
    if (ended_) return false;
    const size_t slash = rest_.find('/');
    level = rest_.substr(0, slash);
    if (slash == rest_.npos)
      ended_ = true;
    else
      rest_.remove_prefix(slash + 1);
    return true;
  }

 private:
  ByteView rest_;
  bool ended_ = false;
};

bool starts_wild(ByteView filter) {
  return filter.starts_with('+') || filter.starts_with('#');
}

}  // namespace

std::optional<TopicRule> parse_topic_rule(ByteView text) {
  TopicRule out;
  if (text.starts_with("eq ")) {
    out.exact = true;
    text.remove_prefix(3);
  }
  out.filter = text;
  std::string sample;  // what it looks like with names in it
  for (ByteView rest = text; !rest.empty();) {
    const Placeholder* p = placeholder_at(rest);
    out.placeholders = out.placeholders || p;
    sample += p ? 'x' : rest[0];
    rest.remove_prefix(p ? p->text.size() : 1);
  }
  if (!mqtt::utf8_valid(text) || !mqtt::filter_valid(sample) || text.size() > 65'535) return std::nullopt;
  return out;
}

std::string to_string(const TopicRule& topic) {
  return topic.exact ? "eq " + topic.filter : topic.filter;
}

bool Rule::concerns(const Identity& who) const {
  if (username && username != who.username) return false;
  if (client_id && *client_id != who.client_id) return false;
  return !address || (who.address && address->contains(*who.address));
}

Expanded expand(const TopicRule& topic, const Identity& who) {
  Expanded out;
  if (!topic.placeholders) {
    out.filter = topic.filter;
    return out;
  }
  std::string filter;
  for (ByteView rest = topic.filter; !rest.empty();) {
    const Placeholder* p = placeholder_at(rest);
    if (!p) {
      filter += rest[0];
      rest.remove_prefix(1);
      continue;
    }
    if (p->username && !who.username) return out;
    const std::string& name = p->username ? *who.username : who.client_id;
    if (name.empty() || name.find_first_of("+#/") != name.npos) out.widening = true;
    filter += name;
    rest.remove_prefix(p->text.size());
  }
  if (!out.widening) out.filter = std::move(filter);
  return out;
}

ByteView subject_of(ByteView topic) {
  auto without_level = [](ByteView text) {
    const size_t slash = text.find('/');
    return slash == text.npos ? ByteView() : text.substr(slash + 1);
  };
  for (bool again = true; again;) {
    again = true;
    if (topic.starts_with("$share/"))
      topic = without_level(topic.substr(7));
    else if (topic.starts_with("$queue/"))
      topic.remove_prefix(7);
    else if (topic.starts_with("$exclusive/"))
      topic.remove_prefix(11);
    else if (topic.starts_with("$delayed/"))
      topic = without_level(topic.substr(9));
    else
      again = false;
  }
  return topic;
}

bool covers(ByteView filter, ByteView wanted) {
  if (starts_wild(filter) && wanted.starts_with('$')) return false;  // [MQTT-4.7.2-1]
  Levels ours(filter), theirs(wanted);
  ByteView f, w;
  while (ours.next(f)) {
    if (f == "#") return true;
    if (!theirs.next(w)) return false;
    if (w == "#" || (f != "+" && f != w)) return false;
  }
  return !theirs.next(w);
}

bool intersects(ByteView a, ByteView b) {
  if ((starts_wild(a) && b.starts_with('$')) || (starts_wild(b) && a.starts_with('$'))) return false;
  Levels left(a), right(b);
  ByteView l, r;
  while (true) {
    const bool more_left = left.next(l), more_right = right.next(r);
    if (!more_left && !more_right) return true;
    if ((more_left && l == "#") || (more_right && r == "#")) return true;  // '#' stands for its parent as well
    if (!more_left || !more_right) return false;
    if (l != r && l != "+" && r != "+") return false;
  }
}

}  // namespace ph::security
