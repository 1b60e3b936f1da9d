#include "store/spool/segment_recovery.h"

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "store/spool/segment_reader.h"

namespace ph::spool {
namespace {

constexpr size_t kKnownDamageMax = 10'000;

std::string parent(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// <data_dir>/spool/<name>: the name and the folder above are synced each time, because a start that crashed may have
/// made them without that.
Result<> make_durable_directory(port::Files& files, const std::string& directory) {
  PH_TRY(files.make_directories(directory));
  PH_TRY(files.sync_directory(parent(directory)));
  return files.sync_directory(parent(parent(directory)));
}

/// One past the greatest sequence that whole records of [offset, end of file) hold; 0 if none.
uint64_t highest_sequence(port::Files& files, const std::string& path, uint64_t segment, uint64_t epoch,
                          uint64_t offset) {
  auto opened = open_segment(files, path);
  if (!opened) return 0;
  if (opened->header.header) epoch = opened->header.header->epoch;
  SegmentReader reader(*opened->file, {epoch, segment}, std::max(offset, kRecordsOffset), opened->size);
  reader.tolerate_read_errors();
  uint64_t highest = 0;
  for (;;) {
    auto item = reader.next(UINT64_MAX);
    if (!item || item->what == SegmentReader::What::end) return highest;
    if (item->what != SegmentReader::What::damaged_bytes) highest = std::max(highest, item->header.sequence + 1);
  }
}

class Recovery {
 public:
  Recovery(const SegmentLogOptions& options, port::Files& files, port::KeyedStore& store, Random& random)
      : options_(options), files_(files), store_(store), random_(random), prefix_(store_prefix(options.name)) {}

  Result<Recovered> run() {
    PH_TRY(make_durable_directory(files_, options_.directory));
    PH_TRY(clean_named_leftovers());
    PH_ASSIGN(out_.segments, list_segments(files_, options_.directory));
    PH_TRY(read_store());
    auto stored = stored_end(store_, options_.name);
    if (!stored && stored.error().code != errors::damaged) return std::unexpected(stored.error());
    if (stored && *stored) {
      out_.end = **stored;
      PH_TRY(cut_behind_end());
    } else {
      if (!stored) log_error("spool_end_unreadable", {{"spool", options_.name}});
      PH_TRY(rebuild());
    }
    return std::move(out_);
  }

 private:
  std::string path(uint64_t segment) const { return options_.directory + "/" + segment_name(segment); }

  Result<> read_store() {
    PH_ASSIGN(auto floor, stored_number(store_, prefix_ + "floor"));
    out_.floor = std::max(floor.value_or(0), kFirstSequence);
    PH_ASSIGN(auto quarantined, stored_number(store_, prefix_ + "quarantined"));
    out_.quarantined = quarantined.value_or(0);
    PH_ASSIGN(auto looked_after, stored_number(store_, prefix_ + "looked_after"));
    out_.looked_after = looked_after.value_or(0);
    PH_ASSIGN(out_.released, stored_released(store_, options_.name));
    return store_.scan(prefix_ + "q/", [this](ByteView, ByteView value) {
      if (auto damage = decode_damage(value)) out_.known_damage.push_back(std::move(*damage));
      return out_.known_damage.size() < kKnownDamageMax;
    });
  }

  Result<> clean_named_leftovers() {
    std::map<uint64_t, uint64_t> leftovers;
    port::WriteBatch forget;
    std::string prefix = prefix_ + "x/";
    PH_TRY(store_.scan(prefix, [&](ByteView key, ByteView value) {
      if (key.size() == prefix.size() + 8 && value.size() == 8)
        leftovers[load_key(key.data() + prefix.size())] = load_key(value.data());
      forget.remove(std::string(key));
      return true;
    }));
    if (leftovers.empty()) return {};
    PH_TRY(clean_leftovers(files_, options_.directory, leftovers));
    return store_.write(forget, false);
  }

  /// Only what no group ever acknowledged is taken away here; its sequences stay used.
  Result<> cut_behind_end() {
    DurableEnd& end = out_.end;
    uint64_t next = end.next;
    auto behind = std::find_if(out_.segments.begin(), out_.segments.end(),
                               [&](const Recovered::Segment& s) { return s.first > end.segment; });
    for (auto s = behind; s != out_.segments.end(); ++s)
      next = std::max({next, s->first + 1, highest_sequence(files_, path(s->first), s->first, end.epoch, 0)});
    bool is_here = behind != out_.segments.begin() && std::prev(behind)->first == end.segment;
    uint64_t size = is_here ? std::prev(behind)->bytes : 0;
    if (is_here && size > end.offset)
      next = std::max(next, highest_sequence(files_, path(end.segment), end.segment, end.epoch, end.offset));
    if (next != end.next) {
      end.next = next;
      PH_TRY(write_end());  // before its evidence goes
    }
    uint64_t cut = 0;
    for (auto s = behind; s != out_.segments.end(); ++s) {
      cut += s->bytes;
      PH_TRY(files_.unlink(path(s->first)));
    }
    out_.segments.erase(behind, out_.segments.end());
    if (is_here) PH_TRY(adopt_end_segment(size, cut));
    if (cut > 0) log_info("spool_tail_cut", {{"spool", options_.name}, {"bytes", cut}});
    return {};
  }

  Result<> adopt_end_segment(uint64_t size, uint64_t& cut) {
    const DurableEnd& end = out_.end;
    PH_ASSIGN(auto opened, open_segment(files_, path(end.segment)));
    if (size < end.offset) {
      log_error("spool_data_missing",
                {{"spool", options_.name}, {"segment", segment_name(end.segment)}, {"bytes", end.offset - size}});
      return {};  // the rest of it reads as a gap; appending goes on in a new segment
    }
    PH_ASSIGN(auto file, files_.open(path(end.segment), port::OpenMode::write_create));
    if (size > end.offset) {
      cut += size - end.offset;
      PH_TRY(file->truncate(end.offset));
      PH_TRY(file->sync());  // behind it records may go on in another segment
      out_.segments.back().bytes = end.offset;
    }
    const auto& header = opened.header.header;
    // What an older version began is only read: it could not tell what stands behind its own records.
    bool ours = header && !opened.header.damaged && header->epoch == end.epoch && header->version == kSegmentVersion;
    if (ours && end.offset < options_.segment_bytes) out_.active = std::move(file);
    return {};
  }

  /// The store knows nothing of this log: every whole record counts, and what numbers mean begins anew.
  Result<> rebuild() {
    out_.end = DurableEnd{};
    out_.end.epoch = random_.next() | 1;
    auto segments = std::exchange(out_.segments, {});
    for (const auto& s : segments) out_.end.next = std::max(out_.end.next, s.first + 1);
    for (const auto& s : segments) PH_TRY(rebuild_segment(s));
    while (!out_.segments.empty() && out_.segments.back().first > out_.end.segment) {
      PH_TRY(set_aside(out_.segments.back()));
      out_.segments.pop_back();
    }
    if (out_.end.segment != 0) {
      PH_ASSIGN(auto file, files_.open(path(out_.end.segment), port::OpenMode::write_create));
      PH_TRY(file->truncate(out_.end.offset));
      if (torn_foot_)
        PH_TRY(
            file->write_at(torn_foot_->head.foot_at(), encode_batch_foot(torn_foot_->head, torn_foot_->index, seed_)));
      PH_TRY(file->sync());
      out_.segments.back().bytes = out_.end.offset;
      log_error("spool_rebuilt", {{"spool", options_.name},
                                  {"segments", out_.segments.size()},
                                  {"next_sequence", out_.end.next},
                                  {"events", out_.end.events}});
    }
    return write_end();
  }

  Result<> rebuild_segment(const Recovered::Segment& s) {
    PH_ASSIGN(auto opened, open_segment(files_, path(s.first)));
    if (opened.header.all_zero) return files_.unlink(path(s.first));  // preallocated, never written
    out_.segments.push_back(s);
    if (!opened.header.header) return {};  // without its epoch no record can be told from noise
    const RecordSeed seed{opened.header.header->epoch, s.first};
    SegmentReader reader(*opened.file, seed, kRecordsOffset, opened.size);
    reader.tolerate_read_errors();
    for (;;) {
      PH_ASSIGN(auto item, reader.next());
      if (item.what == SegmentReader::What::end) return {};
      if (item.what == SegmentReader::What::damaged_record)
        out_.end.next = std::max(out_.end.next, item.header.sequence + 1);
      if (item.what != SegmentReader::What::record || item.header.sequence < out_.end.end) continue;
      out_.end.segment = s.first;
      out_.end.offset = item.offset + item.bytes;
      out_.end.end = item.header.sequence + 1;
      out_.end.next = std::max(out_.end.next, out_.end.end);
      out_.end.events = item.header.events_after();
      // All records of its batch are there, the foot is not: it is put there again.
      torn_foot_ = out_.end.offset > opened.size ? reader.mended() : std::nullopt;
      seed_ = seed;
    }
  }

  /// A newest segment without one whole record: its bytes may matter to someone, its name must not come again.
  Result<> set_aside(const Recovered::Segment& s) {
    if (s.bytes <= kRecordsOffset) return files_.unlink(path(s.first));
    log_error("spool_segment_unreadable", {{"spool", options_.name}, {"segment", segment_name(s.first)}});
    return files_.rename(path(s.first), path(s.first) + ".damaged");
  }

  Result<> write_end() {
    port::WriteBatch batch;
    batch.put(prefix_ + "end", encode(out_.end));
    return store_.write(batch, true);
  }

  const SegmentLogOptions& options_;
  port::Files& files_;
  port::KeyedStore& store_;
  Random& random_;
  std::string prefix_;
  Recovered out_;
  std::optional<BatchFoot> torn_foot_;  // of the last segment that rebuild() found records in
  RecordSeed seed_;                     // of it
};

}  // namespace

void add(Ranges& ranges, uint64_t first, uint64_t last) {
  if (first >= last) return;
  auto it = ranges.upper_bound(first);
  if (it != ranges.begin() && std::prev(it)->second >= first) --it;
  while (it != ranges.end() && it->first <= last) {
    first = std::min(first, it->first);
    last = std::max(last, it->second);
    it = ranges.erase(it);
  }
  ranges[first] = last;
}

bool contains(const Ranges& ranges, uint64_t first, uint64_t last) {
  auto it = ranges.upper_bound(first);
  return it != ranges.begin() && std::prev(it)->second >= last;
}

std::string released_key(const std::string& log_name, uint64_t first) {
  std::string key = store_prefix(log_name) + "r/";
  put_key(key, first);
  return key;
}

Result<Ranges> stored_released(port::KeyedStore& store, const std::string& log_name) {
  Ranges out;
  std::string prefix = store_prefix(log_name) + "r/";
  PH_TRY(store.scan(prefix, [&](ByteView key, ByteView value) {
    if (key.size() == prefix.size() + 8 && value.size() == 8)
      add(out, load_key(key.data() + prefix.size()), load_key(value.data()));
    return true;
  }));
  return out;
}

Result<std::vector<Recovered::Segment>> list_segments(port::Files& files, const std::string& directory) {
  std::vector<Recovered::Segment> out;
  auto entries = files.list(directory);
  if (!entries && entries.error().code == port::file_errors::not_found) return out;
  if (!entries) return std::unexpected(entries.error());
  for (const auto& entry : *entries) {
    auto first = parse_segment_name(entry.name);
    if (!first || entry.kind != port::FileKind::regular) continue;
    PH_ASSIGN(auto stat, files.stat(directory + "/" + entry.name));
    if (stat) out.push_back({*first, stat->size});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

Result<std::optional<DurableEnd>> stored_end(port::KeyedStore& store, const std::string& log_name) {
  PH_ASSIGN(auto value, store.get(store_prefix(log_name) + "end"));
  if (!value) return std::nullopt;
  PH_ASSIGN(auto end, decode_durable_end(*value));
  return end;
}

Result<std::optional<uint64_t>> stored_number(port::KeyedStore& store, const std::string& key) {
  PH_ASSIGN(auto value, store.get(key));
  if (!value || value->size() != 8) return std::nullopt;
  return load_key(value->data());
}

std::string leftover_key(const std::string& log_name, uint64_t segment) {
  std::string key = store_prefix(log_name) + "x/";
  put_key(key, segment);
  return key;
}

Result<> clean_leftovers(port::Files& files, const std::string& directory,
                         const std::map<uint64_t, uint64_t>& leftovers) {
  if (leftovers.empty()) return {};
  for (const auto& [segment, bytes] : leftovers) {
    std::string path = directory + "/" + segment_name(segment);
    PH_ASSIGN(auto stat, files.stat(path));
    if (!stat) continue;
    if (bytes == 0) {
      PH_TRY(files.unlink(path));
      continue;
    }
    PH_ASSIGN(auto file, files.open(path, port::OpenMode::write_create));
    // Synced also where it was cut before: a power cut would bring the bytes back when nobody looks for them any more.
    if (stat->size > bytes) PH_TRY(file->truncate(bytes));
    PH_TRY(file->sync());
  }
  return files.sync_directory(directory);
}

Result<Recovered> recover(const SegmentLogOptions& options, port::Files& files, port::KeyedStore& store,
                          Random& random) {
  return Recovery(options, files, store, random).run();
}

}  // namespace ph::spool
