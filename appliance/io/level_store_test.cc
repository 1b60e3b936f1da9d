#include "io/level_store.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/coding.h"
#include "io/test_files.h"

#if defined(__SANITIZE_THREAD__)
// LevelDB reads its lock-free list while one thread adds to it; the packaged library is not instrumented, so that the
// sanitizer sees the accesses and not the atomics that order them.
extern "C" const char* __tsan_default_suppressions();  // NOLINT: the sanitizer's name
extern "C" const char* __tsan_default_suppressions() {
  return "race:libleveldb\ncalled_from_lib:libleveldb.so\n";
}
#endif

namespace ph::io {
namespace {

std::unique_ptr<LevelStore> open_store(const std::string& path) {
  auto store = LevelStore::open(path);
  EXPECT_TRUE(store.has_value()) << store.error().to_string();
  return store ? std::move(*store) : nullptr;
}

port::WriteBatch put(std::string key, std::string value) {
  port::WriteBatch batch;
  batch.put(std::move(key), std::move(value));
  return batch;
}

std::string key_of(uint64_t number) {
  std::string key = "s/";
  put_key(key, number);
  return key;
}

/// The only file in `path` whose name ends so; the newest by name if there are several.
std::string file_ending(const std::string& path, std::string_view end) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().string().ends_with(end)) found = std::max(found, entry.path().string());
  EXPECT_FALSE(found.empty()) << end;
  return found;
}

TEST(LevelStore, keeps_batches_across_reopening) {
  TemporaryDirectory dir;
  {
    auto store = open_store(dir / "db");
    port::WriteBatch batch;
    batch.put("a/1", "one");
    batch.put("a/2", std::string("\0two", 4));
    batch.put("b/1", "other");
    batch.put("a/3", "gone");
    batch.remove("a/3");
    ASSERT_TRUE(store->write(batch, true).has_value());
  }
  auto store = open_store(dir / "db");
  EXPECT_EQ(store->get("a/1").value(), "one");
  EXPECT_EQ(store->get("a/3").value(), std::nullopt);
  std::vector<std::string> seen;
  ASSERT_TRUE(store
                  ->scan("a/",
                         [&](ByteView key, ByteView value) {
                           seen.push_back(std::string(key) + "=" + std::string(value));
                           return true;
                         })
                  .has_value());
  EXPECT_EQ(seen, (std::vector<std::string>{"a/1=one", std::string("a/2=\0two", 8)}));
  int visits = 0;
  ASSERT_TRUE(store->scan("", [&](ByteView, ByteView) { return ++visits < 2; }).has_value());
  EXPECT_EQ(visits, 2) << "the visitor stops the scan";
}

TEST(LevelStore, loses_nothing_synced_when_the_process_is_killed) {
  TemporaryDirectory dir;
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  pid_t writer = ::fork();
  ASSERT_GE(writer, 0);
  if (writer == 0) {
    auto store = LevelStore::open(dir / "db");
    if (!store) ::_exit(1);
    for (uint64_t i = 0;; ++i) {
      if (!(*store)->write(put(key_of(i), std::string(300, static_cast<char>('a' + i % 26))), true)) ::_exit(2);
      if (::write(told[1], &i, sizeof i) != sizeof i) ::_exit(3);
    }
  }
  ::close(told[1]);
  uint64_t acknowledged = 0;
  while (acknowledged < 500) ASSERT_EQ(::read(told[0], &acknowledged, sizeof acknowledged), 8);
  ::kill(writer, SIGKILL);
  ASSERT_EQ(::waitpid(writer, nullptr, 0), writer);
  while (::read(told[0], &acknowledged, sizeof acknowledged) == 8) {
  }
  ::close(told[0]);
  auto store = open_store(dir / "db");
  ASSERT_NE(store, nullptr);
  for (uint64_t i = 0; i <= acknowledged; ++i)
    ASSERT_EQ(store->get(key_of(i)).value(), std::string(300, static_cast<char>('a' + i % 26))) << i;
}

TEST(LevelStore, without_its_journal_a_torn_last_record_is_cut_and_what_was_before_stays) {
  TemporaryDirectory dir;
  {
    auto store = open_store(dir / "db");
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(store->write(put(key_of(i), "value"), true).has_value());
  }
  std::string log = file_ending(dir / "db", ".log");
  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 3);
  std::filesystem::remove_all(dir / "db.journal");
  auto store = open_store(dir / "db");
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->get(key_of(8)).value(), "value");
  EXPECT_EQ(store->get(key_of(9)).value(), std::nullopt);
}

TEST(LevelStore, without_its_journal_a_flipped_bit_in_the_log_is_damage_with_the_path_and_nothing_is_skipped) {
  TemporaryDirectory dir;
  {
    auto store = open_store(dir / "db");
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(store->write(put(key_of(i), "value"), true).has_value());
  }
  std::string log = file_ending(dir / "db", ".log");
  std::string bytes = read_file(log);
  bytes[bytes.size() / 2] ^= 0x10;
  write_file(log, bytes);
  std::filesystem::remove_all(dir / "db.journal");
  auto store = LevelStore::open(dir / "db");
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, store_errors::damaged);
  EXPECT_NE(store.error().detail.find(dir / "db"), std::string::npos) << store.error().detail;
}

