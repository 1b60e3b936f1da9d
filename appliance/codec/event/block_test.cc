#include "codec/event/block.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace ph::event {
namespace {

Block lines_block() {
  Block b;
  b.category = "clicks";
  b.id = {Random(1).node_id(), StreamId{77}, 1000, 1012};
  b.events = 3;
  b.accepted_at = from_unix_ms(1'700'000'000'000);
  b.hops = {"ams"};
  b.payload = Slice(std::string("abc\ndef\nghi\n"));
  return b;
}

Block message_block() {
  Block b;
  b.kind = BlockKind::message;
  b.category = "payments";
  b.id = {Random(2).node_id(), StreamId{5}, 9, 10};
  b.events = 1;
  b.qos = 2;
  b.retain = true;
  b.topic = "pos/1/payment";
  b.expiry_seconds_plus_one = 31;
  b.properties = std::string("\x01\x01", 2);
  b.payload = Slice(std::string("{\"eur\":1}"));
  return b;
}

void expect_equal(const Block& a, const Block& b) {
  EXPECT_EQ(encode(a), encode(b));
  EXPECT_EQ(a.payload.view(), b.payload.view());
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.hops, b.hops);
  EXPECT_EQ(a.topic, b.topic);
  EXPECT_EQ(a.qos, b.qos);
  EXPECT_EQ(a.retain, b.retain);
}

}  // namespace

TEST(Block, round_trips) {
  for (const Block& b : {lines_block(), message_block()}) {
    auto back = decode(Slice(encode(b)));
    ASSERT_TRUE(back) << back.error().to_string();
    expect_equal(*back, b);
  }
}

TEST(Block, rejects_every_truncation_of_its_header) {
  for (const Block& b : {lines_block(), message_block()}) {
    std::string header;
    encode_header(b, header);
    for (size_t cut_at = 0; cut_at < header.size(); ++cut_at)
      EXPECT_FALSE(decode(Slice(header.substr(0, cut_at)))) << "cut at " << cut_at;
  }
}

TEST(Block, rejects_a_newer_version_by_name) {
  std::string bytes = encode(lines_block());
  bytes[0] = static_cast<char>(2 << 4 | 1);
  EXPECT_EQ(decode(Slice(bytes)).error().code, errors::newer_version);
}

TEST(Block, rejects_lines_that_disagree_with_their_count_or_range) {
  Block b = lines_block();
  b.events = 2;
  EXPECT_EQ(decode(Slice(encode(b))).error().code, errors::malformed);
  b = lines_block();
  b.id.last++;
  EXPECT_EQ(decode(Slice(encode(b))).error().code, errors::malformed);
  b = lines_block();
  b.payload = Slice(std::string("abc\ndef\ngh\ni"));
  EXPECT_EQ(decode(Slice(encode(b))).error().code, errors::malformed);
}

TEST(Block, taken_apart_and_joined_is_the_same_bytes) {
  Block gap;
  gap.gap = true;
  gap.topic = "dropped";
  gap.id = {NodeId{}, StreamId{3}, 5, 500};
  for (const Block& b : {lines_block(), message_block(), gap}) {
    const std::string bytes = encode(b);
    auto parts = split(bytes);
    ASSERT_TRUE(parts);
    EXPECT_EQ(parts->first, b.id.first);
    EXPECT_EQ(parts->span, b.id.last - b.id.first);
    EXPECT_EQ(parts->events, b.events);
    EXPECT_EQ(parts->payload, b.payload.view());
    std::string again;
    join(*parts, again);
    EXPECT_EQ(again, bytes);
    for (size_t cut_at = 0; cut_at < bytes.size() - b.payload.size(); ++cut_at)
      EXPECT_FALSE(split(ByteView(bytes).substr(0, cut_at))) << cut_at;
  }
}

TEST(Block, is_not_taken_apart_when_its_bytes_would_not_come_back) {
  std::string bytes = encode(message_block());
  const size_t first_at = 1 + 1 + 1 + message_block().category.size() + 16 + 8;
  ASSERT_EQ(bytes[first_at], 9);
  bytes.replace(first_at, 1, "\x89\x00", 2);  // the same number, one byte longer
  ASSERT_TRUE(decode(Slice(bytes)));
  EXPECT_FALSE(split(bytes));
  bytes = encode(message_block());
  bytes[0] = 3 << 4 | 1;
  EXPECT_FALSE(split(bytes)) << "newer";
  EXPECT_FALSE(split("")) << "empty";
}

TEST(Block, cuts_at_line_ends) {
  Block part = cut(lines_block(), 1004, 1012);
  EXPECT_EQ(part.payload.view(), "def\nghi\n");
  EXPECT_EQ(part.events, 2u);
  EXPECT_EQ(part.id.first, 1004u);
  ASSERT_TRUE(decode(Slice(encode(part))));
}

TEST(Block, appends_a_hop_in_place_up_to_the_limit) {
  std::string bytes = encode(message_block());
  for (int i = 0; i < 8; ++i) {
    auto next = with_hop(bytes, "site" + std::to_string(i));
    ASSERT_TRUE(next);
    bytes = *next;
  }
  auto b = decode(Slice(bytes));
  ASSERT_TRUE(b);
  ASSERT_EQ(b->hops.size(), 8u);
  EXPECT_EQ(b->hops[7], "site7");
  EXPECT_EQ(b->payload.view(), message_block().payload.view());
  EXPECT_EQ(with_hop(bytes, "ninth").error().code, errors::hop_limit);
}

TEST(Category, case_F7_names_are_refused) {
  for (std::string name :
       {std::string(), std::string(".."), std::string("../evil"), std::string("a/b"), std::string(300, 'x'),
        std::string("a\nb"), std::string("a\0b", 3), std::string(".hidden"), std::string("a\x7F")})
    EXPECT_FALSE(category_fault(name).empty()) << name;
  for (std::string name : {"clicks", "a.b", "error_log", "ünï"}) EXPECT_TRUE(category_fault(name).empty()) << name;
}

}  // namespace ph::event
