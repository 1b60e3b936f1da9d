#include "store/dead_letter/dead_letters.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "base/coding.h"
#include "base/limits.h"
#include "base/log.h"
#include "codec/event/block.h"

namespace ph::dead_letter {
namespace {

constexpr char kMagic[] = "DLT1";
constexpr size_t kFrameHeader = 12;
constexpr uint64_t kBodyMax = limits::kRecordMax + (1 << 20);  // a block, and generously what stands before it
// A payload may hold what looks like frames. While the reader is lost in one, it checks at most this many bytes in
// vain.
constexpr uint64_t kVainBytesMax = 256ull << 20;

/// For what may fail without harm: it is said, nothing more.
void tolerate(const Result<>& outcome) {
  if (!outcome) log_warn("dead_letter_cleanup_failed", {{"error", outcome.error().to_string()}});
}

using LetterKey = std::tuple<std::string, uint64_t, uint64_t>;  // target, stream, first

LetterKey key_of(const port::DeadLetter& l) {
  return {l.target, l.stream.value, l.first};
}

void put_frame(std::string& out, ByteView body) {
  std::string checked;
  put_fixed<uint32_t>(checked, static_cast<uint32_t>(body.size()));
  out.append(kMagic, 4);
  put_fixed<uint32_t>(out, crc32c(body, crc32c(checked)));
  out += checked;
  out.append(body);
}

/// Size of the whole frame at the front of `bytes`; 0 if none is there. `checked` grows by what had to be read for
/// that.
size_t frame_at(ByteView bytes, uint64_t& checked) {
  if (bytes.size() < kFrameHeader || !bytes.starts_with(kMagic)) return 0;
  auto size = load_fixed<uint32_t>(bytes.data() + 8);
  if (size > kBodyMax || bytes.size() - kFrameHeader < size) return 0;
  checked += size;
  if (crc32c(bytes.substr(8, 4 + size)) != load_fixed<uint32_t>(bytes.data() + 4)) return 0;
  return kFrameHeader + size;
}

std::string parent(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

struct OldFile {
  uint64_t number;
  std::string name;
};

/// <route>.log.<n>, ascending.
Result<std::vector<OldFile>> old_files(port::Files& files, const std::string& directory, const std::string& route) {
  std::vector<OldFile> out;
  auto entries = files.list(directory);
  if (!entries && entries.error().code == port::file_errors::not_found) return out;
  if (!entries) return std::unexpected(entries.error());
  std::string prefix = route + ".log.";
  for (const auto& e : *entries) {
    if (!e.name.starts_with(prefix) || e.name.size() == prefix.size()) continue;
    uint64_t n = 0;
    const char* end = e.name.data() + e.name.size();
    auto [at, failed] = std::from_chars(e.name.data() + prefix.size(), end, n);
    if (failed == std::errc() && at == end) out.push_back({n, e.name});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  return out;
}

/// Bytes [offset, end of file).
Result<Slice> read_from(port::File& file, uint64_t offset, uint64_t size) {
  std::string bytes(size - offset, '\0');
  PH_ASSIGN(size_t got, file.read_at(offset, bytes.data(), bytes.size()));
  bytes.resize(got);
  return Slice(std::move(bytes));
}

}  // namespace

struct DeadLetterFiles::Route {
  std::unique_ptr<port::File> file;
  uint64_t size = 0;
  bool failed = false;  // nothing more goes into this file
  std::deque<LetterKey> recent;
  std::multiset<LetterKey> known;

  void remember(LetterKey key) {
    known.insert(key);
    recent.push_back(std::move(key));
    if (recent.size() <= kRecentMax) return;
    known.erase(known.find(recent.front()));
    recent.pop_front();
  }
};

DeadLetterFiles::DeadLetterFiles(std::string directory, port::Files& files, uint64_t file_bytes)
    : directory_(std::move(directory)), files_(files), file_bytes_(file_bytes) {}

DeadLetterFiles::~DeadLetterFiles() = default;

Result<> DeadLetterFiles::append(const std::vector<port::DeadLetter>& letters) {
  std::map<std::string, std::vector<const port::DeadLetter*>> by_route;
  for (const auto& l : letters) by_route[l.route].push_back(&l);
  for (const auto& entry : by_route) {
    const std::string& name = entry.first;
    const auto& theirs = entry.second;
    Route* route = nullptr;
    PH_ASSIGN(route, open(name));
    std::string frames;
    std::vector<LetterKey> keys;
    std::set<LetterKey> fresh;
    auto write_out = [&]() -> Result<> {
      if (frames.empty()) return {};
      PH_TRY(write(name, *route, frames));
      for (LetterKey& k : keys) route->remember(std::move(k));
      frames.clear();
      keys.clear();
      return {};
    };
    for (const auto* letter : theirs) {
      LetterKey key = key_of(*letter);
      if (route->known.contains(key) || !fresh.insert(key).second) continue;
      put_frame(frames, port::encode(*letter));
      keys.push_back(std::move(key));
      if (frames.size() >= (4u << 20)) PH_TRY(write_out());
    }
    PH_TRY(write_out());
  }
  return {};
}

Result<DeadLetterFiles::Route*> DeadLetterFiles::open(const std::string& name) {
  if (auto fault = event::category_fault(name); !fault.empty()) return fail(errors::bad_route, std::string(fault));
  Route& route = routes_[name];
  if (route.failed) PH_TRY(rotate(name, route));
  if (route.file) return &route;
  PH_TRY(files_.make_directories(directory_));
  PH_ASSIGN(auto file, files_.open(path(name), port::OpenMode::write_create));
  PH_ASSIGN(auto stat, file->stat());
  PH_TRY(files_.sync_directory(directory_));
  PH_TRY(files_.sync_directory(parent(directory_)));
  if (route.recent.empty()) {
    PH_ASSIGN(auto whole, read_from(*file, 0, stat.size));
    scan_frames(whole, [&](uint64_t, const Slice& body) {
      if (auto letter = port::decode_dead_letter(body)) route.remember(key_of(*letter));
      return true;
    });
  }
  route.size = stat.size;
  route.file = std::move(file);
  return &route;
}

Result<> DeadLetterFiles::write(const std::string& name, Route& route, ByteView frames) {
  if (route.size > 0 && route.size + frames.size() > file_bytes_) {
    PH_TRY(rotate(name, route));
    PH_ASSIGN(Route * again, open(name));
    PH_ASSERT(again == &route, "routes stay where they are");
  }
  auto written = route.file->write_at(route.size, frames);
  if (written) written = route.file->sync();
  if (!written) {
    tolerate(route.file->truncate(route.size));  // what remains is skipped by readers
    route.failed = true;
    return written;
  }
  route.size += frames.size();
  log_warn("dead_letters_written", {{"route", name}, {"bytes", frames.size()}});
  return {};
}

Result<> DeadLetterFiles::forget(const std::string& name, const std::set<std::string>& ids) {
  if (auto fault = event::category_fault(name); !fault.empty()) return fail(errors::bad_route, std::string(fault));
  PH_ASSIGN(auto old, old_files(files_, directory_, name));
  for (const OldFile& file : old) PH_TRY(forget_in(file.name, ids));
  // Ours is opened again with the next letter; what it holds is another file then.
  if (auto route = routes_.find(name); route != routes_.end()) {
    route->second.file.reset();
    route->second.size = 0;
  }
  return forget_in(name + ".log", ids);
}

Result<> DeadLetterFiles::forget_in(const std::string& name, const std::set<std::string>& ids) {
  const std::string path = directory_ + "/" + name, fresh = path + ".new";
  auto file = files_.open(path, port::OpenMode::read);
  if (!file && file.error().code == port::file_errors::not_found) return {};
  if (!file) return std::unexpected(file.error());
  PH_ASSIGN(auto stat, (*file)->stat());
  PH_ASSIGN(auto bytes, read_from(**file, 0, stat.size));
  std::string kept;
  size_t at = 0;
  scan_frames(bytes, [&](uint64_t offset, const Slice& body) {
    auto letter = port::decode_dead_letter(body);
    if (!letter || !ids.contains(letter_id(*letter))) return true;
    kept.append(bytes.view().substr(at, offset - at));
    at = offset + kFrameHeader + body.size();
    return true;
  });
  if (at == 0) return {};
  kept.append(bytes.view().substr(at));
  if (kept.empty()) {
    PH_TRY(files_.unlink(path));
    return files_.sync_directory(directory_);
  }
  PH_ASSIGN(auto to, files_.open(fresh, port::OpenMode::write_create));
  PH_TRY(to->truncate(0));
  PH_TRY(to->write_at(0, kept));
  PH_TRY(to->sync());
  PH_TRY(files_.rename(fresh, path));
  return files_.sync_directory(directory_);
}

std::string letter_id(const port::DeadLetter& l) {
  std::string key;
  for (ByteView part : {ByteView(l.route), ByteView(l.target)}) put_sized(key, part);
  for (uint64_t n : {l.stream.value, l.first, l.last}) put_key(key, n);
  uint64_t hash = 0xCBF29CE484222325;
  for (unsigned char c : key) hash = (hash ^ c) * 0x100000001B3;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[hash >> shift & 15];
  return out;
}

Result<> DeadLetterFiles::rotate(const std::string& name, Route& route) {
  PH_ASSIGN(auto old, old_files(files_, directory_, name));
  uint64_t number = old.empty() ? 1 : old.back().number + 1;
  if (route.size == 0) {
    tolerate(files_.unlink(path(name)));
  } else {
    PH_TRY(files_.rename_new(path(name), path(name) + "." + std::to_string(number)));
    for (size_t i = 0; i + kFilesKept <= old.size(); ++i) {
      log_error("dead_letters_dropped", {{"route", name}, {"file", old[i].name}});
      tolerate(files_.unlink(directory_ + "/" + old[i].name));
    }
  }
  PH_TRY(files_.sync_directory(directory_));
  route.file.reset();
  route.size = 0;
  route.failed = false;
  return {};
}

uint64_t scan_frames(const Slice& bytes, const std::function<bool(uint64_t, const Slice&)>& visit) {
  ByteView rest = bytes.view();
  uint64_t stray = 0, vain = 0;
  size_t at = 0;
  while (at < rest.size()) {
    uint64_t checked = 0;
    if (size_t size = frame_at(rest.substr(at), checked); size > 0) {
      if (!visit(at, bytes.sub(at + kFrameHeader, size - kFrameHeader))) return stray;
      at += size;
      continue;
    }
    vain += checked;
    if (vain > kVainBytesMax) return stray + rest.size() - at;
    size_t next = std::min(rest.find(kMagic, at + 1), rest.size());
    stray += next - at;
    at = next;
  }
  return stray;
}

Result<uint64_t> for_each_letter(port::Files& files, const std::string& directory, const std::string& route,
                                 const std::function<bool(const Found&)>& visit) {
  PH_ASSIGN(auto old, old_files(files, directory, route));
  std::vector<std::string> names;
  for (auto& o : old) names.push_back(std::move(o.name));
  names.push_back(route + ".log");
  uint64_t stray = 0;
  bool go_on = true;
  for (const std::string& name : names) {
    if (!go_on) break;
    std::string path = directory;
    path.append("/").append(name);
    auto file = files.open(path, port::OpenMode::read);
    if (!file && file.error().code == port::file_errors::not_found) continue;
    if (!file) return std::unexpected(file.error());
    PH_ASSIGN(auto stat, (*file)->stat());
    PH_ASSIGN(auto bytes, read_from(**file, 0, stat.size));
    stray += scan_frames(bytes, [&](uint64_t offset, const Slice& body) {
      Found found{name, offset, {}, false};
      if (auto letter = port::decode_dead_letter(body))
        found.letter = std::move(*letter);
      else
        found.newer_version = true;
      return go_on = visit(found);
    });
  }
  return stray;
}

Result<std::vector<std::string>> routes_with_letters(port::Files& files, const std::string& directory) {
  std::set<std::string> routes;
  auto entries = files.list(directory);
  if (!entries && entries.error().code != port::file_errors::not_found) return std::unexpected(entries.error());
  if (entries)
    for (const auto& e : *entries)
      if (size_t at = e.name.rfind(".log"); at != std::string::npos && at > 0 && e.kind == port::FileKind::regular)
        routes.insert(e.name.substr(0, at));
  return std::vector<std::string>(routes.begin(), routes.end());
}

}  // namespace ph::dead_letter
