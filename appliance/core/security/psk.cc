#include "core/security/psk.h"

#include "core/security/password.h"
#include "core/security/rows.h"

namespace ph::security {

bool psk_identity_valid(ByteView identity) {
  return identity.size() <= kPskIdentityMax && username_valid(identity);
}

Result<std::string> parse_psk_key(ByteView hex) {
  if (hex.empty()) return fail(errors::bad_psk, "the key is empty");
  if (hex.size() % 2 != 0) return fail(errors::bad_psk, "the key has an odd number of hexadecimal digits");
  if (hex.size() / 2 > kPskBytesMax)
    return fail(errors::bad_psk, "the key is longer than " + std::to_string(kPskBytesMax) + " bytes");
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) return fail(errors::bad_psk, "the key is not hexadecimal");
    out += static_cast<char>(high << 4 | low);
  }
  return out;
}

Result<PskKeys> parse_psk_file(ByteView text) {
  PskKeys out;
  PH_TRY(for_each_row(text, errors::bad_psk, "identity", "key", [&](ByteView identity, ByteView hex) -> Result<> {
    if (!psk_identity_valid(identity)) return fail(errors::bad_psk, "no valid identity");
    PH_ASSIGN(auto key, parse_psk_key(hex));
    if (out.contains(identity)) return fail(errors::bad_psk, "the identity is there already");
    if (out.size() >= kPskMax) return fail(errors::bad_psk, "more than " + std::to_string(kPskMax) + " keys");
    out.emplace(std::string(identity), std::move(key));
    return {};
  }));
  return out;
}

}  // namespace ph::security
