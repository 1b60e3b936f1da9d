// LSD's frames as a hostile peer would send them, either direction: what is decoded lies within the frame, and made
// again and read again it is the same. gzip never yields more than its bound.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/lsd/frames.h"

namespace {

void need(bool holds) {
  if (!holds) std::abort();
}

void request(ph::ByteView body) {
  std::string again;
  size_t events = 0;
  auto read = ph::lsd::for_each_event(body, [&](const ph::lsd::Event& e) {
    ++events;
    need(e.line_bytes <= body.size() && e.lines <= body.size() && e.category.size() <= body.size());
    std::string lines;
    size_t seen = 0;
    ph::lsd::for_each_line(e, [&](ph::ByteView line) {
      lines += line;
      ++seen;
    });
    need(seen == e.lines && lines.size() == e.line_bytes);
    if (e.compressed) {
      auto plain = ph::lsd::gunzip(lines, 64 * 1024);
      need(!plain || plain->size() <= 64 * 1024);
      ph::lsd::put_compressed_event(again, e.category, e.token, lines);
    } else {
      ph::lsd::put_event(again, e.category, e.token, lines);
    }
  });
  if (!read) return need(events == 0);  // nothing is visited of what is malformed
  auto same = ph::lsd::for_each_event(again, [&](const ph::lsd::Event&) { --events; });
  need(same && events == 0);
}

void answer(uint32_t id, ph::ByteView body) {
  auto read = ph::lsd::decode_response(id, body, 1000);
  if (!read) return;
  if (const auto* generic = std::get_if<ph::lsd::Generic>(&*read)) {
    std::string made = ph::lsd::encode_error(generic->code, generic->text);
    auto back = ph::lsd::decode_response(id, ph::ByteView(made).substr(ph::lsd::kHeaderBytes), 0);
    need(back && std::get<ph::lsd::Generic>(*back).code == generic->code);
    return;
  }
  const auto& tokens = std::get<std::vector<ph::lsd::Token>>(*read);
  std::string made;
  for (const auto& t : tokens) ph::lsd::put_offset(made, t);
  auto back = ph::lsd::decode_response(ph::lsd::kResponseOffsets, made, tokens.size());
  need(back && std::get<std::vector<ph::lsd::Token>>(*back) == tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ph::ByteView bytes(reinterpret_cast<const char*>(data), size);
  while (!bytes.empty()) {
    auto frame = ph::lsd::decode_frame(bytes);
    if (!frame) return 0;
    if (frame->consumed == 0) {
      need(frame->wanted > bytes.size() || bytes.size() < ph::lsd::kHeaderBytes);
      return 0;
    }
    need(frame->consumed <= bytes.size() && frame->body.size() + ph::lsd::kHeaderBytes == frame->consumed);
    if (frame->id == ph::lsd::kRequestNewEvents) request(frame->body);
    answer(frame->id, frame->body);
    bytes.remove_prefix(frame->consumed);
  }
  return 0;
}
