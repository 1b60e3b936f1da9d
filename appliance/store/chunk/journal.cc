#include "store/chunk/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/coding.h"
#include "base/log.h"
#include "store/chunk/disk_files.h"

namespace ph::chunk {
namespace {

constexpr char kMagic[] = {'P', 'H', 'J', 'R', 'N', 'L'};
constexpr char kVersion = 2;
constexpr char kUncompressed = 1;  // version that knew no compression
constexpr char kMarkVersion = 1;
constexpr size_t kRecordHeader = 8;
constexpr uint64_t kRecordMax = 1ull << 30;  // a group is far smaller; a length above this is damage

std::optional<uint64_t> position_of(std::string_view name) {
  uint64_t position = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), position, 16);
  if (name.size() != 16 || error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return position;
}

Result<std::string> read_range(port::File& file, uint64_t from, uint64_t size) {
  std::string bytes(size, '\0');
  uint64_t have = 0;
  while (have < size) {
    PH_ASSIGN(size_t got, file.read_at(from + have, bytes.data() + have, size - have));
    if (got == 0) break;
    have += got;
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

std::string encode(const JournalMark& mark) {
  std::string out(1, kMarkVersion);
  put_fixed<uint64_t>(out, mark.copied);
  put_fixed<uint64_t>(out, mark.end);
  put_fixed<uint32_t>(out, crc32c(out));
  return out;
}

Result<JournalMark> decode_journal_mark(ByteView bytes) {
  if (bytes.size() < 5 || crc32c(bytes.substr(0, bytes.size() - 4)) != load_fixed<uint32_t>(bytes.end() - 4))
    return fail(errors::damaged, "store entry of the journal");
  if (bytes[0] > kMarkVersion) return fail(errors::newer_version, "store entry of the journal");
  Reader r(bytes.substr(1, bytes.size() - 5));
  JournalMark mark;
  mark.copied = r.fixed<uint64_t>();
  mark.end = r.fixed<uint64_t>();
  if (bytes[0] != kMarkVersion || !r.ok() || !r.at_end() || mark.copied > mark.end)
    return fail(errors::damaged, "store entry of the journal");
  return mark;
}

std::string Journal::path_of(uint64_t position) const {
  return fmt::format("{}/{:016x}", directory_, position);
}

Result<> Journal::open(std::optional<uint64_t> end) {
  PH_TRY(make_durable_directory(files_, directory_));
  PH_ASSIGN(auto entries, files_.list(directory_));
  for (const auto& e : entries) {
    auto position = position_of(e.name);
    if (!position) continue;
    if (!end || *position < *end)
      segments_[*position] = e.name;
    else
      PH_TRY(files_.unlink(directory_ + "/" + e.name));  // begun by a group that never happened
  }
  return {};
}

Result<uint64_t> Journal::furthest() const {
  uint64_t position = 0;
  for (const auto& [first, name] : segments_) {
    PH_ASSIGN(auto stat, files_.stat(directory_ + "/" + name));
    if (stat) position = std::max(position, first + stat->size);
  }
  return position;
}

Result<> Journal::read(uint64_t from, uint64_t end, const Visit& visit,
                       const std::function<void(port::File&, const std::string& name)>& keep) {
  for (auto it = segments_.begin(); it != segments_.end() && it->first < end; ++it) {
    uint64_t first = it->first;
    auto after = std::next(it);
    uint64_t until = std::min(end, after == segments_.end() ? end : after->first);
    if (until <= from) continue;
    PH_ASSIGN(auto file, files_.open(path_of(first), port::OpenMode::read));
    PH_ASSIGN(std::string head, read_range(*file, 0, kHeader));
    bool damaged = head.size() < kHeader || !head.starts_with(ByteView(kMagic, sizeof kMagic)) ||
                   load_fixed<uint64_t>(head.data() + 8) != first;
    if (!damaged && head[6] > kVersion) return fail(errors::newer_version, path_of(first));
    const bool uncompressed = !damaged && head[6] == kUncompressed;
    uint64_t at = first;
    while (!damaged && at < until) {
      PH_ASSIGN(std::string header, read_range(*file, kHeader + (at - first), kRecordHeader));
      uint64_t length = header.size() == kRecordHeader ? load_fixed<uint32_t>(header.data() + 4) : kRecordMax;
      if (length >= kRecordMax || at + kRecordHeader + length > until) {
        damaged = true;
        break;
      }
      if (at >= from) {
        PH_ASSIGN(std::string body, read_range(*file, kHeader + (at - first) + kRecordHeader, length));
        Slice record(std::move(body));
        uint32_t crc = crc32c(record.view(), crc32c(ByteView(header).substr(4)));
        Reader r(record.view());
        ByteView category = r.sized();
        auto how = uncompressed ? Compression::none : static_cast<Compression>(r.fixed<uint8_t>());
        bool known = std::ranges::find(kCompressions, how) != std::end(kCompressions);
        if (record.size() == length && crc == load_fixed<uint32_t>(header.data()) && r.ok() && known) {
          visit(category, how, record.sub(record.size() - r.rest().size()));
        } else {
          ++damaged_;
          keep(*file, it->second);
          log_error("journal_record_damaged", {{"segment", it->second}, {"position", at}});
        }
      }
      at += kRecordHeader + length;
    }
    if (!damaged) continue;
    ++damaged_;
    keep(*file, it->second);
    log_error("journal_segment_damaged", {{"segment", it->second}, {"position", at}, {"lost_bytes", until - at}});
  }
  return {};
}

Result<> Journal::begin_segment(uint64_t position) {
  std::string path = path_of(position);
  file_.reset();
  PH_ASSIGN(auto file, files_.open(path, port::OpenMode::write_create));
  // The same name may have been begun by a group that did not happen.
  PH_TRY(file->truncate(0));
  std::string head(kMagic, sizeof kMagic);
  head.push_back(kVersion);
  head.push_back(0);
  put_fixed<uint64_t>(head, position);
  PH_TRY(file->write_at(0, head));
  file_ = std::move(file);
  first_ = position;
  segments_[position] = path.substr(path.rfind('/') + 1);
  fresh_ = true;
  return {};
}

Result<> Journal::begin(uint64_t end) {
  at_ = end;
  if (file_ && end - first_ < segment_bytes_) return {};
  return begin_segment(end);
}

Result<> Journal::append(std::string_view category, Compression how, const std::vector<Slice>& bytes,
                         std::string& buffer) {
  std::string head;
  put_sized(head, category);
  head.push_back(static_cast<char>(how));
  uint64_t length = head.size();
  for (const Slice& s : bytes) length += s.size();
  PH_ASSERT(length < kRecordMax, "a group is bounded by its callers' windows");
  std::string fixed;
  put_fixed<uint32_t>(fixed, static_cast<uint32_t>(length));
  uint32_t crc = crc32c(head, crc32c(fixed));
  for (const Slice& s : bytes) crc = crc32c(s.view(), crc);
  std::string record;
  put_fixed<uint32_t>(record, crc);
  record.append(fixed).append(head);
  GatheredWrite out(*file_, kHeader + (at_ - first_), buffer);
  PH_TRY(out.add(record));
  for (const Slice& s : bytes) PH_TRY(out.add(s.view()));
  PH_TRY(out.finish());
  at_ += kRecordHeader + length;
  return {};
}

Result<uint64_t> Journal::sync() {
  PH_TRY(file_->sync());
  if (fresh_) PH_TRY(files_.sync_directory(directory_));
  fresh_ = false;
  return at_;
}

void Journal::release_below(uint64_t position) {
  while (segments_.size() > 1 && std::next(segments_.begin())->first <= position) {
    if (Result<> gone = files_.unlink(path_of(segments_.begin()->first));
        !gone && gone.error().code != port::file_errors::not_found) {
      log_warn("journal_segment_not_deleted", {{"error", gone.error().to_string()}});
      return;
    }
    segments_.erase(segments_.begin());
  }
}

}  // namespace ph::chunk
