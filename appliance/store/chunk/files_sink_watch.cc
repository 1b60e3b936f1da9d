// What the files sink does about files that are there: retention, quotas, figures.
#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "store/chunk/files_sink_impl.h"

namespace ph::chunk {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(10);  // at each category with retention or a quota
constexpr Duration kLookSoon = std::chrono::seconds(1);    // while a quota is used up, or there is more to remove
constexpr std::string_view kOneUsedUp = "the category's quota is used up";
constexpr std::string_view kAllUsedUp = "the quota of all received files is used up";

}  // namespace

bool SinkImpl::watched(const Category& c) const {
  const CategoryOptions& o = *c.options;
  return o.retention.keep || o.retention.max || o.quota || options_.max || options_.quota;
}

/// The quota that its lines would exceed; empty: none.
std::string_view SinkImpl::used_up(const Category& c) const {
  if (c.options->quota && c.stored_bytes >= *c.options->quota) return kOneUsedUp;
  if (options_.quota && stored_bytes_ >= *options_.quota) return kAllUsedUp;
  return {};
}

bool SinkImpl::watches() const {
  return options_.max || options_.quota || std::ranges::any_of(options_.categories, [](const CategoryOptions& o) {
           return o.retention.keep || o.retention.max || o.quota;
         });
}

void SinkImpl::begin_looks() {
  if (!watches()) return;
  ages_.tick(loop_.now(), loop_.wall_now());
  for (auto& [name, c] : categories_)
    if (watched(*c)) to_look_at_.push_back(c.get());
  if (to_look_at_.empty()) return look_timer_->start(kLookEvery, [this] { begin_looks(); });
  looking_ = true;
  removed_all_ = true;
  committer_.touch(*this);
}

/// Disk thread.
void SinkImpl::look_at(Look& look, const AgeClock& ages) {
  const Category& c = *look.category;
  if (c.has_chunks()) look.found = retention_.look(c.chunks, c.options->retention, ages);
  if (!look.found || c.options->mode != FileMode::plain) return;
  if (auto stat = files_.stat(c.plain.path()); stat && *stat) look.found->bytes += (*stat)->size;
}

void SinkImpl::took_looks(Group& group) {
  for (Look& look : group.looks) {
    Category& c = *look.category;
    if (!group.flushed) {  // its group failed before it came to that
      to_look_at_.push_back(&c);
      continue;
    }
    if (!look.found) {
      log_warn("category_not_looked_at", {{"category", c.chunks.name}, {"error", look.found.error().to_string()}});
      continue;
    }
    c.holding = std::move(*look.found);
    stored_bytes_ += c.holding.bytes - c.stored_bytes;  // of what is in stored_bytes_ already: never below zero
    c.stored_bytes = c.holding.bytes;
    if (c.holding.expired.chunks + c.holding.over_max.chunks == Retention::kRemovedPerLook) removed_all_ = false;
    if (!options_.max) c.holding.oldest.clear();
  }
  if (!group.flushed)
    for (Removal& r : group.removals) to_remove_.push_front(std::move(r));
  if (!to_look_at_.empty() || !to_remove_.empty()) return committer_.touch(*this);
  if (looking_ && !group.looks.empty()) end_looks();
}

/// Every category was looked at: what must go of all of them, the oldest first, and when to look again.
void SinkImpl::end_looks() {
  looking_ = false;
  uint64_t closed = 0;
  std::vector<Removal> oldest;
  int64_t known_until = INT64_MAX;  // behind it a category may have older ones that were not listed
  for (auto& [name, c] : categories_) {
    closed += c->holding.closed_bytes;
    if (c->holding.more)
      known_until = std::min(known_until, c->holding.oldest.empty() ? INT64_MAX : c->holding.oldest.back().modified_ns);
    for (ClosedChunk& chunk : c->holding.oldest) oldest.push_back({c.get(), std::move(chunk)});
    c->holding.oldest.clear();
  }
  uint64_t excess = options_.max && closed > *options_.max ? closed - *options_.max : 0;
  std::ranges::stable_sort(oldest, {}, [](const Removal& r) { return r.chunk.modified_ns; });
  for (Removal& r : oldest) {
    if (excess == 0 || r.chunk.modified_ns > known_until) break;
    excess -= std::min(excess, r.chunk.bytes);
    to_remove_.push_back(std::move(r));
  }
  const bool used = std::ranges::any_of(categories_, [this](const auto& c) { return !used_up(*c.second).empty(); });
  const bool soon = used || excess > 0 || !removed_all_;
  look_timer_->start(soon ? kLookSoon : kLookEvery, [this] { begin_looks(); });
  if (!to_remove_.empty()) committer_.touch(*this);
}

