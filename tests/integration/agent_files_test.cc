// The agent over the kernel's own files: inotify, leases, renames, and producers that do not know of it.

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "codec/event/block.h"
#include "io/disk_queue.h"
#include "io/inotify.h"
#include "io/loop.h"
#include "io/posix_files.h"
#include "service/agent/agent.h"
#include "support/memory_store.h"

namespace ph::agent {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "posthouse-agent-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path = pattern;
    fs::permissions(path, fs::perms::all);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  /// Regular files below, hidden ones too.
  size_t files() const {
    size_t count = 0;
    for (const auto& e : fs::recursive_directory_iterator(path)) count += e.is_regular_file();
    return count;
  }
  std::string path;
};

/// An open file of a producer.
class Writer {
 public:
  explicit Writer(const std::string& path)
      : fd_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
    EXPECT_GE(fd_, 0) << path;
  }
  ~Writer() { close(); }
  void write(std::string_view bytes) {
    EXPECT_EQ(::write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};
void append(const std::string& path, std::string_view bytes) {
  Writer(path).write(bytes);
}

struct NoDeadLetters : port::DeadLetters {
  Result<> append(const std::vector<port::DeadLetter>&) override { return fail("test.unexpected", ""); }
};

/// An agent on a real loop whose only target takes everything at once.
class Running {
 public:
  explicit Running(const Folder& folder, std::function<void(AgentOptions&)> change = {}) : disk_(loop_) {
    AgentOptions o;
    o.directory = folder.path;
    o.routes = {{"all", {{"fra", false}}}};
    o.route_of = [](std::string_view) { return std::optional<size_t>(0); };
    o.rotate_age = 300ms;
    o.flush = 50ms;
    if (change) change(o);
    auto opened = Agent::open(
        std::move(o), loop_, disk_, files_,
        [this](port::WatchFn notify) -> Result<std::unique_ptr<port::Watcher>> {
          return io::IoWatcher::make(loop_, std::move(notify));
        },
        store_, letters_, loop_.random().node_id());
    EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().to_string());
    agent = std::move(*opened);
    source_ = agent->sources().at(0);
    source_->on_ready([this] { pull(); });
    agent->start();
  }
  ~Running() {
    bool stopped = false;
    agent->stop([&stopped] { stopped = true; });
    EXPECT_TRUE(loop_.run_until([&stopped] { return stopped; }, 10s));
    agent.reset();
  }
  bool until(const std::function<bool()>& done, Duration bound = 20s) { return loop_.run_until(done, bound); }
  void pass(Duration time) {
    (void)loop_.run_until([] { return false; }, time);
  }
  std::vector<std::string> lines;
  std::unique_ptr<Agent> agent;

 private:
  void pull() {
    while (auto batch = source_->next(256 * 1024)) {
      Reader in(batch->packed.view());
      in.varint();
      auto block = event::decode(Slice(std::string(in.sized())));
      ASSERT_TRUE(block.has_value());
      std::string_view rest = block->payload.view();
      while (!rest.empty()) {
        size_t nl = rest.find('\n');
        lines.emplace_back(rest.substr(0, nl));
        rest.remove_prefix(nl + 1);
      }
      source_->will_use(batch->stream, "fra", [this, s = batch->stream, last = batch->last, n = batch->events] {
        source_->advanced(s, last, n, 0);
      });
    }
  }
  io::IoLoop loop_;
  io::PosixFiles files_;
  test::MemoryStore store_;
  NoDeadLetters letters_;
  io::IoDiskQueue disk_;  // ends before what its thread works on
  port::EventSource* source_ = nullptr;
};

bool is_root() {
  return ::geteuid() == 0;
}

TEST(AgentFiles, lines_are_read_rotated_and_their_file_deleted) {
  Folder folder;
  Running r(folder);
  append(folder / "x.log", "one\ntwo\n");
  fs::create_directory(folder / "cat");
  append(folder / "cat/202401010000.log", "three\n");
  EXPECT_TRUE(r.until([&] { return r.lines.size() == 3; }, 2s));
  EXPECT_TRUE(r.until([&] { return folder.files() == 0; }));
  EXPECT_EQ(r.agent->stats().deleted, 2u);
  append(folder / "x.log", "four\n");
  EXPECT_TRUE(r.until([&] { return r.lines.size() == 4; }, 2s));
}

