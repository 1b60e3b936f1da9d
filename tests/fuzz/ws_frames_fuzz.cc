// WebSocket frames as a hostile client would send them: how they are cut into reads changes nothing of what comes out.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/ws/frame.h"

namespace {

struct Result {
  std::string stream;
  std::string ping;
  uint16_t failed = 0;
  std::optional<uint16_t> closed;
  bool operator==(const Result&) const = default;
};

Result decode(const std::string& bytes, size_t piece) {
  ph::ws::FrameDecoder decoder;
  Result out;
  for (size_t at = 0; at < bytes.size();) {
    std::string part = bytes.substr(at, piece);
    at += part.size();
    const size_t n = decoder.decode(part.data(), part.size());
    if (n > part.size()) std::abort();
    out.stream.append(part, 0, n);
    if (auto ping = decoder.take_ping()) out.ping = *ping;
  }
  out.failed = decoder.failed();
  out.closed = decoder.closed();
  if (out.failed && decoder.fault().empty()) std::abort();
  if (out.ping.size() > ph::ws::kControlMax) std::abort();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 65536) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const Result whole = decode(bytes, SIZE_MAX);
  if (decode(bytes, 1) != whole || decode(bytes, 1 + data[0] % 64) != whole) std::abort();
  if (whole.stream.size() > bytes.size()) std::abort();
  // What it carried, framed by us as a client would, carries the same.
  const std::array<uint8_t, 4> mask = {data[0], 1, 2, 3};
  std::string payload = whole.stream;
  ph::ws::apply_mask(payload.data(), payload.size(), mask);
  const std::string again = ph::ws::frame_header(ph::ws::Opcode::binary, payload.size(), mask) + payload;
  if (decode(again, SIZE_MAX).stream != whole.stream) std::abort();
  return 0;
}
