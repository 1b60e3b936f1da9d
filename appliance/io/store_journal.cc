#include "io/store_journal.h"

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "io/level_store.h"
#include "io/random_seed.h"

namespace ph::io {
namespace {

constexpr ByteView kMagic = "PHJRNL\r\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = 32;
constexpr uint64_t kPageBytes = 4096;
constexpr ByteView kRecordMagic = "PSB1";
constexpr size_t kRecordHeadBytes = 24;
constexpr ByteView kSuffix = ".jnl";
constexpr ByteView kDigits = "0123456789abcdef";

enum Kind : uint8_t { kPut = 1, kDelete = 2 };

/// Lower-case hex, all of `text`.
std::optional<uint64_t> parse_hex(ByteView text) {
  uint64_t number = 0;
  for (char c : text) {
    size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return std::nullopt;
    number = number << 4 | digit;
  }
  return number;
}

std::string hex(uint64_t value, int digits) {
  std::string out;
  for (int shift = digits * 4 - 4; shift >= 0; shift -= 4) out.push_back(kDigits[value >> shift & 0xF]);
  return out;
}

uint32_t seed_of(uint32_t salt) {
  std::string bytes;
  put_fixed(bytes, salt);
  return crc32c(bytes);
}

std::string head_of(uint64_t first, uint32_t salt, uint32_t boot) {
  std::string head(kMagic);
  put_fixed(head, kVersion);
  put_fixed(head, first);
  put_fixed(head, salt);
  put_fixed(head, boot);
  put_fixed(head, crc32c(head));
  return head;
}

std::optional<port::WriteBatch> decode_body(ByteView body) {
  port::WriteBatch batch;
  Reader in(body);
  while (!in.at_end()) {
    auto kind = in.fixed<uint8_t>();
    std::string key(in.sized());
    if (kind == kPut)
      batch.put(std::move(key), std::string(in.sized()));
    else if (kind == kDelete)
      batch.remove(std::move(key));
    else
      return std::nullopt;
    if (!in.ok()) return std::nullopt;
  }
  return in.ok() ? std::optional(std::move(batch)) : std::nullopt;
}

struct Record {
  uint64_t number = 0;
  size_t bytes = 0;
  port::WriteBatch batch;
};

/// The record at the front of `bytes`, if a whole one stands there.
std::optional<Record> record_at(ByteView bytes, uint32_t seed) {
  if (bytes.size() < kRecordHeadBytes || !bytes.starts_with(kRecordMagic)) return std::nullopt;
  if (load_fixed<uint32_t>(bytes.data() + 16) != crc32c(bytes.substr(0, 16), seed)) return std::nullopt;
  auto length = load_fixed<uint32_t>(bytes.data() + 4);
  if (length > bytes.size() - kRecordHeadBytes) return std::nullopt;
  ByteView body = bytes.substr(kRecordHeadBytes, length);
  if (load_fixed<uint32_t>(bytes.data() + 20) != crc32c(body, seed)) return std::nullopt;
  auto batch = decode_body(body);
  if (!batch) return std::nullopt;
  return Record{load_fixed<uint64_t>(bytes.data() + 8), kRecordHeadBytes + length, std::move(*batch)};
}

/// Reads files in the order of their numbers and keeps the run.
class Reading {
 public:
  explicit Reading(JournalContent& out) : out_(out) {}

  Result<> file(const std::string& path, uint64_t first, uint32_t salt, ByteView bytes) {
    if (newer(bytes)) return fail(store_errors::newer_version, path + ": written by a newer posthouse");
    if (first == out_.last + 1) unread_.clear();  // a torn tail, behind which a start went on
    out_.highest = std::max(out_.highest, first - 1);
    // The name says the same as the head, so that damage there costs nothing.
    size_t at = std::min(kHeadBytes, bytes.size());
    out_.boot = at == kHeadBytes ? load_fixed<uint32_t>(bytes.data() + kHeadBytes - 8) : 0;
    if (bytes.substr(0, kHeadBytes) != head_of(first, salt, out_.boot)) {
      out_.boot = 0;
      unread(path, 0);
    }
    while (at < bytes.size()) {
      if (auto record = record_at(bytes.substr(at), seed_of(salt))) {
        at += record->bytes;
        take(path, std::move(*record));
        continue;
      }
      unread(path, at);
      at = bytes.find(kRecordMagic, at + 1);
    }
    return {};
  }

