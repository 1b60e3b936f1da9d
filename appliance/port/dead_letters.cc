#include "port/dead_letters.h"

#include "base/coding.h"

namespace ph::port {
namespace {
constexpr uint8_t kVersion = 1;
}

std::string encode(const DeadLetter& letter) {
  std::string out(1, static_cast<char>(kVersion));
  put_varint(out, static_cast<uint64_t>(to_unix_ms(letter.at)));
  for (const std::string* text : {&letter.route, &letter.target, &letter.category, &letter.reason})
    put_sized(out, *text);
  put_varint(out, letter.stream.value);
  put_varint(out, letter.first);
  put_varint(out, letter.last - letter.first);
  out.append(letter.block.view());
  return out;
}

Result<DeadLetter> decode_dead_letter(const Slice& bytes) {
  Reader in(bytes.view());
  auto version = in.fixed<uint8_t>();
  if (in.ok() && version > kVersion)
    return fail(dead_letter_errors::newer_version, "version " + std::to_string(version));
  DeadLetter letter;
  letter.at = from_unix_ms(static_cast<int64_t>(in.varint()));
  for (std::string* text : {&letter.route, &letter.target, &letter.category, &letter.reason}) *text = in.sized();
  letter.stream.value = in.varint();
  letter.first = in.varint();
  letter.last = letter.first + in.varint();
  if (!in.ok() || version != kVersion || letter.last < letter.first)
    return fail(dead_letter_errors::malformed, "header");
  letter.block = bytes.sub(bytes.size() - in.rest().size());
  return letter;
}

}  // namespace ph::port
