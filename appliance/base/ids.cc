#include "base/ids.h"

#include <cstring>

namespace ph {

std::optional<NodeId> NodeId::from_bytes(ByteView bytes) {
  if (bytes.size() != 16) return std::nullopt;
  NodeId id;
  std::memcpy(id.raw.data(), bytes.data(), 16);
  return id;
}

}  // namespace ph
