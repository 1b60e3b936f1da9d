// A group of chunk mode: plan, reserve names, write, sync; and how it is taken back. Upkeep and recovery stand in
// chunk_upkeep.cc.
#include "store/chunk/chunk_writer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace ph::chunk {

std::optional<Instant> ChunkCategory::rotation_due() const {
  if (!open || open->chunk.size == 0) return std::nullopt;
  return open->first_write + interval;
}

Result<> ChunkWriter::flush(std::vector<ChunkWork>& group, Instant now, uint32_t today) {
  bool has_lines = std::any_of(group.begin(), group.end(), [](const ChunkWork& w) { return !w.lines.empty(); });
  directories_.clear();
  PH_ASSERT(touched_.empty(), "a group ends with committed() or failed()");
  if (Result<> taken = take_back(); !taken) {
    log_error("failed_group_not_taken_back", {{"error", taken.error().to_string()}});
    return has_lines ? taken : Result<>();
  }
  group_now_ = now;
  move_links();
  Result<> recovered = recover_waiting(group);
  for (ChunkWork& work : group) {
    if (!work.lines.empty()) continue;
    if (Result<> kept = keep_up(*work.category, now, today); !kept)
      log_warn("chunk_upkeep_failed", {{"category", work.category->name}, {"error", kept.error().to_string()}});
  }
  Result<> written = has_lines && !recovered ? recovered : write_group(group, now, today);
  sync_.abandon();
  if (written) return written;
  take_back_.swap(touched_);
  touched_.clear();
  if (Result<> taken = take_back(); !taken)
    log_error("failed_group_not_taken_back", {{"error", taken.error().to_string()}});
  return written;
}

Result<> ChunkWriter::write_group(std::vector<ChunkWork>& group, Instant now, uint32_t today) {
  size_t pieces = 0;
  for (ChunkWork& work : group) {
    if (work.lines.empty()) continue;
    touched_.push_back(work.category);
    PH_TRY(plan(*work.category, work.lines, now, today));
    pieces += work.category->pieces.size();
  }
  PH_TRY(reserve(touched_));
  PH_TRY(sync_.begin(pieces));
  for (ChunkWork& work : group)
    if (!work.lines.empty()) PH_TRY(write_pieces(*work.category, work.lines, today));
  for (const std::string& directory : directories_) PH_TRY(sync_.directory(directory));
  return sync_.end();
}

Result<> ChunkWriter::plan(ChunkCategory& c, const std::vector<Slice>& lines, Instant now, uint32_t today) {
  c.pieces.clear();
  c.greatest_before_group = c.greatest;
  if (auto due = c.rotation_due(); due && *due <= now) c.open.reset();
  if (c.open && c.open->line_bytes >= c.chunk_max) c.open.reset();
  if (c.open && c.open->chunk.size == 0 && today > c.open->chunk.name.date) {
    c.superseded = c.open->chunk;
    c.open.reset();
  }
  ChunkPiece piece;
  auto begin_piece = [&](size_t line) -> Result<> {
    piece = {};
    piece.first_line = line;
    return name_next(c, piece.chunk, today);
  };
  if (c.open) {
    piece.chunk = c.open->chunk;
    piece.lines_before = c.open->line_bytes;
    piece.fresh = c.open->chunk.size == 0;
    piece.made = true;
  } else {
    PH_TRY(begin_piece(0));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    bool full = piece.bytes > 0 && piece.lines_before + piece.bytes >= c.chunk_max;
    if (full && lines[i - 1].view().ends_with('\n')) {
      piece.last_line = i;
      c.pieces.push_back(piece);
      PH_TRY(begin_piece(i));
    }
    piece.bytes += lines[i].size();
  }
  piece.last_line = lines.size();
  c.pieces.push_back(piece);
  return {};
}

/// The next name of the category, for a chunk as its settings want it.
Result<> ChunkWriter::name_next(ChunkCategory& c, ChunkMark& chunk, uint32_t today) {
  chunk = {};
  chunk.name = next_name(c.greatest, today);
  if (!chunk.name) return fail(errors::names_used_up, c.name);
  chunk.compression = c.compression;
  c.greatest = chunk.name;
  return {};
}

ChunkEntry ChunkWriter::reserving(const ChunkCategory& c) {
  ChunkEntry entry = c.stored;
  for (const ChunkPiece& piece : c.pieces) {
    if (!piece.fresh) continue;
    if (!entry.reserved_first || piece.chunk.name < entry.reserved_first) entry.reserved_first = piece.chunk.name;
    entry.reserved_last = std::max(entry.reserved_last, piece.chunk.name);
    entry.reserved_compression = piece.chunk.compression;
  }
  return entry;
}

