#include "store/chunk/files_sink.h"

#include <algorithm>

#include "base/log.h"
#include "base/mask.h"
#include "store/chunk/files_sink_impl.h"
#include "store/chunk/message_line.h"

namespace ph::chunk {
namespace {

constexpr std::string_view kTotalsKey = "f/totals";
constexpr Duration kRetry = std::chrono::seconds(1);
constexpr size_t kLooksPerGroup = 64;
constexpr size_t kRemovalsPerGroup = 256;
constexpr size_t kRecoveredPerGroup = 64;  // categories; a group with lines waits for no more than these

const CategoryOptions& default_options() {
  static const CategoryOptions options;
  return options;
}

}  // namespace

Result<> SinkImpl::start() {
  PH_TRY(make_durable_directory(files_, options_.directory));
  PH_TRY(make_durable_directory(files_, options_.state_directory));
  PH_TRY(make_durable_directory(files_, options_.state_directory + "/cut"));
  PH_TRY(load_entries());
  PH_TRY(plain_writer_.open([this](std::string_view name) -> PlainCategory& { return category_of(name).plain; }));
  if (plain_writer_.owes() || !to_recover_.empty()) committer_.touch(*this);
  recover_some();
  begin_looks();
  return {};
}

Result<> SinkImpl::load_entries() {
  Result<> outcome;
  PH_TRY(store_.scan(kCategoryKeys, [&](ByteView key, ByteView value) {
    std::string_view name = key.substr(kCategoryKeys.size());
    auto entry = decode_entry(value);
    if (!entry && entry.error().code == errors::newer_version) {
      outcome = std::unexpected(std::move(entry).error());
      return false;
    }
    Category& c = category_of(name);
    if (!entry) {
      ++damaged_entries_;
      log_error("category_entry_damaged", {{"category", name}});
    } else if (auto* chunks = std::get_if<ChunkEntry>(&*entry)) {
      c.chunks.stored = std::move(*chunks);
      to_recover_.push_back(&c);
    } else {
      c.plain.stored = std::get<PlainEntry>(*entry);
    }
    return true;
  }));
  PH_TRY(outcome);
  PH_ASSIGN(auto totals, store_.get(kTotalsKey));
  if (!totals) return {};
  if (auto decoded = decode_totals(*totals))
    totals_ = *decoded;
  else
    ++damaged_entries_;
  return {};
}

const CategoryOptions& SinkImpl::options_of(std::string_view name) const {
  for (const CategoryOptions& o : options_.categories)
    if (o.masks.empty() ||
        std::any_of(o.masks.begin(), o.masks.end(), [&](const std::string& m) { return mask_matches(m, name); }))
      return o;
  return default_options();
}

Category& SinkImpl::category_of(std::string_view name) {
  auto [it, fresh] = categories_.try_emplace(std::string(name));
  if (!fresh) return *it->second;
  it->second = std::make_unique<Category>();
  Category& c = *it->second;
  c.options = &options_of(name);
  c.chunks.name = c.plain.name = name;
  c.chunks.path = c.plain.base = options_.directory + "/" + c.chunks.name;
  c.chunks.compression = c.plain.compression = c.options->compression;
  c.chunks.chunk_max = c.options->chunk_max;
  c.chunks.interval = c.options->chunk_interval;
  // "x" compressed and "x.gz" as it is would be one file.
  if (c.options->mode == FileMode::plain && !plain_paths_.insert(c.plain.path()).second)
    c.fault = "its file is that of another category";
  return c;
}

std::string_view SinkImpl::refuses(std::string_view name) {
  std::string_view fault = fault_of(name);
  if (fault.empty()) fault = category_of(name).fault;
  if (fault.empty() && options_.over_quota == OverQuota::refuse) {
    fault = used_up(category_of(name));
    over_quota_ += fault.empty() ? 0 : 1;
  }
  if (!fault.empty()) ++rejected_;
  return fault;
}

std::string_view SinkImpl::fault_of(std::string_view name) const {
  if (auto fault = event::category_fault(name); !fault.empty()) return fault;
  bool room = categories_.size() < options_.categories_max || categories_.contains(std::string(name));
  return room ? std::string_view() : "too many categories";
}

std::string_view SinkImpl::obstacle(std::string_view name) {
  if (!fault_of(name).empty()) return {};
  Category& c = category_of(name);
  if (!c.fault.empty()) return {};
  if (!c.checked) look(c);
  return c.obstacle.empty() && options_.over_quota == OverQuota::block ? used_up(c) : c.obstacle;
}

void SinkImpl::look(Category& c) {
  bool plain = c.options->mode == FileMode::plain;
  std::string_view found;
  // An error here tells nothing: the group will meet it, and fail for now.
  if (auto there = files_.stat(c.path()); there && *there) {
    if (plain && (*there)->kind != port::FileKind::regular) found = "no plain file stands where the category's belongs";
    if (!plain && (*there)->kind != port::FileKind::directory)
      found = "no directory stands where the category's belongs";
  }
  std::string_view before = std::exchange(c.obstacle, found);
  c.checked = found.empty();
  if (found.empty() == before.empty()) return;
  if (found.empty()) {
    std::erase(blocked_, &c);
    log_info("category_free", {{"path", c.path()}});
  } else {
    blocked_.push_back(&c);
    log_error("category_blocked", {{"path", c.path()}, {"reason", found}});
  }
}

void SinkImpl::append(const event::Block& block) {
  if (block.gap || (block.kind == event::BlockKind::lines && block.payload.empty())) return;
  Category& c = category_of(block.category);
  size_t before = c.lines.size();
  const uint64_t bytes_before = c.pending_bytes;
  if (block.kind == event::BlockKind::lines)
    c.lines.push_back(block.payload);
  else if (c.options->format == MessageFormat::raw)
    append_raw_line(block, c.lines);
  else
    c.lines.emplace_back(to_json_line(block));
  for (size_t i = before; i < c.lines.size(); ++i) c.pending_bytes += c.lines[i].size();
  pending_bytes_ += c.pending_bytes - bytes_before;
  pending_events_ += block.events;
  queue(c);
  committer_.touch(*this);
}

void SinkImpl::queue(Category& c) {
  if (c.queued) return;
  c.queued = true;
  queued_.push_back(&c);
}

void SinkImpl::begin(port::WriteBatch&) {
  Group& group = groups_.emplace_back();
  group.now = loop_.now();
  group.today = date_of(loop_.wall_now(), options_.utc);
  group.events = std::exchange(pending_events_, 0);
  group.bytes = std::exchange(pending_bytes_, 0);
  group.categories.swap(queued_);
  for (Category* c : group.categories) {
    c->queued = false;
    group.category_bytes.push_back(std::exchange(c->pending_bytes, 0));
    bool upkeep = c->lines.empty();
    if (c->options->mode == FileMode::plain && !upkeep)
      group.plain.push_back({&c->plain, std::move(c->lines)});
    else
      group.chunks.push_back({&c->chunks, std::move(c->lines)});
    c->lines.clear();
  }
  group.ages = ages_;
  for (size_t n = 0; n < kLooksPerGroup && !to_look_at_.empty(); ++n) {
    group.looks.push_back({to_look_at_.front()});
    to_look_at_.pop_front();
  }
  for (size_t n = 0; n < kRemovalsPerGroup && !to_remove_.empty(); ++n) {
    group.removals.push_back(std::move(to_remove_.front()));
    to_remove_.pop_front();
  }
}

/// Lines of plain logs are written twice, the second time when they are acknowledged already.
commit::Growth SinkImpl::growth() const {
  uint64_t bytes = groups_.back().bytes;
  for (const PlainWork& work : groups_.back().plain)
    for (const Slice& line : work.lines) bytes += line.size();
  return {options_.floor, bytes};
}

Result<> SinkImpl::flush() {
  Group& group = groups_.front();
  group.flushed = true;
  for (Look& look : group.looks) look_at(look, group.ages);  // first: it may make room
  for (const Removal& r : group.removals)
    if (uint64_t bytes = retention_.remove(r.category->chunks, r.chunk)) group.over_max.add(bytes);
  PH_TRY(chunk_writer_.flush(group.chunks, group.now, group.today));
  return plain_writer_.flush(group.plain);
}

void SinkImpl::add_flushed(port::WriteBatch& entries) {
  const Group& group = groups_.front();
  chunk_writer_.add_entries(entries);
  plain_writer_.add_entries(entries);
  // Chunks and rejections of this group are in the next one's totals: they are counted when it is durable.
  if (Totals t = totals_after(group); t != totals_) entries.put(std::string(kTotalsKey), encode(t));
}

void SinkImpl::finished(const Result<>& outcome) {
  Group group = std::move(groups_.front());
  groups_.pop_front();
  bool at_once = false;
  if (outcome)
    at_once = succeed(group);
  else
    fail_group(group, outcome.error());
  took_looks(group);
  if (outcome)
    for (size_t i = 0; i < group.categories.size(); ++i) {
      group.categories[i]->stored_bytes += group.category_bytes[i];
      stored_bytes_ += group.category_bytes[i];
    }
  chunk_counters_ = chunk_writer_.counters();
  plain_counters_ = plain_writer_.counters();
  plain_trouble_ = plain_writer_.trouble();
  if (at_once)
    committer_.touch(*this);
  else if ((chunk_writer_.owes() || plain_writer_.owes()) && !retry_timer_->pending())
    retry_timer_->start(kRetry, [this] { committer_.touch(*this); });
  recover_some();
  arm_rotation();
}

/// Whether another group is wanted at once: links move, and plain logs are written, by the group behind the one that
/// made their lines durable.
bool SinkImpl::succeed(Group& group) {
  totals_ = totals_after(group);
  cut_before_ = cut_.bytes();
  bool links_owed = chunk_writer_.committed();
  bool copies_owed = plain_writer_.committed();
  totals_.chunks += chunk_writer_.counters().chunks - chunk_counters_.chunks;
  totals_.rejected += std::exchange(rejected_, 0);
  totals_.over_quota += std::exchange(over_quota_, 0);
  if (group.bytes > 0 && !alarm_.empty()) {
    log_info("files_written_again", {{"directory", options_.directory}});
    alarm_.clear();
  }
  for (Category* c : group.categories) {
    auto due = c->chunks.rotation_due();
    bool failed = due ? *due <= group.now : c->has_chunks() && (!c->chunks.recovered || c->chunks.behind());
    if (due || failed) schedule(*c, failed ? group.now + kRetry : *due);
  }
  return links_owed || copies_owed;
}

void SinkImpl::fail_group(Group& group, const Error& error) {
  count_removed(group, totals_);  // they are gone all the same
  if (group.flushed) {
    chunk_writer_.failed();
    plain_writer_.failed();
  }
  if (group.bytes > 0) {
    if (alarm_.empty()) log_error("files_not_written", {{"error", error.to_string()}});
    alarm_ = error.to_string();
  }
  for (Category* c : group.categories) {
    c->checked = false;
    // What was closed or not recovered waits for no more lines.
    if (c->has_chunks()) schedule(*c, loop_.now() + kRetry);
  }
}

void SinkImpl::schedule(Category& c, Instant due) {
  if (c.scheduled) return;
  c.scheduled = true;
  rotations_.emplace(due, &c);
}

void SinkImpl::arm_rotation() {
  if (rotations_.empty()) return;
  rotation_timer_->start(std::max(Duration::zero(), rotations_.top().first - loop_.now()), [this] { rotate_due(); });
}

void SinkImpl::rotate_due() {
  Instant now = loop_.now();
  bool any = false;
  while (!rotations_.empty() && rotations_.top().first <= now) {
    Category& c = *rotations_.top().second;
    rotations_.pop();
    c.scheduled = false;
    queue(c);
    any = true;
  }
  if (any) committer_.touch(*this);
  arm_rotation();
}

void SinkImpl::recover_some() {
  if (to_recover_.empty() || queued_.size() >= kRecoveredPerGroup) return;
  for (size_t n = 0; n < kRecoveredPerGroup && !to_recover_.empty(); ++n) {
    Category& c = *to_recover_.front();
    to_recover_.pop_front();
    if (!c.chunks.recovered) queue(c);
  }
  committer_.touch(*this);
}

Result<std::unique_ptr<FilesSink>> FilesSink::open(FilesSinkOptions options, port::Loop& loop, port::Files& files,
                                                   port::KeyedStore& store, commit::Committer& committer) {
  auto sink = std::make_unique<SinkImpl>(std::move(options), loop, files, store, committer);
  PH_TRY(sink->start());
  return sink;
}

}  // namespace ph::chunk
