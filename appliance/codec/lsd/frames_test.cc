#include "codec/lsd/frames.h"

#include <gtest/gtest.h>

#include <optional>

namespace ph::lsd {
namespace {

std::string bytes(std::string_view hex) {
  std::string out;
  int high = -1;
  for (char c : hex) {
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (high < 0) {
      high = digit;
    } else {
      out.push_back(static_cast<char>(high << 4 | digit));
      high = -1;
    }
  }
  return out;
}

struct Seen {
  std::string category;
  Token token;
  bool compressed = false;
  std::vector<std::string> lines;
};

std::optional<std::vector<Seen>> events(ByteView body) {
  std::vector<Seen> out;
  auto read = for_each_event(body, [&](const Event& e) {
    Seen seen{std::string(e.category), e.token, e.compressed, {}};
    size_t total = 0;
    for_each_line(e, [&](ByteView line) {
      seen.lines.emplace_back(line);
      total += line.size();
    });
    EXPECT_EQ(seen.lines.size(), e.lines);
    EXPECT_EQ(total, e.line_bytes);
    out.push_back(std::move(seen));
  });
  if (!read) return std::nullopt;
  return out;
}

// What a real client sent for a file of 18 bytes, inode 11313954, and what a real server answered.
const char* const kCaptured =
    "00 00 00 2b 00 00 00 01 0a 25 0a 06 63 6c 69 63 6b 73 10 a2 c6 b2 05 18 12 22 06 66 69 72 73 74"
    "0a 22 0c 73 65 63 6f 6e 64 20 6c 69 6e 65 0a";
const char* const kCapturedAnswer = "00 00 00 0d 00 00 00 02 0a 07 08 a2 c6 b2 05 10 12";

TEST(LsdFrames, captured_request_is_read) {
  std::string raw = bytes(kCaptured);
  auto frame = decode_frame(raw);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->consumed, raw.size());
  EXPECT_EQ(frame->id, kRequestNewEvents);
  auto seen = events(frame->body);
  ASSERT_TRUE(seen && seen->size() == 1);
  EXPECT_EQ(seen->front().category, "clicks");
  EXPECT_EQ(seen->front().token, (Token{11313954, 18}));
  EXPECT_FALSE(seen->front().compressed);
  EXPECT_EQ(seen->front().lines, (std::vector<std::string>{"first\n", "second line\n"}));
}

TEST(LsdFrames, what_is_made_equals_the_capture_byte_for_byte) {
  std::string request, answer;
  size_t begun = begin_frame(request);
  put_event(request, "clicks", {11313954, 18}, "first\nsecond line\n");
  end_frame(request, begun, kRequestNewEvents);
  EXPECT_EQ(to_hex(request), to_hex(bytes(kCaptured)));
  begun = begin_frame(answer);
  put_offset(answer, {11313954, 18});
  end_frame(answer, begun, kResponseOffsets);
  EXPECT_EQ(to_hex(answer), to_hex(bytes(kCapturedAnswer)));
  EXPECT_LE(request.size() - kHeaderBytes, event_bytes_max(6, 18, 2));
}

TEST(LsdFrames, captured_answers_are_read) {
  std::string raw = bytes(kCapturedAnswer);
  auto frame = decode_frame(raw);
  ASSERT_TRUE(frame);
  auto answer = decode_response(frame->id, frame->body, 1);
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<std::vector<Token>>(*answer), (std::vector<Token>{{11313954, 18}}));

  std::string failed = bytes("0000001f 00000001 08 01 12 17") + "Failed to write results";
  frame = decode_frame(failed);
  ASSERT_TRUE(frame && frame->consumed == failed.size());
  answer = decode_response(frame->id, frame->body, 1);
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<Generic>(*answer).code, -1);
  EXPECT_EQ(std::get<Generic>(*answer).text, kWriteFailed);
  EXPECT_EQ(encode_error(-1, kWriteFailed), failed);

  std::string two = bytes("00000013 00000002 0a0708ac0210f0a204 0a0408021002");
  frame = decode_frame(two);
  ASSERT_TRUE(frame);
  answer = decode_response(frame->id, frame->body, 2);
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<std::vector<Token>>(*answer), (std::vector<Token>{{300, 70000}, {2, 2}}));
}

TEST(LsdFrames, empty_request_and_requests_made_by_hand) {
  std::string empty = bytes("00000004 00000001");
  auto frame = decode_frame(empty);
  ASSERT_TRUE(frame && frame->consumed == 8);
  EXPECT_TRUE(events(frame->body)->empty());
  std::string two =
      bytes("00000027 00000001 0a130a02 7031 10ac02 18f0a204 2202610a 2202620a 0a0c0a02 7032 1002 1802 2202630a");
  frame = decode_frame(two);
  ASSERT_TRUE(frame && frame->consumed == two.size());
  auto seen = events(frame->body);
  ASSERT_TRUE(seen && seen->size() == 2);
  EXPECT_EQ((*seen)[0].token, (Token{300, 70000}));
  EXPECT_EQ((*seen)[1].lines, (std::vector<std::string>{"c\n"}));
}

TEST(LsdFrames, a_frame_is_known_to_be_whole_only_at_its_last_byte) {
  for (const char* hex : {kCaptured, kCapturedAnswer}) {
    std::string raw = bytes(hex);
    for (size_t n = 0; n < raw.size(); ++n) {
      auto frame = decode_frame(ByteView(raw).substr(0, n));
      ASSERT_TRUE(frame);
      EXPECT_EQ(frame->consumed, 0u);
      EXPECT_EQ(frame->wanted, n < 4 ? kHeaderBytes : raw.size());
    }
  }
}

