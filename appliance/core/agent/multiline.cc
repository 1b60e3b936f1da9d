#include "core/agent/multiline.h"

#include <algorithm>

namespace ph::agent {

namespace {

// Polynomial: the other way of libstdc++ tries every way to match, and (a+)+: takes minutes for 30 letters without a
// colon.
constexpr auto kSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;

}  // namespace

Multiline::Multiline(MultilineOptions options) : options_(std::move(options)), start_(options_.start, kSyntax) {}

Result<std::shared_ptr<const Multiline>> Multiline::make(MultilineOptions options) {
  try {
    return std::shared_ptr<const Multiline>(new Multiline(std::move(options)));
  } catch (const std::regex_error& e) {
    return fail("agent.bad_pattern", e.what());
  }
}

bool Multiline::begins(ByteView line) const {
  const ByteView look = line.substr(0, kLookMax);
  try {
    return std::regex_search(look.begin(), look.end(), start_, std::regex_constants::match_continuous);
  } catch (const std::regex_error&) {
    return true;  // too costly for this line: it stands for itself, nothing is held back
  }
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
