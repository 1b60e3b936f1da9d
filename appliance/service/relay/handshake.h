// What both ends of a link check in a HELLO, and how a frame is handed to a connection.
#pragma once

#include <string>

#include "codec/link/frames.h"
#include "port/network.h"

namespace ph::relay {

inline constexpr uint16_t kProtocolVersion = 1;

/// Why a peer's HELLO cannot be taken; empty: it can. The text reaches both sides' logs.
inline std::string handshake_fault(const link::Hello& hello, const port::Peer& peer, const NodeId& self) {
  if (hello.protocol_min > kProtocolVersion || hello.protocol_max < kProtocolVersion)
    return "protocol version " + std::to_string(kProtocolVersion) + " is needed, the peer speaks " +
           std::to_string(hello.protocol_min) + " to " + std::to_string(hello.protocol_max);
  if (hello.node.is_zero()) return "HELLO without a node id";
  if (hello.node == self) return "the peer has this node's own id: a link to itself, or a copied data_dir";
  if (peer.encrypted && hello.name != peer.certificate_name)
    return "node name '" + hello.name + "' is not the certificate's '" + peer.certificate_name + "'";
  return {};
}

inline void send_frame(port::Connection& connection, link::Encoded&& frame) {
  connection.send_copy(frame.head);
  if (!frame.body.empty()) connection.send(std::move(frame.body));
}

}  // namespace ph::relay
