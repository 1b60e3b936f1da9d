// SCRAM messages: the first line is a client's first message, the second one its last, the third one a stored secret.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/security/scram.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph::security;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  auto next = [&rest] {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    return line;
  };
  const std::string_view one = next(), two = next(), three = next();
  if (const auto first = parse_scram_first(one)) {
    PH_ASSERT(first->gs2_header + first->bare == one, "nothing of the message is lost");
    PH_ASSERT(!first->username.empty() && !first->nonce.empty(), "a message names somebody");
    if (const auto last = parse_scram_final(two, *first)) {
      PH_ASSERT(last->proof.size() == kScramDigest, "a proof is a digest");
      PH_ASSERT(two.starts_with(last->without_proof), "what is signed is what was sent");
    }
  }
  if (const auto secret = parse_scram_secret(three))
    PH_ASSERT(parse_scram_secret(secret->to_string()) == secret, "a secret comes back");
  return 0;
}
