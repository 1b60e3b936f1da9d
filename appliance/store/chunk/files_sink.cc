#include "store/chunk/files_sink.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/coding.h"
#include "base/log.h"
#include "base/mask.h"
#include "store/chunk/chunk_writer.h"
#include "store/chunk/message_line.h"
#include "store/chunk/plain_writer.h"

namespace ph::chunk {
namespace {

constexpr std::string_view kTotalsKey = "f/totals";
constexpr Duration kRetry = std::chrono::seconds(1);
constexpr size_t kRecoveredPerGroup = 64;  // categories; a group with lines waits for no more than these

const CategoryOptions& default_options() {
  static const CategoryOptions options;
  return options;
}

/// A category as the loop sees it; `chunks` and `plain` belong to the disk thread while a group is being written.
struct Category {
  const CategoryOptions* options = nullptr;
  bool checked = false;       // nothing else stood where its file belongs; asked again after a failed group
  std::string_view obstacle;  // what stands there
  bool queued = false;        // has lines or upkeep for the next group
  bool scheduled = false;     // stands in the rotation queue
  std::string_view fault;     // why it can never be written
  std::vector<Slice> lines;
  ChunkCategory chunks;
  PlainCategory plain;

  /// What the lines go to: a directory of chunks, or a file.
  std::string path() const { return options->mode == FileMode::plain ? plain.path() : chunks.path; }
  /// Also true for one that was in chunk mode before: its last chunk still wants to be closed.
  bool has_chunks() const { return options->mode == FileMode::chunks || chunks.stored.last.name; }
};

/// What begin() set aside.
struct Group {
  std::vector<ChunkWork> chunks;
  std::vector<PlainWork> plain;
  std::vector<Category*> categories;
  Instant now{};
  uint32_t today = 0;
  uint64_t events = 0;
  uint64_t bytes = 0;
  bool flushed = false;
};

struct Totals {
  uint64_t events = 0, bytes = 0, chunks = 0, rejected = 0, cut = 0;
  bool operator==(const Totals&) const = default;
};

std::string encode_totals(const Totals& t) {
  std::string out(1, 1);
  for (uint64_t v : {t.events, t.bytes, t.chunks, t.rejected, t.cut}) put_fixed<uint64_t>(out, v);
  put_fixed<uint32_t>(out, crc32c(out));
  return out;
}

std::optional<Totals> decode_totals(ByteView bytes) {
  if (bytes.size() != 45 || bytes[0] != 1 || crc32c(bytes.substr(0, 41)) != load_fixed<uint32_t>(bytes.data() + 41))
    return std::nullopt;
  Reader r(bytes.substr(1));
  Totals t;
  for (uint64_t* v : {&t.events, &t.bytes, &t.chunks, &t.rejected, &t.cut}) *v = r.fixed<uint64_t>();
  return t;
}

class Sink final : public FilesSink {
 public:
  Sink(FilesSinkOptions options, port::Loop& loop, port::Files& files, port::KeyedStore& store,
       commit::Committer& committer)
      : options_(std::move(options)),
        loop_(loop),
        files_(files),
        store_(store),
        committer_(committer),
        open_files_(files),
        cut_(files, options_.state_directory + "/cut"),
        chunk_writer_(files, store, open_files_, cut_, compressor_, options_.directory, options_.sync_each_max),
        plain_writer_(files, store, open_files_, cut_, compressor_, options_.directory,
                      options_.state_directory + "/journal", options_.sync_each_max),
        rotation_timer_(loop.make_timer()),
        retry_timer_(loop.make_timer()) {}

  Result<> start();

  std::string_view refuses(std::string_view name) override;
  std::string_view obstacle(std::string_view name) override;
  std::vector<Obstacle> obstacles() override;
  void append(const event::Block& block) override;
  FilesSinkStats stats() const override;

  void begin(port::WriteBatch& entries) override;
  Result<> flush() override;
  void add_flushed(port::WriteBatch& entries) override;
  void finished(const Result<>& outcome) override;

 private:
  Category& category_of(std::string_view name);
  const CategoryOptions& options_of(std::string_view name) const;
  Result<> load_entries();
  std::string_view fault_of(std::string_view name) const;
  void look(Category& c);
  void queue(Category& c);
  bool succeed(Group& group);
  void fail_group(Group& group, const Error& error);
  void schedule(Category& c, Instant due);
  void arm_rotation();
  void rotate_due();
  void recover_some();
  Totals totals_after(const Group& group) const;

