// A files sink over a file system, a store and a clock that a test controls, with what crashes do to them, and a
// consumer as LSD's users wrote them. For tests of this room only.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "store/chunk/chunk_name.h"
#include "store/chunk/files_sink.h"
#include "store/chunk/unpacked.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::chunk {

inline event::Block lines_block(std::string category, std::string lines) {
  event::Block b;
  b.category = std::move(category);
  b.events = count_newlines(lines);
  b.id.last = lines.size();
  b.payload = Slice(std::move(lines));
  return b;
}

class SinkFixture {
 public:
  explicit SinkFixture(uint64_t seed = 1) : files(seed), random_(seed * 31 + 7) {
    log_configure(LogLevel::off, false);
    options.directory = "/srv/events";
    options.state_directory = "/data/files";
    options.utc = true;
    start();
    wall(1'783'936'800'000);  // 2026-07-13 10:00:00 UTC
  }
  ~SinkFixture() { stop(); }

  FilesSinkOptions options;
  test::MemoryFiles files;
  test::MemoryStore store;
  std::unique_ptr<test::ManualLoop> loop;
  std::unique_ptr<test::ManualDisk> disk;
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<commit::DiskFloor> floor;
  std::unique_ptr<FilesSink> sink;
  uint64_t disk_reserve = 0;  // 0: none
  std::string start_error;

  bool start() {
    WallTime last = loop ? loop->wall_now() : WallTime{};
    loop = std::make_unique<test::ManualLoop>();
    loop->set_wall(last);
    disk = std::make_unique<test::ManualDisk>(*loop);
    committer = std::make_unique<commit::Committer>(*loop, *disk, store);
    if (disk_reserve > 0) floor = std::make_unique<commit::DiskFloor>(*loop, files, options.directory, disk_reserve);
    options.floor = floor.get();
    auto opened = FilesSink::open(options, *loop, files, store, *committer);
    start_error = opened ? "" : opened.error().to_string();
    if (opened) sink = std::move(*opened);
    if (opened) loop->run_posted();
    return opened.has_value();
  }
  /// The process ends, at whatever point it is: the page cache stays.
  void stop() {
    sink.reset();
    committer.reset();
    disk.reset();
  }
  void restart() {
    stop();
    start();
  }
  void cut_power() {
    stop();
    files.cut_power();
    store.cut_power(random_);
  }

  /// The n-th changing operation of the sink from now on crashes; a consumer's own do not count.
  void crash_after(uint64_t operations) {
    crash_at_ = files.operations + operations;
    files.crash_at(operations);
  }
  void no_crash() {
    crash_at_ = 0;
    files.no_crash();
  }

  void wall(int64_t unix_ms) { loop->set_wall(from_unix_ms(unix_ms)); }
  void advance(Duration by) { loop->advance(by); }

  /// Appends and runs to the end of the commit; the outcome's code, "ok" when durable, "waiting" while the store
  /// refuses.
  std::string write(std::vector<event::Block> blocks) {
    auto outcome = std::make_shared<std::string>("waiting");
    port::WriteBatch entries;
    entries.put("test/" + std::to_string(batch_), "");
    for (const auto& b : blocks) {
      if (auto why = sink->refuses(b.category); !why.empty()) return std::string(why);
      sink->append(b);
    }
    committer->request({sink.get()}, std::move(entries),
                       [outcome](const Result<>& r) { *outcome = r ? "ok" : std::string(r.error().code.name()); });
    ++batch_;
    loop->run_posted();
    if (*outcome == "waiting" && heals_store) {
      store.fail_writes = false;
      advance(2s);
    }
    return *outcome;
  }
  bool heals_store = false;  // write() lets the store take what it refused, and waits for it
  std::string write(const std::string& category, const std::string& lines) {
    return write({lines_block(category, lines)});
  }
  /// Whether the n-th write() is durable, as the store knows after a restart.
  bool is_stored(size_t batch) { return store.get("test/" + std::to_string(batch))->has_value(); }
  size_t batches() const { return batch_; }

  /// "name=size" for each entry of the category's directory, and "-> target" for the link.
  std::string listing(const std::string& category) {
    std::string directory = options.directory + "/" + category, out;
    for (const std::string& path : files.paths()) {
      if (!path.starts_with(directory + "/")) continue;
      auto inode = files.inode(path);
      std::string name = path.substr(directory.size() + 1);
      if (!out.empty()) out += '\n';
      out += inode->kind == port::FileKind::symlink ? name + " -> " + inode->bytes
                                                    : name + " " + std::to_string(inode->bytes.size());
    }
    return out;
  }
  std::string file(const std::string& category, const std::string& name) {
    return files.content(options.directory + "/" + category + "/" + name);
  }
  std::string link(const std::string& category) { return file(category, category + "_current"); }

  /// What a consumer does: everything whose name sorts below the link's target is read and deleted, durably.
  std::string consume(const std::string& category, std::vector<std::string>* names = nullptr) {
    std::string directory = options.directory + "/" + category, out, target = link(category);
    std::vector<std::string> taken;
    for (const std::string& path : files.paths()) {
      if (!path.starts_with(directory + "/")) continue;
      std::string name = path.substr(directory.size() + 1);
      if (parse_file_name(category, name) && name < target) taken.push_back(name);
    }
    std::sort(taken.begin(), taken.end());
    uint64_t before = files.operations;
    auto fault = std::exchange(files.fault, nullptr);
    files.no_crash();
    for (const std::string& name : taken) {
      out += unpacked(compression_of(name), file(category, name)).value_or("<not whole>");
      files.unlink(directory + "/" + name).value();
    }
    if (!taken.empty()) files.sync_directory(directory).value();
    files.fault = std::move(fault);
    if (crash_at_) files.crash_at((crash_at_ += files.operations - before) - files.operations);
    if (names) names->insert(names->end(), taken.begin(), taken.end());
    return out;
  }
  std::vector<std::string> cut_files() {
    std::vector<std::string> out;
    for (const std::string& path : files.paths())
      if (path.starts_with(options.state_directory + "/cut/")) out.push_back(path);
    return out;
  }

 private:
  Random random_;
  size_t batch_ = 0;
  uint64_t crash_at_ = 0;
};

}  // namespace ph::chunk
