// Links, rotation without lines, and recovery of a category.
#include <algorithm>

#include "base/log.h"
#include "store/chunk/chunk_writer.h"

namespace ph::chunk {

void ChunkWriter::move_links() {
  std::vector<ChunkCategory*> left;
  for (ChunkCategory* c : links_owed_) {
    Result<> moved = move_link(*c);
    c->link_owed = !moved;
    if (moved) continue;
    log_warn("current_link_not_moved", {{"category", c->name}, {"error", moved.error().to_string()}});
    left.push_back(c);
  }
  links_owed_ = std::move(left);
}

Result<> ChunkWriter::move_link(ChunkCategory& c) {
  if (c.superseded) {
    std::string path = path_of(c, *c.superseded);
    PH_ASSIGN(auto stat, files_.stat(path));
    if (stat && id_of(*stat) == c.superseded->file && stat->size == 0) PH_TRY(files_.unlink(path));
    c.superseded.reset();
  }
  // Without an open one: the newest with lines, which is what `filled` names.
  const ChunkMark& target = c.open ? c.open->chunk : c.stored.last;
  PH_TRY(files_.replace_symlink(file_name(c, target), c.path + "/" + current_link_name(c.name)));
  c.linked = target.name;
  return {};
}

Result<> ChunkWriter::keep_up(ChunkCategory& c, Instant now, uint32_t today) {
  if (!c.recovered) return {};  // tried above
  if (auto due = c.rotation_due(); due && *due <= now) c.open.reset();
  return c.behind() ? begin_empty(c, today) : Result<>();
}

/// Not synced: an empty chunk that a power cut takes was nothing, and a link that it takes back is moved again by
/// recovery. Both become durable with the first line.
Result<> ChunkWriter::begin_empty(ChunkCategory& c, uint32_t today) {
  ChunkMark mark;
  const ChunkName before = c.greatest;
  PH_TRY(name_next(c, mark, today));
  std::string path = path_of(c, mark);
  if (Result<port::File*> made = make_file(c, mark); !made) {
    c.greatest = before;
    return std::unexpected(std::move(made).error());
  }
  open_.close(path);
  Result<> linked = files_.replace_symlink(file_name(c, mark), c.path + "/" + current_link_name(c.name));
  if (!linked) {
    if (files_.unlink(path)) c.greatest = before;
    return linked;
  }
  c.linked = mark.name;
  c.open = ChunkCategory::Open{mark, {}};
  ++counters_.chunks;
  return {};
}

/// An error is one of a category with lines, or of the sync: then none is recovered.
Result<> ChunkWriter::recover_waiting(std::vector<ChunkWork>& group) {
  auto waits = [](const ChunkWork& w) { return !w.category->recovered; };
  PH_TRY(sync_.begin(static_cast<size_t>(std::ranges::count_if(group, waits))));
  Result<> outcome;
  std::vector<std::pair<ChunkCategory*, std::vector<ChunkMark>>> recovered;
  for (ChunkWork& work : group) {
    if (!waits(work)) continue;
    std::vector<ChunkMark> abandoned = work.category->stored.abandoned;
    Result<> one = recover(*work.category);
    if (one) {
      recovered.emplace_back(work.category, std::move(abandoned));
      continue;
    }
    log_warn("chunk_recovery_failed", {{"category", work.category->name}, {"error", one.error().to_string()}});
    if (!work.lines.empty()) outcome = std::move(one);
  }
  Result<> synced = sync_.end();
  if (synced) return outcome;
  log_warn("chunk_recovery_failed", {{"error", synced.error().to_string()}});
  for (auto& [category, abandoned] : recovered) {
    category->recovered = false;
    category->stored.abandoned = std::move(abandoned);
  }
  return synced;
}

Result<> ChunkWriter::recover(ChunkCategory& c) {
  c.greatest = std::max({c.greatest, c.stored.last.name, c.stored.reserved_last});
  auto listing = files_.list(c.path);
  if (!listing && listing.error().code == port::file_errors::not_found) {
    c.recovered = true;
    return {};
  }
  if (!listing) return std::unexpected(std::move(listing).error());
  std::string link;
  if (auto target = files_.read_symlink(c.path + "/" + current_link_name(c.name)))
    link = target->substr(target->rfind('/') + 1);
  if (auto name = parse_file_name(c.name, link)) c.greatest = std::max(c.greatest, *name);
  c.linked = {};
  std::vector<std::string> unhappened;
  for (const port::DirectoryEntry& e : *listing) {
    auto name = parse_file_name(c.name, e.name);
    if (!name) continue;
    c.greatest = std::max(c.greatest, *name);
    bool reserved = c.stored.reserved_first && c.stored.reserved_first <= *name && *name <= c.stored.reserved_last;
    if (reserved && e.name == to_file_name(c.name, *name, c.stored.reserved_compression))
      unhappened.push_back(e.name);
    else if (e.name == link)
      c.linked = *name;
  }
  PH_TRY(cut_back(c, c.stored.last));
  for (const ChunkMark& mark : c.stored.abandoned) PH_TRY(cut_back(c, mark));
  for (const std::string& name : unhappened) PH_TRY(remove_unhappened(c, name));
  // Also when none is there: a process killed before this point may have removed them, and the next reservation
  // replaces this one.
  if (c.stored.reserved_first) PH_TRY(sync_.directory(c.path));
  c.stored.abandoned.clear();
  if (c.stored.last.size > 0) c.filled = std::max(c.filled, c.stored.last.name);
  if (!c.open) PH_TRY(adopt_empty(c, link));
  c.recovered = true;
  return {};
}

Result<> ChunkWriter::cut_back(ChunkCategory& c, const ChunkMark& mark) {
  if (!mark.name) return {};
  std::string path = path_of(c, mark);
  PH_ASSIGN(auto stat, files_.stat(path));
  if (!stat || id_of(*stat) != mark.file) return {};
  if (stat->size < mark.size) {
    ++counters_.shortened;
    log_error("chunk_is_shorter_than_committed", {{"file", path}, {"bytes", stat->size}, {"committed", mark.size}});
    return {};
  }
  PH_ASSIGN(port::File * file, open_.existing(path, mark.file));
  if (!file) return {};
  if (stat->size > mark.size) {
    cut_.save(*file, mark.size, stat->size, file_name(c, mark));
    PH_TRY(file->truncate(mark.size));
  }
  // Also when there was nothing to cut: a process killed between cut and sync may have left it so.
  PH_TRY(sync_.file(*file));
  open_.close(path);
  return {};
}

Result<> ChunkWriter::remove_unhappened(ChunkCategory& c, const std::string& name) {
  std::string path = c.path + "/" + name;
  PH_ASSIGN(auto file, files_.open(path, port::OpenMode::read));
  PH_ASSIGN(port::FileStat stat, file->stat());
  cut_.save(*file, 0, stat.size, name);
  file.reset();
  return files_.unlink(path);
}

/// An empty chunk that the link names and that nothing lies above goes on as the open one; if it was made for another
/// compression, it goes when the link moves on.
Result<> ChunkWriter::adopt_empty(ChunkCategory& c, const std::string& link) {
  if (!c.linked || c.linked != c.greatest || c.linked <= c.filled) return {};
  PH_ASSIGN(auto stat, files_.stat(c.path + "/" + link));
  if (!stat || stat->kind != port::FileKind::regular || stat->size != 0) return {};
  ChunkMark chunk{c.linked, id_of(*stat), 0, compression_of(link)};
  if (chunk.compression == c.compression)
    c.open = ChunkCategory::Open{chunk, {}};
  else
    c.superseded = chunk;
  return {};
}

}  // namespace ph::chunk
