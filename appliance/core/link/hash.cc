#include "core/link/hash.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>

#include "codec/event/block.h"
#include "core/link/packed.h"

namespace ph::link {
namespace {

/// FNV-1a with a finisher: keys that differ in their last byte alone must not be neighbours.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53;
  return x ^ (x >> 33);
}
uint64_t hash_of(ByteView bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (unsigned char c : bytes) hash = (hash ^ c) * 0x100000001B3;
  return mix(hash);
}

/// Weighted rendezvous: -weight / ln(u) with u in (0, 1) from both.
double score(uint64_t seed, uint64_t partition, uint32_t weight) {
  double u = (static_cast<double>(mix(seed ^ mix(partition + 1)) >> 11) + 0.5) / 9007199254740992.0;
  return -static_cast<double>(weight) / std::log(u);
}

}  // namespace

struct KeyFinder::Pattern {
  explicit Pattern(const std::string& text) : regex(text, RE2::Quiet) {}
  RE2 regex;
};

KeyFinder::KeyFinder(const HashRule& rule) : rule_(rule) {
  if (rule.by == HashRule::By::regex) pattern_ = std::make_unique<Pattern>(rule.text);
}

KeyFinder::~KeyFinder() = default;

std::optional<ByteView> KeyFinder::key(ByteView bytes, ByteView topic) const {
  switch (rule_.by) {
    case HashRule::By::prefix: {
      size_t at = bytes.find(rule_.text);
      if (rule_.text.empty() || at == ByteView::npos) return std::nullopt;
      return bytes.substr(0, at);
    }
    case HashRule::By::regex: {
      if (!pattern_->regex.ok()) return std::nullopt;
      re2::StringPiece found[2];
      int groups = std::min(1, pattern_->regex.NumberOfCapturingGroups());
      if (!pattern_->regex.Match({bytes.data(), bytes.size()}, 0, bytes.size(), RE2::UNANCHORED, found, groups + 1))
        return std::nullopt;
      const re2::StringPiece& part = found[groups].data() ? found[groups] : found[0];
      return ByteView(part.data(), part.size());
    }
    case HashRule::By::topic_level: {
      if (topic.empty()) return std::nullopt;
      for (uint32_t level = 1; level < rule_.level; ++level) {
        size_t slash = topic.find('/');
        if (slash == ByteView::npos) return std::nullopt;
        topic.remove_prefix(slash + 1);
      }
      return topic.substr(0, topic.find('/'));
    }
  }
  return std::nullopt;
}

std::optional<uint16_t> KeyFinder::partition(ByteView bytes, ByteView topic) const {
  auto found = key(bytes, topic);
  if (!found) return std::nullopt;
  return static_cast<uint16_t>(hash_of(*found) % kPartitions);
}

Owners::Owners(std::vector<Place> places, size_t connections) : places_(std::move(places)), connections_(connections) {
  for (const Place& p : places_) seeds_.push_back(hash_of(p.address));
  set_present(std::vector<bool>(places_.size() * connections_, true));
}

bool Owners::set_present(const std::vector<bool>& present) {
  if (std::find(present.begin(), present.end(), true) == present.end()) return false;
  bool moved = false;
  for (uint32_t partition = 0; partition < kPartitions; ++partition) {
    size_t best = SIZE_MAX;
    double best_place = 0, best_slot = 0;
    for (size_t i = 0; i < present.size(); ++i) {
      if (!present[i]) continue;
      size_t place = i / connections_, slot = i % connections_;
      double of_place = score(seeds_[place], partition, places_[place].weight);
      double of_slot = score(mix(seeds_[place] + slot + 1), partition, 1);
      if (best != SIZE_MAX && (of_place < best_place || (of_place == best_place && of_slot <= best_slot))) continue;
      best = i;
      best_place = of_place;
      best_slot = of_slot;
    }
    moved |= owner_[partition] != best;
    owner_[partition] = best;
  }
  return moved;
}

size_t Owners::of_salt(uint64_t salt) const {
  return owner_[mix(salt) % kPartitions];
}

namespace {

constexpr uint64_t kSaltStep = 256 * 1024;  // positions that keyless events share an owner for

/// Puts events together to runs.
class Cutter {
 public:
  Cutter(uint64_t first, const KeyFinder& keys, const Owners& owners, const std::function<bool(uint16_t)>& apart)
      : keys_(keys), owners_(owners), apart_(apart), at_(first) {
    run_.first = first;
  }

