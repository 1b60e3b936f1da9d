#include "core/link/receiver_streams.h"

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "base/limits.h"

namespace ph::link {
namespace {

constexpr uint8_t kVersion = 1;
constexpr std::string_view kPrefix = "r/";
constexpr size_t kKeySize = 2 + 16 + 8 + 8;

struct RejectedRange {
  uint64_t last = 0;
  std::string reason;
};
using Rejects = std::map<uint64_t, RejectedRange>;  // by first

/// Adds a reject; one that continues its neighbour with the same reason joins it, so that a stream which is refused
/// line by line stays one entry.
void add_reject(Rejects& rejects, uint64_t first, uint64_t last, const std::string& reason) {
  auto it = rejects.lower_bound(first);
  if (it != rejects.begin()) {
    auto before = std::prev(it);
    if (before->second.last >= last) return;
    if (before->second.last == first && before->second.reason == reason) {
      before->second.last = last;
      it = before;
    } else {
      it = rejects.insert_or_assign(it, first, RejectedRange{last, reason});
    }
  } else {
    it = rejects.insert_or_assign(it, first, RejectedRange{last, reason});
  }
  auto next = std::next(it);
  if (next != rejects.end() && next->first == it->second.last && next->second.reason == it->second.reason) {
    it->second.last = next->second.last;
    rejects.erase(next);
  }
}

void forget_rejects_below(Rejects& rejects, uint64_t settled) {
  while (!rejects.empty() && rejects.begin()->second.last <= settled) rejects.erase(rejects.begin());
}

struct Stream {
  uint64_t settled = 0;  // as told, also when not stored yet: the sender will never send below it again
  uint64_t highest = 0;  // of what is accepted
  RangeSet accepted;     // durable, above settled
  RangeSet admitted;     // in a group that is being written, or waits for one
  RangeSet staged;       // the part of admitted that value_with() counts as accepted
  RangeSet far;          // also of what is admitted
  Rejects rejects;       // accepted ones
  Rejects refused;       // admitted ones
  int64_t touched = 0;   // Unix seconds

  void settle(uint64_t to) {
    if (to <= settled) return;
    settled = to;
    accepted.forget_below(to);
    forget_rejects_below(rejects, to);
  }
  /// Without what is far only together with a commit that is still to come.
  std::vector<Range> durably_far(uint64_t first, uint64_t last) const {
    std::vector<Range> out;
    for (const Range& r : far.within(first, last))
      for (const Range& part : admitted.missing(r.first, r.last)) out.push_back(part);
    return out;
  }
};

int64_t seconds(WallTime t) {
  return std::chrono::duration_cast<std::chrono::seconds>(t.time_since_epoch()).count();
}

void put_rejects(std::string& out, const Rejects& rejects) {
  put_varint(out, rejects.size());
  for (const auto& [first, r] : rejects) {
    put_varint(out, first);
    put_varint(out, r.last - first);
    put_sized(out, r.reason);
  }
}

std::string encode(const Stream& s, uint64_t highest, const RangeSet& accepted, const Rejects& rejects) {
  std::string out;
  out.push_back(static_cast<char>(kVersion));
  put_varint(out, s.settled);
  put_varint(out, highest);
  accepted.encode(out);
  s.far.encode(out);
  put_rejects(out, rejects);
  put_varint(out, static_cast<uint64_t>(s.touched));
  return out;
}

bool decode(Reader& in, Stream& s) {
  s.settled = in.varint();
  s.highest = in.varint();
  if (!s.accepted.decode(in) || !s.far.decode(in)) return false;
  uint64_t count = in.varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    uint64_t first = in.varint();
    uint64_t length = in.varint();
    ByteView reason = in.sized(UINT16_MAX);
    if (!in.ok() || length == 0 || first + length < first) return false;
    s.rejects[first] = {first + length, std::string(reason)};
  }
  s.touched = static_cast<int64_t>(in.varint());
  s.accepted.forget_below(s.settled);
  forget_rejects_below(s.rejects, s.settled);
  return in.ok();
}

/// Parts of [first, last) that are neither settled, accepted nor admitted, ascending.
std::vector<Range> fresh(const Stream& s, uint64_t first, uint64_t last) {
  std::vector<Range> out;
  for (const Range& gap : s.accepted.missing(std::max(first, s.settled), last))
    for (const Range& r : s.admitted.missing(gap.first, gap.last)) out.push_back(r);
  return out;
}

/// How many holes more (or less, -1) the stream has with `r`.
int growth(const Stream& s, const Range& r) {
  auto has = [&s](uint64_t position) {
    return position < s.settled || s.accepted.contains(position, position + 1) ||
           s.admitted.contains(position, position + 1);
  };
  return 1 - (r.first == 0 || has(r.first - 1) ? 1 : 0) - (has(r.last) ? 1 : 0);
}

class Streams : public ReceiverStreams {
 public:
  Result<> load(ByteView key, ByteView value) override {
    if (key.size() != kKeySize || !key.starts_with(kPrefix)) return fail(errors::malformed, "key of a stream");
    Reader in(value);
    auto version = in.fixed<uint8_t>();
    if (in.ok() && version > kVersion)
      return fail(errors::newer_format, "stream in version " + std::to_string(version));
    Stream stream;
    if (version != kVersion || !decode(in, stream)) return fail(errors::malformed, "value of a stream");
    StreamKey id{*NodeId::from_bytes(key.substr(2, 16)), load_key(key.data() + 18),
                 StreamId{load_key(key.data() + 26)}};
    open(id) = std::move(stream);
    return {};
  }

