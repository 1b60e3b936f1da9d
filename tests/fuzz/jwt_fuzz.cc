// Tokens, key sets and the answers of an HTTP server that decides, out of any bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/security/base64.h"
#include "core/security/http_verdict.h"
#include "core/security/jwt.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph::security;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto token = parse_jwt(text)) {
    PH_ASSERT(looks_like_jwt(text), "what is a token looks like one");
    PH_ASSERT(token->signed_text + "." + base64url_encode(token->signature) == text, "nothing of the token is lost");
  }
  if (const auto keys = parse_jwks(text)) PH_ASSERT(!keys->empty(), "a key set has keys");
  // The claims alone, so that the fuzzer needs no base64 to get to them.
  const std::string made = base64url_encode(R"({"alg":"HS256"})") + "." + base64url_encode(text) + ".eA";
  if (const auto token = parse_jwt(made)) PH_ASSERT(token->rules.size() <= kJwtRulesMax, "rules are bounded");
  const auto early = parse_http_answer(text, false), late = parse_http_answer(text, true);
  PH_ASSERT(!early || (late && late->result == early->result), "what is said does not change with the end");
  return 0;
}
