// Frames of the link protocol as a hostile peer would send them: whatever decodes must encode again, and the encoding
// must decode to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/limits.h"
#include "codec/link/frames.h"

namespace {

void check(ph::ByteView bytes) {
  auto decoded = ph::link::decode(bytes);
  if (!decoded) return;
  if (decoded->consumed > bytes.size()) std::abort();
  const auto* frame = std::get_if<ph::link::Frame>(&decoded->frame);
  if (!frame) return;
  ph::link::Encoded once = ph::link::encode(*frame);
  std::string first = once.head + std::string(once.body.view());
  auto again = ph::link::decode(first);
  if (!again || again->consumed != first.size()) std::abort();
  ph::link::Encoded twice = ph::link::encode(std::get<ph::link::Frame>(again->frame));
  if (first != twice.head + std::string(twice.body.view())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > ph::limits::kFrameMax) return 0;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  if (size < 2) return 0;
  // The same as the body of a frame whose header is right, so that the checksum does not keep the bodies untested.
  std::string frame(12, '\0');
  auto length = static_cast<uint32_t>(size - 1);
  std::memcpy(frame.data(), &length, 4);
  frame[4] = 1;
  frame[5] = static_cast<char>(data[0] % 24);
  frame.append(bytes, 1);
  ph::ByteView view = frame;
  uint32_t crc = ph::crc32c(view.substr(12), ph::crc32c(view.substr(4, 4)));
  std::memcpy(frame.data() + 8, &crc, 4);
  check(frame);
  return 0;
}
