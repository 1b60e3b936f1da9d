// The fuzzer's seeds for the MQTT codec: every packet of every version, one file each, kept up to date like any golden
// file. First byte: which version (see tests/fuzz/mqtt_codec_fuzz.cc).
#include <gtest/gtest.h>

#include "support/golden.h"
#include "support/mqtt_packets.h"

namespace ph {
namespace {

TEST(MqttCorpus, has_every_packet_of_every_version) {
  for (int level : {3, 4, 5}) {
    size_t number = 0;
    for (const std::string& bytes : test::every_packet(static_cast<mqtt::Version>(level))) {
      const std::string name = "v" + std::to_string(level) + "_" + std::to_string(number++) + ".bin";
      test::expect_golden(test::tests_folder() / "fuzz/corpus/mqtt_codec" / name,
                          std::string(1, static_cast<char>(level - 3)) + bytes);
    }
  }
}

}  // namespace
}  // namespace ph
