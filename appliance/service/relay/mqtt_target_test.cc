#include "service/relay/mqtt_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "base/coding.h"
#include "base/log.h"
#include "support/manual_loop.h"

namespace ph::relay {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Hands out the batches that a test put in, and remembers what it was told.
class BatchSource final : public port::EventSource {
 public:
  void add(const std::vector<event::Block>& blocks) {
    port::Batch batch;
    batch.stream = StreamId{1};
    batch.first = position_;
    std::string packed;
    for (const event::Block& b : blocks) {
      const uint64_t span = b.kind == event::BlockKind::lines ? b.payload.size() : 1;
      put_varint(packed, span);
      put_sized(packed, event::encode(b));
      position_ += span;
      batch.events += b.gap ? 0 : b.events;
    }
    batch.last = position_;
    batch.packed = Slice(std::move(packed));
    batches_.push_back(std::move(batch));
    if (ready_) ready_();
  }
  const std::string& route() const override { return name_; }
  const std::string& target() const override { return name_; }
  bool wants_far() const override { return false; }
  std::vector<port::OpenStream> open_streams() override { return {}; }
  std::optional<port::Batch> next(size_t) override {
    if (batches_.empty()) return std::nullopt;
    port::Batch b = std::move(batches_.front());
    batches_.pop_front();
    return b;
  }
  void on_ready(port::Task ready) override { ready_ = std::move(ready); }
  void will_use(StreamId, const std::string&, port::Task durable) override { durable(); }
  void advanced(StreamId, uint64_t to, uint64_t events, uint64_t) override {
    settled = to;
    delivered += events;
  }
  port::WriteBatch advance_entries(StreamId, uint64_t, uint64_t) override { return {}; }
  void far_advanced(StreamId, uint64_t to) override { far = to; }
  void rejected(StreamId, uint64_t first, uint64_t last, Slice, const std::string& reason) override {
    rejects.push_back(std::to_string(first) + "-" + std::to_string(last) + " " + reason);
  }
  void expired(StreamId, uint64_t first, uint64_t last) override { expirations.emplace_back(first, last); }
  void rerouted_unasked(uint64_t) override {}
  void renew(StreamId) override {}
  void on_closed(std::move_only_function<void(StreamId)>) override {}
  port::TargetCounters counters() const override { return {}; }

  uint64_t settled = 0, far = 0, delivered = 0;
  std::vector<std::string> rejects;
  std::vector<std::pair<uint64_t, uint64_t>> expirations;

 private:
  std::string name_ = "r";
  std::deque<port::Batch> batches_;
  uint64_t position_ = 0;
  port::Task ready_;
};

class HeldSink final : public port::MessageSink {
 public:
  struct Asked {
    port::Message message;
    std::move_only_function<void(Result<>)> done;
  };
  void publish(port::Message message, std::move_only_function<void(Result<>)> done) override {
    asked.push_back({std::move(message), std::move(done)});
  }
  std::deque<Asked> asked;
};

class MqttTargetTest : public testing::Test {
 protected:
  test::ManualLoop loop;
  BatchSource source;
  HeldSink sink;
  MqttTarget target{"out/{topic}", source, sink, loop};
  std::vector<std::string> published;  // accepted ones