TEST(LsdFrames, lengths_outside_the_bounds_end_the_connection) {
  for (const char* hex : {"00000003 00000001", "00000000", "01000001 00000001", "ffffffff"})
    EXPECT_EQ(decode_frame(bytes(hex)).error().code, errors::bad_length) << hex;
  auto largest = decode_frame(bytes("01000000 00000001"));
  ASSERT_TRUE(largest);
  EXPECT_EQ(largest->wanted, kFrameBytesMax);
}

TEST(LsdFrames, a_body_cut_anywhere_inside_an_event_is_malformed) {
  std::string raw = bytes(kCaptured).substr(kHeaderBytes);
  for (size_t n = 1; n < raw.size(); ++n) EXPECT_FALSE(events(ByteView(raw).substr(0, n))) << n;
  std::string answer = bytes(kCapturedAnswer).substr(kHeaderBytes);
  for (size_t n = 1; n < answer.size(); ++n)
    EXPECT_FALSE(decode_response(kResponseOffsets, ByteView(answer).substr(0, n), 1)) << n;
  std::string failed = encode_error(-1, "no").substr(kHeaderBytes);
  for (size_t n : {0u, 1u, 3u, 4u, 5u})
    EXPECT_FALSE(decode_response(kResponseGeneric, ByteView(failed).substr(0, n), 1));
}

TEST(LsdFrames, unknown_fields_of_every_kind_are_skipped) {
  // fields 6 varint, 7 fixed64, 8 sized, 9 group with a varint in it, 10 fixed32 within the event and beside it
  std::string extra = bytes("30 01  39 0102030405060708  42 02 ffff  4b 08 01 4c  55 01020304");
  std::string event = bytes("0a 01 61 10 01 18 02") + extra + bytes("22 02 62 0a 28 00");
  std::string body = extra + "\x0a" + std::string(1, static_cast<char>(event.size())) + event + extra;
  auto seen = events(body);
  ASSERT_TRUE(seen && seen->size() == 1);
  EXPECT_EQ(seen->front().lines, (std::vector<std::string>{"b\n"}));
}

TEST(LsdFrames, what_is_no_protocol_buffer_is_malformed) {
  EXPECT_FALSE(events(bytes("00 01"))) << "field 0";
  EXPECT_FALSE(events(bytes("0c"))) << "the end of no group";
  EXPECT_FALSE(events(bytes("4b 08 01"))) << "a group without its end";
  EXPECT_FALSE(events(bytes("08 01"))) << "an event that is a number";
  EXPECT_FALSE(events(bytes("0a 04 0a 00 10 01"))) << "no offset";
  EXPECT_FALSE(events(bytes("0a 06 08 00 10 01 18 01"))) << "a category that is a number";
  EXPECT_FALSE(events(bytes("0a 10 0a 00 10 ffffffffffffffffff7f 18 01"))) << "more than 64 bits";
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += '\x4b';
  EXPECT_FALSE(events(deep));
  EXPECT_FALSE(decode_response(3, {}, 1));
  EXPECT_FALSE(decode_response(kResponseOffsets, bytes("0a0408021002 0a0408021002"), 1)) << "more than were asked for";
}

TEST(LsdFrames, empty_lines_and_events_without_lines_are_legal) {
  auto seen = events(bytes("0a 0b 0a 01 61 10 01 18 02 22 00 22 00  0a 07 0a 01 61 10 01 18 02"));
  ASSERT_TRUE(seen && seen->size() == 2);
  EXPECT_EQ((*seen)[0].lines, (std::vector<std::string>{"", ""}));
  EXPECT_TRUE((*seen)[1].lines.empty());
}

TEST(LsdFrames, sixteen_mebibytes_of_empty_lines_cost_no_memory_of_their_own) {
  std::string event = bytes("0a 01 61 10 01 18 02");
  size_t lines = (kLengthMax - 4 - 12 - event.size()) / 2;
  for (size_t i = 0; i < lines; ++i) event.append("\x22\x00", 2);
  std::string body = bytes("0a 80 80 80 08");
  size_t n = event.size();
  for (size_t i = 1; i < 5; ++i, n >>= 7) body[i] = static_cast<char>((n & 0x7F) | (i < 4 ? 0x80 : 0));
  body += event;
  size_t counted = 0;
  ASSERT_TRUE(for_each_event(body, [&](const Event& e) { counted = e.lines; }));
  EXPECT_EQ(counted, lines);
}

TEST(LsdFrames, lines_survive_gzip_also_an_unterminated_tail) {
  std::string payload;
  for (int i = 0; i < 500; ++i) payload += "line " + std::to_string(i) + "\n";
  payload += "a tail of more than a kibibyte without its newline " + std::string(2000, 't');
  std::string packed = gzip(payload);
  std::string out;
  put_compressed_event(out, "clicks", {1, 2}, packed);
  auto seen = events(out);
  ASSERT_TRUE(seen && seen->size() == 1 && seen->front().compressed && seen->front().lines.size() == 1);
  EXPECT_EQ(gunzip(seen->front().lines[0], payload.size()).value(), payload);
  EXPECT_EQ(gunzip(packed, payload.size() - 1).error().code, errors::too_large);
  EXPECT_EQ(gunzip(packed + gzip("more\n"), payload.size() + 5).value(), payload + "more\n") << "two members";
  EXPECT_EQ(gunzip(packed + "garbage", 1 << 20).error().code, errors::bad_gzip);
  for (size_t n = 0; n < packed.size(); ++n) EXPECT_FALSE(gunzip(ByteView(packed).substr(0, n), 1 << 20)) << n;
  EXPECT_EQ(gunzip(gzip({}), 0).value(), "");
}

}  // namespace
}  // namespace ph::lsd
