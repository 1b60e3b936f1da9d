// The question to, and the answer of, an HTTP server that decides who comes in (EMQX's form). Pure text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/security/acl.h"

namespace ph::security {

struct HttpVerdict {
  enum class Result : uint8_t { ignore, allow, deny, unreachable };
  Result result = Result::ignore;
  std::vector<Rule> rules;
  bool superuser = false;
  bool broken = false;  // "ignore" because it was no answer
};

/// What has come of an HTTP/1.x answer. nullopt: not all is there; `ended`: nothing more will come. Bodies have a
/// Content-Length or end with the connection; other codings, and what is no HTTP, are "ignore".
std::optional<HttpVerdict> parse_http_answer(ByteView bytes, bool ended);

/// Something that a client wants to do.
struct AccessQuestion {
  Action action = Action::publish;
  std::string topic;  // or filter
  uint8_t qos = 0;
  bool retain = false;
  /// Equal for equal questions of one client.
  std::string key() const;
};
/// The body of a question whether it may.
std::string authorization_question(const Identity& who, const AccessQuestion& question);

/// The question's body. What is nullopt is left out.
std::string http_question(ByteView client_id, const std::optional<std::string>& username,
                          const std::optional<std::string>& password, ByteView address, ByteView certificate);

}  // namespace ph::security
