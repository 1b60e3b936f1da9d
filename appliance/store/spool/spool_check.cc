#include "store/spool/spool_check.h"

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "store/spool/segment_log.h"
#include "store/spool/segment_reader.h"
#include "store/spool/segment_recovery.h"

namespace ph::spool {
namespace {

std::string path_of(const SpoolPlace& place, uint64_t segment) {
  return place.directory + "/" + segment_name(segment);
}

struct Known {
  std::vector<Recovered::Segment> segments;
  std::optional<DurableEnd> end;
  uint64_t floor = kFirstSequence;
  std::vector<Damage> damage;
  Ranges released;
  std::map<uint64_t, uint64_t> leftovers;  // segment -> bytes of it that count
};

Result<Known> what_is_known(const SpoolPlace& place) {
  Known k;
  PH_ASSIGN(k.segments, list_segments(place.files, place.directory));
  if (!place.store) return k;
  auto end = stored_end(*place.store, place.name);
  if (!end && end.error().code != errors::damaged) return std::unexpected(end.error());
  if (end) k.end = *end;
  std::string prefix = store_prefix(place.name);
  PH_ASSIGN(auto floor, stored_number(*place.store, prefix + "floor"));
  k.floor = floor.value_or(kFirstSequence);
  PH_ASSIGN(k.released, stored_released(*place.store, place.name));
  PH_TRY(place.store->scan(prefix + "q/", [&](ByteView, ByteView value) {
    if (auto damage = decode_damage(value)) k.damage.push_back(std::move(*damage));
    return true;
  }));
  PH_TRY(place.store->scan(prefix + "x/", [&](ByteView key, ByteView value) {
    if (key.size() == prefix.size() + 10 && value.size() == 8)
      k.leftovers[load_key(key.data() + prefix.size() + 2)] = load_key(value.data());
    return true;
  }));
  return k;
}

/// Walks all segments and says what of the sequence space is not there.
class Checker {
 public:
  Checker(const SpoolPlace& place, Known known) : place_(place), known_(std::move(known)) {}

  Result<SpoolReport> run() {
    report_.end = known_.end;
    report_.floor = known_.floor;
    for (size_t i = 0; i < known_.segments.size(); ++i) {
      bound_ = known_.end ? known_.end->end : UINT64_MAX;
      bool following = false;
      for (size_t next = i + 1; next < known_.segments.size() && !following; ++next)
        following = takes_over(known_.segments[next].first);
      PH_TRY(walk(known_.segments[i]));
    }
    if (known_.end && !started_) begin_at(known_.end->end, known_.end->events);
    if (known_.end && position_ < known_.end->end) {
      // Up to the offset that the store knows, so that appending may go on behind it.
      uint64_t until = open_end_.segment == known_.end->segment ? known_.end->offset : 0;
      if (until > open_end_.offset + open_end_.bytes) open_end_.bytes = until - open_end_.offset;
      lost(known_.end->end, known_.end->events);
    } else if (!known_.end && open_end_.bytes > 0) {
      const Recovered::Segment& newest = known_.segments.back();
      report_.unacknowledged_bytes +=
          std::min(open_end_.bytes, newest.bytes - std::min(newest.bytes, open_end_.offset));
      if (!report_.segments.empty()) report_.segments.back().note = "torn tail";
    }
    return std::move(report_);
  }

 private:
  struct Place {
    uint64_t segment = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::string reason;
  };

  /// Where a segment takes over, nothing counts in the one before it. False: it is empty, and takes over nowhere.
  bool takes_over(uint64_t segment) {
    auto opened = open_segment(place_.files, path_of(place_, segment));
    if (opened && opened->header.all_zero && !known_.end) return false;
    const bool told = opened && opened->header.header;
    bound_ = std::min(bound_, told ? opened->header.header->begins : segment);
    return true;
  }

