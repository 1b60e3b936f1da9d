#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "codec/mqtt/packet.h"
#include "codec/mqtt/text.h"
#include "support/mqtt_packets.h"
#include "support/mqtt_text.h"

namespace ph::mqtt {
namespace {

using namespace std::string_literals;

std::string from_hex(ByteView hex) {
  std::string out;
  std::string digits;
  for (char c : hex) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    out.push_back(static_cast<char>(std::stoul(digits, nullptr, 16)));
    digits.clear();
  }
  return out;
}

std::expected<Packet, ReasonCode> parse(const std::string& bytes, Version version) {
  auto framed = next_frame(bytes, 1 << 20);
  if (!framed) return std::unexpected(framed.error());
  EXPECT_TRUE(framed->frame.has_value());
  EXPECT_EQ(framed->frame->size, bytes.size());
  return decode(*framed->frame, version);
}

ReasonCode error_of(ByteView hex, Version version) {
  const std::string bytes = from_hex(hex);
  auto packet = parse(bytes, version);
  return packet ? ReasonCode::success : packet.error();
}

using test::every_packet;

constexpr Version kVersions[] = {Version::v31, Version::v311, Version::v5};

TEST(MqttCodec, every_packet_comes_back_as_it_was) {
  for (Version version : kVersions) {
    for (const std::string& bytes : every_packet(version)) {
      auto packet = parse(bytes, version);
      ASSERT_TRUE(packet.has_value()) << to_hex(bytes) << ' ' << name(packet.error());
      std::string again;
      encode(*packet, version, again);
      EXPECT_EQ(to_hex(again), to_hex(bytes)) << test::describe(*packet);
    }
  }
}

TEST(MqttCodec, every_truncation_waits_for_more) {
  for (Version version : kVersions) {
    for (const std::string& bytes : every_packet(version)) {
      for (size_t size = 0; size < bytes.size(); ++size) {
        auto framed = next_frame(ByteView(bytes).substr(0, size), 1 << 20);
        ASSERT_TRUE(framed.has_value());
        ASSERT_FALSE(framed->frame.has_value());
        ASSERT_GT(framed->wanted, size);
        ASSERT_LE(framed->wanted, bytes.size());
      }
    }
  }
}

/// A packet whose remaining length is right but whose content stops early is malformed, or another whole packet (what
/// ends in a payload or list), never a read past the end.
TEST(MqttCodec, every_cut_body_is_decoded_within_its_bounds) {
  for (Version version : kVersions) {
    for (const std::string& bytes : every_packet(version)) {
      auto whole = next_frame(bytes, 1 << 20);
      for (size_t size = 0; size < whole->frame->body.size(); ++size) {
        // A heap copy of its own, so that the sanitizer sees a read past it.
        const std::unique_ptr<char[]> copy(new char[size]);
        std::copy_n(whole->frame->body.data(), size, copy.get());
        Frame cut = *whole->frame;
        cut.body = ByteView(copy.get(), size);
        auto packet = decode(cut, version);
        if (!packet) {
          EXPECT_TRUE(packet.error() == ReasonCode::malformed_packet || packet.error() == ReasonCode::protocol_error ||
                      packet.error() == ReasonCode::topic_filter_invalid ||
                      packet.error() == ReasonCode::topic_name_invalid)
              << name(packet.error());
        }
      }
    }
  }
}

// [MQTT-1.5.5-1], section 2.1.4
TEST(MqttFrame, remaining_length_has_at_most_four_bytes) {
  EXPECT_EQ(next_frame(from_hex("30 80 80 80 80 01"), 1 << 30).error(), ReasonCode::malformed_packet);
  auto longest = next_frame(from_hex("30 ff ff ff 7f"), size_t{1} << 30);
  ASSERT_TRUE(longest.has_value());
  EXPECT_EQ(longest->wanted, 5U + 268'435'455U);
  EXPECT_EQ(next_frame(from_hex("30 ff ff ff 7f"), 1 << 20).error(), ReasonCode::packet_too_large);
  EXPECT_EQ(next_frame(from_hex("00"), 100).error(), ReasonCode::malformed_packet) << "packet type 0 is reserved";
}

TEST(MqttFrame, longer_than_needed_is_malformed_in_version_5_only) {
  EXPECT_EQ(error_of("c0 80 00", Version::v5), ReasonCode::malformed_packet);
  EXPECT_EQ(error_of("c0 80 00", Version::v311), ReasonCode::success);
}

TEST(MqttCodec, reserved_bits_are_malformed) {
  for (const char* hex : {"c1 00", "d1 00", "e1 00", "41 02 00 01", "60 02 00 01", "80 06 00 01 00 01 61 00",
                          "a0 05 00 01 00 01 61", "11 0c 00 04 4d 51 54 54 04 02 00 00 00 00"})
    EXPECT_EQ(error_of(hex, Version::v311), ReasonCode::malformed_packet) << hex;
  EXPECT_EQ(error_of("10 0c 00 04 4d 51 54 54 04 03 00 00 00 00", Version::v311), ReasonCode::malformed_packet)
      << "[MQTT-3.1.2-3]";
  EXPECT_EQ(error_of("82 07 00 01 00 00 01 61 40", Version::v5), ReasonCode::malformed_packet) << "[MQTT-3.8.3-5]";
  EXPECT_EQ(error_of("82 06 00 01 00 01 61 04", Version::v311), ReasonCode::malformed_packet);
}

TEST(MqttCodec, version_3_1_may_repeat_subscribe_with_dup) {
  EXPECT_EQ(error_of("8a 06 00 01 00 01 61 00", Version::v31), ReasonCode::success);
  EXPECT_EQ(error_of("8a 06 00 01 00 01 61 00", Version::v311), ReasonCode::malformed_packet);
}

TEST(MqttCodec, packet_id_zero_is_a_protocol_error) {
  EXPECT_EQ(error_of("32 05 00 01 61 00 00", Version::v311), ReasonCode::protocol_error);
  EXPECT_EQ(error_of("40 02 00 00", Version::v311), ReasonCode::protocol_error);
  EXPECT_EQ(error_of("82 06 00 00 00 01 61 00", Version::v311), ReasonCode::protocol_error);
}

TEST(MqttCodec, publish_flags_are_checked) {
  EXPECT_EQ(error_of("36 05 00 01 61 00 01", Version::v311), ReasonCode::malformed_packet) << "QoS 3 [MQTT-3.3.1-4]";
  EXPECT_EQ(error_of("38 03 00 01 61", Version::v311), ReasonCode::malformed_packet) << "DUP, QoS 0 [MQTT-3.3.1-2]";
}

TEST(MqttCodec, publish_names_a_topic_without_wildcards) {
  EXPECT_EQ(error_of("30 03 00 01 23", Version::v311), ReasonCode::topic_name_invalid);
  EXPECT_EQ(error_of("30 05 00 03 61 2f 2b", Version::v311), ReasonCode::topic_name_invalid);
  EXPECT_EQ(error_of("30 02 00 00", Version::v311), ReasonCode::protocol_error);
  EXPECT_EQ(error_of("30 03 00 00 00", Version::v5), ReasonCode::protocol_error) << "neither topic nor alias";
  EXPECT_EQ(error_of("30 06 00 00 03 23 00 01", Version::v5), ReasonCode::success);
  EXPECT_EQ(error_of("30 07 00 01 61 03 23 00 00", Version::v5), ReasonCode::topic_alias_invalid);
}

TEST(MqttCodec, subscribe_without_filters_is_a_protocol_error) {
  EXPECT_EQ(error_of("82 02 00 01", Version::v311), ReasonCode::protocol_error);
  EXPECT_EQ(error_of("a2 02 00 01", Version::v311), ReasonCode::protocol_error);
  EXPECT_EQ(error_of("82 06 00 01 00 01 61 03", Version::v311), ReasonCode::malformed_packet) << "QoS 3";
}

TEST(MqttProperties, lengths_that_lie_are_malformed) {
  EXPECT_EQ(error_of("30 06 00 01 61 80 00 78", Version::v5), ReasonCode::malformed_packet) << "longer than needed";
  EXPECT_EQ(error_of("30 05 00 01 61 05 78", Version::v5), ReasonCode::malformed_packet) << "past the packet";
  EXPECT_EQ(error_of("30 06 00 01 61 02 01 00", Version::v5), ReasonCode::success);
  EXPECT_EQ(error_of("30 05 00 01 61 01 01", Version::v5), ReasonCode::malformed_packet) << "value missing";
  EXPECT_EQ(error_of("30 06 00 01 61 02 7f 00", Version::v5), ReasonCode::malformed_packet) << "unknown id";
}

TEST(MqttProperties, repeated_misplaced_or_out_of_range_is_a_protocol_error) {
  EXPECT_EQ(error_of("30 08 00 01 61 04 01 00 01 00", Version::v5), ReasonCode::protocol_error) << "repeated";
  EXPECT_EQ(error_of("30 06 00 01 61 02 24 00", Version::v5), ReasonCode::protocol_error) << "of CONNACK";
  EXPECT_EQ(error_of("30 06 00 01 61 02 01 02", Version::v5), ReasonCode::protocol_error) << "payload format 2";
  EXPECT_EQ(error_of("30 06 00 01 61 02 0b 00", Version::v5), ReasonCode::protocol_error) << "subscription id 0";
  EXPECT_EQ(error_of("30 08 00 01 61 04 0b 01 0b 02", Version::v5), ReasonCode::success) << "may repeat here";
  EXPECT_EQ(error_of("82 0b 00 01 04 0b 01 0b 02 00 01 61 00", Version::v5), ReasonCode::protocol_error);
  EXPECT_EQ(error_of("30 08 00 01 61 04 08 00 01 23", Version::v5), ReasonCode::protocol_error) << "response topic #";
}

TEST(MqttConnect, unknown_protocols_are_told_apart) {
  EXPECT_EQ(error_of("10 0c 00 04 4d 51 54 54 06 02 00 00 00 00", Version::v5),
            ReasonCode::unsupported_protocol_version);
  EXPECT_EQ(error_of("10 0c 00 04 4d 51 54 55 04 02 00 00 00 00", Version::v5),
            ReasonCode::unsupported_protocol_version);
  const std::string bytes = from_hex("10 0c 00 04 4d 51 54 54 06 02 00 00 00 00");
  EXPECT_EQ(claimed_level(*next_frame(bytes, 100)->frame), 6);
}

TEST(MqttConnect, will_flags_need_a_will) {
  EXPECT_EQ(error_of("10 0c 00 04 4d 51 54 54 04 0a 00 00 00 00", Version::v311), ReasonCode::malformed_packet);
  EXPECT_EQ(error_of("10 0c 00 04 4d 51 54 54 04 22 00 00 00 00", Version::v311), ReasonCode::malformed_packet);
  EXPECT_EQ(error_of("10 11 00 04 4d 51 54 54 04 1e 00 00 00 00 00 01 61 00 00", Version::v311),
            ReasonCode::malformed_packet)
      << "will QoS 3";
  EXPECT_EQ(error_of("10 0e 00 04 4d 51 54 54 04 42 00 00 00 00 00 00", Version::v311), ReasonCode::malformed_packet)
      << "password without user name";
}

TEST(MqttText, utf8_follows_the_specification) {
  for (const std::string& good : {""s, "abc"s, "\xC3\xA4"s, "\xE2\x82\xAC"s, "\xF0\x9F\x98\x80"s, "\xEF\xBB\xBF"s,
                                  "\x01\x7F"s, "twenty plain characters"s, "\xF4\x8F\xBF\xBF"s, "\xED\x9F\xBF"s})
    EXPECT_TRUE(utf8_valid(good)) << to_hex(good);
  for (const std::string& bad :
       {"\0"s, "12345678\0"s, "1234567\0"s, "\xED\xA0\x80"s, "\xED\xBF\xBF"s, "\xC0\x80"s, "\xC1\xBF"s, "\xE0\x9F\xBF"s,
        "\xF0\x8F\xBF\xBF"s, "\xF4\x90\x80\x80"s, "\xF5\x80\x80\x80"s, "\x80"s, "\xC3"s, "\xE2\x82"s, "\xF0\x9F\x98"s,
        "12345678\xFF"s, "\xC3\x28"s})
    EXPECT_FALSE(utf8_valid(bad)) << to_hex(bad);
}

/// The fast path takes eight bytes at a time: every single bad byte must be found at every offset.
TEST(MqttText, a_zero_or_stray_byte_is_found_anywhere) {
  for (size_t at = 0; at < 40; ++at) {
    for (char bad : {'\0', '\x80', '\xFF'}) {
      std::string text(40, 'x');
      text[at] = bad;
      EXPECT_FALSE(utf8_valid(text)) << at;
      text[at] = '\x01';
      EXPECT_TRUE(utf8_valid(text)) << at;
    }
  }
}

TEST(MqttText, filters_follow_the_specification) {
  for (const char* good : {"#", "+", "a/#", "+/a/#", "/", "a/+/b", "/+", "a//b", "$share/g/a", "$share/g/#", "$SYS/#"})
    EXPECT_TRUE(filter_valid(good)) << good;
  for (const char* bad : {"", "a#", "a/#/b", "a+", "+a", "a/b+/c", "##", "#/", "$share/", "$share/g", "$share/g/",
                          "$share//a", "$share/+/a", "$share/g#/a"})
    EXPECT_FALSE(filter_valid(bad)) << bad;
}

TEST(MqttPublish, head_and_size_agree_with_the_whole_packet) {
  std::string block;
  put_user_property(block, "k", "v");
  const uint32_t ids[] = {1, 200};
  for (Version version : kVersions) {
    for (size_t payload : {0U, 1U, 100U, 130U, 20'000U}) {
      PublishHead head;
      head.topic = "a/b";
      head.qos = 1;
      head.packet_id = 77;
      head.message_expiry = 5;
      head.subscription_ids = ids;
      head.subscription_ids_count = 2;
      head.properties = block;
      head.payload_size = payload;
      std::string bytes;
      encode_publish_head(head, version, bytes);
      bytes.append(payload, 'x');
      EXPECT_EQ(publish_size(head, version), bytes.size());
      auto packet = parse(bytes, version);
      ASSERT_TRUE(packet.has_value());
      const auto& publish = std::get<Publish>(*packet);
      EXPECT_EQ(publish.payload.size(), payload);
      EXPECT_EQ(publish.packet_id, 77);
      EXPECT_EQ(publish.properties.message_expiry.has_value(), version == Version::v5);
    }
  }
}

TEST(MqttPublish, forwards_all_properties_but_three) {
  std::string block;
  put_user_property(block, "b", "1");
  Publish publish;
  publish.topic = "t";
  publish.properties.topic_alias = 1;
  publish.properties.message_expiry = 10;
  publish.properties.content_type = "text";
  publish.properties.raw = block;
  std::string bytes, scratch;
  encode(publish, Version::v5, bytes);
  auto packet = parse(bytes, Version::v5);
  const ByteView kept = forwarded(std::get<Publish>(*packet).properties, scratch);
  EXPECT_EQ(to_hex(kept), to_hex("\x03\0\x04text"s + block));
}

TEST(MqttCodec, random_bytes_never_break_the_decoder) {
  const uint64_t seed = 7;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const std::vector<std::string> seeds[] = {every_packet(Version::v31), every_packet(Version::v311),
                                            every_packet(Version::v5)};
  size_t good = 0;
  for (int i = 0; i < 200'000; ++i) {
    const Version version = kVersions[random.below(3)];
    const auto& from = seeds[static_cast<size_t>(version) - 3];
    std::string bytes = from[random.below(from.size())];
    for (uint64_t flips = 1 + random.below(3); flips > 0; --flips)
      bytes[random.below(bytes.size())] = static_cast<char>(random.next());
    auto framed = next_frame(bytes, 1 << 20);
    if (!framed || !framed->frame) continue;
    auto packet = decode(*framed->frame, version);
    if (!packet) continue;
    ++good;
    if (std::holds_alternative<Connect>(*packet)) continue;
    std::string again;
    encode(*packet, version, again);
    auto reparsed = parse(again, version);
    ASSERT_TRUE(reparsed.has_value()) << to_hex(bytes) << " -> " << to_hex(again);
    std::string third;  // the encoder's order of properties may differ from the client's, but is stable
    encode(*reparsed, version, third);
    ASSERT_EQ(to_hex(third), to_hex(again)) << to_hex(bytes);
  }
  EXPECT_GT(good, 10'000U);
}

}  // namespace
}  // namespace ph::mqtt
