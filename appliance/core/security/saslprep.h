// SASLprep (RFC 4013): the one form of a name or password, so that what looks alike is alike. SCRAM compares nothing
// else (RFC 5802 5.1). Pure.
//
// Of normalisation (form KC) only that is done which changes nothing: text that would have to be composed, decomposed
// or replaced is refused with the character, instead of being taken for something that it is not. Characters that
// Unicode 3.2 does not have are refused, as in the RFC's stored strings.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::security {

namespace errors {
inline constexpr ErrorCode not_prepared{"security.not_prepared"};
}

/// The prepared text: other spaces are ' ', soft hyphens and their like are gone. Errors: security.not_prepared, with
/// what is wrong: no UTF-8, nothing left, a character that is forbidden, unknown or not in its normal form, or
/// right-to-left text mixed with other one (RFC 3454 6).
Result<std::string> saslprep(ByteView text);

}  // namespace ph::security