  FilesSinkOptions options_;
  port::Loop& loop_;
  port::Files& files_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  std::unordered_map<std::string, std::unique_ptr<Category>> categories_;
  std::unordered_set<std::string> plain_paths_;  // of those in plain mode

  // Loop.
  std::vector<Category*> queued_;
  uint64_t pending_events_ = 0;
  uint64_t pending_bytes_ = 0;
  std::deque<Category*> to_recover_;
  using Due = std::pair<Instant, Category*>;
  struct Later {
    bool operator()(const Due& a, const Due& b) const { return a.first > b.first; }
  };
  std::priority_queue<Due, std::vector<Due>, Later> rotations_;
  std::deque<Group> groups_;  // begun, not finished: one being written, and perhaps one that fails with it
  Totals totals_;
  uint64_t rejected_ = 0;         // since the last stored totals
  uint64_t cut_before_ = 0;       // bytes cut by this process that are already in totals_
  ChunkCounters chunk_counters_;  // copies: the writers' own change on the disk thread
  PlainCounters plain_counters_;
  std::string plain_trouble_;
  uint64_t damaged_entries_ = 0;
  std::string alarm_;
  std::vector<Category*> blocked_;  // in whose place something else was found

  // Disk thread.
  OpenFiles open_files_;
  CutBytes cut_;
  Compressor compressor_;
  ChunkWriter chunk_writer_;
  PlainWriter plain_writer_;