  void add(uint64_t first, uint64_t last, const Slice& bytes) {
    auto block = event::decode(bytes);
    if (!block) return append(first, last, 0, bytes.view());
    bool lines = block->kind == event::BlockKind::lines;
    if (block->atomic() || block->id.last - block->id.first != last - first) {
      ByteView payload = block->payload.view();
      if (lines && payload.ends_with('\n')) payload.remove_suffix(1);
      if (!block->gap) turn(keys_.partition(payload, lines ? ByteView() : ByteView(block->topic)));
      return append(first, last, block->gap ? 0 : block->events, bytes.view());
    }
    add_lines(*block, first, bytes);
  }

  std::vector<Run> finish(uint64_t last) {
    if (run_.last > run_.first) {
      if (!owned_) run_.owner = owners_.of_salt(run_.first / kSaltStep);
      emit();
    }
    PH_ASSERT(at_ == last, "a batch is cut whole");
    return std::move(runs_);
  }

 private:
  /// A line's key: the run goes on, or another one begins.
  void turn(std::optional<uint16_t> partition) {
    if (!partition) return;
    size_t owner = owners_.of(*partition);
    if (owned_ && !goes_on(*partition)) emit();
    owned_ = true;
    apart_now_ = apart_ && apart_(*partition);
    run_.owner = owner;
    if (seen_.size() < kPartitions) seen_.resize(kPartitions);
    if (!seen_[*partition]) run_.partitions.push_back(*partition);
    seen_[*partition] = true;
  }

  bool goes_on(uint16_t partition) const {
    return owners_.of(partition) == run_.owner && (apart_ && apart_(partition)) == apart_now_;
  }

  void add_lines(const event::Block& block, uint64_t first, const Slice& bytes) {
    ByteView payload = block.payload.view();
    size_t begin = 0, at = 0;
    auto piece = [&](size_t end) {
      if (begin == end) return;
      if (begin == 0 && end == payload.size()) {
        append(first, first + end, block.events, bytes.view());
      } else {
        event::Block part = event::cut(block, block.id.first + begin, block.id.first + end);
        append(first + begin, first + end, part.events, event::encode(part));
      }
      begin = end;
    };
    while (at < payload.size()) {
      size_t newline = payload.find('\n', at);
      auto partition = keys_.partition(payload.substr(at, newline - at), {});
      if (partition && owned_ && !goes_on(*partition)) piece(at);
      turn(partition);
      at = newline + 1;
    }
    piece(payload.size());
  }

  void append(uint64_t first, uint64_t last, uint64_t events, ByteView bytes) {
    put_varint(packed_, last - first);
    put_sized(packed_, bytes);
    run_.last = at_ = last;
    run_.events += events;
  }

  void emit() {
    if (run_.last <= run_.first) return;  // a key at the very front
    for (uint16_t p : run_.partitions) seen_[p] = false;
    std::sort(run_.partitions.begin(), run_.partitions.end());
    run_.packed = Slice(std::exchange(packed_, {}));
    uint64_t next = run_.last;
    runs_.push_back(std::move(run_));
    run_ = {};
    run_.first = run_.last = next;
    owned_ = false;
  }

  const KeyFinder& keys_;
  const Owners& owners_;
  const std::function<bool(uint16_t)>& apart_;
  bool apart_now_ = false;
  uint64_t at_;
  Run run_;
  bool owned_ = false;
  std::string packed_;
  std::vector<bool> seen_;
  std::vector<Run> runs_;
};

}  // namespace

std::vector<Run> runs_by_owner(const Slice& packed, uint64_t first, uint64_t last, uint64_t events,
                               const KeyFinder& keys, const Owners& owners,
                               const std::function<bool(uint16_t partition)>& apart) {
  Cutter cutter(first, keys, owners, apart);
  for_each_block(packed, first, last,
                 [&](uint64_t from, uint64_t to, const Slice& block) { cutter.add(from, to, block); });
  std::vector<Run> runs = cutter.finish(last);
  if (runs.size() == 1) {
    runs[0].packed = packed;
    runs[0].events = events;
  }
  return runs;
}

}  // namespace ph::link
