// The fuzzer's seeds for the link protocol: one of each frame, one file each, and one stored stream of a receiver. They
// are golden files as well: bytes that two nodes of different builds must agree on.
#include <gtest/gtest.h>

#include "core/link/receiver_streams.h"
#include "support/golden.h"
#include "support/sender_script.h"

namespace ph::link {

TEST(LinkCorpus, has_one_of_each_frame) {
  StreamId stream{0x1122334455667788};
  std::vector<Span> spans = {{3, 9}, {200, 1000}};
  std::vector<Reject> rejects = {{4, 5, "category is empty"}};
  Slice packed = test::SenderScript::lines(1, 0, 50, 2);
  std::vector<std::pair<const char*, Frame>> frames = {
      {"hello",
       Hello{1, 1, Random(7).node_id(), "gw-17", "ams", "fra", 42, 43, 44, 0, from_unix_ms(1'700'000'000'123)}},
      {"refuse", Refuse{"protocol 2 is not spoken here"}},
      {"resume", Resume{{{stream, 1000, 900}, {StreamId{9}, 0, 0}}}},
      {"resumed", Resumed{{{stream, 3, 1000, spans, {{0, 3}}, rejects}}}},
      {"events", Events{stream, 0, 0, 0, 50, 5, 0, true, packed, 0}},
      {"ack", Ack{stream, spans, {{0, 3}}, 12, rejects}},
      {"credit", Credit{1 << 20}},
      {"hold", Hold{stream, "spool_full"}},
      {"release", Release{stream}},
      {"close", CloseStream{stream}},
      {"ping", Ping{99}},
      {"pong", Pong{99}},
      {"goodbye", Goodbye{"stopping"}},
  };
  for (const auto& [name, frame] : frames) {
    Encoded e = encode(frame);
    test::expect_golden(test::tests_folder() / "fuzz/corpus/link_frames" / name, e.head + std::string(e.body.view()));
  }
  StreamKey key{Random(1).node_id(), target_hash("fra"), StreamId{7}};
  auto streams = ReceiverStreams::make();
  std::string value;
  for (uint64_t first : {20, 40, 60}) {
    auto fresh = *streams->admit(key, 5, first, first + 10);
    streams->reject(key, first, first + 1, "line");
    streams->far(key, first, first + 10);
    value = streams->value_with(key, fresh, WallTime(std::chrono::hours(400'000)));
    streams->commit(key, fresh);
  }
  test::expect_golden(test::tests_folder() / "fuzz/corpus/link_store/stream", value);
  test::expect_golden(test::tests_folder() / "fuzz/corpus/link_store/packed", std::string(packed.view()));
}

}  // namespace ph::link
