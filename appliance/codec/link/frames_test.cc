#include "codec/link/frames.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/limits.h"
#include "base/random.h"

namespace ph::link {
namespace {

std::string wire(const Frame& frame) {
  Encoded e = encode(frame);
  return e.head + std::string(e.body.view());
}

/// One of each, every field set to something that is not its default.
std::vector<Frame> all_frames() {
  Random random(7);
  StreamId a{0x1122334455667788}, b{9};
  std::vector<Span> spans = {{3, 9}, {200, 1ULL << 40}};
  std::vector<Reject> rejects = {{4, 5, "category is empty"}, {300, 400, ""}};
  Resumed resumed;
  resumed.streams.push_back({a, 77, 1ULL << 40, spans, {{0, 3}}, rejects});
  resumed.streams.push_back({b, 0, 0, {}, {}, {}});
  return {
      Hello{1, 3, random.node_id(), "gw-17", "ams", "fra", 42, 43, 44, 5, from_unix_ms(1'700'000'000'123)},
      Refuse{"protocol 2 is not spoken here"},
      Resume{{{a, 1000, 900}, {b, 0, 0}}},
      resumed,
      Events{a, 5, 3, 10, 30, 2, 1, true, Slice(std::string("some packed blocks")), 4},
      Ack{a, spans, {{0, 3}}, 12, rejects, {}},
      Ack{a, {}, {}, 0, {}, {1, UINT64_MAX}},
      Credit{1ULL << 33},
      Need{1ULL << 34},
      Hold{b, "spool_full"},
      Release{b},
      CloseStream{a},
      Ping{99},
      Pong{100},
      Goodbye{"stopping"},
      Decide{a, {7, 8}, {}},
      Decide{a, {}, {UINT64_MAX}},
      InterestAsk{{"news", "alarms"}},
      Interest{true, {"news"}, true, {{"a/+/#", {"ams", "fra"}}, {"", {}}}, {{"x", {}}}},
  };
}

template <class F>
void expect_same(const F& a, const F& b) {
  EXPECT_TRUE(a == b);
}
void expect_same(const Events& a, const Events& b) {
  EXPECT_EQ(a.stream, b.stream);
  EXPECT_EQ(a.settled, b.settled);
  EXPECT_EQ(a.hold_epoch, b.hold_epoch);
  EXPECT_EQ(a.first, b.first);
  EXPECT_EQ(a.last, b.last);
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.codec, b.codec);
  EXPECT_EQ(a.wants_far, b.wants_far);
  EXPECT_EQ(a.packed.view(), b.packed.view());
  EXPECT_EQ(a.far, b.far);
}

}  // namespace

TEST(LinkFrames, round_trip) {
  for (const Frame& frame : all_frames()) {
    std::string bytes = wire(frame);
    const std::string received = bytes + "the next frame";  // EVENTS decode to a view of it
    auto decoded = decode(received);
    ASSERT_TRUE(decoded) << decoded.error().to_string();
    EXPECT_EQ(decoded->consumed, bytes.size());
    const Frame* back = std::get_if<Frame>(&decoded->frame);
    ASSERT_TRUE(back);
    ASSERT_EQ(back->index(), frame.index());
    std::visit([&](const auto& f) { expect_same(f, std::get<std::decay_t<decltype(f)>>(*back)); }, frame);
  }
}

TEST(LinkFrames, golden_bytes) {
  // Two nodes of different builds must agree on these for ever; a change here is a new format version.
  EXPECT_EQ(to_hex(wire(Ping{300})),
            "02000000010b0000"
            "9e67a383"
            "ac02");
  EXPECT_EQ(to_hex(wire(Events{StreamId{1}, 2, 0, 3, 7, 1, 0, true, Slice(std::string("xy")), 1})),
            "1300000001050000"
            "938cc56a"
            "0100000000000000"
            "02"
            "01"
            "00"
            "03"
            "04"
            "01"
            "00"
            "01"
            "027879");
}

TEST(LinkFrames, asks_for_more_at_every_truncation) {
  for (const Frame& frame : all_frames()) {
    std::string bytes = wire(frame);
    for (size_t n = 0; n < bytes.size(); ++n) {
      auto decoded = decode(std::string_view(bytes).substr(0, n));
      ASSERT_TRUE(decoded);
      EXPECT_EQ(decoded->consumed, 0u);
      EXPECT_GT(decoded->wanted, n);
      EXPECT_LE(decoded->wanted, std::max<size_t>(bytes.size(), 12));
    }
  }
}