  void SetUp() override {
    log_configure(LogLevel::off, false);
    target.start();
  }
  static event::Block lines(int from, int to) {
    event::Block b;
    b.category = "c";
    std::string text;
    for (int i = from; i < to; ++i) text += std::to_string(i) + "\n";
    b.events = static_cast<uint64_t>(to - from);
    b.payload = Slice(std::move(text));
    b.id.last = b.payload.size();
    return b;
  }
  event::Block message(const std::string& topic, const std::string& payload, std::optional<uint64_t> expiry = {}) {
    event::Block b;
    b.kind = event::BlockKind::message;
    b.category = "c";
    b.topic = topic;
    b.events = 1;
    b.qos = 2;
    b.id.last = 1;
    b.accepted_at = loop.wall_now();
    if (expiry) b.expiry_seconds_plus_one = *expiry + 1;
    b.payload = Slice(payload);
    return b;
  }
  /// Answers the oldest `n`, and lets the loop run.
  void answer(size_t n, bool accepted = true) {
    for (; n > 0; --n) {
      HeldSink::Asked a = std::move(sink.asked.front());
      sink.asked.pop_front();
      if (accepted) published.push_back(a.message.topic + " " + std::string(a.message.payload.view()));
      a.done(accepted ? Result<>() : fail("broker.busy"));
    }
    loop.run_posted();
  }
};

TEST_F(MqttTargetTest, has_little_outstanding_and_moves_the_cursor_at_the_end) {
  source.add({lines(0, 300), lines(300, 600)});
  loop.run_posted();
  EXPECT_EQ(sink.asked.size(), MqttTarget::kSliceMessages);
  answer(MqttTarget::kSliceMessages - 1);
  EXPECT_EQ(sink.asked.size(), 1U) << "the next ones follow when all of these are answered";
  answer(1);
  EXPECT_EQ(sink.asked.size(), MqttTarget::kSliceMessages);
  answer(MqttTarget::kSliceMessages);
  EXPECT_EQ(source.delivered, 0U);
  EXPECT_EQ(sink.asked.size(), 600 - 2 * MqttTarget::kSliceMessages);
  answer(sink.asked.size());
  EXPECT_EQ(source.delivered, 600U);
  EXPECT_EQ(source.far, source.settled);
  ASSERT_EQ(published.size(), 600U);
  for (size_t i = 0; i < 600; ++i) EXPECT_EQ(published[i], "out/c " + std::to_string(i));
}

TEST_F(MqttTargetTest, what_the_broker_is_too_busy_for_is_offered_again_in_order) {
  source.add({lines(0, 6)});
  loop.run_posted();
  answer(2);
  answer(3, false);
  answer(1);
  EXPECT_EQ(source.settled, 0U);
  EXPECT_THAT(sink.asked, IsEmpty());
  loop.advance(MqttTarget::kRetryAfter);
  EXPECT_EQ(sink.asked.size(), 3U);
  answer(3);
  EXPECT_THAT(published, ElementsAre("out/c 0", "out/c 1", "out/c 5", "out/c 2", "out/c 3", "out/c 4"));
  EXPECT_EQ(source.delivered, 6U);
}

TEST_F(MqttTargetTest, expired_messages_are_not_delivered_but_told) {
  source.add({message("a", "1"), message("a", "2", 5), message("a", "3", 60)});
  loop.advance(10s);
  ASSERT_EQ(sink.asked.size(), 3U);
  answer(3);
  source.add({message("a", "1"), message("a", "2", 0), message("a", "3", 60)});
  loop.run_posted();
  ASSERT_EQ(sink.asked.size(), 2U);
  EXPECT_EQ(sink.asked[1].message.expiry_seconds_plus_one, 61U);
  answer(2);
  EXPECT_THAT(source.expirations, ElementsAre(std::pair<uint64_t, uint64_t>(4, 5)));
  EXPECT_EQ(source.delivered, 5U);
  EXPECT_EQ(source.settled, 6U);
  source.add({message("a", "only", 0)});
  loop.run_posted();
  EXPECT_EQ(source.settled, 7U) << "nothing to publish stops nothing";
  EXPECT_EQ(source.delivered, 5U);
}

TEST_F(MqttTargetTest, what_can_never_be_published_is_rejected_and_the_rest_goes_on) {
  source.add({message("\xff", "bad"), message(std::string(65'533, 'x'), "long"), message("good", "x")});
  loop.run_posted();
  ASSERT_EQ(sink.asked.size(), 1U);
  answer(1);
  EXPECT_THAT(source.rejects, ElementsAre("0-1 mqtt.bad_topic", "1-2 mqtt.bad_topic"));
  EXPECT_EQ(source.delivered, 1U);
  EXPECT_EQ(source.settled, 3U);
}

}  // namespace
}  // namespace ph::relay
