// What a sender makes of its credit: batches are cut to it, crumbs wait, NEED says that there is more.
#include <gtest/gtest.h>

#include <deque>

#include "core/link/packed.h"
#include "core/link/sender_state.h"
#include "support/sender_script.h"

namespace ph::link {
namespace {

struct Credited : test::SenderScript {
  explicit Credited(SenderOptions options) : SenderScript(std::move(options)) {
    sender().add_source({}, false);
    sender().start(now());
  }
  static SenderOptions options(size_t count, size_t frame_min = 200) {
    SenderOptions o = receivers(count);
    o.frame_min = frame_min;
    return o;
  }
  void connect(size_t r, uint64_t features = features::need) {
    take();
    Hello hello;
    hello.node.raw[0] = static_cast<unsigned char>(r + 1);
    hello.features = features;
    sender().connected(r, hello, now());
    answer_nothing(r);
  }
  struct Seen {
    std::vector<Events> events;
    std::vector<size_t> sizes;
    size_t needs = 0;
    uint64_t need = 0;
  };
  /// What was sent since the last call; WillUse is answered at once.
  Seen seen() {
    Seen out;
    for (bool more = true; more;) {
      auto effects = sender().take_effects();
      more = !effects.empty();
      for (const auto& e : effects) {
        if (const auto* use = std::get_if<effect::WillUse>(&e))
          sender().durable(use->source, use->stream, use->receiver, now());
        const auto* send = std::get_if<effect::Send>(&e);
        if (!send) continue;
        bytes_.push_back(send->frame.head + std::string(send->frame.body.view()));
        const Frame frame = std::get<Frame>(decode(bytes_.back())->frame);
        if (const auto* need = std::get_if<Need>(&frame)) ++out.needs, out.need = need->bytes;
        if (const auto* events = std::get_if<Events>(&frame)) {
          out.events.push_back(*events);
          out.sizes.push_back(send->frame.size());
        }
      }
    }
    return out;
  }