TEST(LevelStore, a_flipped_bit_in_a_table_is_damage_when_it_is_read) {
  TemporaryDirectory dir;
  {
    auto store = open_store(dir / "db");
    for (uint64_t i = 0; i < 3000; ++i)
      ASSERT_TRUE(store->write(put(key_of(i), std::string(1000, static_cast<char>(i))), false).has_value());
  }
  {
    auto again = open_store(dir / "db");
  }  // what was in the log is in tables now
  std::string table = file_ending(dir / "db", ".ldb");
  std::string bytes = read_file(table);
  bytes[bytes.size() / 3] ^= 0x01;
  write_file(table, bytes);
  auto store = LevelStore::open(dir / "db");
  Result<> scanned;
  if (store) {
    scanned = (*store)->scan("", [](ByteView, ByteView) { return true; });
    ASSERT_FALSE(scanned.has_value());
    EXPECT_EQ(scanned.error().code, store_errors::damaged);
  } else {
    EXPECT_EQ(store.error().code, store_errors::damaged);
  }
}

TEST(LevelStore, a_missing_file_is_damage_not_an_empty_store) {
  for (std::string victim : {"CURRENT", ".ldb", "MANIFEST"}) {
    SCOPED_TRACE(victim);
    TemporaryDirectory dir;
    {
      auto store = open_store(dir / "db");
      ASSERT_TRUE(store->write(put("n/id", "1"), true).has_value());
    }
    {
      auto again = open_store(dir / "db");
    }
    for (const auto& entry : std::filesystem::directory_iterator(dir / "db"))
      if (entry.path().string().find(victim) != std::string::npos) std::filesystem::remove(entry.path());
    auto store = LevelStore::open(dir / "db");
    ASSERT_FALSE(store.has_value());
    EXPECT_TRUE(store.error().code == store_errors::damaged || victim == "MANIFEST") << store.error().to_string();
  }
}

TEST(LevelStore, says_who_holds_it) {
  TemporaryDirectory dir;
  auto store = open_store(dir / "db");
  auto second = LevelStore::open(dir / "db");
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, store_errors::locked);
  EXPECT_NE(second.error().detail.find("another posthouse uses this data_dir"), std::string::npos);
  pid_t other = ::fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    auto third = LevelStore::open(dir / "db");
    ::_exit(!third && third.error().code == store_errors::locked ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(LevelStore, reads_while_another_thread_writes) {
  TemporaryDirectory dir;
  auto store = open_store(dir / "db");
  std::atomic<uint64_t> written{0};
  std::thread writer([&] {
    for (uint64_t i = 1; i <= 2000; ++i) {
      port::WriteBatch batch;
      batch.put("x", std::to_string(i));
      batch.put("y", std::to_string(i));
      EXPECT_TRUE(store->write(batch, i % 100 == 0).has_value());
      written = i;
    }
  });
  while (written < 2000) {
    uint64_t before = written;
    auto value = store->get("x");
    EXPECT_TRUE(value.has_value());
    if (before > 0) {
      EXPECT_GE(std::stoull(value->value()), before);
    }
    std::vector<std::string> pair;
    EXPECT_TRUE(store->scan("", [&](ByteView, ByteView v) { return pair.emplace_back(v), true; }).has_value());
    if (pair.size() == 2) {
      EXPECT_EQ(pair[0], pair[1]) << "a scan sees whole batches";
    }
  }
  writer.join();
}

TEST(LevelStore, survives_a_full_disk_and_writes_again_when_there_is_room) {
  TemporaryDirectory dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=48m") != 0) GTEST_SKIP() << "cannot mount a tmpfs";
  {
    auto store = open_store(dir / "db");
    ASSERT_TRUE(store->write(put("first", "1"), true).has_value());
    write_file(dir / "ballast", std::string(44 << 20, 'x'));
    uint64_t accepted = 0;
    Result<> failed;
    for (uint64_t i = 0; i < 100'000 && failed; ++i) {
      failed = store->write(put(key_of(i), std::string(4000, 'v')), true);
      if (failed) accepted = i;
    }
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code, store_errors::no_space) << failed.error().to_string();
    auto again = store->write(put("second", "2"), true);
    ASSERT_FALSE(again.has_value()) << "nothing may follow half a record";
    EXPECT_EQ(again.error().code, store_errors::no_space);
    EXPECT_EQ(store->get("first").value(), "1") << "reads go on";
    std::filesystem::remove(dir / "ballast");
    ASSERT_TRUE(store->write(put("third", "3"), true).has_value());
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(store->get("first").value(), "1");
      EXPECT_EQ(store->get("third").value(), "3");
      EXPECT_EQ(store->get("second").value(), std::nullopt);
      for (uint64_t i = 0; i <= accepted; ++i) ASSERT_TRUE(store->get(key_of(i)).value().has_value()) << i;
      store.reset();
      store = open_store(dir / "db");
    }
  }
  EXPECT_EQ(::umount(dir.path().c_str()), 0);
}

}  // namespace
}  // namespace ph::io
