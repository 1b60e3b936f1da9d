#include "codec/lsd/frames.h"

#include <algorithm>
#include <cstring>

#include "base/coding.h"

namespace ph::lsd {
namespace {

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kSized = 2, kGroup = 3, kGroupEnd = 4, kFixed32 = 5 };
constexpr int kGroupDepthMax = 16;

uint32_t load_be(const char* p) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(p[i]);
  return value;
}

void store_be(char* p, uint32_t value) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<char>(value >> (24 - 8 * i));
}

size_t varint_bytes(uint64_t value) {
  size_t n = 1;
  for (; value >= 0x80; value >>= 7) ++n;
  return n;
}

constexpr uint64_t tag(uint32_t field, WireType type) {
  return uint64_t{field} << 3 | type;
}

/// Passes a field of no interest; false where the bytes are not one.
bool skip(Reader& in, uint64_t key, int depth = 0) {
  switch (key & 7) {
    case kVarint:
      in.varint();
      return in.ok();
    case kFixed64:
      in.take(8);
      return in.ok();
    case kSized:
      in.sized();
      return in.ok();
    case kFixed32:
      in.take(4);
      return in.ok();
    case kGroup:
      if (depth == kGroupDepthMax) return false;
      while (!in.at_end()) {
        uint64_t inner = in.varint();
        if (!in.ok() || inner >> 3 == 0) return false;
        if ((inner & 7) == kGroupEnd) return inner >> 3 == key >> 3;
        if (!skip(in, inner, depth + 1)) return false;
      }
      return false;
    default:
      return false;
  }
}

/// Reads a message field by field. `known` takes a field it knows off the reader and says whether it did; it fails by
/// asking for the wrong thing. False: malformed.
template <class Known>
bool read_message(ByteView bytes, Known&& known) {
  Reader in(bytes);
  while (!in.at_end()) {
    uint64_t key = in.varint();
    if (!in.ok() || key >> 3 == 0 || key > UINT32_MAX) return false;
    if (!known(key, in) && !skip(in, key)) return false;
    if (!in.ok()) return false;
  }
  return in.ok();
}

/// A known field of another wire type than its own is malformed, not unknown.
bool wrong_type(uint64_t key, uint32_t field, WireType type) {
  return key >> 3 == field && (key & 7) != type;
}

bool read_event(ByteView bytes, Event& event) {
  bool has_category = false, has_inode = false, has_offset = false, good = true;
  event.fields = bytes;
  good &= read_message(bytes, [&](uint64_t key, Reader& in) {
    if (key == tag(1, kSized)) {
      event.category = in.sized();
      has_category = true;
    } else if (key == tag(2, kVarint)) {
      event.token.inode = in.varint();
      has_inode = true;
    } else if (key == tag(3, kVarint)) {
      event.token.offset = in.varint();
      has_offset = true;
    } else if (key == tag(4, kSized)) {
      event.line_bytes += in.sized().size();
      ++event.lines;
    } else if (key == tag(5, kVarint)) {
      event.compressed = in.varint() != 0;
    } else {
      for (uint32_t f : {1u, 4u}) good &= !wrong_type(key, f, kSized);
      for (uint32_t f : {2u, 3u, 5u}) good &= !wrong_type(key, f, kVarint);
      return false;
    }
    return true;
  });
  return good && has_category && has_inode && has_offset;
}

bool read_offset(ByteView bytes, Token& token) {
  bool has_inode = false, has_offset = false, good = true;
  good &= read_message(bytes, [&](uint64_t key, Reader& in) {
    if (key == tag(1, kVarint)) {
      token.inode = in.varint();
      has_inode = true;
    } else if (key == tag(2, kVarint)) {
      token.offset = in.varint();
      has_offset = true;
    } else {
      for (uint32_t f : {1u, 2u}) good &= !wrong_type(key, f, kVarint);
      return false;
    }
    return true;
  });
  return good && has_inode && has_offset;
}

bool read_request(ByteView body, const std::function<void(const Event&)>* visit) {
  bool good = true;
  good &= read_message(body, [&](uint64_t key, Reader& in) {
    if (key != tag(1, kSized)) {
      good &= !wrong_type(key, 1, kSized);
      return false;
    }
    ByteView bytes = in.sized();
    if (!in.ok()) return true;
    Event event;
    if (!read_event(bytes, event))
      good = false;
    else if (visit)
      (*visit)(event);
    return true;
  });
  return good;
}

Result<Response> read_generic(ByteView body) {
  Generic out;
  bool has_code = false, good = true;
  good &= read_message(body, [&](uint64_t key, Reader& in) {
    if (key == tag(1, kVarint)) {
      auto raw = static_cast<uint32_t>(in.varint());
      out.code = static_cast<int32_t>(raw >> 1 ^ (0 - (raw & 1)));
      has_code = true;
    } else if (key == tag(2, kSized)) {
      out.text = std::string(in.sized());
    } else {
      good &= !wrong_type(key, 1, kVarint) && !wrong_type(key, 2, kSized);
      return false;
    }
    return true;
  });
  if (!good || !has_code) return fail(errors::malformed, "response_generic");
  return out;
}