  /// How much of a segment's file counts; 0: nothing.
  uint64_t limit_of(const Recovered::Segment& s, SegmentReport& report) {
    uint64_t limit = s.bytes;
    if (auto left = known_.leftovers.find(s.first); left != known_.leftovers.end())
      limit = std::min(limit, left->second);
    if (known_.end && s.first > known_.end->segment) limit = 0;
    if (known_.end && s.first == known_.end->segment) limit = std::min(limit, known_.end->offset);
    if (limit < s.bytes) {
      report.note = "not acknowledged: " + std::to_string(s.bytes - limit) + " bytes";
      report_.unacknowledged_bytes += s.bytes - limit;
    }
    return limit;
  }

  Result<> walk(const Recovered::Segment& s) {
    SegmentReport& report = report_.segments.emplace_back();
    report.file = segment_name(s.first);
    report.first = s.first;
    report.last = std::max(position_, s.first);
    report.bytes = s.bytes;
    uint64_t limit = limit_of(s, report);
    if (limit == 0 && s.bytes > 0) return {};
    PH_ASSIGN(auto opened, open_segment(place_.files, path_of(place_, s.first)));
    const auto& header = opened.header.header;
    if (opened.header.all_zero && !known_.end) {
      report.note = "preallocated, empty";
      return {};
    }
    if (opened.header.damaged)
      report.damage.push_back({s.first, 0, std::min<uint64_t>(limit, kRecordsOffset), s.first, s.first, 0, 0,
                               header ? "segment header, one copy" : "segment header"});
    if (header) epoch_ = header->epoch;
    if (!started_ && header) begin_at(header->begins, header->events_before);
    if (!started_) PH_TRY(begin_at_first(*opened.file, s.first, limit));
    // What is lost before this segment is a gap of that one: there nothing counts from where this one takes over.
    if (header && header->begins > position_) lost(header->begins, header->events_before);
    SegmentReport& own = report_.segments.back();
    own.begins = std::min(position_, s.first);
    own.events_before = events_;
    own.epoch = header ? header->epoch : known_.end ? known_.end->epoch : epoch_;
    SegmentReader reader(*opened.file, {own.epoch, s.first}, kRecordsOffset, limit);
    reader.tolerate_read_errors();
    if (open_end_.segment == 0) open_end_ = {s.first, kRecordsOffset, 0, "records missing"};
    for (bool any = false;; any = true) {
      PH_ASSIGN(auto item, reader.next());
      if (item.what == SegmentReader::What::end && !any) {
        const bool newest = !known_.end && s.first == known_.segments.back().first;
        if (!header && !newest) {
          lost(s.first, events_);
          report_.segments.back().begins = s.first;
        }
        open_end_ = {s.first, kRecordsOffset, 0, "records missing"};
      }
      if (item.what == SegmentReader::What::end) break;
      take(s.first, item, report_.segments.back());
    }
    report_.segments.back().last = std::max(position_, s.first);
    return {};
  }

  /// Its header cannot be read: what the first record in it tells.
  Result<> begin_at_first(port::File& file, uint64_t segment, uint64_t limit) {
    SegmentReader reader(file, {known_.end ? known_.end->epoch : epoch_, segment}, kRecordsOffset, limit);
    reader.tolerate_read_errors();
    for (;;) {
      PH_ASSIGN(auto item, reader.next(UINT64_MAX));
      if (item.what == SegmentReader::What::damaged_bytes) continue;
      const bool told = item.what != SegmentReader::What::end;
      begin_at(told ? std::min(segment, item.header.covers_from()) : segment, told ? item.header.events_before : 0);
      return {};
    }
  }

