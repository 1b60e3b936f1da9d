// The MQTT codec: any bytes either are a packet that encodes to bytes that decode to the same packet again, or give a
// reason code. First byte of the input: the version; the rest: what a socket might deliver, one packet after another.
// The seeds in corpus/mqtt_codec are made by tests/golden/mqtt_corpus_test.cc.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/mqtt/packet.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_packet(const ph::mqtt::Frame& frame, ph::mqtt::Version version) {
  using namespace ph::mqtt;
  (void)claimed_level(frame);
  const auto packet = decode(frame, version);
  if (!packet) {
    require(is_error(packet.error()));
    return;
  }
  if (const auto* connect = std::get_if<Connect>(&*packet)) version = connect->version;
  std::string once, twice, scratch;
  encode(*packet, version, once);
  const auto framed = next_frame(once, size_t{1} << 28);
  require(framed && framed->frame && framed->frame->size == once.size());
  const auto again = decode(*framed->frame, version);
  require(again.has_value());
  encode(*again, version, twice);
  require(once == twice);
  if (const auto* publish = std::get_if<Publish>(&*packet)) (void)forwarded(publish->properties, scratch);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ph::mqtt;
  if (size == 0) return 0;
  constexpr Version kVersions[] = {Version::v31, Version::v311, Version::v5};
  const Version version = kVersions[data[0] % 3];
  ph::ByteView rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  while (!rest.empty()) {
    const auto framed = next_frame(rest, 1 << 20);
    if (!framed) break;
    if (!framed->frame) {
      require(framed->wanted > rest.size());
      break;
    }
    check_packet(*framed->frame, version);
    rest.remove_prefix(framed->frame->size);
  }
  return 0;
}