  std::optional<std::vector<Range>> admit(const StreamKey& key, uint64_t settled, uint64_t first,
                                          uint64_t last) override {
    if (!streams_.contains(key) && counts_[{key.sender, key.target}] >= kStreamsMax) return std::nullopt;
    Stream& s = open(key);
    s.settle(settled);
    std::vector<Range> parts = fresh(s, first, last);
    int more = 0;
    for (const Range& r : parts) more += growth(s, r);
    // What fills a hole is always taken: otherwise a full set could never shrink again.
    if (more > 0 && s.accepted.size() + s.admitted.size() >= limits::kRangesMax) return std::nullopt;
    for (const Range& r : parts) s.admitted.add(r.first, r.last);
    return parts;
  }

  void reject(const StreamKey& key, uint64_t first, uint64_t last, std::string reason) override {
    Stream* s = find(key);
    if (!s) return;
    for (const Range& r : s->admitted.within(first, last))  // the rest of a block may have been taken before
      s->refused[r.first] = {r.last, reason};
  }

  void abandon(const StreamKey& key, const std::vector<Range>& ranges) override {
    Stream* s = find(key);
    if (!s) return;
    for (const Range& r : ranges) {
      s->admitted.remove(r.first, r.last);
      s->staged.remove(r.first, r.last);
      s->far.remove(r.first, r.last);
      each_refused(*s, r, [](uint64_t, RejectedRange&) {});
    }
  }

  void stage(const StreamKey& key, const std::vector<Range>& ranges) override {
    Stream& s = open(key);
    for (const Range& r : ranges) s.staged.add(r.first, r.last);
  }

  void commit(const StreamKey& key, const std::vector<Range>& ranges) override {
    Stream* s = find(key);
    if (!s) return;  // closed meanwhile
    for (const Range& r : ranges) {
      s->admitted.remove(r.first, r.last);
      s->staged.remove(r.first, r.last);
      s->accepted.add(r.first, r.last);
      s->highest = std::max(s->highest, r.last);
      each_refused(*s, r, [&](uint64_t first, RejectedRange& refused) {
        add_reject(s->rejects, first, refused.last, refused.reason);
      });
    }
    s->accepted.forget_below(s->settled);
    forget_rejects_below(s->rejects, s->settled);
  }

