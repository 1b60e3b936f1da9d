// Base64 of RFC 4648, both alphabets. Decoding is strict: canonical padding (section 4) or none at all (section 5), no
// white space, no left-over bits. Used for password files, SCRAM and JWT.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"

namespace ph::security {

std::string base64_encode(ByteView bytes);
std::optional<std::string> base64_decode(ByteView text);

/// The URL-safe alphabet without padding, as JWT writes it.
std::string base64url_encode(ByteView bytes);
std::optional<std::string> base64url_decode(ByteView text);

}  // namespace ph::security
