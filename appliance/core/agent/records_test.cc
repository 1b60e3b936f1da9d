#include "core/agent/records.h"

#include <gtest/gtest.h>

#include "base/coding.h"

namespace ph::agent {
namespace {

GenerationRecord generation() {
  GenerationRecord r;
  r.id = StreamId{0x1122334455667788};
  r.state = GenerationState::retiring;
  r.identity = {7, 1234, -5};
  r.boot = 99;
  r.order = 3;
  r.size = 1'000'000;
  r.prefix = Prefix::of(std::string(300, 'x'));
  r.lane = "clicks/";
  r.category = "clicks";
  r.directory = "clicks";
  r.name = "202401010000.log";
  r.truncated = r.copy = true;
  return r;
}
CursorRecord cursor() {
  CursorRecord r;
  r.stream = StreamId{42};
  r.settled = 500;
  r.far = 400;
  r.read = 800;
  r.end = 700;
  r.window = Window::of(500, "last line\n");
  r.receivers = {"fra-1:3706", "fra-2:3706"};
  r.reserved = 1'000'000;
  r.past = {{StreamId{40}, 420, {"fra-1:3706"}}, {StreamId{41}, 450, {}}};
  return r;
}

TEST(AgentRecords, generation_round_trips) {
  GenerationRecord r = generation();
  auto got = decode_generation(generation_key(r.id), encode(r));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(encode(*got), encode(r));
  EXPECT_EQ(got->id, r.id);
  EXPECT_EQ(got->identity, r.identity);
  EXPECT_EQ(got->name, r.name);
  EXPECT_TRUE(got->truncated && got->copy);
}

TEST(AgentRecords, a_generation_of_version_1_is_neither_truncated_nor_a_copy) {
  std::string bytes = encode(generation());
  bytes.pop_back();
  bytes[0] = 1;
  auto got = decode_generation(generation_key(StreamId{1}), bytes);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->name, generation().name);
  EXPECT_FALSE(got->truncated || got->copy);
}

TEST(AgentRecords, cursor_round_trips) {
  CursorRecord r = cursor();
  auto got = decode_cursor(encode(r));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(encode(*got), encode(r));
  EXPECT_EQ(got->window, r.window);
  EXPECT_EQ(got->end, r.end);
  EXPECT_EQ(got->reserved, r.reserved);
  EXPECT_EQ(got->past, r.past);
  auto name = decode_cursor_key(cursor_key(r.stream, "fra"));
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->generation, r.stream);
  EXPECT_EQ(name->target, "fra");
}

TEST(AgentRecords, counters_round_trip) {
  CounterRecord r{1, 2, 3, 4, 5, 600'000'000'000};
  auto got = decode_counters(encode(r));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(encode(*got), encode(r));
  EXPECT_EQ(got->dead_lettered, r.dead_lettered);
}

TEST(AgentRecords, every_truncation_and_any_trailing_byte_fails) {
  std::string g = encode(generation()), c = encode(cursor()), n = encode(CounterRecord{});
  std::string key = generation_key(StreamId{1});
  for (size_t i = 0; i < g.size(); ++i) EXPECT_FALSE(decode_generation(key, g.substr(0, i)).has_value()) << i;
  for (size_t i = 0; i < c.size(); ++i) EXPECT_FALSE(decode_cursor(c.substr(0, i)).has_value()) << i;
  for (size_t i = 0; i < n.size(); ++i) EXPECT_FALSE(decode_counters(n.substr(0, i)).has_value()) << i;
  EXPECT_FALSE(decode_generation(key, g + "x").has_value());
  EXPECT_FALSE(decode_cursor(c + "x").has_value());
  EXPECT_FALSE(decode_counters(n + "x").has_value());
}

TEST(AgentRecords, a_newer_version_is_told_apart_from_damage) {
  std::string g = encode(generation()), c = encode(cursor()), n = encode(CounterRecord{});
  n[0] = 2;
  g[0] = c[0] = 3;
  EXPECT_EQ(decode_generation(generation_key(StreamId{1}), g).error().code, errors::newer_version);
  EXPECT_EQ(decode_cursor(c).error().code, errors::newer_version);
  EXPECT_EQ(decode_counters(n).error().code, errors::newer_version);
  g[0] = 0;
  EXPECT_EQ(decode_generation(generation_key(StreamId{1}), g).error().code, errors::malformed);
}

TEST(AgentRecords, a_cursor_of_version_1_says_nothing_of_what_was_reserved) {
  CursorRecord r = cursor();
  r.reserved = 0;
  r.past.clear();
  std::string bytes = encode(r);
  bytes.resize(bytes.size() - 2);
  bytes[0] = 1;
  auto got = decode_cursor(bytes);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->receivers, r.receivers);
  EXPECT_EQ(got->reserved, UINT64_MAX);
  EXPECT_TRUE(got->past.empty());
}

TEST(AgentRecords, bit_flips_never_crash_and_never_break_the_bounds) {
  std::string c = encode(cursor());
  for (size_t bit = 0; bit < c.size() * 8; ++bit) {
    std::string flipped = c;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    auto got = decode_cursor(flipped);
    if (!got) continue;
    EXPECT_GE(got->read, got->settled);
    EXPECT_GE(got->end.value_or(got->settled), got->settled);
    EXPECT_LE(got->window.length, got->window.end);
  }
}

}  // namespace
}  // namespace ph::agent
