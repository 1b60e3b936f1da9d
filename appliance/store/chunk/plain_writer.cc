#include "store/chunk/plain_writer.h"

#include <algorithm>

#include "base/log.h"

namespace ph::chunk {
namespace {

uint64_t size_of(const std::vector<Slice>& bytes) {
  uint64_t sum = 0;
  for (const Slice& s : bytes) sum += s.size();
  return sum;
}

}  // namespace

Result<> PlainWriter::open(const std::function<PlainCategory&(std::string_view name)>& category) {
  PH_ASSIGN(auto value, store_.get(kJournalKey));
  bool unknown = false;
  if (value) {
    auto mark = decode_journal_mark(*value);
    if (!mark && mark.error().code == errors::newer_version) return std::unexpected(std::move(mark).error());
    if (mark)
      mark_ = *mark;
    else
      unknown = true;
  }
  PH_TRY(journal_.open(unknown ? std::nullopt : std::optional(mark_.end)));
  if (unknown) {
    // Which lines were copied is not known: none is copied again, none is overwritten.
    PH_ASSIGN(mark_.end, journal_.furthest());
    mark_.copied = mark_.end;
    log_error("journal_position_damaged", {{"continues_at", mark_.end}});
  }
  attempted_ = mark_.copied < mark_.end;
  if (!attempted_) return {};
  return journal_.read(
      mark_.copied, mark_.end,
      [&](std::string_view name, Compression how, Slice bytes) {
        PlainCategory* c = &category(name);
        auto it = std::find_if(backlog_.begin(), backlog_.end(), [&](const Copy& b) { return b.category == c; });
        if (it == backlog_.end()) it = backlog_.insert(it, Copy{.category = c, .compression = how, .bytes = {}});
        it->bytes.push_back(std::move(bytes));
      },
      [&](port::File& file, const std::string& name) {
        if (auto stat = file.stat()) cut_.save(file, 0, stat->size, "journal-" + name);
      });
}

Result<> PlainWriter::flush(std::vector<PlainWork>& group) {
  Result<> ready = ask_store();
  if (ready) {
    next_mark_ = mark_;
    copied_ = wrote_ = false;
    journaled_.clear();
    ready = copy_backlog();
  }
  trouble_ = ready ? "" : ready.error().to_string();
  if (!ready) {
    log_warn("plain_copy_failed", {{"error", ready.error().to_string()}});
    return group.empty() ? Result<>() : ready;
  }
  journal_.release_below(mark_.copied);
  if (group.empty()) return {};
  Result<> appended = append(group);
  if (!appended) journal_.abandon();
  return appended;
}

Result<> PlainWriter::append(std::vector<PlainWork>& group) {
  PH_TRY(journal_.begin(mark_.end));
  for (PlainWork& work : group) {
    PH_TRY(compress(work));
    PH_TRY(journal_.append(work.category->name, work.category->compression, work.lines, buffer_));
  }
  PH_ASSIGN(next_mark_.end, journal_.sync());
  journaled_ = std::move(group);
  wrote_ = true;
  return {};
}

/// Its lines become the member or frame that holds them.
Result<> PlainWriter::compress(PlainWork& work) {
  if (work.category->compression == Compression::none) return {};
  std::string member;
  PH_TRY(compressor_.member(work.category->compression, work.lines, [&](ByteView piece) {
    member.append(piece);
    return Result<>();
  }));
  work.lines.clear();
  work.lines.emplace_back(std::move(member));
  return {};
}

void PlainWriter::add_entries(port::WriteBatch& entries) const {
  if (store_uncertain_ || !wrote_) return;
  if (copied_)
    for (const Copy& copy : backlog_) entries.put(category_key(copy.category->name), encode(CategoryEntry(copy.after)));
  entries.put(std::string(kJournalKey), encode(next_mark_));
}

bool PlainWriter::committed() {
  if (store_uncertain_ || !wrote_) return false;
  mark_ = next_mark_;
  if (copied_) {
    for (Copy& copy : backlog_) copy.category->stored = copy.after;
    backlog_.clear();
    attempted_ = false;
  }
  bool owed = !journaled_.empty();
  for (PlainWork& work : journaled_)
    backlog_.push_back(
        {.category = work.category, .compression = work.category->compression, .bytes = std::move(work.lines)});
  journaled_.clear();
  wrote_ = copied_ = false;
  return owed;
}

void PlainWriter::failed() {
  store_uncertain_ = store_uncertain_ || wrote_;
}

/// A batch that was called failed may yet be durable: then what it says is so, and its lines are owed to their files.
Result<> PlainWriter::ask_store() {
  if (!store_uncertain_) return {};
  PH_TRY(settle_store(store_));
  PH_ASSIGN(auto value, store_.get(kJournalKey));
  store_uncertain_ = false;
  if (!value || *value != encode(next_mark_)) return {};
  log_warn("failed_group_was_durable", {{"journal_end", next_mark_.end}});
  ++counters_.late_commits;
  committed();
  return {};
}

Result<> PlainWriter::copy_backlog() {
  if (backlog_.empty()) return {};
  port::WriteBatch assignments;
  PH_TRY(sync_.begin(backlog_.size()));
  for (Copy& copy : backlog_) PH_TRY(resolve(copy, assignments));
  if (!assignments.empty()) {
    PH_TRY(sync_.directory(directory_));
    PH_TRY(sync_.end());
    PH_TRY(store_.write(assignments, true));
    for (Copy& copy : backlog_) copy.category->stored = copy.to;
  }
  attempted_ = true;
  PH_TRY(sync_.begin(backlog_.size()));
  for (Copy& copy : backlog_) PH_TRY(write(copy));
  if (Result<> synced = sync_.end(); !synced) {
    for (const Copy& copy : backlog_) open_.close(copy.path);
    return synced;
  }
  next_mark_.copied = mark_.end;
  copied_ = wrote_ = true;
  return {};
}

Result<> PlainWriter::resolve(Copy& copy, port::WriteBatch& assignments) {
  const PlainCategory& c = *copy.category;
  copy.path = c.path(copy.compression);
  PH_ASSIGN(auto named, files_.stat(copy.path));
  // The settings changed: what was written so far lies in another file.
  if (!c.stored || c.stored->compression != copy.compression) return assign(copy, named.has_value(), assignments);
  copy.to = *c.stored;
  bool same = named && id_of(*named) == c.stored->file;
  if (same && named->size >= c.stored->offset) {
    bool foreign = !attempted_ && named->size > c.stored->offset;  // somebody else appends, too
    return foreign ? assign(copy, true, assignments) : Result<>();
  }
  if (attempted_ && !same) {
    PH_ASSIGN(auto moved, find(c.stored->file, c.stored->offset));
    if (moved) {
      copy.path = std::move(*moved);
      return {};
    }
    ++counters_.maybe_duplicate;
    log_warn("plain_log_gone_while_written", {{"category", c.name}});
  }
  return assign(copy, named.has_value(), assignments);
}

/// The lines go to the end of what stands under the name now, or to a new file.
Result<> PlainWriter::assign(Copy& copy, bool exists, port::WriteBatch& assignments) {
  PH_ASSIGN(auto file, files_.open(copy.path, port::OpenMode::write_create));
  PH_ASSIGN(port::FileStat stat, file->stat());
  if (!exists) {
    PH_TRY(sync_.file(*file));
    ++counters_.files;
  }
  copy.to = {id_of(stat), stat.size, copy.compression};
  open_.adopt(copy.path, std::move(file));
  assignments.put(category_key(copy.category->name), encode(CategoryEntry(copy.to)));
  return {};
}

Result<std::optional<std::string>> PlainWriter::find(FileId id, uint64_t size_min) {
  PH_ASSIGN(auto entries, files_.list(directory_));
  for (const auto& e : entries) {
    if (e.inode != id.inode || e.kind != port::FileKind::regular) continue;
    std::string path = directory_ + "/" + e.name;
    PH_ASSIGN(auto stat, files_.stat(path));
    if (stat && id_of(*stat) == id && stat->size >= size_min) return path;
  }
  return std::nullopt;
}

Result<> PlainWriter::write(Copy& copy) {
  PH_ASSIGN(port::File * file, open_.existing(copy.path, copy.to.file));
  if (!file) return fail(port::file_errors::not_found, copy.path);
  GatheredWrite out(*file, copy.to.offset, buffer_);
  for (const Slice& s : copy.bytes) PH_TRY(out.add(s.view()));
  PH_TRY(out.finish());
  if (Result<> synced = sync_.file(*file); !synced) {
    open_.close(copy.path);
    return synced;
  }
  copy.after = {copy.to.file, copy.to.offset + size_of(copy.bytes), copy.compression};
  return {};
}

}  // namespace ph::chunk
