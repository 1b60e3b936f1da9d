#include "store/chunk/disk_files.h"

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace ph::chunk {

Result<port::File*> OpenFiles::existing(const std::string& path, FileId id) {
  if (auto it = by_path_.find(path); it != by_path_.end()) {
    recent_.splice(recent_.begin(), recent_, it->second);
    PH_ASSIGN(port::FileStat open, recent_.front().file->stat());
    if (id_of(open) == id) return recent_.front().file.get();
    close(path);
  }
  PH_ASSIGN(auto named, files_.stat(path));
  if (!named || named->kind != port::FileKind::regular || id_of(*named) != id) return nullptr;
  PH_ASSIGN(auto file, files_.open(path, port::OpenMode::write_create));
  PH_ASSIGN(port::FileStat opened, file->stat());
  if (id_of(opened) != id) return nullptr;
  return adopt(path, std::move(file));
}

port::File* OpenFiles::adopt(const std::string& path, std::unique_ptr<port::File> file) {
  close(path);
  if (recent_.size() >= max_) {
    by_path_.erase(recent_.back().path);
    recent_.pop_back();
  }
  recent_.push_front({path, std::move(file)});
  by_path_[recent_.front().path] = recent_.begin();
  return recent_.front().file.get();
}

void OpenFiles::close(const std::string& path) {
  auto it = by_path_.find(path);
  if (it == by_path_.end()) return;
  auto entry = it->second;
  by_path_.erase(it);
  recent_.erase(entry);
}

Result<> GatheredWrite::add(ByteView bytes) {
  if (buffer_.size() + bytes.size() > kBuffer || bytes.size() >= kDirect) PH_TRY(finish());
  if (bytes.size() < kDirect) {
    buffer_.append(bytes);
    return {};
  }
  PH_TRY(file_.write_at(at_, bytes));
  at_ += bytes.size();
  return {};
}

Result<> GatheredWrite::finish() {
  if (buffer_.empty()) return {};
  PH_TRY(file_.write_at(at_, buffer_));
  at_ += buffer_.size();
  buffer_.clear();
  return {};
}

Result<> GroupSync::begin(size_t expected) {
  whole_.reset();
  if (expected <= each_max_) return {};
  PH_ASSIGN(whole_, files_.file_system(directory_));
  return {};
}

Result<> GroupSync::end() {
  if (!whole_) return {};
  Result<> synced = whole_->sync();
  whole_.reset();
  return synced;
}

void CutBytes::save(port::File& from, uint64_t begin, uint64_t end, const std::string& name) {
  if (begin >= end) return;
  bytes_ += end - begin;
  Result<> saved = copy(from, begin, end, name);
  if (saved)
    log_warn("uncommitted_bytes_cut", {{"file", name}, {"offset", begin}, {"bytes", end - begin}});
  else
    log_error("uncommitted_bytes_not_saved", {{"file", name}, {"error", saved.error().to_string()}});
}

Result<> CutBytes::copy(port::File& from, uint64_t begin, uint64_t end, const std::string& name) {
  PH_TRY(make_room());
  std::unique_ptr<port::File> to;
  for (int n = 0; !to; ++n) {
    auto made = files_.open(directory_ + "/" + name + "@" + std::to_string(begin) + "." + std::to_string(n),
                            port::OpenMode::write_new);
    if (made)
      to = std::move(*made);
    else if (made.error().code != port::file_errors::exists || n == static_cast<int>(kFilesMax))
      return std::unexpected(std::move(made).error());
  }
  std::string buffer(std::min<uint64_t>(end - begin, 1024 * 1024), '\0');
  for (uint64_t at = begin; at < end;) {
    PH_ASSIGN(size_t got, from.read_at(at, buffer.data(), std::min<uint64_t>(buffer.size(), end - at)));
    if (got == 0) break;
    PH_TRY(to->write_at(at - begin, ByteView(buffer).substr(0, got)));
    at += got;
  }
  PH_TRY(to->sync());
  return files_.sync_directory(directory_);
}

Result<> CutBytes::make_room() {
  PH_ASSIGN(auto entries, files_.list(directory_));
  if (entries.size() < kFilesMax) return {};
  std::vector<std::pair<int64_t, std::string>> by_age;
  for (const auto& e : entries) {
    PH_ASSIGN(auto stat, files_.stat(directory_ + "/" + e.name));
    if (stat && stat->kind == port::FileKind::regular) by_age.emplace_back(stat->modified_ns, e.name);
  }
  std::sort(by_age.begin(), by_age.end());
  size_t excess = std::min(by_age.size(), entries.size() - kFilesMax + 1);
  for (size_t i = 0; i < excess; ++i) PH_TRY(files_.unlink(directory_ + "/" + by_age[i].second));
  return {};
}

Result<> settle_store(port::KeyedStore& store) {
  port::WriteBatch batch;
  batch.remove("f/probe");
  return store.write(batch, true);
}

Result<> make_durable_directory(port::Files& files, const std::string& path) {
  PH_ASSIGN(auto there, files.stat(path));
  size_t slash = path.rfind('/');
  std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (!there) {
    if (parent != path && parent != "." && parent != "/") PH_TRY(make_durable_directory(files, parent));
    PH_TRY(files.make_directories(path));
  }
  // Also when it was there: a process killed before this point may have made it and not got to the sync.
  if (parent != path) PH_TRY(files.sync_directory(parent));
  return {};
}

}  // namespace ph::chunk