  /// Older segments than the first one here are gone: rightly so up to the floor.
  void begin_at(uint64_t begins, uint64_t events) {
    started_ = true;
    position_ = begins;
    events_ = events;
    if (!place_.store || known_.floor >= begins || contains(known_.released, known_.floor, begins)) return;
    SegmentReport missing;
    // Where repair puts a gap record. What is behind the end's segment would not count.
    missing.first = known_.end && known_.end->segment != 0 ? std::min(begins - 1, known_.end->segment) : begins - 1;
    missing.file = segment_name(missing.first);
    missing.last = begins;
    missing.begins = known_.floor;
    // Nothing precedes the first sequence; what precedes a later floor only the targets' cursors know.
    uint64_t lost_events = known_.floor == kFirstSequence ? events : 0;
    missing.events_before = events - lost_events;
    missing.epoch = known_.end ? known_.end->epoch : epoch_;
    missing.note = "missing";
    missing.damage.push_back({missing.first, kRecordsOffset, 0, known_.floor, begins, lost_events, events - lost_events,
                              "segment files missing"});
    report_.segments.insert(report_.segments.begin(), std::move(missing));
  }

  void take(uint64_t segment, const SegmentReader::Item& item, SegmentReport& report) {
    const RecordHeader& h = item.header;
    if (item.what != SegmentReader::What::damaged_bytes && h.covers_from() >= bound_) return;
    // Its first record tells what its header did.
    if (item.what != SegmentReader::What::damaged_bytes && h.covers_from() <= segment && h.sequence >= segment) {
      report.begins = h.covers_from();
      report.events_before = h.events_before;
    }
    note_end(segment, item, report);
    if (item.what == SegmentReader::What::damaged_bytes) {
      open_end_ = {segment, item.offset, item.bytes, item.zeros ? "zeros" : "no record header"};
      return;
    }
    if (h.sequence >= position_) {
      if (h.covers_from() > position_) lost(h.covers_from(), h.events_before);
      position_ = h.covers_from();
      events_ = h.events_before;
      if (item.what == SegmentReader::What::damaged_record) {
        open_end_ = {segment, item.offset, item.bytes, "checksum"};
        // What runs to the limit is a torn tail if nothing says that it was acknowledged.
        if (known_.end || segment != known_.segments.back().first || !item.torn) {
          lost(h.sequence + 1, h.events_after());
        } else {
          return;
        }
      } else if (h.kind == RecordKind::gap) {
        ++report.gaps;
      } else {
        ++report.records;
        report.events += h.events;
      }
      position_ = h.sequence + 1;
      events_ = h.events_after();
    }
    open_end_ = {segment, item.offset + item.bytes, 0, "records missing"};
  }

  /// A head or a foot that is not whole costs no record, and is damage all the same. Not where a torn batch ends.
  void note_end(uint64_t segment, const SegmentReader::Item& item, SegmentReport& report) {
    if (!item.damaged_end || item.batch_last >= bound_) return;
    const auto [offset, bytes] = *item.damaged_end;
    if (!known_.end && segment == known_.segments.back().first && offset + bytes > report.bytes) return;
    report.damage.push_back({segment, offset, bytes, position_, position_, 0, events_, "head or foot of a batch"});
  }

  void lost(uint64_t until, uint64_t events_after) {
    if (until <= position_) return;
    uint64_t events = events_after > events_ ? events_after - events_ : 0;
    Damage d{open_end_.segment, open_end_.offset, open_end_.bytes, position_, until, events, events_, open_end_.reason};
    bool on_purpose = contains(known_.released, position_, until);
    for (auto& s : report_.segments)
      if (s.first == d.segment && !on_purpose) {
        if (d.first < s.begins) {
          s.begins = d.first;
          s.events_before = d.events_before;
        }
        s.damage.push_back(std::move(d));
        break;
      }
    position_ = until;
    events_ = events_after;
  }

  const SpoolPlace& place_;
  Known known_;
  SpoolReport report_;
  bool started_ = false;
  uint64_t position_ = kFirstSequence;
  uint64_t events_ = 0;
  uint64_t epoch_ = 1;
  uint64_t bound_ = UINT64_MAX;  // records from here on are in a later segment, or not acknowledged
  Place open_end_;               // damaged bytes, or the end of what was read, before the next record
};

/// Replaces one segment by a copy whose damaged places are gap records.
class SegmentRepair {
 public:
  SegmentRepair(const SpoolPlace& place, const SegmentReport& report)
      : place_(place), report_(report), path_(place.directory + "/" + report.file) {}

