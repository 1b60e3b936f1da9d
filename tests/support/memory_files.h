// MemoryFiles: a file system in memory that tells written from durable.
//
//   kill -9     keeps everything (the page cache survives): just drop the objects under test
//   cut_power   per file: each unsynced write survives whole, in part (whole 512-byte sectors), or not at all, in any
//               combination; per directory: a random prefix of the unsynced names' changes survives (a rename between
//               directories is never half done)
//   crash_at(n) the n-th changing operation from now throws SimulatedCrash; a write is then torn at a random byte
//   fault       a hook that may fail any operation
//   capacity    bytes after which writes fail with file.no_space, after having written what fits
// Paths are absolute, '/'-separated. Directories must exist. Leases: foreign descriptors are counted by hold().
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "port/files.h"

namespace ph::test {

struct SimulatedCrash {};

enum class FileOp {
  open,
  create,
  write,
  sync,
  truncate,
  rename,
  unlink,
  make_directory,
  symlink,
  sync_directory,
  sync_all,
  read,
  list,
  stat
};

class MemoryFiles : public port::Files {
 public:
  struct Inode {
    port::FileKind kind = port::FileKind::regular;
    uint64_t number = 0;
    int64_t birth_ns = 0;
    int64_t modified_ns = 0;
    uint32_t owner = 0;
    std::string bytes;  // also a symlink's target
    std::string durable;
    struct Pending {
      bool truncate = false;
      uint64_t offset = 0;  // or the new size
      std::string bytes;
    };
    std::vector<Pending> pending;
    uint32_t links = 0;
    int own_handles = 0;
    int foreign_handles = 0;
    bool lease_supported = true;
    bool leased = false;
    bool lease_breaking = false;
  };
  using InodePtr = std::shared_ptr<Inode>;

  explicit MemoryFiles(uint64_t seed = 1) : random_(seed) {
    entries_["/"] = make_inode(port::FileKind::directory);
    durable_ = entries_;
  }

  // --- what a test turns
  std::function<std::optional<Error>(FileOp, const std::string& path)> fault;
  uint64_t capacity = UINT64_MAX;
  uint64_t device = 7;
  bool sync_lies = false;     // File::sync and sync_directory confirm and do nothing
  bool reuse_inodes = false;  // give a new file the number of the last unlinked one
  uint64_t operations = 0;    // changing ones so far
  int64_t clock_ns = 1'790'000'000'000'000'000;

  void crash_at(uint64_t in_operations) { crash_at_ = operations + in_operations; }
  void no_crash() { crash_at_ = UINT64_MAX; }
  void cut_power() {
    for (auto& [path, inode] : all_inodes()) cut_file(*inode);
    cut_names();
    no_crash();
  }
  /// A foreign process opens the file; release() by the returned function.
  std::function<void()> hold(const std::string& path) {
    InodePtr inode = find(path);
    ++inode->foreign_handles;
    if (inode->leased) inode->lease_breaking = true;
    return [inode] { --inode->foreign_handles; };
  }
  InodePtr inode(const std::string& path) { return find(path); }
  /// A producer's append, outside of the code under test: in the page cache, not durable.
  void append(const std::string& path, ByteView bytes) {
    InodePtr inode = find(path);
    if (!inode) {
      make_directories(parent(path)).value();
      inode = link_new(path, port::FileKind::regular);
    }
    put(*inode, inode->bytes.size(), bytes);
  }
  /// The same through a descriptor that the producer holds, whatever became of the name.
  void append(const InodePtr& inode, ByteView bytes) { put(*inode, inode->bytes.size(), bytes); }
  /// A producer's link(2).
  void link(const std::string& from, const std::string& to) {
    InodePtr inode = find(from);
    ++inode->links;
    entries_[to] = inode;
    names_.push_back({"", to, inode, nullptr});
  }
  /// A producer's truncate(2).
  void shrink(const std::string& path, uint64_t size) {
    InodePtr inode = find(path);
    inode->bytes.resize(size);
    inode->pending.push_back({true, size, {}});
    inode->modified_ns = ++clock_ns;
  }
  /// A producer's fsync of a file and of the directories on the way to it. Counts as nobody's operation.
  void make_durable(const std::string& path) {
    if (InodePtr inode = find(path)) {
      inode->durable = inode->bytes;
      inode->pending.clear();
    }
    for (std::string p = path; p != "/"; p = parent(p)) settle_names(parent(p));
  }
  /// What a power cut would leave for certain: path and bytes of each regular file.
  std::vector<std::pair<std::string, ByteView>> durable_files() const {
    std::vector<std::pair<std::string, ByteView>> out;
    for (const auto& [path, inode] : durable_)
      if (inode->kind == port::FileKind::regular) out.emplace_back(path, inode->durable);
    return out;
  }
  std::string content(const std::string& path) {
    InodePtr inode = find(path);
    return inode ? inode->bytes : std::string();
  }
  bool exists(const std::string& path) { return find(path) != nullptr; }
  uint64_t used() const {
    uint64_t sum = 0;
    for (const auto& [path, inode] : entries_) sum += inode->kind == port::FileKind::regular ? inode->bytes.size() : 0;
    return sum;
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> out;
    for (const auto& [path, inode] : entries_) out.push_back(path);
    return out;
  }