  std::unique_ptr<port::Timer> rotation_timer_;
  std::unique_ptr<port::Timer> retry_timer_;
};

Result<> Sink::start() {
  PH_TRY(make_durable_directory(files_, options_.directory));
  PH_TRY(make_durable_directory(files_, options_.state_directory));
  PH_TRY(make_durable_directory(files_, options_.state_directory + "/cut"));
  PH_TRY(load_entries());
  PH_TRY(plain_writer_.open([this](std::string_view name) -> PlainCategory& { return category_of(name).plain; }));
  if (plain_writer_.owes() || !to_recover_.empty()) committer_.touch(*this);
  recover_some();
  return {};
}

Result<> Sink::load_entries() {
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

const CategoryOptions& Sink::options_of(std::string_view name) const {
  for (const CategoryOptions& o : options_.categories)
    if (o.masks.empty() ||
        std::any_of(o.masks.begin(), o.masks.end(), [&](const std::string& m) { return mask_matches(m, name); }))
      return o;
  return default_options();
}

Category& Sink::category_of(std::string_view name) {
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

std::string_view Sink::refuses(std::string_view name) {
  std::string_view fault = fault_of(name);
  if (fault.empty()) fault = category_of(name).fault;
  if (!fault.empty()) ++rejected_;
  return fault;
}

std::string_view Sink::fault_of(std::string_view name) const {
  if (auto fault = event::category_fault(name); !fault.empty()) return fault;
  bool room = categories_.size() < options_.categories_max || categories_.contains(std::string(name));
  return room ? std::string_view() : "too many categories";
}

std::string_view Sink::obstacle(std::string_view name) {
  if (!fault_of(name).empty()) return {};
  Category& c = category_of(name);
  if (!c.fault.empty()) return {};
  if (!c.checked) look(c);
  return c.obstacle;
}

std::vector<Obstacle> Sink::obstacles() {
  for (Category* c : std::vector(blocked_)) look(*c);
  std::vector<Obstacle> out;
  for (const Category* c : blocked_) out.push_back({c->path(), c->obstacle});
  return out;
}

void Sink::look(Category& c) {
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

void Sink::append(const event::Block& block) {
  if (block.gap || (block.kind == event::BlockKind::lines && block.payload.empty())) return;
  Category& c = category_of(block.category);
  size_t before = c.lines.size();
  if (block.kind == event::BlockKind::lines)
    c.lines.push_back(block.payload);
  else if (c.options->format == MessageFormat::raw)
    append_raw_line(block, c.lines);
  else
    c.lines.emplace_back(to_json_line(block));
  for (size_t i = before; i < c.lines.size(); ++i) pending_bytes_ += c.lines[i].size();
  pending_events_ += block.events;
  queue(c);
  committer_.touch(*this);
}

void Sink::queue(Category& c) {
  if (c.queued) return;
  c.queued = true;
  queued_.push_back(&c);
}

void Sink::begin(port::WriteBatch&) {
  Group& group = groups_.emplace_back();
  group.now = loop_.now();
  group.today = date_of(loop_.wall_now(), options_.utc);
  group.events = std::exchange(pending_events_, 0);
  group.bytes = std::exchange(pending_bytes_, 0);
  group.categories.swap(queued_);
  for (Category* c : group.categories) {
    c->queued = false;
    bool upkeep = c->lines.empty();
    if (c->options->mode == FileMode::plain && !upkeep)
      group.plain.push_back({&c->plain, std::move(c->lines)});
    else
      group.chunks.push_back({&c->chunks, std::move(c->lines)});
    c->lines.clear();
  }
}

Result<> Sink::flush() {
  Group& group = groups_.front();
  group.flushed = true;
  if (options_.disk_reserve > 0 && group.bytes > 0) {
    PH_ASSIGN(port::DiskSpace space, files_.space(options_.directory));
    if (space.available < options_.disk_reserve + group.bytes)
      return fail(port::file_errors::no_space, options_.directory + ": what is left is the reserve");
  }
  PH_TRY(chunk_writer_.flush(group.chunks, group.now, group.today));
  return plain_writer_.flush(group.plain);
}

Totals Sink::totals_after(const Group& group) const {
  Totals t = totals_;
  t.events += group.events;
  t.bytes += group.bytes;
  t.cut += cut_.bytes() - cut_before_;
  return t;
}

void Sink::add_flushed(port::WriteBatch& entries) {
  const Group& group = groups_.front();
  chunk_writer_.add_entries(entries);
  plain_writer_.add_entries(entries);
  // Chunks and rejections of this group are in the next one's totals: they are counted when it is durable.
  if (Totals t = totals_after(group); group.bytes > 0 || t.cut != totals_.cut)
    entries.put(std::string(kTotalsKey), encode_totals(t));
}

void Sink::finished(const Result<>& outcome) {
  Group group = std::move(groups_.front());
  groups_.pop_front();
  bool at_once = false;
  if (outcome)
    at_once = succeed(group);
  else
    fail_group(group, outcome.error());
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
bool Sink::succeed(Group& group) {
  totals_ = totals_after(group);
  cut_before_ = cut_.bytes();
  bool links_owed = chunk_writer_.committed();
  bool copies_owed = plain_writer_.committed();
  totals_.chunks += chunk_writer_.counters().chunks - chunk_counters_.chunks;
  totals_.rejected += std::exchange(rejected_, 0);
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

void Sink::fail_group(Group& group, const Error& error) {
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

void Sink::schedule(Category& c, Instant due) {
  if (c.scheduled) return;
  c.scheduled = true;
  rotations_.emplace(due, &c);
}

void Sink::arm_rotation() {
  if (rotations_.empty()) return;
  rotation_timer_->start(std::max(Duration::zero(), rotations_.top().first - loop_.now()), [this] { rotate_due(); });
}

void Sink::rotate_due() {
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

void Sink::recover_some() {
  if (to_recover_.empty() || queued_.size() >= kRecoveredPerGroup) return;
  for (size_t n = 0; n < kRecoveredPerGroup && !to_recover_.empty(); ++n) {
    Category& c = *to_recover_.front();
    to_recover_.pop_front();
    if (!c.chunks.recovered) queue(c);
  }
  committer_.touch(*this);
}

FilesSinkStats Sink::stats() const {
  FilesSinkStats s;
  s.events = totals_.events;
  s.bytes = totals_.bytes;
  s.chunks = totals_.chunks;
  s.rejected = totals_.rejected + rejected_;
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

}  // namespace

Result<std::unique_ptr<FilesSink>> FilesSink::open(FilesSinkOptions options, port::Loop& loop, port::Files& files,
                                                   port::KeyedStore& store, commit::Committer& committer) {
  auto sink = std::make_unique<Sink>(std::move(options), loop, files, store, committer);
  PH_TRY(sink->start());
  return sink;
}

}  // namespace ph::chunk
