// What a WebSocket needs beside its socket: the answer to an upgrade request, and the state of an open one. Internal to
// this room. Why it is built so: docs/websocket.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/ws/frame.h"
#include "io/output_queue.h"

namespace ph::io {

inline constexpr size_t kUpgradeHeadMax = 8 * 1024;  // longer request heads are refused with 431

struct UpgradeAnswer {
  int status = 400;      // 101: accepted
  std::string response;  // whole, as it goes to the wire
  std::string why;       // of a refusal, for people
};

/// Answers a request head, which ends with an empty line (RFC 6455 4.2). Accepted is an HTTP/1.1 GET for `path` (a
/// query is ignored) that asks for version 13 and offers subprotocol "mqtt" or, as clients of MQTT 3.1 do, "mqttv3.1";
/// the answer names the one that was chosen [MQTT-6.0.0-3, 6.0.0-4]. Refused: 400 no valid request, or no subprotocol
/// of ours; 404 another path; 405 another method; 426 no upgrade to version 13; 431 (by refuse_upgrade) too long.
///
/// `origins`: not empty: a request with an Origin, which browsers alone send, is refused with 403 unless one of these
/// fits: "https://app.example", "https://app.example:8443", or with "*." for any names in front of the rest,
/// "https://*.example". Letters of either case. A request without an Origin comes from no page and is let in.
UpgradeAnswer answer_upgrade(ByteView head, ByteView path, const std::vector<std::string>& origins = {});
UpgradeAnswer refuse_upgrade(int status, std::string why);

/// One open WebSocket. Owned by its socket. Memory when idle: this object.
struct WebSocketState {
  ws::FrameDecoder decoder;
  std::unique_ptr<OutputQueue> staged;  // sent by the user, not framed yet; all of a turn becomes one frame
  std::optional<std::string> pong;      // owed to the client
  size_t pong_ahead = 0;                // bytes of the output up to the end of the pong before it: one at a time waits
  uint16_t close_code = ws::kNormal;
  bool close_sent = false;
};

}  // namespace ph::io