  // --- port::Files
  Result<std::unique_ptr<port::File>> open(const std::string& path, port::OpenMode mode) override {
    if (auto f = faulted(FileOp::open, path)) return *f;
    InodePtr inode = find(path);
    if (inode && inode->kind != port::FileKind::regular) return fail(port::file_errors::failed, path + ": not a file");
    if (mode == port::OpenMode::write_new && inode) return fail(port::file_errors::exists, path);
    if (!inode) {
      if (mode == port::OpenMode::read || !is_directory(parent(path))) return fail(port::file_errors::not_found, path);
      if (auto f = changing(FileOp::create, path)) return *f;
      inode = link_new(path, port::FileKind::regular);
    }
    return std::make_unique<MemoryFile>(*this, inode, path);
  }
  Result<std::optional<port::FileStat>> stat(const std::string& path) override {
    if (auto f = faulted(FileOp::stat, path)) return *f;
    InodePtr inode = find(path);
    if (!inode) return std::nullopt;
    return stat_of(*inode);
  }
  Result<std::vector<port::DirectoryEntry>> list(const std::string& path) override {
    if (auto f = faulted(FileOp::list, path)) return *f;
    if (!is_directory(path)) return fail(port::file_errors::not_found, path);
    std::vector<port::DirectoryEntry> out;
    for (const auto& [p, inode] : entries_)
      if (p != "/" && parent(p) == path) out.push_back({p.substr(p.rfind('/') + 1), inode->kind, inode->number});
    return out;
  }
  Result<> make_directories(const std::string& path) override {
    if (path == "/" || is_directory(path)) return {};
    PH_TRY(make_directories(parent(path)));
    if (auto f = changing(FileOp::make_directory, path)) return *f;
    if (find(path)) return fail(port::file_errors::exists, path);
    link_new(path, port::FileKind::directory);
    return {};
  }
  Result<> rename(const std::string& from, const std::string& to) override { return move(from, to, true); }
  Result<> rename_new(const std::string& from, const std::string& to) override { return move(from, to, false); }
  Result<> unlink(const std::string& path) override {
    if (auto f = changing(FileOp::unlink, path)) return *f;
    InodePtr inode = find(path);
    if (!inode || inode->kind == port::FileKind::directory) return fail(port::file_errors::not_found, path);
    remove_name(entries_, path);
    --inode->links;
    last_freed_ = inode->number;
    names_.push_back({path, "", nullptr, inode});
    return {};
  }
  Result<> remove_directory(const std::string& path) override {
    if (auto f = changing(FileOp::unlink, path)) return *f;
    if (!is_directory(path)) return fail(port::file_errors::not_found, path);
    auto next = entries_.upper_bound(path + "/");
    if (next != entries_.end() && next->first.starts_with(path + "/"))
      return fail(port::file_errors::failed, path + ": not empty");
    InodePtr inode = find(path);
    remove_name(entries_, path);
    names_.push_back({path, "", nullptr, inode});
    return {};
  }
  Result<> replace_symlink(const std::string& target, const std::string& link) override {
    if (auto f = changing(FileOp::symlink, link)) return *f;
    if (!is_directory(parent(link))) return fail(port::file_errors::not_found, link);
    InodePtr inode = make_inode(port::FileKind::symlink);
    inode->bytes = inode->durable = target;
    inode->links = 1;
    entries_[link] = inode;
    names_.push_back({"", link, inode, nullptr});
    return {};
  }
  Result<std::string> read_symlink(const std::string& path) override {
    InodePtr inode = find(path);
    if (!inode || inode->kind != port::FileKind::symlink) return fail(port::file_errors::not_found, path);
    return inode->bytes;
  }
  Result<> sync_directory(const std::string& path) override {
    if (auto f = changing(FileOp::sync_directory, path)) return *f;
    if (!is_directory(path)) return fail(port::file_errors::not_found, path);
    if (!sync_lies) settle_names(path);
    return {};
  }
  Result<std::unique_ptr<port::FileSystem>> file_system(const std::string& path) override {
    if (!is_directory(path)) return fail(port::file_errors::not_found, path);
    return std::make_unique<MemoryFileSystem>(*this, path);
  }
  Result<port::DiskSpace> space(const std::string&) override {
    uint64_t u = used();
    return port::DiskSpace{capacity, capacity > u ? capacity - u : 0};
  }

