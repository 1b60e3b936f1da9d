// Frames of LSD's protocol, both directions: what an LSD client sends and an LSD server answers. Pure: bytes to values
// and back. First stop of service/relay/lsd_server, last one of service/relay/lsd_upstream.
//
// Byte layout. Every frame:
//   u32 BE  length: 4 + bytes of the body, 4..16,777,216; anything else ends the connection without a word
//   u32 BE  message id, one numbering per direction
//   body    protocol buffers (proto2); may be empty
// Client to server:
//   1  request_new_events   1 repeated event { 1 required bytes category, 2 required uint64 inode, 3 required uint64
//                           offset, 4 repeated bytes lines, 5 optional bool is_compressed }
// Server to client:
//   1  response_generic     1 required sint32 error_code (zigzag), 2 optional bytes error_text; a failure whatever the
//   code 2  response_offsets     1 repeated offset { 1 required uint64 inode, 2 required uint64 offset }
// (inode, offset) is opaque to a server: a token, of which the answer holds exactly the multiset of the request.
// There is no version and no handshake: fields of other numbers are skipped, so a later version may add some.
//
// Bounds: the frame's. Nothing is allocated while decoding: events and lines are visited where they lie, since 16 MiB
// hold millions of empty ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::lsd {

inline constexpr size_t kHeaderBytes = 8;
inline constexpr size_t kLengthMax = 16 * 1024 * 1024;                       // of the length field: message id and body
inline constexpr size_t kFrameBytesMax = 4 + kLengthMax;                     // as it stands in the stream
inline constexpr uint32_t kRequestNewEvents = 1;                             // client to server
inline constexpr uint32_t kResponseGeneric = 1;                              // server to client
inline constexpr uint32_t kResponseOffsets = 2;                              // server to client
inline constexpr std::string_view kWriteFailed = "Failed to write results";  // texts as real servers say them
inline constexpr std::string_view kShuttingDown = "Server is shutting down";

namespace errors {
inline constexpr ErrorCode bad_length{"lsd.bad_length"};  // the connection must end
inline constexpr ErrorCode malformed{"lsd.malformed"};    // of a body: the next frame is still found
inline constexpr ErrorCode bad_gzip{"lsd.bad_gzip"};
inline constexpr ErrorCode too_large{"lsd.too_large"};
}  // namespace errors

struct Frame {
  size_t consumed = 0;  // 0: not whole yet
  size_t wanted = 0;    // then: bytes without which a further call is useless
  uint32_t id = 0;
  ByteView body;
};
/// The frame at the front of `bytes`. Errors: lsd.bad_length, known from the first four bytes.
Result<Frame> decode_frame(ByteView bytes);

struct Token {
  uint64_t inode = 0;
  uint64_t offset = 0;
  auto operator<=>(const Token&) const = default;
};

/// An event where it lies in its frame.
struct Event {
  ByteView category;
  Token token;
  bool compressed = false;
  size_t lines = 0;       // elements of `lines`, empty ones as well
  size_t line_bytes = 0;  // in all of them
  ByteView fields;        // the event's message, for for_each_line()
};
/// Visits the events of a request in order. The whole body is checked before the first call. Errors: lsd.malformed.
Result<> for_each_event(ByteView body, const std::function<void(const Event&)>& visit);
/// Visits the elements of `lines`, in order.
void for_each_line(const Event& event, const std::function<void(ByteView)>& visit);

/// A request or an answer under construction: put_* between begin_frame() and end_frame(), all on the same string,
/// which may hold earlier frames. The body's size is the caller's to keep below kLengthMax - 4.
size_t begin_frame(std::string& out);
void end_frame(std::string& out, size_t begun, uint32_t id);
/// An event of whole lines: each becomes an element that ends in its newline. `payload` is empty or ends with one.
void put_event(std::string& out, ByteView category, Token token, ByteView payload);
/// An event whose lines are one gzip member.
void put_compressed_event(std::string& out, ByteView category, Token token, ByteView gzipped);
/// Bytes that put_event() adds at most.
size_t event_bytes_max(size_t category, size_t payload, size_t lines);
void put_offset(std::string& out, Token token);
/// The whole frame of a response_generic.
std::string encode_error(int32_t code, ByteView text);

struct Generic {
  int32_t code = 0;
  std::string text;
};
using Response = std::variant<Generic, std::vector<Token>>;
/// Errors: lsd.malformed, also for an id that is no answer and for more than `offsets_max` offsets.
Result<Response> decode_response(uint32_t id, ByteView body, size_t offsets_max);

/// One or more gzip members, inflated. Errors: lsd.bad_gzip (also when cut short), lsd.too_large beyond `bytes_max`.
Result<std::string> gunzip(ByteView bytes, size_t bytes_max);
std::string gzip(ByteView bytes);

}  // namespace ph::lsd