TEST(LinkFrames, detects_every_flipped_bit) {
  for (const Frame& frame : all_frames()) {
    std::string bytes = wire(frame);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string bad = bytes;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      auto decoded = decode(bad);
      // A flipped length may ask for more bytes; nothing else may pass.
      EXPECT_TRUE(!decoded || (decoded->consumed == 0 && bit < 32)) << "bit " << bit;
    }
  }
}

TEST(LinkFrames, refuses_every_truncated_body_with_a_right_crc) {
  for (const Frame& frame : all_frames()) {
    std::string bytes = wire(frame);
    for (size_t n = 12; n < bytes.size(); ++n) {
      std::string bad = bytes.substr(0, n);
      auto length = static_cast<uint32_t>(n - 12);
      std::memcpy(bad.data(), &length, 4);
      uint32_t crc = crc32c(std::string_view(bad).substr(12), crc32c(std::string_view(bad).substr(4, 4)));
      std::memcpy(bad.data() + 8, &crc, 4);
      auto decoded = decode(bad);
      ASSERT_FALSE(decoded) << "type " << int(bad[5]) << " cut at " << n;
      EXPECT_EQ(decoded.error().code, errors::malformed);
    }
  }
}

namespace {
std::string raw(uint8_t version, uint8_t type, std::string_view body) {
  std::string out;
  put_fixed<uint32_t>(out, static_cast<uint32_t>(body.size()));
  out += {static_cast<char>(version), static_cast<char>(type), 0, 0};
  put_fixed(out, crc32c(body, crc32c(std::string_view(out).substr(4, 4))));
  out += body;
  return out;
}
}  // namespace

TEST(LinkFrames, skips_an_unknown_type_and_ignores_trailing_fields) {
  auto skipped = decode(raw(1, 77, "whatever"));
  ASSERT_TRUE(skipped);
  EXPECT_EQ(skipped->consumed, 20u);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(skipped->frame));
  auto longer = decode(raw(1, 11, std::string("\x05 and a later field")));
  ASSERT_TRUE(longer);
  EXPECT_EQ(std::get<Ping>(std::get<Frame>(longer->frame)).token, 5u);
}

TEST(LinkFrames, names_a_newer_format_and_a_frame_that_is_too_long) {
  EXPECT_EQ(decode(raw(2, 11, "\x05")).error().code, errors::newer_format);
  std::string huge;
  put_fixed<uint32_t>(huge, limits::kFrameMax + 1);
  EXPECT_EQ(decode(huge).error().code, errors::frame_too_long);
}

TEST(LinkFrames, refuses_lists_longer_than_their_bytes_and_empty_or_overflowing_ranges) {
  std::string ack(8, '\1');
  for (std::string tail : {std::string("\xff\xff\xff\xff\x0f\1\1"),                               // 4 G spans
                           std::string("\1\5\0\0\0\0", 6),                                        // empty span
                           std::string("\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\2\0\0\0", 15)})  // past 2^64
    EXPECT_EQ(decode(raw(1, 6, ack + tail)).error().code, errors::malformed);
}

TEST(LinkFrames, events_share_the_packed_bytes) {
  Slice packed(std::string(1000, 'x'));
  Encoded e = encode(Events{.stream = StreamId{1}, .first = 1, .last = 2, .events = 1, .packed = packed});
  EXPECT_EQ(e.body.data(), packed.data());
}

TEST(LinkFrames, garbage_never_crashes) {
  Random random(11);
  auto frames = all_frames();
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = wire(frames[random.below(frames.size())]).substr(12);
    for (uint64_t n = random.below(4); n-- > 0 && !bytes.empty();)
      bytes[random.below(bytes.size())] = static_cast<char>(random.next());
    const std::string received = raw(1, static_cast<uint8_t>(1 + random.below(21)), bytes);
    auto decoded = decode(received);
    if (!decoded) continue;
    if (const Frame* f = std::get_if<Frame>(&decoded->frame)) wire(*f);  // what was decoded can be encoded
  }
}

}  // namespace ph::link
