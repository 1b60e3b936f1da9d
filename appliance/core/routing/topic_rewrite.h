// Topic rewriting: rules that give a topic or filter another name before anything else sees it, and the placeholders
// that configured topics have. Pure; a broker worker applies it to PUBLISH, SUBSCRIBE and UNSUBSCRIBE.
//
//   from = "old/+/state/#"   to = "new/{1}/of/%c/{2}"
//
// Levels of `from` are compared with those of the topic one by one; '+' stands for any level and '#', at the end, for
// all that follow, none included. {1} to {9} are what the wildcards stood for, in order; %c is the client id, %u the
// user name. A filter is treated like a topic: "old/+/state/#" itself matches, and keeps its wildcards. The first rule
// that matches counts, and its result is not rewritten again. What does not become a valid topic or filter stays as it
// was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace ph::routing {

/// Replaces %c and %u. In the names '+', '#', '/' and '%', and '$' at the begin, become %2B, %23, %2F, %25 and %24: a
/// client must not choose a topic by its name, nor share one with another name.
std::string fill_client(ByteView text, ByteView client_id, ByteView username);

struct RewriteRule {
  enum class On : uint8_t { publish, subscribe, both };
  On on = On::both;
  std::string from;
  std::string to;
};

class TopicRewrite {
 public:
  explicit TopicRewrite(std::vector<RewriteRule> rules = {}) : rules_(std::move(rules)) {}
  bool empty() const { return rules_.empty(); }

  /// nullopt: no rule is for it. `on` is publish or subscribe.
  std::optional<std::string> apply(RewriteRule::On on, ByteView topic, ByteView client_id, ByteView username) const;

 private:
  std::vector<RewriteRule> rules_;
};

}  // namespace ph::routing
