#include "codec/mqtt/text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ph::mqtt {
namespace {

constexpr ByteView kShare = "$share/";
constexpr ByteView kQueue = "$queue/";

/// Length of the multi-byte sequence at p, 0 if it is not one that Unicode table 3-7 allows.
size_t sequence(const unsigned char* p, size_t left) {
  auto tail = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) { return p[i] >= low && p[i] <= high; };
  const unsigned first = p[0];
  if (first >= 0xC2 && first <= 0xDF) return left >= 2 && tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80;   // no overlong form
    const unsigned high = first == 0xED ? 0x9F : 0xBF;  // no surrogate
    return left >= 3 && tail(1, low, high) && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xF4 ? 0x8F : 0xBF;  // at most U+10FFFF
    return left >= 4 && tail(1, low, high) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

ByteView next_level(ByteView& rest, bool& more) {
  const size_t slash = rest.find('/');
  more = slash != ByteView::npos;
  ByteView level = rest.substr(0, slash);
  rest = more ? rest.substr(slash + 1) : ByteView{};
  return level;
}

}  // namespace

bool utf8_valid(ByteView text, bool nul_allowed) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  size_t left = text.size();
  while (left > 0) {
    // Eight ASCII bytes other than 0 at a time: a byte is 0 or above 0x7F exactly where (v - 0x01..) | v has its top
    // bit, since the subtraction borrows only out of a byte that is 0 itself.
    while (left >= 8) {
      uint64_t v;
      std::memcpy(&v, p, 8);
      if (((v - 0x0101010101010101) | v) & 0x8080808080808080) break;
      p += 8;
      left -= 8;
    }
    if (left == 0) break;
    if (*p == 0 && !nul_allowed) return false;
    const size_t n = *p < 0x80 ? 1 : sequence(p, left);
    if (n == 0) return false;
    p += n;
    left -= n;
  }
  return true;
}

bool topic_valid(ByteView topic) {
  // Two fast searches: find_first_of() would make one for each byte.
  return !topic.empty() && topic.find('+') == ByteView::npos && topic.find('#') == ByteView::npos;
}

bool filter_valid(ByteView filter) {
  if (filter.starts_with(kShare) || filter.starts_with(kQueue)) {
    const auto shared = shared_filter(filter);
    if (!shared) return false;
    filter = shared->filter;
  }
  if (filter.empty()) return false;
  for (size_t i = 0; i < filter.size(); ++i) {
    if (filter[i] != '+' && filter[i] != '#') continue;
    const bool begins = i == 0 || filter[i - 1] == '/';
    const bool last = i + 1 == filter.size();
    if (!begins) return false;
    if (filter[i] == '#' ? !last : !last && filter[i + 1] != '/') return false;
  }
  return true;
}

size_t topic_levels(ByteView topic) {
  return static_cast<size_t>(std::count(topic.begin(), topic.end(), '/')) + 1;
}

std::optional<SharedFilter> shared_filter(ByteView filter) {
  if (filter.starts_with(kQueue) && filter.size() > kQueue.size())
    return SharedFilter{{}, filter.substr(kQueue.size())};
  if (!filter.starts_with(kShare)) return std::nullopt;
  filter.remove_prefix(kShare.size());
  const size_t slash = filter.find('/');
  if (slash == 0 || slash == ByteView::npos) return std::nullopt;
  SharedFilter out{filter.substr(0, slash), filter.substr(slash + 1)};
  if (out.filter.empty() || out.group.find_first_of("+#") != ByteView::npos) return std::nullopt;
  return out;
}

bool matches(ByteView filter, ByteView topic) {
  if (topic.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#'))) return false;
  bool filter_more = true;
  bool topic_more = true;
  for (;;) {
    const ByteView want = next_level(filter, filter_more);
    if (want == "#") return true;
    const ByteView have = next_level(topic, topic_more);
    if (want != "+" && want != have) return false;
    if (!topic_more) return !filter_more || filter == "#";  // "a/#" matches "a" too
    if (!filter_more) return false;
  }
}

}  // namespace ph::mqtt