std::vector<Obstacle> SinkImpl::obstacles() {
  for (Category* c : std::vector(blocked_)) look(*c);
  std::vector<Obstacle> out;
  for (const Category* c : blocked_)
    out.push_back({"category_blocked", c->path(), std::string(c->obstacle) + ": its events wait until that is gone"});
  const std::string_view then = options_.over_quota == OverQuota::block ? ": events wait until there is room"
                                                                        : ": events go to their senders' dead letters";
  if (options_.quota && stored_bytes_ >= *options_.quota)
    out.push_back({"quota_used_up", options_.directory, std::string(kAllUsedUp) + std::string(then)});
  for (const auto& [name, c] : categories_)
    if (c->options->quota && c->stored_bytes >= *c->options->quota)
      out.push_back({"quota_used_up", c->path(), std::string(kOneUsedUp) + std::string(then)});
  return out;
}

// --- figures

std::string encode(Totals t) {
  std::string out(1, 2);
  for (const uint64_t* v : t.fields()) put_fixed<uint64_t>(out, *v);
  put_fixed<uint32_t>(out, crc32c(out));
  return out;
}

std::optional<Totals> decode_totals(ByteView bytes) {
  if (bytes.size() < 5 || crc32c(bytes.substr(0, bytes.size() - 4)) != load_fixed<uint32_t>(bytes.end() - 4))
    return std::nullopt;
  Reader r(bytes.substr(1, bytes.size() - 5));
  Totals t;
  std::vector<uint64_t*> fields = t.fields();
  if (bytes[0] == 1) fields.resize(kTotalsVersion1);
  for (uint64_t* v : fields) *v = r.fixed<uint64_t>();
  return r.ok() && r.at_end() ? std::optional(t) : std::nullopt;
}

void SinkImpl::count_removed(const Group& group, Totals& to) {
  auto add = [](Removed& sum, const Removed& more) {
    sum.chunks += more.chunks;
    sum.bytes += more.bytes;
  };
  add(to.over_max, group.over_max);
  for (const Look& look : group.looks) {
    if (!look.found) continue;
    add(to.expired, look.found->expired);
    add(to.over_max, look.found->over_max);
  }
}

Totals SinkImpl::totals_after(const Group& group) const {
  Totals t = totals_;
  t.events += group.events;
  t.bytes += group.bytes;
  t.cut += cut_.bytes() - cut_before_;
  count_removed(group, t);
  return t;
}

FilesSinkStats SinkImpl::stats() const {
  FilesSinkStats s;
  s.events = totals_.events;
  s.bytes = totals_.bytes;
  s.chunks = totals_.chunks;
  s.rejected = totals_.rejected + rejected_;
  s.expired = totals_.expired;
  s.over_max = totals_.over_max;
  s.over_quota = totals_.over_quota + over_quota_;
  s.stored_bytes = watches() ? stored_bytes_ : 0;
  s.recovered_cut_bytes = totals_.cut;
  s.open_categories = categories_.size();
  s.pending_bytes = pending_bytes_;
  s.vanished_chunks = chunk_counters_.vanished;
  s.shortened_chunks = chunk_counters_.shortened;
  s.abandoned_chunks = chunk_counters_.abandoned;
  s.late_commits = chunk_counters_.late_commits + plain_counters_.late_commits;
  s.maybe_duplicate = plain_counters_.maybe_duplicate;
  s.damaged_entries = damaged_entries_ + plain_writer_.journal_damaged();
  s.alarm = alarm_.empty() ? plain_trouble_ : alarm_;
  return s;
}

}  // namespace ph::chunk
