#include "core/agent/multiline.h"

#include <re2/re2.h>

#include <algorithm>

namespace ph::agent {

struct Multiline::Pattern {
  explicit Pattern(const std::string& text) : regex(text, options()) {}
  /// Lines are bytes: one that is no UTF-8 begins an event as well.
  static RE2::Options options() {
    RE2::Options bytes(RE2::Latin1);
    bytes.set_log_errors(false);
    return bytes;
  }
  RE2 regex;
};

Multiline::Multiline(MultilineOptions options, std::unique_ptr<Pattern> start)
    : options_(std::move(options)), start_(std::move(start)) {}

Multiline::~Multiline() = default;

Result<std::shared_ptr<const Multiline>> Multiline::make(MultilineOptions options) {
  auto start = std::make_unique<Pattern>(options.start);
  if (!start->regex.ok()) return fail("agent.bad_pattern", start->regex.error());
  return std::shared_ptr<const Multiline>(new Multiline(std::move(options), std::move(start)));
}

bool Multiline::begins(ByteView line) const {
  const size_t look = std::min(line.size(), kLookMax);
  return start_->regex.Match({line.data(), look}, 0, look, RE2::ANCHOR_START, nullptr, 0);
}

Multiline::Cut Multiline::cut(ByteView lines, bool last) const {
  Cut cut;
  while (cut.plain < lines.size()) {
    size_t end = lines.find('\n', cut.plain) + 1;  // of the event so far
    size_t count = 1;
    bool whole = false;
    while (end < lines.size()) {
      const ByteView next = lines.substr(end, lines.find('\n', end) + 1 - end);
      whole = begins(next) || count == options_.lines_max || end - cut.plain + next.size() > options_.bytes_max;
      if (whole) break;
      end += next.size();
      ++count;
    }
    whole = whole || last || count == options_.lines_max || end - cut.plain >= options_.bytes_max;
    if (!whole) break;
    if (count == 1 && lines.substr(cut.plain, end - cut.plain).find('\\') == ByteView::npos) {
      cut.plain = end;
      continue;
    }
    if (cut.plain == 0) cut.joined = end;
    break;
  }
  return cut;
}

std::string joined(ByteView lines) {
  std::string out;
  out.reserve(lines.size() + lines.size() / 16 + 16);
  if (lines.ends_with('\n')) lines.remove_suffix(1);
  for (char c : lines) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  out += '\n';
  return out;
}

}  // namespace ph::agent