Result<Response> read_offsets(ByteView body, size_t offsets_max) {
  std::vector<Token> out;
  bool good = true;
  good &= read_message(body, [&](uint64_t key, Reader& in) {
    if (key != tag(1, kSized)) {
      good &= !wrong_type(key, 1, kSized);
      return false;
    }
    Token token;
    good &= read_offset(in.sized(), token) && in.ok() && out.size() < offsets_max;
    if (good) out.push_back(token);
    return true;
  });
  if (!good) return fail(errors::malformed, "response_offsets");
  return out;
}

size_t event_head_bytes(ByteView category, Token token) {
  return 1 + varint_bytes(category.size()) + category.size() + 1 + varint_bytes(token.inode) + 1 +
         varint_bytes(token.offset);
}

void put_event_head(std::string& out, size_t size, ByteView category, Token token) {
  put_varint(out, tag(1, kSized));
  put_varint(out, size);
  put_varint(out, tag(1, kSized));
  put_sized(out, category);
  put_varint(out, tag(2, kVarint));
  put_varint(out, token.inode);
  put_varint(out, tag(3, kVarint));
  put_varint(out, token.offset);
}

template <class Visit>
void split_lines(ByteView payload, Visit&& visit) {
  while (!payload.empty()) {
    const void* end = std::memchr(payload.data(), '\n', payload.size());
    size_t n = end ? static_cast<size_t>(static_cast<const char*>(end) - payload.data()) + 1 : payload.size();
    visit(payload.substr(0, n));
    payload.remove_prefix(n);
  }
}

}  // namespace

Result<Frame> decode_frame(ByteView bytes) {
  Frame frame;
  frame.wanted = kHeaderBytes;
  if (bytes.size() < 4) return frame;
  size_t length = load_be(bytes.data());
  if (length < 4 || length > kLengthMax) return fail(errors::bad_length, std::to_string(length));
  frame.wanted = 4 + length;
  if (bytes.size() < frame.wanted) return frame;
  frame.consumed = frame.wanted;
  frame.id = load_be(bytes.data() + 4);
  frame.body = bytes.substr(kHeaderBytes, length - 4);
  return frame;
}

Result<> for_each_event(ByteView body, const std::function<void(const Event&)>& visit) {
  if (!read_request(body, nullptr)) return fail(errors::malformed, "request_new_events");
  read_request(body, &visit);
  return {};
}

void for_each_line(const Event& event, const std::function<void(ByteView)>& visit) {
  read_message(event.fields, [&](uint64_t key, Reader& in) {
    if (key != tag(4, kSized)) return false;
    visit(in.sized());
    return true;
  });
}

size_t begin_frame(std::string& out) {
  out.append(kHeaderBytes, '\0');
  return out.size() - kHeaderBytes;
}

void end_frame(std::string& out, size_t begun, uint32_t id) {
  size_t length = out.size() - begun - 4;
  PH_ASSERT(length >= 4 && length <= kLengthMax, "a frame within its bounds");
  store_be(out.data() + begun, static_cast<uint32_t>(length));
  store_be(out.data() + begun + 4, id);
}

void put_event(std::string& out, ByteView category, Token token, ByteView payload) {
  size_t size = event_head_bytes(category, token);
  split_lines(payload, [&](ByteView line) { size += 1 + varint_bytes(line.size()) + line.size(); });
  put_event_head(out, size, category, token);
  split_lines(payload, [&](ByteView line) {
    put_varint(out, tag(4, kSized));
    put_sized(out, line);
  });
}

void put_compressed_event(std::string& out, ByteView category, Token token, ByteView gzipped) {
  size_t size = event_head_bytes(category, token) + 1 + varint_bytes(gzipped.size()) + gzipped.size() + 2;
  put_event_head(out, size, category, token);
  put_varint(out, tag(4, kSized));
  put_sized(out, gzipped);
  put_varint(out, tag(5, kVarint));
  put_varint(out, 1);
}

size_t event_bytes_max(size_t category, size_t payload, size_t lines) {
  constexpr size_t kNumber = 11, kPrefix = 6;  // tag and the longest 64-bit varint; tag and length below 2^28
  return kPrefix + kPrefix + category + 2 * kNumber + lines * kPrefix + payload + 2;
}

void put_offset(std::string& out, Token token) {
  put_varint(out, tag(1, kSized));
  put_varint(out, 2 + varint_bytes(token.inode) + varint_bytes(token.offset));
  put_varint(out, tag(1, kVarint));
  put_varint(out, token.inode);
  put_varint(out, tag(2, kVarint));
  put_varint(out, token.offset);
}

std::string encode_error(int32_t code, ByteView text) {
  std::string out;
  size_t begun = begin_frame(out);
  put_varint(out, tag(1, kVarint));
  put_varint(out, static_cast<uint32_t>(code) << 1 ^ (code < 0 ? UINT32_MAX : 0));
  put_varint(out, tag(2, kSized));
  put_sized(out, text);
  end_frame(out, begun, kResponseGeneric);
  return out;
}

Result<Response> decode_response(uint32_t id, ByteView body, size_t offsets_max) {
  if (id == kResponseGeneric) return read_generic(body);
  if (id == kResponseOffsets) return read_offsets(body, offsets_max);
  return fail(errors::malformed, "answer of unknown id " + std::to_string(id));
}

}  // namespace ph::lsd