 private:
  static bool newer(ByteView bytes) {
    return bytes.size() >= kHeadBytes && bytes.starts_with(kMagic) &&
           load_fixed<uint32_t>(bytes.data() + kMagic.size()) > kVersion &&
           load_fixed<uint32_t>(bytes.data() + kHeadBytes - 4) == crc32c(bytes.substr(0, kHeadBytes - 4));
  }
  void take(const std::string& path, Record&& record) {
    if (record.number != out_.last + 1) {
      if (out_.last != 0) unread(path, 0);
      out_.run.clear();
      out_.first = record.number;
    }
    // Something whole follows what can't be read: no crash left it so.
    if (!unread_.empty()) {
      ++out_.damaged;
      out_.damaged_at = std::exchange(unread_, {});
    }
    out_.last = record.number;
    out_.highest = std::max(out_.highest, record.number);
    out_.run.push_back(std::move(record.batch));
  }
  void unread(const std::string& path, size_t at) {
    if (unread_.empty()) unread_ = path + " at " + std::to_string(at);
  }

  JournalContent& out_;
  std::string unread_;
};

/// Writes page by page. What is written at once becomes one large piece of the page cache, where the file system knows
/// such, and each later write into it would make all of it dirty.
Result<> write_zeroed(port::File& file, uint64_t offset, ByteView bytes) {
  while (!bytes.empty()) {
    ByteView piece = bytes.substr(0, kPageBytes - offset % kPageBytes);
    PH_TRY(file.write_at(offset, piece));
    offset += piece.size();
    bytes.remove_prefix(piece.size());
  }
  return {};
}

}  // namespace

std::string StoreJournal::path_of(const Segment& segment) const {
  return directory_ + "/" + hex(segment.first, 16) + "-" + hex(segment.salt, 8) + std::string(kSuffix);
}

uint32_t StoreJournal::boot() {
  std::string id(36, '\0');
  auto file = PosixFiles().open("/proc/sys/kernel/random/boot_id", port::OpenMode::read);
  auto size = file ? (*file)->read_at(0, id.data(), id.size()) : Result<size_t>(0);
  return crc32c(ByteView(id).substr(0, size.value_or(0)));
}

Result<> StoreJournal::list() {
  segments_.clear();
  auto entries = files_.list(directory_);
  if (!entries && entries.error().code == port::file_errors::not_found) return {};
  if (!entries) return std::unexpected(std::move(entries).error());
  for (const auto& entry : *entries) {
    ByteView name = entry.name;
    if (name.size() != 16 + 1 + 8 + kSuffix.size() || name[16] != '-' || !name.ends_with(kSuffix)) continue;
    auto first = parse_hex(name.substr(0, 16));
    auto salt = parse_hex(name.substr(17, 8));
    if (first && salt && *first > 0) segments_.push_back({*first, static_cast<uint32_t>(*salt), counted_});
  }
  std::ranges::sort(segments_, {}, &Segment::first);
  return {};
}

Result<JournalContent> StoreJournal::read() {
  JournalContent out;
  Reading reading(out);
  file_.reset();
  PH_TRY(list());
  for (const Segment& segment : segments_) {
    std::string path = path_of(segment);
    PH_ASSIGN(auto file, files_.open(path, port::OpenMode::read));
    PH_ASSIGN(auto stat, file->stat());
    std::string bytes(stat.size, '\0');
    PH_ASSIGN(size_t size, file->read_at(0, bytes.data(), bytes.size()));
    bytes.resize(size);
    PH_TRY(reading.file(path, segment.first, segment.salt, bytes));
  }
  return out;
}

Result<> StoreJournal::begin(uint64_t number) {
  file_.reset();
  Segment segment{number, load_fixed<uint32_t>(random_bytes(4).data()), counted_};
  PH_TRY(files_.make_directories(directory_));
  auto made = make_file(path_of(segment), head_of(number, segment.salt, boot()));
  if (!made) {
    (void)files_.unlink(path_of(segment));  // on a full disk this is tried every second
    return std::unexpected(std::move(made).error());
  }
  segments_.push_back(segment);
  file_ = std::move(*made);
  size_ = kHeadBytes;
  zeroed_ = kZeroedBytes;
  drop_tabled();
  return {};
}

Result<std::unique_ptr<port::File>> StoreJournal::make_file(const std::string& path, std::string head) {
  PH_ASSIGN(auto file, files_.open(path, port::OpenMode::write_new));
  head.resize(kZeroedBytes, '\0');
  PH_TRY(write_zeroed(*file, 0, head));
  PH_TRY(file->sync());
  PH_TRY(files_.sync_directory(directory_));
  PH_TRY(files_.sync_directory(directory_.substr(0, std::max<size_t>(1, directory_.rfind('/')))));
  return file;
}

Result<> StoreJournal::append(uint64_t number, const port::WriteBatch& batch) {
  if (size_ >= kSegmentBytes) {
    PH_TRY(file_->sync());
    PH_TRY(begin(number));
  }
  buffer_.assign(kRecordHeadBytes, '\0');
  for (const auto& entry : batch.entries()) {
    buffer_.push_back(static_cast<char>(entry.value ? kPut : kDelete));
    put_sized(buffer_, entry.key);
    if (entry.value) put_sized(buffer_, *entry.value);
  }
  if (buffer_.size() - kRecordHeadBytes > UINT32_MAX) return fail(store_errors::failed, "a batch of more than 4 GiB");
  std::string head(kRecordMagic);
  uint32_t seed = seed_of(segments_.back().salt);
  put_fixed(head, static_cast<uint32_t>(buffer_.size() - kRecordHeadBytes));
  put_fixed(head, number);
  put_fixed(head, crc32c(head, seed));
  put_fixed(head, crc32c(ByteView(buffer_).substr(kRecordHeadBytes), seed));
  buffer_.replace(0, kRecordHeadBytes, head);
  size_t bytes = buffer_.size();
  if (size_ + bytes > zeroed_) {
    zeroed_ = (size_ + bytes + kZeroedBytes - 1) / kZeroedBytes * kZeroedBytes;
    buffer_.resize(zeroed_ - size_, '\0');
  }
  PH_TRY(write_zeroed(*file_, size_, buffer_));
  size_ += bytes;
  counted_ += std::min<uint64_t>(bytes, batch_counts_);
  segments_.back().counted_at = counted_;
  if (buffer_.capacity() > kSegmentBytes) std::string().swap(buffer_);
  return {};
}

Result<> StoreJournal::sync() {
  return file_->sync();
}

bool StoreJournal::drop_oldest() {
  auto gone = files_.unlink(path_of(segments_.front()));
  if (!gone && gone.error().code != port::file_errors::not_found) {
    log_warn("store_journal_not_dropped", {{"error", gone.error().to_string()}});
    return false;
  }
  segments_.pop_front();
  return true;
}

void StoreJournal::drop_tabled() {
  while (segments_.size() > kFilesMax ||
         (segments_.size() > 1 && counted_ - segments_.front().counted_at >= tabled_after_))
    if (!drop_oldest()) return;
}

void StoreJournal::drop_older() {
  while (segments_.size() > 1)
    if (!drop_oldest()) return;
}

}  // namespace ph::io
