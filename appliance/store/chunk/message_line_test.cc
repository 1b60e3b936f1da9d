#include "store/chunk/message_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"

namespace ph::chunk {
namespace {

using namespace std::string_literals;

event::Block message(std::string topic, std::string payload) {
  event::Block b;
  b.kind = event::BlockKind::message;
  b.category = "c";
  b.topic = std::move(topic);
  b.payload = Slice(std::move(payload));
  b.events = 1;
  b.accepted_at = from_unix_ms(1'783'936'805'006);
  return b;
}

std::string raw(std::string payload) {
  std::vector<Slice> slices;
  append_raw_line(message("t", std::move(payload)), slices);
  std::string out;
  for (const Slice& s : slices) out.append(s.view());
  return out;
}

std::string property(int id, std::string_view text) {
  std::string out(1, static_cast<char>(id));
  out.push_back(static_cast<char>(text.size() >> 8));
  out.push_back(static_cast<char>(text.size()));
  return out.append(text);
}

TEST(RawLine, escapes_backslash_and_newline_alone) {
  EXPECT_EQ(raw("plain"), "plain\n");
  EXPECT_EQ(raw(""), "\n");
  EXPECT_EQ(raw("a\nb\\c\r\td\0e"s), "a\\nb\\\\c\r\td\0e\n"s);
  EXPECT_EQ(raw("\n"), "\\n\n");
}

TEST(RawLine, shares_a_payload_without_special_bytes) {
  event::Block b = message("t", "no copy of this");
  std::vector<Slice> slices;
  append_raw_line(b, slices);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].data(), b.payload.data());
}

TEST(JsonLine, has_topic_time_qos_retain_and_payload) {
  event::Block b = message("pos/7/payment", "caf\xC3\xA9 \"42\"\n");
  b.qos = 1;
  b.retain = true;
  EXPECT_EQ(to_json_line(b),
            "{\"topic\":\"pos/7/payment\",\"time\":\"2026-07-13T10:00:05.006Z\",\"qos\":1,\"retain\":true,"
            "\"payload\":\"caf\xC3\xA9 \\\"42\\\"\\n\"}\n");
}

TEST(JsonLine, decodes_properties_and_keeps_the_order_of_user_pairs) {
  event::Block b = message("t", "x");
  b.properties = "\x01\x01"s + property(0x03, "text/plain") + property(0x08, "re/ply") + property(0x09, "\x00\xFF"s) +
                 property(0x26, "b") + property(0x26, "1").substr(1) + property(0x26, "a") +
                 property(0x26, "2").substr(1) + property(0x26, "b") + property(0x26, "3").substr(1);
  EXPECT_EQ(to_json_line(b),
            "{\"topic\":\"t\",\"time\":\"2026-07-13T10:00:05.006Z\",\"qos\":0,\"retain\":false,\"properties\":{"
            "\"payload_format\":1,\"content_type\":\"text/plain\",\"response_topic\":\"re/ply\","
            "\"correlation_data\":\"AP8=\",\"user\":[[\"b\",\"1\"],[\"a\",\"2\"],[\"b\",\"3\"]]},\"payload\":\"x\"}\n");
}

TEST(JsonLine, keeps_properties_that_do_not_decode) {
  event::Block b = message("t", "x");
  b.properties = "\x03\x00\x09oops"s;
  EXPECT_NE(to_json_line(b).find("\"properties_base64\":\"AwAJb29wcw==\""), std::string::npos);
}

TEST(JsonLine, any_cut_of_the_properties_gives_one_whole_line) {
  event::Block b = message("t", "x");
  std::string all = property(0x03, "text/plain") + "\x0B\x80\x01"s + property(0x26, "k") +
                    property(0x26, "v").substr(1) + "\x02\0\0\0\1"s + "\x23\0\1"s;
  for (size_t n = 0; n <= all.size(); ++n) {
    b.properties = all.substr(0, n);
    std::string line = to_json_line(b);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_TRUE(line.ends_with("}\n"));
  }
}

TEST(JsonLine, binary_payload_is_base64) {
  EXPECT_NE(to_json_line(message("t", "\xFF\x00\x01"s)).find("\"payload_base64\":\"/wAB\""), std::string::npos);
}

TEST(JsonLine, is_one_line_of_valid_text_for_any_input) {
  const uint64_t seed = 4242;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string payload, topic;
    for (uint64_t n = random.below(40); n > 0; --n) payload.push_back(static_cast<char>(random.next()));
    for (uint64_t n = random.below(10); n > 0; --n) topic.push_back(static_cast<char>(random.next()));
    event::Block b = message(topic, payload);
    b.properties = payload;
    std::string line = to_json_line(b);
    ASSERT_EQ(line.find('\n'), line.size() - 1);
    ASSERT_TRUE(is_utf8(line));
    for (unsigned char c : line.substr(0, line.size() - 1)) ASSERT_GE(c, 0x20);
  }
}

TEST(Utf8, is_told_apart_strictly) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_FALSE(is_utf8(bad));
}

TEST(Base64, pads) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foo"), "Zm9v");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
}

}  // namespace
}  // namespace ph::chunk
