#include "io/posix_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "io/inotify.h"
#include "io/test_files.h"
#include "io/test_network.h"

namespace ph::io {
namespace {

using port::OpenMode;

class Files : public testing::Test {
 protected:
  std::unique_ptr<port::File> open(const std::string& name, OpenMode mode) {
    auto file = files.open(dir / name, mode);
    EXPECT_TRUE(file.has_value()) << file.error().to_string();
    return file ? std::move(*file) : nullptr;
  }
  TemporaryDirectory dir;
  PosixFiles files;
};

TEST_F(Files, writes_and_reads_at_offsets) {
  auto file = open("f", OpenMode::write_create);
  EXPECT_TRUE(file->write_at(3, "defg").has_value());
  EXPECT_TRUE(file->write_at(0, "abc").has_value());
  EXPECT_TRUE(file->sync().has_value());
  char buffer[16];
  EXPECT_EQ(file->read_at(1, buffer, 3).value(), 3u);
  EXPECT_EQ(std::string(buffer, 3), "bcd");
  EXPECT_EQ(file->read_at(5, buffer, 16).value(), 2u) << "short only at the end";
  EXPECT_EQ(file->read_at(100, buffer, 16).value(), 0u);
  EXPECT_TRUE(file->truncate(2).has_value());
  EXPECT_EQ(read_file(dir / "f"), "ab");
  auto again = open("f", OpenMode::write_create);
  EXPECT_EQ(again->stat()->size, 2u) << "write_create keeps what is there";
}

TEST_F(Files, descriptors_are_closed_on_exec_and_new_files_are_0640) {
  auto file = open("f", OpenMode::write_new);
  struct stat found{};
  ASSERT_EQ(::stat((dir / "f").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u & ~static_cast<unsigned>(::umask(::umask(0))));
  int leaking = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (gone || !target.string().starts_with(dir.path())) continue;
    int flags = ::fcntl(std::stoi(entry.path().filename().string()), F_GETFD);
    if (!(flags & FD_CLOEXEC)) ++leaking;
  }
  EXPECT_EQ(leaking, 0);
}

TEST_F(Files, open_modes_refuse_what_they_must) {
  EXPECT_EQ(files.open(dir / "none", OpenMode::read).error().code, port::file_errors::not_found);
  write_file(dir / "here", "x");
  EXPECT_EQ(files.open(dir / "here", OpenMode::write_new).error().code, port::file_errors::exists);
  ASSERT_EQ(::symlink("here", (dir / "link").c_str()), 0);
  EXPECT_FALSE(files.open(dir / "link", OpenMode::read).has_value()) << "a producer's link is not followed";
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  auto fifo = files.open(dir / "fifo", OpenMode::read);  // returns at once although nobody writes
  ASSERT_TRUE(fifo.has_value());
  EXPECT_EQ((*fifo)->stat()->kind, port::FileKind::other);
}

TEST_F(Files, tells_the_identity_of_a_file) {
  auto file = open("f", OpenMode::write_create);
  ASSERT_TRUE(file->write_at(0, "12345").has_value());
  auto by_name = files.stat(dir / "f");
  ASSERT_TRUE(by_name.has_value() && by_name->has_value());
  auto by_descriptor = file->stat();
  struct stat raw{};
  ASSERT_EQ(::stat((dir / "f").c_str(), &raw), 0);
  for (const auto& s : {**by_name, *by_descriptor}) {
    EXPECT_EQ(s.kind, port::FileKind::regular);
    EXPECT_EQ(s.device, raw.st_dev);
    EXPECT_EQ(s.inode, raw.st_ino);
    EXPECT_EQ(s.size, 5u);
    EXPECT_EQ(s.links, 1u);
    EXPECT_EQ(s.owner, ::getuid());
    EXPECT_EQ(s.modified_ns, raw.st_mtim.tv_sec * 1'000'000'000 + raw.st_mtim.tv_nsec);
  }
  EXPECT_EQ(by_name->value().birth_ns, by_descriptor->birth_ns);
  ASSERT_TRUE(files.unlink(dir / "f").has_value());
  EXPECT_EQ(file->stat()->links, 0u);
  EXPECT_EQ(files.stat(dir / "f").value(), std::nullopt);
  EXPECT_EQ(files.stat(dir / "no/such").value(), std::nullopt);
}

TEST_F(Files, lists_a_directory) {
  write_file(dir / "file", "");
  ASSERT_TRUE(files.make_directories(dir / "sub").has_value());
  ASSERT_EQ(::symlink("file", (dir / "link").c_str()), 0);
  auto listed = files.list(dir.path());
  ASSERT_TRUE(listed.has_value());
  std::ranges::sort(*listed, {}, &port::DirectoryEntry::name);
  ASSERT_EQ(listed->size(), 3u);
  EXPECT_EQ((*listed)[0].name, "file");
  EXPECT_EQ((*listed)[0].kind, port::FileKind::regular);
  EXPECT_EQ((*listed)[0].inode, files.stat(dir / "file")->value().inode);
  EXPECT_EQ((*listed)[1].kind, port::FileKind::symlink);
  EXPECT_EQ((*listed)[2].kind, port::FileKind::directory);
  EXPECT_EQ(files.list(dir / "none").error().code, port::file_errors::not_found);
}

TEST_F(Files, makes_directories_with_parents_and_is_content_with_what_is_there) {
  EXPECT_TRUE(files.make_directories(dir / "a/b/c").has_value());
  EXPECT_TRUE(files.make_directories(dir / "a/b/c").has_value());
  EXPECT_TRUE(files.make_directories(dir / "a/b/d/").has_value());
  ASSERT_EQ(::symlink("a", (dir / "to_a").c_str()), 0);
  EXPECT_TRUE(files.make_directories(dir / "to_a/e").has_value());
  EXPECT_TRUE(files.make_directories(dir / "to_a").has_value());
  write_file(dir / "file", "");
  EXPECT_FALSE(files.make_directories(dir / "file").has_value());
  EXPECT_FALSE(files.make_directories(dir / "file/sub").has_value());
  EXPECT_TRUE(files.sync_directory(dir / "a/b").has_value());
  EXPECT_TRUE(files.remove_directory(dir / "a/b/c").has_value());
  EXPECT_EQ(files.remove_directory(dir / "a").error().code, port::file_errors::exists);
}

TEST_F(Files, rename_new_never_replaces) {
  write_file(dir / "from", "new");
  write_file(dir / "to", "old");
  EXPECT_EQ(files.rename_new(dir / "from", dir / "to").error().code, port::file_errors::exists);
  EXPECT_EQ(read_file(dir / "to"), "old");
  EXPECT_TRUE(files.rename_new(dir / "from", dir / "other").has_value());
  EXPECT_TRUE(files.rename(dir / "other", dir / "to").has_value());
  EXPECT_EQ(read_file(dir / "to"), "new");
  EXPECT_EQ(files.rename_new(dir / "from", dir / "x").error().code, port::file_errors::not_found);
}

TEST_F(Files, replaces_a_symlink_in_one_step_also_after_a_crash_in_between) {
  EXPECT_TRUE(files.replace_symlink("one", dir / "_current").has_value());
  EXPECT_EQ(files.read_symlink(dir / "_current").value(), "one");
  ASSERT_EQ(::symlink("stale", (dir / "_current.new").c_str()), 0);
  EXPECT_TRUE(files.replace_symlink("two", dir / "_current").has_value());
  EXPECT_EQ(files.read_symlink(dir / "_current").value(), "two");
  EXPECT_EQ(files.list(dir.path())->size(), 1u);
  EXPECT_EQ(files.read_symlink(dir / "none").error().code, port::file_errors::not_found);
}

TEST_F(Files, tells_free_space) {
  auto space = files.space(dir.path());
  ASSERT_TRUE(space.has_value());
  EXPECT_GT(space->total, 0u);
  EXPECT_LE(space->available, space->total);
}

TEST_F(Files, a_full_disk_has_its_own_code) {
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "cannot mount a tmpfs";
  {
    auto file = open("f", OpenMode::write_create);
    auto written = file->write_at(0, std::string(1'000'000, 'x'));
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code, port::file_errors::no_space);
    EXPECT_EQ(written.error().os_error, ENOSPC);
    EXPECT_NE(written.error().detail.find("/f"), std::string::npos);
    EXPECT_TRUE(file->truncate(0).has_value());
    EXPECT_TRUE(file->write_at(0, "fits again").has_value());
  }
  EXPECT_EQ(::umount(dir.path().c_str()), 0);
}

// --- leases

TEST_F(Files, a_lease_proves_that_nobody_else_has_the_file_open) {
  write_file(dir / "f", "x");
  auto file = open("f", OpenMode::read);
  auto lease = file->take_lease();
  if (lease == port::Lease::unsupported) GTEST_SKIP() << "no leases on this file system";
  ASSERT_EQ(lease, port::Lease::granted);
  EXPECT_TRUE(file->lease_intact());
  file->release_lease();
  EXPECT_FALSE(file->lease_intact());
}

TEST_F(Files, no_lease_while_any_other_descriptor_is_open) {
  write_file(dir / "f", "x");
  auto file = open("f", OpenMode::read);
  for (int flags : {O_RDONLY, O_WRONLY | O_APPEND}) {
    int other = ::open((dir / "f").c_str(), flags | O_CLOEXEC);
    ASSERT_GE(other, 0);
    auto lease = file->take_lease();
    if (lease == port::Lease::unsupported) GTEST_SKIP() << "no leases on this file system";
    EXPECT_EQ(lease, port::Lease::held);
    ::close(other);
  }
  EXPECT_EQ(file->take_lease(), port::Lease::granted);
}

TEST_F(Files, an_opener_in_another_process_breaks_the_lease_and_harms_nobody) {
  write_file(dir / "f", "x");
  std::signal(SIGIO, SIG_DFL);  // the default would end us if the lease announced itself by it
  auto file = open("f", OpenMode::read);
  auto lease = file->take_lease();
  if (lease == port::Lease::unsupported) GTEST_SKIP() << "no leases on this file system";
  ASSERT_EQ(lease, port::Lease::granted);
  std::string path = dir / "f";
  pid_t writer = ::fork();
  ASSERT_GE(writer, 0);
  if (writer == 0) {
    int opened = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);  // waits until the lease is given up
    ::_exit(opened >= 0 && ::write(opened, "line", 4) == 4 ? 0 : 1);
  }
  // The kernel waits up to lease-break-time (45 s); we look until we see the opener.
  IoLoop loop;
  auto look = loop.make_timer();
  std::function<void()> again = [&] { look->start(1ms, [&] { again(); }); };
  again();
  bool broken = loop.run_until([&] { return !file->lease_intact(); }, kTestBound);
  EXPECT_TRUE(broken);
  file->release_lease();
  int status = 0;
  ASSERT_EQ(::waitpid(writer, &status, 0), writer);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(file->stat()->size, 5u) << "its line is in the file that we kept";
}

TEST_F(Files, no_lease_on_a_file_system_that_cannot_prove_it) {
  auto file = files.open("/proc/self/status", OpenMode::read);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ((*file)->take_lease(), port::Lease::unsupported);
}

// --- inotify

struct Watched {
  explicit Watched(IoLoop& loop) {
    auto made = IoWatcher::make(loop, [this](const std::vector<port::Watcher::Event>& events) {
      for (const auto& e : events) seen.push_back(e);
    });
    EXPECT_TRUE(made.has_value());
    watcher = std::move(*made);
  }
  bool saw(const std::string& directory, const std::string& name) const {
    return std::ranges::any_of(seen, [&](const auto& e) { return e.directory == directory && e.name == name; });
  }
  std::vector<port::Watcher::Event> seen;
  std::unique_ptr<IoWatcher> watcher;
};

TEST_F(Files, watcher_tells_where_something_changed) {
  IoLoop loop;
  Watched watched(loop);
  ASSERT_TRUE(watched.watcher->add(dir.path()).has_value());
  write_file(dir / "a", "line\n");
  PH_EXPECT_SOON(loop, watched.saw(dir.path(), "a"));
  EXPECT_EQ(std::ranges::count_if(watched.seen, [](const auto& e) { return e.name == "a"; }), 1)
      << "create, write and close in one read are told once";
  watched.seen.clear();
  ASSERT_TRUE(files.rename(dir / "a", dir / "b").has_value());
  PH_EXPECT_SOON(loop, watched.saw(dir.path(), "a") && watched.saw(dir.path(), "b"));
  watched.seen.clear();
  ASSERT_TRUE(files.unlink(dir / "b").has_value());
  PH_EXPECT_SOON(loop, watched.saw(dir.path(), "b"));
}

TEST_F(Files, watcher_tells_when_a_directory_goes_and_can_watch_its_successor) {
  IoLoop loop;
  Watched watched(loop);
  EXPECT_EQ(watched.watcher->add(dir / "sub").error().code, port::file_errors::not_found);
  for (bool moved : {false, true}) {
    ASSERT_TRUE(files.make_directories(dir / "sub").has_value());
    ASSERT_TRUE(watched.watcher->add(dir / "sub").has_value());
    auto gone = moved ? files.rename(dir / "sub", dir / "away") : files.remove_directory(dir / "sub");
    ASSERT_TRUE(gone.has_value());
    PH_EXPECT_SOON(loop, watched.saw(dir / "sub", ""));
    watched.seen.clear();
  }
  ASSERT_TRUE(files.make_directories(dir / "sub").has_value());
  ASSERT_TRUE(watched.watcher->add(dir / "sub").has_value());
  write_file(dir / "away/x", "");
  write_file(dir / "sub/y", "");
  PH_EXPECT_SOON(loop, watched.saw(dir / "sub", "y"));
  EXPECT_FALSE(watched.saw(dir / "sub", "x")) << "what was moved away is not followed under its old name";
}

TEST_F(Files, watcher_is_silent_after_remove) {
  IoLoop loop;
  Watched watched(loop);
  ASSERT_TRUE(files.make_directories(dir / "one").has_value());
  ASSERT_TRUE(files.make_directories(dir / "two").has_value());
  ASSERT_TRUE(watched.watcher->add(dir / "one").has_value());
  ASSERT_TRUE(watched.watcher->add(dir / "two").has_value());
  write_file(dir / "one/x", "");
  watched.watcher->remove(dir / "one");
  write_file(dir / "two/y", "");
  PH_EXPECT_SOON(loop, watched.saw(dir / "two", "y"));
  EXPECT_FALSE(watched.saw(dir / "one", "x"));
}

TEST_F(Files, watcher_may_be_destroyed_by_its_own_callback) {
  IoLoop loop;
  std::unique_ptr<IoWatcher> watcher;
  auto made = IoWatcher::make(loop, [&](const auto&) { watcher.reset(); });
  ASSERT_TRUE(made.has_value());
  watcher = std::move(*made);
  ASSERT_TRUE(watcher->add(dir.path()).has_value());
  write_file(dir / "x", "");
  PH_EXPECT_SOON(loop, watcher == nullptr);
}

}  // namespace
}  // namespace ph::io