Result<> ChunkWriter::reserve(const std::vector<ChunkCategory*>& categories) {
  port::WriteBatch batch;
  for (ChunkCategory* c : categories) {
    c->stored.reserved_first = c->stored.reserved_last = {};
    if (std::none_of(c->pieces.begin(), c->pieces.end(), [](const ChunkPiece& p) { return p.fresh; })) continue;
    batch.put(category_key(c->name), encode(CategoryEntry(reserving(*c))));
  }
  return batch.empty() ? Result<>() : store_.write(batch, true);
}

Result<> ChunkWriter::write_pieces(ChunkCategory& c, const std::vector<Slice>& lines, uint32_t today) {
  bool moved = false;
  for (size_t i = 0; i < c.pieces.size();) {
    PH_ASSIGN(bool written, write_piece(c, c.pieces[i], lines));
    if (written) {
      ++i;
      continue;
    }
    ++counters_.vanished;
    if (i != 0 || moved) return fail(port::file_errors::not_found, path_of(c, c.pieces[i].chunk));
    moved = true;
    PH_TRY(move_to_new_names(c, today));
  }
  return {};
}

/// The open chunk is no longer under its name: a consumer took it. The group goes to new chunks instead.
Result<> ChunkWriter::move_to_new_names(ChunkCategory& c, uint32_t today) {
  log_info("open_chunk_vanished", {{"category", c.name}});
  c.open.reset();
  for (ChunkPiece& piece : c.pieces) {
    piece.fresh = true;
    piece.made = piece.written = false;
    piece.lines_before = 0;
    PH_TRY(name_next(c, piece.chunk, today));
  }
  return reserve({&c});
}

/// False: the chunk is not, or no longer, under its name.
Result<bool> ChunkWriter::write_piece(ChunkCategory& c, ChunkPiece& piece, const std::vector<Slice>& lines) {
  PH_ASSIGN(port::File * file, file_of(c, piece));
  if (!file) return false;
  piece.written = true;
  GatheredWrite out(*file, piece.chunk.size, buffer_);
  std::span<const Slice> part(lines.begin() + static_cast<ptrdiff_t>(piece.first_line),
                              lines.begin() + static_cast<ptrdiff_t>(piece.last_line));
  if (piece.chunk.compression == Compression::none) {
    for (const Slice& line : part) PH_TRY(out.add(line.view()));
    piece.stored = piece.bytes;
  } else {
    PH_ASSIGN(piece.stored, compressor_.member(piece.chunk.compression, part, [&](ByteView b) { return out.add(b); }));
  }
  PH_TRY(out.finish());
  PH_TRY(sync_.file(*file));
  std::string path = path_of(c, piece.chunk);
  PH_ASSIGN(auto named, files_.stat(path));
  if (named && id_of(*named) == piece.chunk.file) return true;
  // Who took it meanwhile shall not find lines in it that come again in the next chunk.
  if (Result<> cut = file->truncate(piece.chunk.size); !cut)
    log_warn("vanished_chunk_not_cut", {{"file", path}, {"error", cut.error().to_string()}});
  open_.close(path);
  return false;
}

Result<port::File*> ChunkWriter::file_of(ChunkCategory& c, ChunkPiece& piece) {
  if (piece.fresh) {
    directories_.insert(c.path);
    directories_.insert(directory_);
  }
  if (!piece.made) {
    piece.made = true;  // also when it fails half-way: what is there must go
    return make_file(c, piece.chunk);
  }
  PH_ASSIGN(port::File * file, open_.existing(path_of(c, piece.chunk), piece.chunk.file));
  if (!file) return file;
  PH_ASSIGN(port::FileStat stat, file->stat());
  if (stat.size == piece.chunk.size) return file;
  // Somebody wrote to it or emptied it. Never fill a hole with zeros, never write over what is not ours.
  log_warn("open_chunk_was_changed", {{"category", c.name}, {"bytes", stat.size}, {"committed", piece.chunk.size}});
  open_.close(path_of(c, piece.chunk));
  return nullptr;
}

Result<port::File*> ChunkWriter::make_file(ChunkCategory& c, ChunkMark& mark) {
  std::string path = path_of(c, mark);
  auto file = files_.open(path, port::OpenMode::write_new);
  if (!file && file.error().code == port::file_errors::not_found) {
    PH_TRY(files_.make_directories(c.path));
    file = files_.open(path, port::OpenMode::write_new);
  }
  if (!file) {
    if (file.error().code == port::file_errors::exists) {
      c.recovered = false;  // somebody else makes chunks here: look again
      mark.file = {};
    }
    return std::unexpected(std::move(file).error());
  }
  auto stat = (*file)->stat();
  if (!stat) {
    if (Result<> gone = files_.unlink(path); !gone) c.recovered = false;  // an empty chunk stays: look again
    return std::unexpected(std::move(stat).error());
  }
  mark.file = id_of(*stat);
  return open_.adopt(path, std::move(*file));
}

ChunkEntry ChunkWriter::entry_after(const ChunkCategory& c) {
  ChunkEntry entry = c.stored;
  entry.last = c.pieces.back().chunk;
  entry.last.size += c.pieces.back().stored;
  entry.reserved_first = entry.reserved_last = {};
  return entry;
}

