#include "core/agent/fingerprint.h"

#include <algorithm>
#include <cstring>

namespace ph::agent {
namespace {

constexpr uint64_t kMultiplier = 0x9FB21C651E98DF25;  // any odd constant with well mixed bits; stored hashes rest on it

/// Word at a time, so that a prefix's hash comes for free on the way to the whole one's.
class Hasher {
 public:
  void word(uint64_t w) {
    state_ = (state_ ^ w) * kMultiplier;
    state_ ^= state_ >> 29;
  }
  /// Whole words only.
  void words(ByteView bytes) {
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) word(load_fixed<uint64_t>(bytes.data() + i));
  }
  uint64_t finish(ByteView tail, size_t length) const {
    Hasher end = *this;
    if (!tail.empty()) {
      uint64_t last = 0;
      std::memcpy(&last, tail.data(), tail.size());
      end.word(last);
    }
    end.word(length);
    return end.state_;
  }

 private:
  uint64_t state_ = 0x51A7E57ED6E5A7ED;
};

}  // namespace

uint64_t content_hash(ByteView bytes) {
  Hasher h;
  size_t whole = bytes.size() / 8 * 8;
  h.words(bytes.substr(0, whole));
  return h.finish(bytes.substr(whole), bytes.size());
}

size_t Prefix::steps() const {
  size_t count = 0;
  for (size_t at = kStepFirst; count < kSteps && at < length_; at *= 2) ++count;
  return count;
}

Prefix Prefix::of(ByteView bytes) {
  bytes = bytes.substr(0, kPrefixMax);
  Prefix p;
  if (bytes.empty()) return p;
  p.length_ = static_cast<uint16_t>(bytes.size());
  Hasher h;
  size_t done = 0, at = kStepFirst;
  for (size_t i = 0, n = p.steps(); i < n; ++i, at *= 2) {
    h.words(bytes.substr(done, at - done));
    done = at;
    p.step_[i] = h.finish({}, at);
  }
  size_t whole = bytes.size() / 8 * 8;
  h.words(bytes.substr(done, whole - done));
  p.whole_ = h.finish(bytes.substr(whole), bytes.size());
  return p;
}

Match Prefix::match(ByteView bytes) const {
  if (bytes.size() >= length_) return of(bytes.substr(0, length_)) == *this ? Match::same : Match::different;
  size_t at = 0, compared = 0;
  for (size_t step = kStepFirst, i = 0; i < steps() && step <= bytes.size(); step *= 2, ++i)
    at = step, compared = i + 1;
  if (compared == 0) return Match::unknowable;
  return content_hash(bytes.substr(0, at)) == step_[compared - 1] ? Match::shorter : Match::different;
}

void Prefix::encode(std::string& out) const {
  put_varint(out, length_);
  if (length_ == 0) return;
  put_fixed<uint64_t>(out, whole_);
  for (size_t i = 0; i < steps(); ++i) put_fixed<uint64_t>(out, step_[i]);
}

Prefix Prefix::decode(Reader& in) {
  Prefix p;
  uint64_t length = in.varint();
  if (length > kPrefixMax) {
    in.take(SIZE_MAX);  // fails the reader
    return {};
  }
  p.length_ = static_cast<uint16_t>(length);
  if (length == 0) return p;
  p.whole_ = in.fixed<uint64_t>();
  for (size_t i = 0; i < p.steps(); ++i) p.step_[i] = in.fixed<uint64_t>();
  return p;
}

Verdict judge(const Known& known, const Found& found) {
  if (found.prefix == Match::different) return Verdict::replaced;
  bool shrunk = found.size < known.position || found.prefix != Match::same;
  if (known.same_boot) return shrunk || !found.windows_match ? Verdict::replaced : Verdict::same;
  if (found.prefix == Match::unknowable || !found.windows_match) return Verdict::replaced;
  if (shrunk) return Verdict::power_cut;
  return known.in_flight ? Verdict::power_cut : Verdict::same;
}

}  // namespace ph::agent