  /// Bytes that were put aside.
  Result<uint64_t> run() {
    header_ = {report_.epoch, report_.first, report_.begins, report_.events_before, {}};
    auto opened = open_segment(place_.files, path_);
    if (opened) {
      from_ = std::move(opened->file);
      size_ = opened->size;
      if (opened->header.header) header_ = *opened->header.header;
      PH_TRY(keep_bad_bytes());
    } else if (opened.error().code != port::file_errors::not_found) {
      return std::unexpected(opened.error());
    }
    PH_TRY(write_copy(path_ + ".repair"));
    PH_TRY(place_.files.rename(path_ + ".repair", path_));
    PH_TRY(place_.files.sync_directory(place_.directory));
    return kept_;
  }

 private:
  static constexpr size_t kPiece = 1 << 20;

  /// Reads like the reader does: a page that cannot be read is zeros.
  std::string read(uint64_t offset, uint64_t bytes) {
    std::string out(bytes, '\0');
    for (uint64_t at = 0; at < bytes; at += 4096) {
      auto got = from_->read_at(offset + at, out.data() + at, std::min<uint64_t>(4096, bytes - at));
      if (got && *got == 0) break;
    }
    return out;
  }

  Result<> keep_bad_bytes() {
    PH_ASSIGN(auto to, place_.files.open(path_ + ".quarantine", port::OpenMode::write_create));
    PH_ASSIGN(auto stat, to->stat());
    uint64_t at = stat.size;
    auto put = [&](ByteView bytes) -> Result<> {
      PH_TRY(to->write_at(at, bytes));
      at += bytes.size();
      return {};
    };
    for (const Damage& d : report_.damage) {
      uint64_t bytes = d.offset >= size_ ? 0 : std::min(d.bytes, size_ - d.offset);
      std::string entry("PHQUAR1\n");
      put_fixed<uint64_t>(entry, d.offset);
      put_fixed<uint64_t>(entry, bytes);
      PH_TRY(put(entry));
      for (uint64_t done = 0; done < bytes; done += kPiece)
        PH_TRY(put(read(d.offset + done, std::min<uint64_t>(kPiece, bytes - done))));
      kept_ += bytes;
    }
    PH_TRY(to->sync());
    return place_.files.sync_directory(place_.directory);
  }

  Result<> write_copy(const std::string& path) {
    PH_ASSIGN(auto to, place_.files.open(path, port::OpenMode::write_create));
    PH_TRY(to->truncate(0));
    for (uint64_t at = 0; at < size_; at += kPiece)
      PH_TRY(to->write_at(at, read(at, std::min<uint64_t>(kPiece, size_ - at))));
    PH_TRY(to->write_at(0, encode(header_)));
    PH_TRY(mend_batches(*to));
    for (const Damage& d : report_.damage)
      if (d.last > d.first && !mended(d)) PH_TRY(write_gap(*to, d));
    return to->sync();
  }

  /// Batches that can be read get whole ends, whose index calls gaps what is lost.
  Result<> mend_batches(port::File& to) {
    if (!from_) return {};
    const RecordSeed seed{header_.epoch, report_.first};
    SegmentReader reader(*from_, seed, kRecordsOffset, size_);
    reader.tolerate_read_errors();
    for (;;) {
      PH_ASSIGN(auto item, reader.next(UINT64_MAX));
      if (item.what == SegmentReader::What::end) return {};
      if (item.header.sequence != item.batch_last) continue;
      auto batch = reader.mended();
      if (!batch) continue;
      PH_TRY(to.write_at(batch->head.offset, encode_batch_head(batch->head, seed)));
      PH_TRY(to.write_at(batch->head.foot_at(), encode_batch_foot(batch->head, batch->index, seed)));
      mended_.emplace_back(batch->head.offset, batch->head.end());
    }
  }

  bool mended(const Damage& d) const {
    return std::ranges::any_of(mended_, [&](const auto& m) { return d.offset >= m.first && d.offset < m.second; });
  }