 private:
  struct NameChange {
    std::string from;  // name removed; empty: none
    std::string to;    // name set; empty: none
    InodePtr set;
    InodePtr removed;
  };
  using Names = std::map<std::string, InodePtr>;

  class MemoryFile : public port::File {
   public:
    MemoryFile(MemoryFiles& fs, InodePtr inode, std::string path)
        : fs_(fs), inode_(std::move(inode)), path_(std::move(path)) {
      ++inode_->own_handles;
    }
    ~MemoryFile() override {
      --inode_->own_handles;
      if (has_lease_) inode_->leased = false;
    }
    Result<size_t> read_at(uint64_t offset, char* into, size_t size) override {
      if (auto f = fs_.faulted(FileOp::read, path_)) return *f;
      if (offset >= inode_->bytes.size()) return 0;
      size_t n = std::min<uint64_t>(size, inode_->bytes.size() - offset);
      inode_->bytes.copy(into, n, offset);
      return n;
    }
    Result<> write_at(uint64_t offset, ByteView bytes) override {
      if (fs_.operations + 1 >= fs_.crash_at_) {
        fs_.put(*inode_, offset, bytes.substr(0, fs_.random_.below(bytes.size() + 1)));
        ++fs_.operations;
        throw SimulatedCrash{};
      }
      if (auto f = fs_.changing(FileOp::write, path_)) return *f;
      uint64_t grow = offset + bytes.size() > inode_->bytes.size() ? offset + bytes.size() - inode_->bytes.size() : 0;
      uint64_t used = fs_.used();
      if (used + grow > fs_.capacity) {
        uint64_t fits = fs_.capacity > used ? fs_.capacity - used : 0;
        fs_.put(*inode_, offset, bytes.substr(0, std::min<uint64_t>(fits, bytes.size())));
        return fail(port::file_errors::no_space, path_);
      }
      fs_.put(*inode_, offset, bytes);
      return {};
    }
    Result<> sync() override {
      if (auto f = fs_.changing(FileOp::sync, path_)) return *f;
      if (fs_.sync_lies) return {};
      for (const auto& p : inode_->pending) fold(inode_->durable, p, p.bytes.size());
      inode_->pending.clear();
      return {};
    }
    Result<> truncate(uint64_t size) override {
      if (auto f = fs_.changing(FileOp::truncate, path_)) return *f;
      inode_->bytes.resize(size);
      inode_->pending.push_back({true, size, {}});
      return {};
    }
    Result<port::FileStat> stat() override {
      if (auto f = fs_.faulted(FileOp::stat, path_)) return *f;
      return fs_.stat_of(*inode_);
    }
    port::Lease take_lease() override {
      if (!inode_->lease_supported) return port::Lease::unsupported;
      if (inode_->foreign_handles > 0 || inode_->own_handles > 1) return port::Lease::held;
      inode_->leased = has_lease_ = true;
      inode_->lease_breaking = false;
      return port::Lease::granted;
    }
    bool lease_intact() override { return has_lease_ && inode_->leased && !inode_->lease_breaking; }
    void release_lease() override {
      if (has_lease_) inode_->leased = false;
      has_lease_ = false;
    }

