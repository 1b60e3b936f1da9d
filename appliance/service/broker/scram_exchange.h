// ScramExchange: one client's SCRAM-SHA-256 authentication between its first and its last message.
#pragma once

#include <string>

#include "core/security/scram.h"

namespace ph::broker {

struct ScramExchange {
  security::ScramFirst first;
  std::string server_first;
  std::string nonce;  // both parts
  security::ScramSecret secret;
  bool known = false;  // false: nobody has that name; the exchange goes on as if, and fails at its end
};

}  // namespace ph::broker
