// OwnerDesk: what an operator does about a receiver that a strict upstream waits for and that will not come back: it is
// given up, and what it may have published goes to others (core/link/docs/strict.md). Shapes the request and its
// answer; the wiring asks the upstream.
//
//   POST /api/v5/upstreams/forget   {"upstream": U, "receiver": "host:port", "dry_run": true or absent}
//     200 {upstream, receiver, batches, done}   400 no such request   404 no such upstream, or nothing waits for that
//     receiver   409 it is connected: what it has published it will say itself
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ph::admin {

inline constexpr std::string_view kForgetOwnerPath = "/api/v5/upstreams/forget";

struct ForgetOwner {
  std::string upstream;
  std::string receiver;
  bool dry_run = false;
};
std::string to_json(const ForgetOwner& request);
/// Errors: admin.malformed.
Result<ForgetOwner> parse_forget_owner(std::string_view json);

struct OwnerForgotten {
  std::string upstream;
  std::string receiver;
  uint64_t batches = 0;
  bool done = false;  // false: asked only
};
std::string to_json(const OwnerForgotten& answer);
/// For a terminal, out of the JSON document. Errors: admin.malformed.
Result<std::string> owner_forgotten_text(std::string_view json);

}  // namespace ph::admin
