// Any text is a password file or is told wrong; what was read is written and read again as it was.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/security/password.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph::security;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto entries = parse_password_file(text);
  if (!entries) return 0;
  std::string again;
  for (const auto& [name, hash] : *entries) again += name + ":" + hash.to_string() + "\n";
  PH_ASSERT(parse_password_file(again).value() == *entries, "a password file comes back");
  return 0;
}