// The positive twin of F6: with CAP_LEASE (or as the file's owner) the proof exists.
TEST(AgentFiles, a_held_file_is_deleted_when_its_writer_closes_it) {
  Folder folder;
  Running r(folder);
  Writer writer(folder / "x.log");
  if (is_root()) {
    ASSERT_EQ(::chown((folder / "x.log").c_str(), 12345, 12345), 0);
  }
  writer.write("one\n");
  EXPECT_TRUE(r.until([&] { return !fs::exists(folder / "x.log"); }));
  writer.write("two\nthr");
  EXPECT_TRUE(r.until([&] { return r.lines.size() == 2; }, 5s));
  r.pass(3s);
  EXPECT_EQ(folder.files(), 1u);
  writer.write("ee");
  writer.close();
  EXPECT_TRUE(r.until([&] { return folder.files() == 0; }));
  EXPECT_EQ(r.lines, (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(r.agent->stats().newline_added, 1u);
}

TEST(AgentFiles, f6_without_privilege_another_users_file_is_never_deleted_and_the_status_says_why) {
  if (!is_root()) GTEST_SKIP() << "needs to become two users";
  Folder folder;
  Writer writer(folder / "x.log");
  ASSERT_EQ(::chown((folder / "x.log").c_str(), 12345, 12345), 0);
  writer.write("one\n");
  for (bool held : {true, false}) {
    if (!held) writer.close();
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(10);
      int code = 0;
      {
        Running r(folder);
        if (!r.until([&] { return r.agent->stats().rotated_waiting == 1 && r.lines.size() == 1; })) code = 11;
        r.pass(4s);
        append(folder / "own.log", "mine\n");  // others go on
        if (!r.until([&] { return r.agent->stats().deleted == 1; })) code = 12;
        auto said = [&] {
          auto staying = r.agent->stats().staying;
          return staying.size() == 1 && staying[0].reason.find("no proof") != std::string::npos;
        };
        if (!r.until(said)) code = 13;
      }
      ::_exit(testing::Test::HasFailure() ? 14 : code);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "held " << held;
    EXPECT_EQ(folder.files(), 1u);
  }
}

TEST(AgentFiles, what_is_no_regular_file_is_neither_opened_nor_followed) {
  Folder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo.log").c_str(), 0644), 0);
  fs::create_symlink("/etc/passwd", folder / "passwd.log");
  Running r(folder);
  append(folder / "x.log", "one\n");
  EXPECT_TRUE(r.until([&] { return r.lines.size() == 1; }, 2s));
  r.pass(1s);
  EXPECT_EQ(r.lines.size(), 1u);
}

TEST(AgentFiles, copy_truncate_and_inode_reuse_are_told_apart) {
  Folder folder;
  Running r(folder, [](AgentOptions& o) { o.rotate_age = 1h; });
  for (int i = 0; i < 20; ++i) {
    append(folder / "x.log", "round " + std::to_string(i) + " of the same beginning\n");
    ASSERT_TRUE(r.until([&] { return r.lines.size() == static_cast<size_t>(i) + 1; }, 5s)) << i;
    if (i % 2) {
      ASSERT_EQ(::truncate((folder / "x.log").c_str(), 0), 0);
    } else {
      fs::remove(folder / "x.log");
    }
  }
  EXPECT_EQ(r.lines[19], "round 19 of the same beginning");
}

long peak_kib() {
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(AgentFiles, f9_an_endless_line_of_200_mib_costs_no_memory_and_the_next_file_is_delivered) {
  Folder folder;
  {
    Writer endless(folder / "endless.log");
    std::string megabyte(1 << 20, 'e');
    for (int i = 0; i < 200; ++i) endless.write(megabyte);
  }
  long before = peak_kib();
  Running r(folder, [](AgentOptions& o) { o.oversize = Oversize::truncate; });
  append(folder / "next.log", "next\n");
  EXPECT_TRUE(r.until([&] { return r.lines.size() == 2 && folder.files() == 0; }));
  ASSERT_EQ(r.lines.size(), 2u);
  EXPECT_EQ(r.lines[0].size() + r.lines[1].size(), (1u << 20) + 4);
  EXPECT_EQ(r.agent->stats().oversize_bytes, 199u << 20);
  EXPECT_LT(peak_kib() - before, 32 * 1024);
}

// Writers that open by path, append and close, as LSD's do, against rotation and deletion as fast as they can come:
// the openers that meet a lease, a rename or an unlink lose nothing.
TEST(AgentFiles, writers_by_path_lose_nothing_while_files_are_rotated_and_deleted) {
  Folder folder;
  constexpr int kWriters = 3;
  constexpr auto kTime = 6s;
  std::atomic<bool> stop{false};
  std::vector<int> written(kWriters, 0);
  std::vector<std::thread> threads;
  Running r(folder, [](AgentOptions& o) {
    o.rotate_bytes = 200;
    o.rotate_age = 10ms;
  });
  for (int w = 0; w < kWriters; ++w)
    threads.emplace_back([&, w] {
      std::string path = folder / ("w" + std::to_string(w % 2) + ".log");
      while (!stop) {
        append(path, std::to_string(w) + ":" + std::to_string(written[static_cast<size_t>(w)]++) + "\n");
        std::this_thread::sleep_for(200us);
      }
    });
  r.pass(kTime);
  stop = true;
  for (auto& t : threads) t.join();
  size_t total = 0;
  for (int n : written) total += static_cast<size_t>(n);
  EXPECT_TRUE(r.until([&] { return r.lines.size() >= total && folder.files() == 0; }, 30s));
  std::set<std::string> unique(r.lines.begin(), r.lines.end());
  EXPECT_EQ(unique.size(), total);
  EXPECT_EQ(r.lines.size(), total);
  EXPECT_GT(r.agent->stats().deleted, 10u);
  RecordProperty("deleted", static_cast<int>(r.agent->stats().deleted));
}

}  // namespace
}  // namespace ph::agent
