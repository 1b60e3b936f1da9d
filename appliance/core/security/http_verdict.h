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
};

/// What has come of an HTTP/1.x answer. nullopt: not all is there; `ended`: nothing more will come. Bodies have a
/// Content-Length or end with the connection; other codings, and what is no HTTP, are "ignore".
std::optional<HttpVerdict> parse_http_answer(ByteView bytes, bool ended);

/// The question's body. What is nullopt is left out.
std::string http_question(ByteView client_id, const std::optional<std::string>& username,
                          const std::optional<std::string>& password, ByteView address, ByteView certificate);

}  // namespace ph::security