 private:
  std::deque<std::string> bytes_;  // frames are views of them
};

}  // namespace

TEST(SenderCredit, a_batch_is_cut_to_the_credit_and_arrives_whole) {
  for (const uint64_t per_block : {100, 7, 1}) {
    Credited s(Credited::options(1));
    s.connect(0);
    s.received(0, Credit{700});
    s.offer(1, 0, 1000, per_block);
    uint64_t at = 0, sent = 0, events = 0, credit = 700;
    for (int rounds = 0; at < 1000 && rounds < 100; ++rounds) {
      const auto seen = s.seen();
      for (size_t i = 0; i < seen.events.size(); ++i) {
        const Events& e = seen.events[i];
        EXPECT_EQ(e.first, at) << "in order, without a gap";
        EXPECT_EQ(e.last % Credited::kLine, 0u) << "at a line end";
        std::string lines;
        for (const auto& b : blocks_within(e.packed, e.first, e.last, e.first, e.last)) {
          lines += event::decode(b.block)->payload.view();
          events += b.events;
        }
        std::string expected;
        for (const auto& b : blocks_within(Credited::lines(1, at, e.last), at, e.last, at, e.last))
          expected += event::decode(b.block)->payload.view();
        EXPECT_EQ(lines, expected);
        at = e.last;
        sent += seen.sizes[i];
        EXPECT_LE(sent, credit);
      }
      s.ack(0, 1, 0, at);
      s.received(0, Credit{credit = sent + 700});
    }
    EXPECT_EQ(at, 1000u);
    EXPECT_EQ(events, 100u);
    EXPECT_EQ(s.sender().unacked_bytes(), 0u);
  }
}

TEST(SenderCredit, crumbs_wait_for_more_credit) {
  Credited s(Credited::options(1));
  s.connect(0);
  s.received(0, Credit{500});
  s.offer(1, 0, 250);
  const auto first = s.seen();
  ASSERT_EQ(first.events.size(), 1u);
  s.received(0, Credit{first.sizes[0] + 150});
  s.offer(1, 250, 1000);
  EXPECT_TRUE(s.seen().events.empty());
  s.ack(0, 1, 0, 250);
  EXPECT_TRUE(s.seen().events.empty()) << "CREDIT follows";
  s.received(0, Credit{first.sizes[0] + 500});
  EXPECT_EQ(s.seen().events.size(), 1u);
}

TEST(SenderCredit, what_cannot_be_cut_goes_over_it_once) {
  Credited s(Credited::options(1, 30));
  s.connect(0);
  s.received(0, Credit{40});
  s.offer(1, 0, 10);
  s.offer(1, 10, 20);
  const auto seen = s.seen();
  EXPECT_EQ(seen.events.size(), 1u);
  s.received(0, Credit{seen.sizes[0] + 40});
  EXPECT_EQ(s.seen().events.size(), 1u);
}

TEST(SenderCredit, need_is_said_once_for_each_credit_and_only_to_who_knows_it) {
  Credited s(Credited::options(2, 50));
  s.connect(0);
  s.connect(1, 0);
  s.seen();
  s.offer(1, 0, 30);
  auto seen = s.seen();
  EXPECT_EQ(seen.needs, 1u) << "r1 does not know it";
  EXPECT_EQ(seen.need, 0u);
  s.offer(1, 30, 60);
  EXPECT_EQ(s.seen().needs, 0u);
  s.received(0, Credit{100});
  seen = s.seen();
  ASSERT_EQ(seen.events.size(), 1u);
  EXPECT_EQ(seen.needs, 1u) << "there is more";
  EXPECT_EQ(seen.need, seen.sizes[0]);
  s.received(0, Credit{1 << 20});
  seen = s.seen();
  EXPECT_EQ(seen.events.size(), 1u);
  EXPECT_EQ(seen.needs, 0u);
}

TEST(SenderCredit, batches_are_pulled_no_longer_than_half_of_what_may_be_unanswered) {
  Credited s(Credited::options(1));
  s.connect(0);
  s.received(0, Credit{20'000});
  EXPECT_EQ(s.sender().batch_bytes(), 10'000u);
  s.received(0, Credit{16 << 20});
  EXPECT_EQ(s.sender().batch_bytes(), 16u * 1024) << "until it is known how fast it is";
}

TEST(SenderCredit, runs_of_a_hash_are_cut_and_each_part_fences_their_keys) {
  SenderOptions o = Credited::options(2);
  o.hash = HashRule{HashRule::By::regex, "(.)\n", 0};
  Credited s(std::move(o));
  s.connect(0);
  s.connect(1);
  for (size_t r : {0u, 1u}) s.received(r, Credit{260});
  s.offer(1, 0, 1000);
  uint64_t events = 0, credit = 260;
  std::vector<uint64_t> sent(2);
  for (int rounds = 0; events < 100 && rounds < 200; ++rounds) {
    const auto seen = s.seen();
    for (const Events& e : seen.events) {
      events += e.events;
      for (size_t r : {0u, 1u}) s.ack(r, 1, e.first, e.last);
    }
    credit += 600;
    for (size_t r : {0u, 1u}) s.received(r, Credit{credit});
  }
  EXPECT_EQ(events, 100u);
  EXPECT_EQ(s.sender().unacked_events(), 0u);
}

TEST(SenderHash, runs_that_are_cut_again_keep_to_the_span_that_receivers_remember) {
  SenderOptions o;
  o.hash = HashRule{HashRule::By::regex, "(.).$", 0};
  o.window_bytes = 64 << 20;
  o.receivers = test::SenderScript::receivers(2).receivers;
  test::SenderScript s(std::move(o));
  s.sender().add_source({}, false);
  s.sender().start(s.now());
  s.ready(0, 0);
  s.pass(std::chrono::seconds(6));  // r1 is away: everything is r0's
  for (uint64_t i = 0; i < 20; ++i) s.offer(1, i * 10'000, i * 10'000 + 10'000, 1000);
  EXPECT_EQ(s.sent(), "");
  s.ready(1);
  s.received(0, Credit{1 << 30});
  s.sent();
  uint64_t batches = 0;
  for (const auto& r : s.sender().receivers()) batches += r.in_flight_batches;
  EXPECT_GT(batches, 100u) << "its lines are cut apart";
  EXPECT_LE(batches, kSpanMax);
}

TEST(CutPoint, is_between_blocks_or_at_a_line_end_and_keeps_to_the_bound) {
  using test::SenderScript;
  for (const uint64_t per_block : {100, 9, 3, 1}) {
    const Slice packed = SenderScript::lines(1, 500, 1200, per_block);
    std::optional<uint64_t> before;
    for (size_t bytes = 0; bytes < packed.size() + 50; ++bytes) {
      const auto at = cut_point(packed, 500, 1200, bytes);
      if (!at) {
        EXPECT_TRUE(!before || bytes >= packed.size()) << bytes;
        continue;
      }
      EXPECT_EQ(*at % SenderScript::kLine, 0u);
      EXPECT_GE(*at, before.value_or(0));
      before = at;
      const auto part = cut_packed(packed, 500, 1200, 500, *at);
      const auto rest = cut_packed(packed, 500, 1200, *at, 1200);
      ASSERT_TRUE(part && rest);
      EXPECT_LE(part->packed.size(), bytes);
      EXPECT_EQ(part->events + rest->events, 70u);
    }
    ASSERT_TRUE(before);
    EXPECT_GE(*before, 1180u - 10 * per_block);
  }
  EXPECT_EQ(cut_point(Slice(std::string("\x05\x02xy", 4)), 0, 5, 3), std::nullopt) << "what does not decode is not cut";
}

}  // namespace ph::link