void ChunkWriter::add_entries(port::WriteBatch& entries) const {
  for (const ChunkCategory* c : touched_) entries.put(category_key(c->name), encode(CategoryEntry(entry_after(*c))));
}

bool ChunkWriter::committed() {
  bool owed = false;
  for (ChunkCategory* c : touched_) {
    for (const ChunkPiece& piece : c->pieces) counters_.chunks += piece.fresh ? 1 : 0;
    ChunkPiece& last = c->pieces.back();
    last.chunk.size += last.stored;
    c->stored.last = last.chunk;
    c->stored.reserved_first = c->stored.reserved_last = {};
    bool goes_on = c->open && c->open->chunk.name == last.chunk.name && c->open->chunk.size > 0;
    c->open =
        ChunkCategory::Open{last.chunk, goes_on ? c->open->first_write : group_now_, last.lines_before + last.bytes};
    c->filled = last.chunk.name;
    c->pieces.clear();
    if (c->linked == c->filled || c->link_owed) continue;
    c->link_owed = owed = true;
    links_owed_.push_back(c);
  }
  touched_.clear();
  return owed;
}

void ChunkWriter::failed() {
  if (touched_.empty()) return;
  take_back_.swap(touched_);
  touched_.clear();
  store_uncertain_ = true;
}

Result<> ChunkWriter::take_back() {
  if (take_back_.empty()) return {};
  if (store_uncertain_) {
    PH_TRY(settle_store(store_));
    PH_ASSIGN(auto value, store_.get(category_key(take_back_.front()->name)));
    store_uncertain_ = false;
    if (value && *value == encode(CategoryEntry(entry_after(*take_back_.front())))) {
      // The batch that was called failed is durable, with all that rests on it: nothing may be taken back.
      log_warn("failed_group_was_durable", {{"category", take_back_.front()->name}});
      ++counters_.late_commits;
      touched_.swap(take_back_);
      committed();
      return {};
    }
  }
  PH_TRY(sync_.begin(take_back_.size()));
  Result<> outcome;
  for (ChunkCategory* c : take_back_)
    if (outcome = take_back(*c); !outcome) break;
  if (outcome) outcome = sync_.end();
  sync_.abandon();
  if (!outcome) {
    for (ChunkCategory* c : take_back_) c->removal_owed = true;  // done once more, harmlessly
    return outcome;
  }
  take_back_.clear();
  return {};
}

Result<> ChunkWriter::take_back(ChunkCategory& c) {
  while (!c.pieces.empty()) {
    c.removal_owed = c.removal_owed || (c.pieces.back().fresh && c.pieces.back().made);
    PH_TRY(take_back(c, c.pieces.back()));
    c.pieces.pop_back();
  }
  // The next group's reservation replaces this one's: what was removed must not come back after that.
  if (std::exchange(c.removal_owed, false)) {
    Result<> synced = sync_.directory(c.path);
    auto there = synced ? Result<std::optional<port::FileStat>>() : files_.stat(c.path);
    // A directory that is gone, or has something else in its place, brings nothing back.
    bool gone = there && (!*there || (*there)->kind != port::FileKind::directory);
    c.removal_owed = !synced && !gone;
    if (c.removal_owed) return synced;
  }
  c.greatest = c.open ? std::max(c.greatest_before_group, c.open->chunk.name) : c.greatest_before_group;
  return {};
}

Result<> ChunkWriter::take_back(ChunkCategory& c, ChunkPiece& piece) {
  std::string path = path_of(c, piece.chunk);
  bool was_open = c.open && c.open->chunk.name == piece.chunk.name;
  if (!piece.made || (was_open && !piece.written)) return {};
  if (piece.chunk.file == FileId{}) return {};  // never ours: the name was taken, or nothing was made
  if (was_open) {
    PH_ASSIGN(port::File * file, open_.existing(path, piece.chunk.file));
    bool cut = file && file->truncate(piece.chunk.size).has_value();
    bool synced = cut && file->sync().has_value();
    if (piece.fresh && synced) return {};  // empty again, and the link may name it: goes on as it was
    if (!piece.fresh) {
      if (file && !cut) return fail(port::file_errors::failed, path + ": cannot be cut to its committed size");
      if (file && !synced) {
        if (c.stored.abandoned.size() == kAbandonedMax) c.stored.abandoned.erase(c.stored.abandoned.begin());
        c.stored.abandoned.push_back(piece.chunk);
      }
      ++counters_.abandoned;
      c.open.reset();
      open_.close(path);
      return {};
    }
    c.open.reset();
    c.linked = {};
  }
  PH_ASSERT(piece.fresh, "committed lines are never removed");
  open_.close(path);
  Result<> gone = files_.unlink(path);
  if (!gone && gone.error().code != port::file_errors::not_found) return gone;
  return {};
}

}  // namespace ph::chunk
