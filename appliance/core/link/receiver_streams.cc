#include "core/link/receiver_streams.h"

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "base/limits.h"

namespace ph::link {
namespace {

constexpr std::string_view kPrefix = "r/";
constexpr uint8_t kVersion = 1;
constexpr size_t kRejectsMax = 100'000;

uint64_t unix_seconds(WallTime t) {
  return static_cast<uint64_t>(std::max<int64_t>(0, to_unix_ms(t) / 1000));
}

std::vector<Span> spans(const std::vector<Range>& ranges) {
  std::vector<Span> out;
  out.reserve(ranges.size());
  for (const Range& r : ranges) out.push_back({r.first, r.last});
  return out;
}

/// Parts of [first, last) that are in the set.
std::vector<Range> common(const RangeSet& set, uint64_t first, uint64_t last) {
  std::vector<Range> out;
  for (const Range& hole : set.missing(first, last)) {
    if (first < hole.first) out.push_back({first, hole.first});
    first = hole.last;
  }
  if (first < last) out.push_back({first, last});
  return out;
}

/// One stream. `accepted` is what the store says (once committed), `admitted` what is on its way there.
struct Stream {
  uint64_t settled = 0;       // durable
  uint64_t settled_told = 0;  // heard in EVENTS or RESUME; counts at once for dedup, stored with the next commit
  uint64_t highest = 0;
  RangeSet accepted;
  RangeSet admitted;
  RangeSet valued;  // parts of `admitted` that value_with() has written into a batch already
  RangeSet far;
  std::map<uint64_t, Reject> rejects;  // by first
  uint64_t touched = 0;                // Unix seconds

  /// The sender promised never to send below `position`: what is known below it collapses.
  void settle(uint64_t position) {
    if (position <= settled_told) return;
    settled_told = position;
    accepted.forget_below(position);
    for (auto it = rejects.begin(); it != rejects.end() && it->second.last <= position;) it = rejects.erase(it);
  }

  std::string encode(const RangeSet& now_accepted, uint64_t now_highest) const {
    std::string out(1, static_cast<char>(kVersion));
    put_varint(out, settled_told);
    put_varint(out, now_highest);
    now_accepted.encode(out);
    far.encode(out);
    uint64_t count = 0;
    for (const auto& [first, r] : rejects) count += now_accepted.contains(r.first, r.last);
    put_varint(out, count);
    for (const auto& [first, r] : rejects) {
      if (!now_accepted.contains(r.first, r.last)) continue;
      put_varint(out, r.first);
      put_varint(out, r.last - r.first);
      put_sized(out, r.reason);
    }
    put_varint(out, touched);
    return out;
  }
};

class Streams final : public ReceiverStreams {
 public:
  Result<> load(ByteView key, ByteView value) override;
  std::optional<std::vector<Range>> admit(const StreamKey& key, uint64_t settled, uint64_t first,
                                          uint64_t last) override;
  void reject(const StreamKey& key, uint64_t first, uint64_t last, std::string reason) override;
  void abandon(const StreamKey& key, const std::vector<Range>& ranges) override;
  std::string value_with(const StreamKey& key, const std::vector<Range>& ranges, WallTime now) override;
  void commit(const StreamKey& key, const std::vector<Range>& ranges) override;
  bool far(const StreamKey& key, uint64_t first, uint64_t last) override;
  std::string value(const StreamKey& key, WallTime now) override;
  std::vector<Range> held(const StreamKey& key, uint64_t first, uint64_t last) const override;
  std::vector<Range> far_held(const StreamKey& key, uint64_t first, uint64_t last) const override;
  Resumed::Stream resume(const StreamKey& key, uint64_t settled) override;
  bool close(const StreamKey& key) override { return streams_.erase(key) > 0; }
  std::vector<StreamKey> idle_since(WallTime before) const override;
  size_t size() const override { return streams_.size(); }