  Result<> write_gap(port::File& to, const Damage& d) {
    // Shorter than a record's header only at the end of a file that the durable end is not in: there it may grow.
    uint64_t bytes = std::max<uint64_t>(d.bytes, kRecordHeaderSize);
    if (bytes - kRecordHeaderSize > UINT32_MAX || d.last - d.first > UINT32_MAX)
      return fail(errors::damaged, report_.file + ": too much is lost in one place for one gap record");
    RecordHeader h;
    h.size = static_cast<uint32_t>(bytes - kRecordHeaderSize);
    h.sequence = d.last - 1;
    h.skipped = static_cast<uint32_t>(d.last - 1 - d.first);
    h.events = d.events;
    h.events_before = d.events_before;
    h.kind = RecordKind::gap;
    std::string gap;
    encode(h, {header_.epoch, report_.first}, d.offset, gap);
    PH_TRY(to.write_at(d.offset, gap));
    std::string zeros(static_cast<size_t>(std::min<uint64_t>(h.size, kPiece)), '\0');
    for (uint64_t done = 0; done < h.size; done += zeros.size()) {
      uint64_t piece = std::min<uint64_t>(zeros.size(), h.size - done);
      PH_TRY(to.write_at(d.offset + kRecordHeaderSize + done, ByteView(zeros).substr(0, piece)));
    }
    return {};
  }

  const SpoolPlace& place_;
  const SegmentReport& report_;
  std::string path_;
  std::unique_ptr<port::File> from_;
  uint64_t size_ = 0;
  SegmentHeader header_;
  std::vector<std::pair<uint64_t, uint64_t>> mended_;  // offsets of batches
  uint64_t kept_ = 0;
};

}  // namespace

Result<SpoolReport> list_spool(const SpoolPlace& place) {
  PH_ASSIGN(auto known, what_is_known(place));
  SpoolReport report;
  report.end = known.end;
  report.floor = known.floor;
  for (size_t i = 0; i < known.segments.size(); ++i) {
    const auto& s = known.segments[i];
    SegmentReport& r = report.segments.emplace_back();
    r.file = segment_name(s.first);
    r.first = s.first;
    r.bytes = s.bytes;
    r.last = i + 1 < known.segments.size() ? known.segments[i + 1].first : known.end ? known.end->end : s.first;
    if (known.end && s.first > known.end->segment) r.note = "not acknowledged";
    for (const Damage& d : known.damage)
      if (d.segment == s.first) r.damage.push_back(d);
  }
  return report;
}

Result<SpoolReport> check_spool(const SpoolPlace& place) {
  PH_ASSIGN(auto known, what_is_known(place));
  return Checker(place, std::move(known)).run();
}

Result<RepairReport> repair_spool(const SpoolPlace& place) {
  RepairReport out;
  port::WriteBatch forget;  // the daemon's notes of what is no longer there
  if (place.store) {
    PH_ASSIGN(auto known, what_is_known(place));
    PH_TRY(clean_leftovers(place.files, place.directory, known.leftovers));
    for (const auto& [segment, bytes] : known.leftovers) forget.remove(leftover_key(place.name, segment));
  }
  PH_ASSIGN(out.before, check_spool(place));
  for (const SegmentReport& s : out.before.segments) {
    if (s.damage.empty()) continue;
    PH_ASSIGN(uint64_t kept, SegmentRepair(place, s).run());
    out.places += s.damage.size();
    out.quarantined_bytes += kept;
    for (const Damage& d : s.damage) {
      std::string key = store_prefix(place.name) + "q/";
      put_key(key, d.segment);
      put_key(key, d.offset);
      forget.remove(key);
    }
  }
  if (place.store) {
    PH_ASSIGN(auto quarantined, stored_number(*place.store, store_prefix(place.name) + "quarantined"));
    std::string number;
    put_key(number, quarantined.value_or(0));
    if (quarantined) forget.put(store_prefix(place.name) + "looked_after", number);
  }
  if (place.store && !forget.empty()) PH_TRY(place.store->write(forget, true));
  return out;
}

}  // namespace ph::spool