  bool far(const StreamKey& key, uint64_t first, uint64_t last) override {
    Stream* s = find(key);
    if (!s || s->far.contains(first, last)) return false;
    s->far.add(first, last);
    return true;
  }

  std::string value(const StreamKey& key, WallTime now) override { return value_of(open(key), now); }

  std::vector<Range> held(const StreamKey& key, uint64_t first, uint64_t last) const override {
    auto it = streams_.find(key);
    if (it == streams_.end()) return {};
    const Stream& s = it->second;
    std::vector<Range> out;
    if (first < std::min(last, s.settled)) out.push_back({first, std::min(last, s.settled)});
    for (const Range& r : s.accepted.within(std::max(first, s.settled), last)) {
      if (!out.empty() && out.back().last == r.first)
        out.back().last = r.last;
      else
        out.push_back(r);
    }
    return out;
  }

  std::vector<Range> far_held(const StreamKey& key, uint64_t first, uint64_t last) const override {
    auto it = streams_.find(key);
    if (it == streams_.end()) return {};
    return it->second.durably_far(first, last);
  }

  bool writing(const StreamKey& key) const override {
    auto it = streams_.find(key);
    return it != streams_.end() && !it->second.admitted.empty();
  }

  Resumed::Stream resume(const StreamKey& key, uint64_t settled) override {
    Resumed::Stream out;
    out.stream = key.stream;
    Stream* s = find(key);
    if (!s) return out;
    s->settle(settled);
    out.settled = s->settled;
    out.highest = s->highest;
    for (const Range& r : s->accepted.list()) out.accepted.push_back({r.first, r.last});
    for (const Range& r : s->durably_far(0, UINT64_MAX)) out.far.push_back({r.first, r.last});
    for (const auto& [first, r] : s->rejects) out.rejects.push_back({first, r.last, r.reason});
    return out;
  }

  bool close(const StreamKey& key) override {
    if (streams_.erase(key) == 0) return false;
    auto count = counts_.find({key.sender, key.target});
    if (--count->second == 0) counts_.erase(count);
    return true;
  }

  std::vector<StreamKey> idle_since(WallTime before) const override {
    std::vector<StreamKey> out;
    for (const auto& [key, s] : streams_)
      if (s.touched < seconds(before) && s.admitted.empty()) out.push_back(key);
    return out;
  }

  bool known(const StreamKey& key) const override { return streams_.contains(key); }
  size_t size() const override { return streams_.size(); }

 private:
  Stream& open(const StreamKey& key) {
    auto [it, fresh] = streams_.try_emplace(key);
    if (fresh) ++counts_[{key.sender, key.target}];
    return it->second;
  }

  Stream* find(const StreamKey& key) {
    auto it = streams_.find(key);
    return it == streams_.end() ? nullptr : &it->second;
  }

  /// Takes the refused ranges within `r` out and shows them to `visit`.
  template <class Visit>
  static void each_refused(Stream& s, const Range& r, Visit&& visit) {
    for (auto it = s.refused.lower_bound(r.first); it != s.refused.end() && it->first < r.last;) {
      visit(it->first, it->second);
      it = s.refused.erase(it);
    }
  }

  static std::string value_of(Stream& s, WallTime now) {
    s.touched = seconds(now);
    RangeSet accepted = s.accepted;
    accepted.add(s.staged);
    uint64_t highest = std::max(s.highest, s.staged.highest());
    accepted.forget_below(s.settled);
    Rejects rejects = s.rejects;
    for (const auto& [first, r] : s.refused)
      if (s.staged.contains(first, r.last) && r.last > s.settled) add_reject(rejects, first, r.last, r.reason);
    return encode(s, highest, accepted, rejects);
  }

  std::map<StreamKey, Stream> streams_;
  std::map<std::pair<NodeId, uint64_t>, size_t> counts_;  // of these, by sender and upstream
};

}  // namespace

uint64_t target_hash(std::string_view target) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a: stored in keys, so it must never change
  for (unsigned char c : target) hash = (hash ^ c) * 0x100000001B3;
  return hash;
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