 private:
  std::map<StreamKey, Stream> streams_;
};

Result<> Streams::load(ByteView key, ByteView value) {
  auto bad = [&](const char* what) { return fail(errors::malformed, std::string(what) + " at key " + to_hex(key)); };
  if (key.size() != kPrefix.size() + 32 || !key.starts_with(kPrefix)) return bad("stream key");
  StreamKey k;
  k.sender = *NodeId::from_bytes(key.substr(2, 16));
  k.target = load_key(key.data() + 18);
  k.stream.value = load_key(key.data() + 26);
  Reader in(value);
  auto version = in.fixed<uint8_t>();
  if (in.ok() && version > kVersion)
    return fail(errors::newer_format, "stream state version " + std::to_string(version));
  Stream s;
  s.settled = s.settled_told = in.varint();
  s.highest = in.varint();
  if (!in.ok() || !s.accepted.decode(in) || !s.far.decode(in)) return bad("stream state");
  uint64_t rejects = in.varint();
  if (rejects > kRejectsMax) return bad("stream state");
  for (uint64_t i = 0; i < rejects && in.ok(); ++i) {
    Reject r;
    r.first = in.varint();
    r.last = r.first + in.varint();
    r.reason = in.sized();
    s.rejects[r.first] = r;
  }
  s.touched = in.varint();
  if (!in.ok()) return bad("stream state");
  streams_[k] = std::move(s);
  return {};
}

std::optional<std::vector<Range>> Streams::admit(const StreamKey& key, uint64_t settled, uint64_t first,
                                                 uint64_t last) {
  Stream& s = streams_[key];
  s.settle(settled);
  first = std::max(first, s.settled_told);
  std::vector<Range> fresh;
  for (const Range& hole : s.accepted.missing(first, std::max(first, last)))
    for (const Range& part : s.admitted.missing(hole.first, hole.last)) fresh.push_back(part);
  RangeSet with = s.admitted;
  for (const Range& r : fresh) with.add(r.first, r.last);
  if (with.size() + s.accepted.size() > limits::kRangesMax) return std::nullopt;
  s.admitted = std::move(with);
  return fresh;
}

void Streams::reject(const StreamKey& key, uint64_t first, uint64_t last, std::string reason) {
  streams_[key].rejects[first] = {first, last, std::move(reason)};
}

void Streams::abandon(const StreamKey& key, const std::vector<Range>& ranges) {
  auto it = streams_.find(key);
  if (it == streams_.end()) return;
  Stream& s = it->second;
  for (const Range& r : ranges) {
    s.admitted.remove(r.first, r.last);
    s.valued.remove(r.first, r.last);
    s.far.remove(r.first, r.last);
    for (auto x = s.rejects.lower_bound(r.first); x != s.rejects.end() && x->first < r.last;) x = s.rejects.erase(x);
  }
}

std::string Streams::value_with(const StreamKey& key, const std::vector<Range>& ranges, WallTime now) {
  Stream& s = streams_[key];
  s.touched = unix_seconds(now);
  for (const Range& r : ranges) s.valued.add(r.first, r.last);
  RangeSet all = s.accepted;
  all.add(s.valued);
  all.forget_below(s.settled_told);
  return s.encode(all, std::max(s.highest, s.valued.highest()));
}

void Streams::commit(const StreamKey& key, const std::vector<Range>& ranges) {
  auto it = streams_.find(key);
  if (it == streams_.end()) return;  // closed meanwhile
  Stream& s = it->second;
  for (const Range& r : ranges) {
    s.admitted.remove(r.first, r.last);
    s.valued.remove(r.first, r.last);
    s.accepted.add(r.first, r.last);
    s.highest = std::max(s.highest, r.last);
  }
  s.settled = s.settled_told;
  s.accepted.forget_below(s.settled_told);
}

bool Streams::far(const StreamKey& key, uint64_t first, uint64_t last) {
  auto it = streams_.find(key);
  if (it == streams_.end() || it->second.far.contains(first, last)) return false;
  it->second.far.add(first, last);
  return true;
}

std::string Streams::value(const StreamKey& key, WallTime now) {
  return value_with(key, {}, now);
}

std::vector<Range> Streams::held(const StreamKey& key, uint64_t first, uint64_t last) const {
  auto it = streams_.find(key);
  if (it == streams_.end()) return {};
  RangeSet all = it->second.accepted;
  all.add(0, it->second.settled_told);
  return common(all, first, last);
}

std::vector<Range> Streams::far_held(const StreamKey& key, uint64_t first, uint64_t last) const {
  auto it = streams_.find(key);
  return it == streams_.end() ? std::vector<Range>() : common(it->second.far, first, last);
}

Resumed::Stream Streams::resume(const StreamKey& key, uint64_t settled) {
  Resumed::Stream answer;
  answer.stream = key.stream;
  auto it = streams_.find(key);
  if (it == streams_.end()) return answer;
  Stream& s = it->second;
  s.settle(settled);
  answer.settled = s.settled_told;
  answer.highest = std::max(s.highest, s.settled_told);
  answer.accepted = spans(s.accepted.list());
  answer.far = spans(s.far.list());
  for (const auto& [first, r] : s.rejects)
    if (s.accepted.contains(r.first, r.last)) answer.rejects.push_back(r);
  return answer;
}

std::vector<StreamKey> Streams::idle_since(WallTime before) const {
  std::vector<StreamKey> out;
  for (const auto& [key, s] : streams_)
    if (s.touched < unix_seconds(before) && s.admitted.empty()) out.push_back(key);
  return out;
}

}  // namespace

uint64_t target_hash(std::string_view target) {
  uint64_t h = 0xCBF29CE484222325;  // FNV-1a: stable across builds, since it is part of stored keys
  for (unsigned char c : target) h = (h ^ c) * 0x100000001B3;
  return h;
}

std::string store_key(const StreamKey& key) {
  std::string out(kPrefix);
  out.append(key.sender.bytes());
  put_key(out, key.target);
  put_key(out, key.stream.value);
  return out;
}

std::unique_ptr<ReceiverStreams> ReceiverStreams::make() {
  return std::make_unique<Streams>();
}

}  // namespace ph::link
