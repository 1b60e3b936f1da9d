// The rules that come with a client's credentials, as JSON: in a token's claim or a server's answer. The forms are at
// the head of jwt.h.
#pragma once

#include <boost/json/fwd.hpp>
#include <vector>

#include "core/security/acl.h"

namespace ph::security {

/// False: it cannot be read, and what is in `out` must not be used.
bool read_acl_claim(const boost::json::value& acl, std::vector<Rule>& out);

}  // namespace ph::security