   private:
    MemoryFiles& fs_;
    InodePtr inode_;
    std::string path_;
    bool has_lease_ = false;
  };

  class MemoryFileSystem : public port::FileSystem {
   public:
    MemoryFileSystem(MemoryFiles& fs, std::string path) : fs_(fs), path_(std::move(path)) {}
    Result<> sync() override {
      if (auto f = fs_.changing(FileOp::sync_all, path_)) return *f;
      if (fs_.sync_lies) return {};
      for (auto& [path, inode] : fs_.all_inodes()) {
        inode->durable = inode->bytes;
        inode->pending.clear();
      }
      for (NameChange& c : fs_.names_) apply(fs_.durable_, c);
      fs_.names_.clear();
      return {};
    }

   private:
    MemoryFiles& fs_;
    std::string path_;
  };

  static std::string parent(const std::string& path) {
    size_t slash = path.rfind('/');
    return slash == 0 ? "/" : path.substr(0, slash);
  }
  InodePtr make_inode(port::FileKind kind) {
    auto inode = std::make_shared<Inode>();
    inode->kind = kind;
    bool reuse = reuse_inodes && last_freed_ && kind == port::FileKind::regular;
    if (reuse) settle_removal(last_freed_);
    inode->number = reuse ? std::exchange(last_freed_, 0) : ++serial_;
    inode->birth_ns = inode->modified_ns = ++clock_ns;
    return inode;
  }
  InodePtr link_new(const std::string& path, port::FileKind kind) {
    InodePtr inode = make_inode(kind);
    inode->links = 1;
    entries_[path] = inode;
    names_.push_back({"", path, inode, nullptr});
    return inode;
  }
  InodePtr find(const std::string& path) const {
    auto it = entries_.find(path);
    return it == entries_.end() ? nullptr : it->second;
  }
  bool is_directory(const std::string& path) const {
    InodePtr inode = find(path);
    return inode && inode->kind == port::FileKind::directory;
  }
  port::FileStat stat_of(const Inode& i) const {
    return {i.kind, device, i.number, i.birth_ns, i.modified_ns, i.bytes.size(), i.links, i.owner};
  }
  void put(Inode& inode, uint64_t offset, ByteView bytes) {
    Inode::Pending p{false, offset, std::string(bytes)};
    fold(inode.bytes, p, bytes.size());
    inode.pending.push_back(std::move(p));
    inode.modified_ns = ++clock_ns;
  }
  static void fold(std::string& into, const Inode::Pending& p, size_t count) {
    if (p.truncate) {
      into.resize(p.offset);
      return;
    }
    if (into.size() < p.offset + count) into.resize(p.offset + count);
    into.replace(p.offset, count, p.bytes, 0, count);
  }
  void cut_file(Inode& inode) {
    for (const auto& p : inode.pending) {
      uint64_t luck = random_.below(4);
      if (p.truncate) {
        if (luck < 2) inode.durable.resize(p.offset);
      } else if (luck < 2) {
        fold(inode.durable, p, p.bytes.size());
      } else if (luck == 2) {  // some whole sectors of it
        uint64_t until = (p.offset + random_.below(p.bytes.size() + 1)) / 512 * 512;
        if (until > p.offset) fold(inode.durable, p, until - p.offset);
      }
    }
    inode.pending.clear();
    inode.bytes = inode.durable;
    inode.own_handles = inode.foreign_handles = 0;
    inode.leased = inode.lease_breaking = false;
  }
  void cut_names() {
    std::map<std::string, bool> lost;  // directories whose changes from here on are gone
    auto gone = [&](const std::string& name) {
      if (name.empty()) return true;
      auto [it, fresh] = lost.try_emplace(parent(name), false);
      if (!it->second && random_.chance(0.4)) it->second = true;
      return it->second;
    };
    for (NameChange& c : names_) {
      bool from_gone = gone(c.from), to_gone = gone(c.to);
      if (from_gone && to_gone) continue;
      apply(durable_, c);
    }
    names_.clear();
    last_freed_ = 0;
    // A name whose directory was lost is lost with it.
    for (auto it = durable_.begin(); it != durable_.end();) {
      if (it->first != "/" && !durable_.contains(parent(it->first)))
        it = durable_.erase(it);
      else
        ++it;
    }
    entries_ = durable_;
    for (auto& [path, inode] : entries_) inode->links = 0;
    for (auto& [path, inode] : entries_) ++inode->links;
  }
  std::vector<std::pair<std::string, InodePtr>> all_inodes() {
    std::map<Inode*, std::pair<std::string, InodePtr>> all;
    for (auto& e : entries_) all[e.second.get()] = e;
    for (auto& e : durable_) all[e.second.get()] = e;
    std::vector<std::pair<std::string, InodePtr>> out;
    for (auto& [key, e] : all) out.push_back(e);
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second->number < b.second->number; });
    return out;
  }
  void settle_names(const std::string& directory) {
    std::vector<NameChange> rest;
    for (NameChange& c : names_) {
      if ((!c.from.empty() && parent(c.from) == directory) || (!c.to.empty() && parent(c.to) == directory))
        apply(durable_, c);
      else
        rest.push_back(std::move(c));
    }
    names_ = std::move(rest);
  }
  /// A file system gives a number to another file only when no power cut can bring the first one back: its journal up
  /// to there is written.
  void settle_removal(uint64_t number) {
    auto removal = std::find_if(names_.rbegin(), names_.rend(), [number](const NameChange& c) {
      return c.to.empty() && c.removed && c.removed->number == number;
    });
    for (auto c = names_.begin(); c != removal.base(); ++c) apply(durable_, *c);
    names_.erase(names_.begin(), removal.base());
  }
  static void remove_name(Names& names, const std::string& path) { names.erase(path); }
  static void apply(Names& names, const NameChange& c) {
    if (!c.from.empty()) {
      names.erase(c.from);
      move_children(names, c.from, c.to);
    }
    if (!c.to.empty() && c.set) names[c.to] = c.set;
  }
  static void move_children(Names& names, const std::string& from, const std::string& to) {
    std::vector<std::pair<std::string, InodePtr>> moved;
    for (auto it = names.lower_bound(from + "/"); it != names.end() && it->first.starts_with(from + "/");) {
      if (!to.empty()) moved.emplace_back(to + it->first.substr(from.size()), it->second);
      it = names.erase(it);
    }
    for (auto& m : moved) names.insert(std::move(m));
  }
  Result<> move(const std::string& from, const std::string& to, bool replace) {
    if (auto f = changing(FileOp::rename, from)) return *f;
    InodePtr inode = find(from);
    if (!inode || !is_directory(parent(to))) return fail(port::file_errors::not_found, from);
    InodePtr old = find(to);
    if (old && !replace) return fail(port::file_errors::exists, to);
    if (old && old != inode) --old->links;
    NameChange change{from, to, inode, old};
    apply(entries_, change);
    names_.push_back(std::move(change));
    return {};
  }
  std::optional<std::unexpected<Error>> faulted(FileOp op, const std::string& path) {
    if (!fault) return std::nullopt;
    auto error = fault(op, path);
    if (!error) return std::nullopt;
    return std::unexpected<Error>(*error);
  }
  std::optional<std::unexpected<Error>> changing(FileOp op, const std::string& path) {
    if (++operations >= crash_at_) throw SimulatedCrash{};
    return faulted(op, path);
  }

  Random random_;
  Names entries_;
  Names durable_;
  std::vector<NameChange> names_;  // not yet durable, in order
  uint64_t serial_ = 100;
  uint64_t last_freed_ = 0;
  uint64_t crash_at_ = UINT64_MAX;
};

}  // namespace ph::test
